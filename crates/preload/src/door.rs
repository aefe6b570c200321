//! The door of this process: requests that go past the mount do not pass the mount's.

use std::sync::OnceLock;
use stripewise_control::Door;
use stripewise_store::Pool;

/// Makes a door for requests on the files of a pool. What gate and observers share with other processes stands in files
/// below the pool's namespace.
pub type DoorMaker = fn(&Pool) -> Door;

static MAKER: OnceLock<DoorMaker> = OnceLock::new();

/// Has all requests that go past the mount pass the door that `make` makes. It is made when the first file of the pool is
/// opened; `false`: another was installed before.
///
/// Gate and observers run inside any program, under the rules of this crate: they may be called in a signal handler and
/// between `fork` and `exec`, so that they take no lock and allocate nothing, and make system calls by themselves, not through
/// a function of libc that this library wraps.
pub fn install_door(make: DoorMaker) -> bool {
    MAKER.set(make).is_ok()
}

/// The door for `pool`; an empty one when none is installed.
pub(crate) fn door(pool: &Pool) -> Door {
    MAKER.get().map_or_else(Door::default, |make| make(pool))
}
