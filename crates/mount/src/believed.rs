//! The names that the kernel was told to believe for long, while this mount is the only way into the pool.
//!
//! When another comes, the kernel has to ask for all of them anew, and it takes them one by one, by directory and name. So they
//! are noted, one after the other, in a log of the present interval and one of the interval before; what stands in neither has
//! run out. A name that is not noted for want of room holds as short as beside other mounts.
//!
//! An answer may be on its way when another mount comes: each that can name something is counted from before it looks whether
//! the mount is alone until it is with the kernel ([`Believed::answer`]). The count is kept by *turns*, so that answers which began
//! later, and hold short, keep none from being waited for. A rename takes the time that its name holds along, so that it notes
//! the new name as long as any name can hold long ([`Believed::has_moved`]).

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::time::{Duration, Instant};

use stripewise_store::Neighbours;
use stripewise_store::neighbours::LONG;

use crate::lock;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use crate::sync::thread;

/// Most bytes of names in each of the two logs: some 300,000 names.
const MOST_BYTES: usize = 8 << 20;
/// Bytes before each name: the directory's number, the name's length.
const HEAD_BYTES: usize = 10;
/// How long an answer takes from the mount's reply until the kernel's thread that waits for it has noted how long it holds.
const ON_ITS_WAY: Duration = Duration::from_millis(100);
/// How soon is looked again whether answers have left.
const PAUSE: Duration = Duration::from_millis(1);

/// What the kernel believes for long.
#[derive(Debug, Default)]
pub struct Believed {
    /// Some name may hold long.
    any: AtomicBool,
    names: Mutex<NameLog>,
    turn: AtomicUsize,
    /// Answers under way, by the turn in which they began.
    answering: [AtomicUsize; 2],
}

/// Names in the order in which they were told.
#[derive(Debug, Default)]
struct NameLog {
    now: Vec<u8>,
    before: Vec<u8>,
    /// When the present interval began.
    since: Option<Instant>,
    /// The last that moved had no room: until it has run out, nothing is certain.
    lost_at: Option<Instant>,
}

/// An answer under way, until this is dropped.
#[derive(Debug)]
pub struct NamingAnswer<'a>(&'a AtomicUsize);

impl Drop for NamingAnswer<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Believed {
    /// An answer that may say for how long a name holds begins. Four atomic operations with its end.
    pub fn answer(&self) -> NamingAnswer<'_> {
        loop {
            let turn = self.turn.load(Ordering::SeqCst);
            let answering = &self.answering[turn % 2];
            answering.fetch_add(1, Ordering::SeqCst);
            let answer = NamingAnswer(answering);
            if self.turn.load(Ordering::SeqCst) == turn {
                return answer;
            }
        }
    }

    /// Whether the kernel may believe for [`LONG`] what it is told of `name` in the directory `parent`; it is noted then. Within an
    /// [`NamingAnswer`]. One short lock.
    pub fn note(&self, neighbours: &Neighbours, parent: u64, name: &OsStr) -> bool {
        neighbours.believes()
            && self.any.load(Ordering::SeqCst)
            && lock(&self.names).add(Instant::now(), parent, name, 1)
    }

    /// Notes where a name has moved that may hold long. Within an [`NamingAnswer`].
    pub fn has_moved(&self, parent: u64, name: &OsStr) {
        if self.any.load(Ordering::SeqCst) {
            let mut names = lock(&self.names);
            let now = Instant::now();
            if !names.add(now, parent, name, 2) {
                names.lost_at = Some(now);
            }
        }
    }

    /// From now on names may hold long.
    pub fn begin(&self) {
        self.any.store(true, Ordering::SeqCst);
    }

    /// Has the kernel ask for all names anew, by `expire` with each, after the mount was noticed not to be alone any more. Whether
    /// no name holds long then: of one there may have been no room to note it.
    pub fn forget(&self, expire: impl Fn(u64, &[u8])) -> bool {
        let before = self.turn.fetch_add(1, Ordering::SeqCst) % 2;
        while self.answering[before].load(Ordering::SeqCst) != 0 {
            thread::sleep(PAUSE);
        }
        thread::sleep(ON_ITS_WAY);
        loop {
            let mut names = lock(&self.names);
            if names.is_empty() {
                // Under the lock: a rename notes what it has moved before this, or moves what was made to be asked for.
                self.any.store(false, Ordering::SeqCst);
                let lost_at = std::mem::take(&mut *names).lost_at;
                return lost_at.is_none_or(|lost| lost.elapsed() > LONG + ON_ITS_WAY);
            }
            let (old, new) = (std::mem::take(&mut names.before), std::mem::take(&mut names.now));
            drop(names);
            each_name(&old, &expire);
            each_name(&new, &expire);
        }
    }
}

impl NameLog {
    fn is_empty(&self) -> bool {
        self.now.is_empty() && self.before.is_empty()
    }

    /// Adds a name if it has room in `shares` halves of what there is; whether it had.
    fn add(&mut self, now: Instant, parent: u64, name: &OsStr, shares: usize) -> bool {
        let since = *self.since.get_or_insert(now);
        if now.saturating_duration_since(since) > LONG {
            // What came in the interval before that has run out.
            std::mem::swap(&mut self.now, &mut self.before);
            self.now.clear();
            self.since = Some(now);
        }
        let name = name.as_bytes();
        let Ok(length) = u16::try_from(name.len()) else { return false };
        if self.now.len() + HEAD_BYTES + name.len() > MOST_BYTES / 2 * shares {
            return false;
        }
        if self.now.capacity() == 0 {
            // Once: memory that is not written takes none.
            self.now.reserve_exact(MOST_BYTES);
        }
        self.now.extend_from_slice(&parent.to_ne_bytes());
        self.now.extend_from_slice(&length.to_ne_bytes());
        self.now.extend_from_slice(name);
        true
    }
}

/// Calls `take` with each directory and name of `log`.
fn each_name(mut log: &[u8], take: impl Fn(u64, &[u8])) {
    while let Some((&head, rest)) = log.split_first_chunk::<HEAD_BYTES>() {
        let [p0, p1, p2, p3, p4, p5, p6, p7, l0, l1] = head;
        let (name, rest) = rest.split_at(u16::from_ne_bytes([l0, l1]).into());
        take(u64::from_ne_bytes([p0, p1, p2, p3, p4, p5, p6, p7]), name);
        log = rest;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    fn names(log: &[u8]) -> Vec<(u64, String)> {
        let found = RefCell::new(Vec::new());
        each_name(log, |parent, name| found.borrow_mut().push((parent, String::from_utf8(name.to_vec()).unwrap())));
        found.into_inner()
    }

    #[test]
    fn a_name_stays_noted_until_it_has_run_out() {
        let mut log = NameLog::default();
        let begin = Instant::now();
        assert!(log.add(begin, 1, OsStr::new("first"), 1));
        assert!(log.add(begin + LONG, 2, OsStr::new("last of it"), 1));
        let second = begin + LONG + PAUSE;
        assert!(log.add(second, 3, OsStr::new("second"), 1));
        assert_eq!(names(&log.before), [(1, "first".to_owned()), (2, "last of it".to_owned())]);
        assert_eq!(names(&log.now), [(3, "second".to_owned())]);
        assert!(log.add(second + LONG + PAUSE, 1, OsStr::new(""), 1));
        assert_eq!((names(&log.before), names(&log.now)), (vec![(3, "second".to_owned())], vec![(1, String::new())]));
    }

    #[test]
    fn of_names_without_room_none_holds_long_and_a_lost_move_is_told() {
        let believed = Believed::default();
        believed.begin();
        let (long, now) = ("n".repeat(60_000), Instant::now());
        let add = |shares| lock(&believed.names).add(now, 1, OsStr::new(&long), shares);
        while add(1) {}
        assert!(add(2), "moves have room left");
        while add(2) {}
        believed.has_moved(1, OsStr::new(&long));
        let expired = RefCell::new(0);
        assert!(!believed.forget(|_, _| *expired.borrow_mut() += 1));
        assert_eq!(expired.into_inner(), MOST_BYTES / (long.len() + HEAD_BYTES));
        believed.begin();
        assert!(believed.forget(|_, _| panic!("nothing was noted since")));
    }

    /// What was answered before another came is waited for; what moves meanwhile is asked for at its new place.
    #[test]
    fn answers_under_way_and_moves_are_waited_for() {
        let believed = Believed::default();
        believed.begin();
        let answer = believed.answer();
        let seen = Mutex::new(Vec::new());
        let (started, starts) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            let forgets = scope.spawn(|| {
                started.send(()).unwrap();
                believed.forget(|parent, name| {
                    if lock(&seen).is_empty() {
                        believed.has_moved(9, OsStr::new("moved"));
                    }
                    lock(&seen).push((parent, name.to_vec()));
                })
            });
            starts.recv().unwrap();
            assert!(lock(&believed.names).add(Instant::now(), 7, OsStr::new("late"), 1));
            drop(answer);
            assert!(forgets.join().unwrap());
        });
        assert_eq!(*lock(&seen), [(7, b"late".to_vec()), (9, b"moved".to_vec())]);
        believed.has_moved(1, OsStr::new("later"));
        assert!(lock(&believed.names).is_empty());
    }
}
