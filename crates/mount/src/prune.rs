//! Asks the kernel to drop inodes of which it knows more than there is room for ([`crate::room`]).

use std::io::IoSlice;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;

use crate::core::Core;
use crate::sync::atomic::Ordering;
use crate::sync::thread;

/// Inodes that one message names.
const MESSAGE_INODES: usize = 512;
/// How long to wait for the kernel's answers, and for programs to close what they use.
const PAUSE: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(256));

/// Linux, `include/uapi/linux/fuse.h`.
const FUSE_NOTIFY_PRUNE: u32 = 9;

/// Starts the thread that asks the kernel by way of `device`.
///
/// # Errors
/// Those of starting a thread, and of duplicating a descriptor.
pub fn start(core: &Arc<Core>, device: impl AsFd) -> std::io::Result<()> {
    let (core, device) = (core.clone(), device.as_fd().try_clone_to_owned()?);
    // Asked about nothing, a kernel that can be asked says that it is all right.
    if ask(&device, &[]).is_err() {
        return Ok(());
    }
    core.table.room.prunes.store(true, Ordering::Relaxed);
    thread::Builder::new().name("prune".to_owned()).spawn(move || {
        let room = &core.table.room;
        while room.wait() {
            let mut pause = PAUSE.0;
            loop {
                let excess = room.excess_per_mille();
                if excess == 0 || room.has_ended() {
                    break;
                }
                let before = room.known();
                for inodes in core.table.oldest(excess).chunks(MESSAGE_INODES) {
                    // A kernel that has ended the connection has dropped them all.
                    let _ = ask(&device, inodes);
                }
                // The references come back by forget, which other threads serve.
                thread::sleep(pause);
                pause = if room.known() < before { PAUSE.0 } else { (pause * 2).min(PAUSE.1) };
            }
        }
    })?;
    Ok(())
}

/// Asks the kernel to drop those of `inodes` that are in no use.
fn ask(device: &OwnedFd, inodes: &[u64]) -> Result<(), Errno> {
    let bytes: Vec<u8> = inodes.iter().flat_map(|ino| ino.to_ne_bytes()).collect();
    // fuse_out_header (length, code, no request) and fuse_notify_prune_out (count, padding, spare).
    let mut head = Vec::with_capacity(32);
    head.extend((32 + bytes.len() as u32).to_ne_bytes());
    head.extend(FUSE_NOTIFY_PRUNE.to_ne_bytes());
    head.extend(0_u64.to_ne_bytes());
    head.extend((inodes.len() as u32).to_ne_bytes());
    head.extend([0; 12]);
    rustix::io::writev(device, &[IoSlice::new(&head), IoSlice::new(&bytes)]).map(drop)
}
