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
    let size = size_of::<SchedAttr>();
    let mut attr = SchedAttr::default();
    // SAFETY: thread 0 is the calling one; the kernel writes at most `size` bytes to `attr`, which is as long.
    let got = unsafe { system_call(libc::SYS_sched_getattr, [0, (&raw mut attr).expose_provenance(), size, 0]) };
    let default_policy = attr.policy == libc::SCHED_OTHER as u32;
    if got != 0 || !default_policy || (1..=SLICE_NS).contains(&attr.runtime_ns) {
        return;
    }
    attr.size = size as u32;
    attr.runtime_ns = SLICE_NS;
    // Clamps are not touched: they are set only by flags that `sched_getattr` does not return.
    // SAFETY: `attr` is a valid `struct sched_attr` of `attr.size` bytes, which the kernel only reads.
    unsafe { system_call(libc::SYS_sched_setattr, [0, (&raw const attr).expose_provenance(), 0, 0]) };
}

/// A system call that rustix has no function for. Not by libc's `syscall`, which the preload wraps.
///
/// # Safety
/// As for the system call: pointers among the arguments must be valid for what it does with them.
#[cfg(target_arch = "x86_64")]
unsafe fn system_call(number: libc::c_long, arguments: [usize; 4]) -> isize {
    let result: isize;
    // SAFETY: the kernel's calling convention: it changes rax, rcx and r11 only, and memory as the caller vouches for.
    unsafe {
        std::arch::asm!(
            "syscall",
            inlateout("rax") number as isize => result,
            in("rdi") arguments[0],
            in("rsi") arguments[1],
            in("rdx") arguments[2],
            in("r10") arguments[3],
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    result
}

/// A system call that rustix has no function for. Not by libc's `syscall`, which the preload wraps.
///
/// # Safety
/// As for the system call: pointers among the arguments must be valid for what it does with them.
#[cfg(target_arch = "aarch64")]
unsafe fn system_call(number: libc::c_long, arguments: [usize; 4]) -> isize {
    let result: isize;
    // SAFETY: the kernel's calling convention: it changes x0 only, and memory as the caller vouches for.
    unsafe {
        std::arch::asm!(
            "svc 0",
            in("x8") number,
            inlateout("x0") arguments[0] => result,
            in("x1") arguments[1],
            in("x2") arguments[2],
            in("x3") arguments[3],
            options(nostack),
        );
    }
    result
}

/// On other processors threads keep their slices: wake-ups beside spinning ranks are later there, and the emulation error
/// says so.
///
/// # Safety
/// None is needed.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
unsafe fn system_call(_number: libc::c_long, _arguments: [usize; 4]) -> isize {
    -1
}
