//! How soon threads that serve get a processor.

use rustix::process::{getpriority_process, setpriority_process};

/// By how much a thread that goes before programs is less nice than the process: a tenth of a program's time counts for it.
const LESS_NICE: i32 = 10;

/// Has the calling thread go before programs, if it may: what several have asked for does not wait until none of them has anything else to
/// do, and a program that gets its answer does not take the processor from the thread that has the next answer to give. Whether it
/// may. Two system calls.
pub fn go_before_programs() -> bool {
    // Linux has a niceness of each thread. Only root makes it less.
    getpriority_process(None).is_ok_and(|nice| setpriority_process(None, nice - LESS_NICE).is_ok())
}

/// Undoes [`go_before_programs`], of a thread that did. Two system calls.
pub fn go_beside_programs() {
    if let Ok(nice) = getpriority_process(None) {
        // More niceness is every thread's right.
        let _ = setpriority_process(None, nice + LESS_NICE);
    }
}
