//! How soon threads that serve get a processor.

use rustix::process::{getpriority_process, setpriority_process};

/// By how much a thread that goes before programs is less nice than the process: a tenth of a program's time counts for it.
const LESS_NICE: i32 = 10;

/// Has the calling thread go before programs, if it may: what several have asked for does not wait until none of them has anything else to
/// do, and a program that gets its answer does not take the processor from the thread that has the next answer to give. The niceness of
/// before, for [`go_beside_programs`]; `None` if it may not. Two system calls.
pub fn go_before_programs() -> Option<i32> {
    // Linux has a niceness of each thread. Only root makes it less.
    let nice = getpriority_process(None).ok()?;
    setpriority_process(None, nice - LESS_NICE).ok().map(|()| nice)
}

/// Undoes [`go_before_programs`], of a thread whose niceness was `nice`. A system call.
pub fn go_beside_programs(nice: i32) {
    // More niceness is every thread's right.
    let _ = setpriority_process(None, nice);
}
