//! The clock, and one sleep to an absolute deadline that ends when it should.

use std::cell::Cell;
use std::num::NonZeroU64;

use rustix::thread::{ClockId, clock_nanosleep_absolute, current_timer_slack, set_current_timer_slack};
use rustix::time::{Timespec, clock_gettime};

/// Slice that threads which sleep here ask for. Below the kernel's default (0.7 ms on one processor, more on several), so
/// that a woken thread preempts a spinning one; above the real I/O of a request (0.2 ms for 512 KiB in the page cache), so
/// that woken threads do not preempt each other while they hold a datafile's lock: with 0.1 ms, the least that the
/// kernel grants, the slowest tenth of the writes of 16 processes took nearly twice as long.
const SLICE_NS: u64 = 500_000;

/// `struct sched_attr` of `sched_setattr(2)`, first version and utilisation clamps.
#[repr(C)]
#[derive(Default)]
struct SchedAttr {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime_ns: u64,
    deadline_ns: u64,
    period_ns: u64,
    util_min: u32,
    util_max: u32,
}

thread_local! {
    /// Whether this thread has asked for its short slice. Constant and without destructor: no allocation, no hook.
    static SLICE_ASKED: Cell<bool> = const { Cell::new(false) };
}

/// `CLOCK_MONOTONIC` in nanoseconds. Cost: one vDSO call, about 30 ns.
pub fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    (now.tv_sec as u64).saturating_mul(1_000_000_000).saturating_add(now.tv_nsec as u64)
}

/// Sleeps until `deadline_ns` of `CLOCK_MONOTONIC` and returns the time then; at once when it is past. A signal does not
/// end the sleep.
///
/// The timer slack (50 µs by default) is 1 ns for the time of the sleep. The thread keeps a short scheduler slice from its
/// first sleep on: a woken thread with a slice shorter than the running one's preempts it (Linux 6.12), otherwise
/// ranks that spin in a barrier delay the wake-up by milliseconds. Giving the slice back after each sleep would put the
/// thread behind the spinning ones again, at the cost of those same milliseconds.
///
/// Cost: three short system calls beside the sleep; two more on a thread's first call.
pub fn sleep_until(deadline_ns: u64) -> u64 {
    let mut now = now_ns();
    if now >= deadline_ns {
        return now;
    }
    ask_for_short_slice();
    let slack_ns = current_timer_slack().ok().and_then(NonZeroU64::new);
    let _ = set_current_timer_slack(Some(NonZeroU64::MIN));
    let deadline =
        Timespec { tv_sec: (deadline_ns / 1_000_000_000) as i64, tv_nsec: (deadline_ns % 1_000_000_000) as i64 };
    while now < deadline_ns {
        let _ = clock_nanosleep_absolute(ClockId::Monotonic, &deadline);
        now = now_ns();
    }
    if let Some(slack_ns) = slack_ns {
        let _ = set_current_timer_slack(Some(slack_ns));
    }
    now
}

/// Asks once per thread, and only in the default policy: others have their own rules. An older kernel ignores it; one
/// that refuses leaves the thread as it is.
fn ask_for_short_slice() {
    if SLICE_ASKED.replace(true) {
        return;
    }
    let size = size_of::<SchedAttr>() as u32;
    let mut attr = SchedAttr::default();
    // SAFETY: the kernel writes at most `size` bytes to `attr`, which is as long.
    let got = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attr, size, 0) };
    let default_policy = attr.policy == libc::SCHED_OTHER as u32;
    if got != 0 || !default_policy || (1..=SLICE_NS).contains(&attr.runtime_ns) {
        return;
    }
    attr.size = size;
    attr.runtime_ns = SLICE_NS;
    // Clamps are not touched: they are set only by flags that `sched_getattr` does not return.
    // SAFETY: `attr` is a valid `struct sched_attr` of `attr.size` bytes, which the kernel only reads.
    unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attr, 0) };
}
