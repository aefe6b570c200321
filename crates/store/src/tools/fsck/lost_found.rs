//! `lost+found`: where bytes go that no file names, under names that say what they are.
//!
//! ```text
//! SERVER/lost+found/orphan-HANDLE.GENERATION     a datafile of which no file had the handle
//!                   leftover-HANDLE.GENERATION   the file had no datafile of that generation there
//!                   unlisted-HANDLE.GENERATION   the file's handle did not list it
//! ```
//! Should the file that it belongs to come back, an orphan is taken back from there.

use crate::backend::{Backend, KEPT};
use crate::format::placement::DatafileKey;
use crate::os::error::{Error, Result};
use rustix::io::Errno;

fn name(kind: &str, key: DatafileKey) -> String {
    let DatafileKey { handle, generation } = key;
    format!("{KEPT}/{kind}-{handle:016x}.{generation:08x}")
}

/// What is said of a datafile that goes there as `kind`.
pub(super) fn action(kind: &str, key: DatafileKey) -> String {
    format!("kept as {}", name(kind, key))
}

/// Moves the datafile that stands in its place, or at `from`, into `lost+found` as `kind-HANDLE.GENERATION`, with a
/// number behind it if that name is taken.
pub(super) fn keep(backend: &dyn Backend, key: DatafileKey, from: Option<&str>, kind: &str) -> Result<()> {
    let base = name(kind, key);
    for number in 1.. {
        let kept = if number == 1 { base.clone() } else { format!("{base}.{number}") };
        match backend.upkeep().keep(key, from, &kept) {
            Err(Errno::EXIST) => {}
            done => return done.map_err(Error::io("make", kept)),
        }
    }
    unreachable!("numbers do not end")
}

/// Whether an earlier check kept that datafile as an orphan.
pub(super) fn has(backend: &dyn Backend, key: DatafileKey) -> bool {
    backend.upkeep().has_kept(&name("orphan", key))
}

/// Puts an orphan back to its place, which is free.
pub(super) fn take_back(backend: &dyn Backend, key: DatafileKey) -> Result<()> {
    let from = name("orphan", key);
    backend.upkeep().put_right(key, &from).map_err(Error::io("take back", from))
}
