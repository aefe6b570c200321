//! The door of this process: requests that go past the mount do not pass the mount's.

use crate::environment::variable;
use std::ffi::CString;
use std::sync::OnceLock;
use stripewise_control::Door;
use stripewise_orchestrate::{Asker, Identified, Turns};
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

/// The door for `pool`: what is installed, else the gate of turns, if the pool was ever orchestrated.
pub(crate) fn door(pool: &Pool) -> Door {
    MAKER.get().map_or_else(|| turns(pool), |make| make(pool))
}

/// The gate of turns of this process's program. A program's terminal is its own: that no orchestrator answers is counted in
/// the page of programs, and not said here.
fn turns(pool: &Pool) -> Door {
    let set = |name: &str| variable(&CString::new(name).ok()?).map(<[u8]>::to_vec);
    let turns = Turns::open(pool, || Asker::Own(Identified::this_process(set)), |_| {});
    turns.map_or_else(Door::default, |turns| turns.install(Door::default()))
}
