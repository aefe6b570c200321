//! Lingering: a thread that has answered looks for the next request for a moment before it sleeps.
//!
//! A program that reads or writes request after request waits twice for a processor to wake up in each of them: ours, and
//! its own. That is most of what a small request costs, more so in a virtual machine. Whoever answered and is still awake
//! when the next request comes saves one of the two.
//!
//! One thread of a mount lingers at a time, for [`LONGEST`] at most. Looking in vain costs a processor's time, so each time
//! in vain doubles the number of requests until it is tried again: a mount whose programs take their time between
//! requests soon does not linger at all.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Somewhat longer than a program takes to wake up, look at the answer and ask again.
const LONGEST: Duration = Duration::from_micros(60);

/// A request that takes longer is more bytes than a program asks for in a hurry, and they are better moved by the processor
/// that has them in its cache: that on which the program ran.
const SHORT_REQUEST: Duration = Duration::from_micros(40);

/// At least every 2^10 requests it is tried again.
const MOST_DOUBLINGS: u32 = 10;

/// Looks for requests on the descriptor that they come by.
#[derive(Debug, Default)]
pub struct Linger {
    requests: OnceLock<OwnedFd>,
    /// A thread lingers now.
    busy: AtomicBool,
    /// How often in a row it was in vain.
    in_vain: AtomicU32,
    /// How many requests to let pass before it is tried again. Threads may count one twice or not at all.
    pass: AtomicU32,
}

impl Linger {
    /// From now on looks for requests on `device`. Not where there is one processor: the program needs it.
    pub fn watch(&self, device: BorrowedFd<'_>) {
        if std::thread::available_parallelism().is_ok_and(|processors| processors.get() > 1)
            && let Ok(device) = device.try_clone_to_owned()
        {
            // Set once, when the mount starts.
            let _ = self.requests.set(device);
        }
    }

    /// Looks for the next request, for a moment and if that has paid lately. To be called when a request is answered
    /// that took `service`, with no lock held. One or two atomic loads where it has not paid.
    pub fn linger(&self, service: Duration) {
        let Some(requests) = self.requests.get().filter(|_| service < SHORT_REQUEST) else { return };
        let pass = self.pass.load(Ordering::Relaxed);
        if pass > 0 {
            self.pass.store(pass - 1, Ordering::Relaxed);
            return;
        }
        if self.busy.swap(true, Ordering::Acquire) {
            return;
        }
        if comes_soon(requests) {
            self.in_vain.store(0, Ordering::Relaxed);
        } else {
            let doublings = (self.in_vain.load(Ordering::Relaxed) + 1).min(MOST_DOUBLINGS);
            self.in_vain.store(doublings, Ordering::Relaxed);
            self.pass.store((1 << doublings) - 1, Ordering::Relaxed);
        }
        self.busy.store(false, Ordering::Release);
    }
}

/// Whether a request comes within [`LONGEST`]. It is left for the thread to read.
fn comes_soon(requests: &OwnedFd) -> bool {
    let began = Instant::now();
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    let mut asked = [PollFd::new(requests, PollFlags::IN)];
    loop {
        // An error is the end of the mount, which the read says too.
        if poll(&mut asked, Some(&at_once)) != Ok(0) {
            return true;
        }
        if began.elapsed() > LONGEST {
            return false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::fd::AsFd;

    fn lingering() -> (Linger, std::io::PipeWriter) {
        let (reader, writer) = std::io::pipe().unwrap();
        let linger = Linger::default();
        linger.requests.set(reader.as_fd().try_clone_to_owned().unwrap()).unwrap();
        (linger, writer)
    }

    #[test]
    fn each_time_in_vain_doubles_the_requests_until_the_next() {
        let (linger, _writer) = lingering();
        let mut tried = Vec::new();
        for request in 0..40 {
            let before = linger.in_vain.load(Ordering::Relaxed);
            linger.linger(Duration::ZERO);
            if linger.in_vain.load(Ordering::Relaxed) != before {
                tried.push(request);
            }
        }
        assert_eq!(tried, [0, 2, 6, 14, 30]);
    }

    #[test]
    fn a_request_in_time_makes_the_next_one_worth_waiting_for() {
        let (linger, mut writer) = lingering();
        for _ in 0..3 {
            linger.linger(Duration::ZERO);
        }
        assert_eq!((linger.in_vain.load(Ordering::Relaxed), linger.pass.load(Ordering::Relaxed)), (2, 3));
        writer.write_all(b"request").unwrap();
        for _ in 0..4 {
            linger.linger(Duration::ZERO);
        }
        assert_eq!((linger.in_vain.load(Ordering::Relaxed), linger.pass.load(Ordering::Relaxed)), (0, 0));
    }

    #[test]
    fn a_mount_that_has_not_begun_does_not_linger() {
        Linger::default().linger(Duration::ZERO);
    }
}
