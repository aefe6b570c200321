//! Lingering: a thread that has answered looks for the next request for a moment before it sleeps.
//!
//! Each small request waits for two processors to wake up: that of the mount and that of the program. In many virtual
//! machines this is most of its cost, and a thread that is still awake when the next request comes saves one of the
//! two. Where processors wake up fast, the awake thread is only in the program's way. A machine can change between the
//! two by the hour, so the mount tries it: it measures the time from one request to the next first without lingering,
//! then with it, and keeps the better of the two for a while.
//!
//! One thread of a mount lingers at a time, for [`LONGEST`] at most. Looking in vain costs a processor's time, so a few
//! times in vain end it until the next trial: a mount whose programs take their time between requests hardly lingers.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Somewhat longer than a program takes to wake up, look at the answer and ask again.
const LONGEST: Duration = Duration::from_micros(60);

/// A request that takes longer has waited for something, and the program is in no hurry.
const SHORT_REQUEST: Duration = Duration::from_micros(120);

/// Give up after this many consecutive misses.
const MOST_IN_VAIN: u32 = 3;

/// A trial serves [`WITHOUT`] requests without lingering and then [`WITH`] with it, and measures the last [`MEASURED`]
/// of each. Processors, and the scheduler that chooses them, take a while to get used to the sleep of all threads.
const WITHOUT: usize = 160;
const WITH: usize = 48;
const MEASURED: usize = 32;

/// Share of the time from one request to the next that lingering has to save: it costs processor time.
const LEAST_GAIN: f64 = 0.2;

/// Requests for which a result stays valid; doubled each time it is confirmed, up to the most.
const LEAST_REQUESTS: u32 = 1 << 10;
const MOST_REQUESTS: u32 = 1 << 16;

/// Looks for requests on the descriptor that they come by.
#[derive(Debug, Default)]
pub struct Linger {
    requests: OnceLock<Requests>,
    /// A thread lingers now.
    busy: AtomicBool,
    /// How often in a row it was in vain.
    in_vain: AtomicU32,
    /// The last trial's outcome, and for how many requests more it holds. Threads may count one twice or not at all.
    pays: AtomicBool,
    holds: AtomicU32,
    /// When the last request was taken, in nanoseconds since `Requests::since`.
    taken_ns: AtomicU64,
    trial: Mutex<Trial>,
}

#[derive(Debug)]
struct Requests {
    device: OwnedFd,
    since: Instant,
}

/// Both ways, one after the other.
#[derive(Debug, Default)]
struct Trial {
    /// Answers so far.
    answers: usize,
    /// Nanoseconds from one request to the next: without lingering between them, and with it.
    gaps_ns: [Vec<u64>; 2],
    /// The last outcome, and for how many requests it held.
    last: Option<(bool, u32)>,
}

impl Trial {
    /// Takes the time from the last request to this one and chooses the way after it; `Err`: the outcome, in the end.
    /// Then it sorts a few dozen numbers, else it is a few instructions.
    fn next(&mut self, gap_ns: u64) -> Result<bool, bool> {
        let measured = |last: usize| (last - MEASURED + 1..=last).contains(&self.answers);
        if measured(WITHOUT) {
            self.gaps_ns[0].push(gap_ns);
        } else if measured(WITHOUT + WITH) {
            self.gaps_ns[1].push(gap_ns);
        }
        if self.answers == WITHOUT + WITH {
            let [without_ns, with_ns] = self.gaps_ns.each_mut().map(|gaps| {
                gaps.sort_unstable();
                gaps[gaps.len() / 2] as f64
            });
            return Err(with_ns < without_ns * (1.0 - LEAST_GAIN));
        }
        self.answers += 1;
        Ok(self.answers > WITHOUT)
    }

    /// Ends the trial; for how many requests its outcome holds.
    fn end(&mut self, pays: bool) -> u32 {
        let holds = match self.last {
            Some((last, held)) if last == pays => (2 * held).min(MOST_REQUESTS),
            _ => LEAST_REQUESTS,
        };
        *self = Trial { last: Some((pays, holds)), ..Trial::default() };
        holds
    }
}

impl Linger {
    /// From now on looks for requests on `device`. Not where there is one processor: the program needs it.
    pub fn watch(&self, device: BorrowedFd<'_>) {
        if std::thread::available_parallelism().is_ok_and(|processors| processors.get() > 1)
            && let Ok(device) = device.try_clone_to_owned()
        {
            // Set once, when the mount starts.
            let _ = self.requests.set(Requests { device, since: Instant::now() });
        }
    }

    /// Looks for the next request, for a moment and if that pays. To be called when a request is answered that was
    /// taken at `began` and took `service`, with no lock held. A few atomic operations; a lock during trials, which are
    /// 208 requests in more than a thousand, and no thread waits for it.
    pub fn linger(&self, began: Instant, service: Duration) {
        let Some(requests) = self.requests.get().filter(|_| service < SHORT_REQUEST) else { return };
        let began_ns = began.duration_since(requests.since).as_nanos() as u64;
        let before_ns = self.taken_ns.swap(began_ns, Ordering::Relaxed);
        if self.chooses(began_ns.saturating_sub(before_ns)) && !self.busy.swap(true, Ordering::Acquire) {
            let came = comes_within(&requests.device, LONGEST);
            self.busy.store(false, Ordering::Release);
            self.count(came);
        }
    }

    /// Whether a request has come that no thread has taken. A system call.
    pub fn has_come(&self) -> bool {
        self.requests.get().is_some_and(|requests| comes_within(&requests.device, Duration::ZERO))
    }

    /// Whether to linger now.
    fn chooses(&self, gap_ns: u64) -> bool {
        let holds = self.holds.load(Ordering::Relaxed);
        if holds > 0 {
            self.holds.store(holds - 1, Ordering::Relaxed);
            return self.pays.load(Ordering::Relaxed);
        }
        let Ok(mut trial) = self.trial.try_lock() else { return false };
        trial.next(gap_ns).unwrap_or_else(|pays| {
            self.settle(&mut trial, pays);
            pays
        })
    }

    fn count(&self, came: bool) {
        if came {
            self.in_vain.store(0, Ordering::Relaxed);
        } else if self.in_vain.fetch_add(1, Ordering::Relaxed) + 1 >= MOST_IN_VAIN
            && let Ok(mut trial) = self.trial.try_lock()
        {
            self.settle(&mut trial, false);
        }
    }

    fn settle(&self, trial: &mut Trial, pays: bool) {
        self.in_vain.store(0, Ordering::Relaxed);
        self.pays.store(pays, Ordering::Relaxed);
        self.holds.store(trial.end(pays), Ordering::Relaxed);
    }
}

/// Whether a request comes within that time. It is left for the thread to read.
fn comes_within(device: &OwnedFd, longest: Duration) -> bool {
    let began = Instant::now();
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    let mut asked = [PollFd::new(device, PollFlags::IN)];
    loop {
        // An error is the end of the mount, which the read says too.
        if poll(&mut asked, Some(&at_once)) != Ok(0) {
            return true;
        }
        if began.elapsed() > longest {
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
        linger.watch(reader.as_fd());
        // Also where there is one processor.
        let device = reader.as_fd().try_clone_to_owned().unwrap();
        linger.requests.get_or_init(|| Requests { device, since: Instant::now() });
        (linger, writer)
    }

    /// Serves requests until the trial is over, each `gap(lingers)` nanoseconds after the last answer; its outcome and
    /// for how many requests it holds.
    fn tried(linger: &Linger, gap_ns: impl Fn(bool) -> u64) -> (bool, u32) {
        let mut lingers = false;
        while linger.holds.load(Ordering::Relaxed) == 0 {
            lingers = linger.chooses(gap_ns(lingers));
        }
        (linger.pays.load(Ordering::Relaxed), linger.holds.load(Ordering::Relaxed))
    }

    #[test]
    fn the_way_after_which_requests_come_sooner_holds() {
        let linger = Linger::default();
        let slow_to_wake = |lingers| if lingers { 10_000 } else { 50_000 };
        assert_eq!(tried(&linger, slow_to_wake), (true, LEAST_REQUESTS));
        let in_the_way = |lingers| if lingers { 10_000 } else { 7_000 };
        linger.holds.store(0, Ordering::Relaxed);
        assert_eq!(tried(&linger, in_the_way), (false, LEAST_REQUESTS));
        linger.holds.store(0, Ordering::Relaxed);
        assert_eq!(tried(&linger, |_| 10_000), (false, 2 * LEAST_REQUESTS), "nothing gained is not worth a processor");
        for _ in 0..20 {
            linger.holds.store(0, Ordering::Relaxed);
            tried(&linger, in_the_way);
        }
        linger.holds.store(0, Ordering::Relaxed);
        assert_eq!(tried(&linger, in_the_way), (false, MOST_REQUESTS));
    }

    #[test]
    fn an_outcome_holds_for_as_many_requests_as_it_says() {
        let linger = Linger::default();
        let (pays, holds) = tried(&linger, |lingers| if lingers { 1 } else { 9 });
        assert!(pays);
        assert!((0..holds).all(|_| linger.chooses(1)));
        assert_eq!(linger.holds.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn looking_in_vain_ends_it() {
        let (linger, mut writer) = lingering();
        let answer = || linger.linger(Instant::now(), Duration::ZERO);
        let requests = (0..).take_while(|_| {
            answer();
            linger.holds.load(Ordering::Relaxed) == 0
        });
        assert_eq!(requests.count(), WITHOUT + MOST_IN_VAIN as usize - 1);
        assert!(!linger.pays.load(Ordering::Relaxed));

        // While requests come it goes on.
        linger.holds.store(100, Ordering::Relaxed);
        linger.pays.store(true, Ordering::Relaxed);
        answer();
        answer();
        writer.write_all(b"request").unwrap();
        (0..50).for_each(|_| answer());
        assert!(linger.pays.load(Ordering::Relaxed));
        assert_eq!(linger.holds.load(Ordering::Relaxed), 48);
    }

    #[test]
    fn a_mount_that_has_not_begun_does_not_linger() {
        Linger::default().linger(Instant::now(), Duration::ZERO);
    }
}
