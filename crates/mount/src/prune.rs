//! Asks the kernel to drop inodes of which it knows more than there is room for ([`crate::room`]).

use std::sync::Arc;
use std::time::Duration;

use stripewise_fuse::Notifier;

use crate::core::Core;
use crate::sync::atomic::Ordering;
use crate::sync::thread;

/// Inodes that one message names.
const MESSAGE_INODES: usize = 512;
/// How long to wait for the kernel's answers, and for programs to close what they use.
const PAUSE: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(256));

/// Starts the thread that asks the kernel.
///
/// # Errors
/// Those of starting a thread.
pub fn start(core: &Arc<Core>, kernel: Notifier) -> std::io::Result<()> {
    let core = core.clone();
    // Asked about nothing, a kernel that can be asked says that it is all right.
    if kernel.prune(&[]).is_err() {
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
                    let _ = kernel.prune(inodes);
                }
                // The references come back by forget, which other threads serve.
                thread::sleep(pause);
                pause = if room.known() < before { PAUSE.0 } else { (pause * 2).min(PAUSE.1) };
            }
        }
    })?;
    Ok(())
}
