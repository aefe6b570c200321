//! The LD_PRELOAD library: records, and bypasses the mount for reads and writes.
//!
//! It is a fast path over the mount, not a second file system. The program holds the mount's own descriptors; what is
//! not caught here, or is in any way odd, goes to the mount, which is right, only slower. So every function below is
//! libc's own with something done before or after it, and the one state that could do harm, the table of descriptors
//! ([`table::TABLE`]), is cleared by everything that can close or replace a descriptor.
//!
//! Rules of this crate: no call by a name that it wraps (it would meet itself), no lock and no allocation on the way of
//! a request, nowhere a lock or the program's allocator ([`Memory`](stripewise_descriptors::Memory)) that a signal handler could wait for, no panic across
//! a function that C calls, `errno` as libc leaves it.
//!
//! | environment | effect |
//! |---|---|
//! | `STRIPEWISE_POOL` | pool file; files below its mount are served from their datafiles |
//! | `STRIPEWISE_MOUNT` | the mount point that the pool file names, so that it is read only when a placed file is opened |
//! | `STRIPEWISE_FILTERS` | how many seccomp filters there were before the program; with more the library does nothing |
//! | `STRIPEWISE_JOB`, `STRIPEWISE_RUN` | whose turn this process waits for, in a pool that is orchestrated |
//! | `STRIPEWISE_TRACE` | directory; what the program does to its files is recorded there |
//! | `STRIPEWISE_PROGRAM` | name of the program in the trace; else that of the executable |
//! | `STRIPEWISE_TRACE_EXCLUDE` | prefixes of paths not to record, separated by `:`, instead of the system's own |

mod bypass;
mod calls;
mod descriptors;
mod door;
mod environment;
mod fd;
mod mpi;
mod paths;
mod placed;
mod pool;
mod reach;
mod real;
mod recording;
mod runtime;
mod table;

pub use door::{DoorMaker, install_door};

#[global_allocator]
static MEMORY: stripewise_descriptors::Memory = stripewise_descriptors::Memory::new();

/// Runs when the library is loaded, before the program's own code (though other libraries may have called before).
#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = {
    extern "C" fn at_load() {
        real::resolve_all();
        runtime::get();
    }
    at_load
};
