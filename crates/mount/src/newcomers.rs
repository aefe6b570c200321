//! Has the kernel forget what it believes for long when another mount of the pool comes ([`crate::believed`]).

use std::sync::Arc;

use stripewise_fuse::Notifier;
use stripewise_store::neighbours::LONG;

use crate::core::Core;
use crate::sync::atomic::Ordering;
use crate::sync::thread;

/// Starts the thread that waits for other mounts, if the kernel can be made to ask for a name anew; without it nothing is believed
/// for long.
///
/// # Errors
/// Those of starting a thread.
pub fn start(core: &Arc<Core>, kernel: Notifier) -> std::io::Result<()> {
    if !core.expires_names.load(Ordering::Relaxed) {
        return Ok(());
    }
    let core = core.clone();
    thread::Builder::new().name("newcomers".to_owned()).spawn(move || {
        let neighbours = &core.neighbours;
        while neighbours.begin_to_believe() {
            core.believed.begin();
            if !neighbours.wait_for_newcomer() {
                return;
            }
            // A name or an inode that the kernel does not know any more is none that it believes.
            let all = core.believed.forget(|parent, name| {
                let _ = kernel.expire_name(parent, name);
            });
            for node in core.table.all() {
                let _ = kernel.forget_inode(node.ino, -1, 0);
            }
            if !all {
                thread::sleep(LONG);
            }
            neighbours.has_forgotten();
        }
    })?;
    Ok(())
}
