//! What opens have taken, and why they have not taken the rest: a word for each file, in a table of this process without locks.
//!
//! The decision maker ([`crate::file::paths::decide`]) puts a record there by one store an open. A path that finds out later that it
//! cannot do its part, or can again, changes it: where it fetches a window or begins a piece, and not with each request. A file
//! that comes to the place of another in the table takes it. So the table takes 16 KiB for ever, and still tells of a file that is closed.

use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};

/// A path that requests of an open can take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum PathKind {
    /// To the bytes in the inode.
    Inline,
    /// To the bytes on the servers.
    Striped,
    /// What comes next is fetched.
    ReadAhead,
    /// What is written is gathered.
    WriteBehind,
    /// A kernel keeps what is read.
    Cached,
    /// Behind requests on other files.
    Class,
    /// Past the page caches of the servers.
    Direct,
}

impl PathKind {
    /// All of them, with their names, in the order of their numbers.
    pub const ALL: [(Self, &str); 7] = [
        (Self::Inline, "inline"),
        (Self::Striped, "striped"),
        (Self::ReadAhead, "readahead"),
        (Self::WriteBehind, "writebehind"),
        (Self::Cached, "cached"),
        (Self::Class, "class"),
        (Self::Direct, "direct"),
    ];
}

/// Why an open has not taken a path that its file's handle asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum NotTaken {
    /// A process writes the file, or moves it.
    Writer,
    /// The memory for it is in use.
    Memory,
    /// No thread was free.
    Thread,
    /// The bytes are in the inode.
    InInode,
    /// The pool is one of several users.
    SharedPool,
    /// The open may write.
    ForWriting,
    /// The open cannot write.
    ForReading,
    /// No kernel stands above the open.
    NoMount,
    /// The kernel serves the file.
    KernelServes,
    /// The program goes past the kernel's pages.
    PastPages,
    /// The kernel of the mount keeps what is written.
    WritesBack,
    /// The file is longer than the hint says.
    TooLarge,
    /// The program wants its writes on the servers at once.
    AtOnce,
    /// Each write goes to the end.
    Appends,
    /// No orchestrator orders requests.
    Gate,
    /// None of its servers can do so.
    Servers,
    /// The handle does not ask for it any more.
    Unhinted,
    /// What was gathered once could not be put on the servers.
    GivenUp,
    /// The process is a child of the one that does so.
    Child,
    /// Its first write was longer than its head, or a move has brought all to the servers.
    NoHead,
    /// No byte of it is on a server yet.
    NoDatafile,
    /// Nothing was fetched for the open so far: it has not read pieces in an order, or only long ones.
    NotYet,
}

impl NotTaken {
    /// All of them, each with its word and with what it says to a person.
    pub const ALL: [(Self, &str, &str); 22] = [
        (Self::Writer, "writer", "a process had it open for writing, or moved it"),
        (Self::Memory, "memory", "the memory for that was in use, by other open files of the process"),
        (Self::Thread, "thread", "no thread was free"),
        (Self::InInode, "in-inode", "bytes of it are in its inode"),
        (Self::SharedPool, "shared-pool", "the pool is one of several users"),
        (Self::ForWriting, "for-writing", "the open was for writing"),
        (Self::ForReading, "for-reading", "the open was for reading alone"),
        (Self::NoMount, "no-mount", "the open did not come through a mount"),
        (Self::KernelServes, "kernel-serves", "the kernel reads and writes the file by itself"),
        (Self::PastPages, "past-pages", "the program goes past the pages of the kernel (O_DIRECT)"),
        (Self::WritesBack, "writes-back", "the mount has writeback_cache"),
        (Self::TooLarge, "too-large", "it is longer than the hint says"),
        (Self::AtOnce, "at-once", "the program wants its writes on the servers at once (O_SYNC, O_DSYNC, O_DIRECT)"),
        (Self::Appends, "appends", "the program appends (O_APPEND)"),
        (Self::Gate, "no-gate", "no orchestrator was at work in the pool when it was mounted"),
        (Self::Servers, "servers", "none of its servers can do so"),
        (Self::Unhinted, "unhinted", "the hint was taken from the file"),
        (Self::GivenUp, "given-up", "bytes that were gathered for it could not be written before"),
        (Self::Child, "child", "the process is a child of the one that does so"),
        (Self::NoHead, "no-head", "its first write was longer than its head, or it was moved to the servers"),
        (Self::NoDatafile, "no-datafile", "no byte of it was on a server"),
        (Self::NotYet, "not-yet", "nothing was fetched for it so far"),
    ];

    /// What it says to a person.
    pub fn says(self) -> &'static str {
        Self::ALL[self as usize].2
    }

    /// Its word.
    pub fn word(self) -> &'static str {
        Self::ALL[self as usize].1
    }
}

/// What became of one path at an open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PathState {
    /// The file does not ask for it.
    NotAsked,
    /// It is on the way of the requests.
    Taken,
    /// It is not, though the file asks for it.
    Not(NotTaken),
}

impl PathState {
    fn number(self) -> u64 {
        match self {
            Self::NotAsked => 0,
            Self::Taken => 1,
            Self::Not(reason) => 2 + reason as u64,
        }
    }

    fn of_number(number: u64) -> Self {
        match number {
            1 => Self::Taken,
            2.. => NotTaken::ALL.get(number as usize - 2).map_or(Self::NotAsked, |row| Self::Not(row.0)),
            0 => Self::NotAsked,
        }
    }

    fn word(self) -> &'static str {
        match self {
            Self::NotAsked => "-",
            Self::Taken => "taken",
            Self::Not(reason) => reason.word(),
        }
    }

    fn of_word(word: &str) -> Option<Self> {
        let reason = || NotTaken::ALL.iter().find(|row| row.1 == word).map(|row| Self::Not(row.0));
        match word {
            "-" => Some(Self::NotAsked),
            "taken" => Some(Self::Taken),
            _ => reason(),
        }
    }
}

/// What one open has taken.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OpenRecord {
    bits: u64,
}

/// Bits of a path's state.
const STATE_BITS: u32 = 5;
const STATE: u64 = (1 << STATE_BITS) - 1;
/// The program was told where the bytes are, and reads and writes them by itself.
const PAST_THE_MOUNT: u64 = 1 << 35;
/// The kernel reads and writes the file by itself.
const BY_KERNEL: u64 = 1 << 36;
/// Something is recorded.
const IS_RECORD: u64 = 1 << 37;
/// Whose record it is stands above that.
const TAG: u64 = !((1 << 38) - 1);
/// How a record says [`BY_KERNEL`]. It looks like a path that an earlier release does not know, which leaves it out.
const SERVED_BY_KERNEL: &str = "served-by=kernel";

impl OpenRecord {
    /// What became of a path.
    pub fn state(self, kind: PathKind) -> PathState {
        PathState::of_number(self.bits >> (kind as u32 * STATE_BITS) & STATE)
    }

    /// The same record with another state of that path.
    #[must_use]
    pub(crate) fn with(self, kind: PathKind, state: PathState) -> Self {
        let at = kind as u32 * STATE_BITS;
        Self { bits: self.bits & !(STATE << at) | state.number() << at }
    }

    /// Whether its program was told where the bytes are, and reads and writes them by itself.
    pub fn is_past_the_mount(self) -> bool {
        self.bits & PAST_THE_MOUNT != 0
    }

    /// The same record of an open of a file that the kernel serves.
    #[must_use]
    pub(crate) fn served_by_kernel(self) -> Self {
        Self { bits: self.bits | BY_KERNEL }
    }

    /// Whether the kernel reads and writes the file by itself, at the place that the record names.
    pub fn is_served_by_kernel(self) -> bool {
        self.bits & BY_KERNEL != 0
    }
}

/// The last opens of files: for reading alone, and for writing.
#[derive(Debug)]
pub(crate) struct OpenRecords {
    places: [Box<[AtomicU64]>; 2],
}

/// Handle and inode number of a file.
pub(crate) type HandleKey = (u64, u64);

/// As many files are told of, if no two come to one place.
const PLACES: usize = 1 << 10;

impl Default for OpenRecords {
    fn default() -> Self {
        let places = || (0..PLACES).map(|_| AtomicU64::new(0)).collect();
        Self { places: [places(), places()] }
    }
}

impl OpenRecords {
    /// The place of a file, and what its records there have in their upper bits.
    fn place(&self, (handle, real): HandleKey, writes: bool) -> (&AtomicU64, u64) {
        // Every bit of both counts for every bit (the finish of SplitMix64): numbers of inodes are close to each other.
        let mixed = handle ^ real.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        let mixed = mixed ^ mixed >> 31;
        (&self.places[usize::from(writes)][mixed as usize % PLACES], mixed & TAG)
    }

    /// Records an open. One store.
    pub(crate) fn put(&self, file: HandleKey, writes: bool, record: OpenRecord) {
        let (place, tag) = self.place(file, writes);
        place.store(tag | IS_RECORD | record.bits & !TAG, Ordering::Relaxed);
    }

    /// Changes the record of the last open, if it is still there and says something else. One load where there is nothing to change.
    fn change(&self, file: HandleKey, writes: bool, change: impl Fn(OpenRecord) -> OpenRecord) {
        let (place, tag) = self.place(file, writes);
        let before = place.load(Ordering::Relaxed);
        if before & TAG != tag || before & IS_RECORD == 0 {
            return;
        }
        let after = tag | IS_RECORD | change(OpenRecord { bits: before & !TAG }).bits & !TAG;
        if after != before {
            // Another thread has just recorded something newer, where it fails.
            let _ = place.compare_exchange(before, after, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// What has become of a path of the last open.
    pub(crate) fn note(&self, file: HandleKey, writes: bool, kind: PathKind, state: PathState) {
        self.change(file, writes, |record| record.with(kind, state));
    }

    /// The last open for writing has come past what the inode has: its bytes go to the servers, all of them where the file is `without_head`.
    pub(crate) fn note_past_head(&self, file: HandleKey, without_head: bool) {
        self.change(file, true, |record| {
            let inline = match record.state(PathKind::Inline) {
                PathState::Taken if without_head => PathState::Not(NotTaken::NoHead),
                state => state,
            };
            let striped = match record.state(PathKind::Striped) {
                PathState::Not(NotTaken::NoDatafile) => PathState::Taken,
                state => state,
            };
            record.with(PathKind::Inline, inline).with(PathKind::Striped, striped)
        });
    }

    /// The program of the last open was told where the bytes are.
    pub(crate) fn note_past(&self, file: HandleKey, writes: bool) {
        self.change(file, writes, |record| OpenRecord { bits: record.bits | PAST_THE_MOUNT });
    }

    /// The record of the last open, as long as no other file has come to its place.
    pub(crate) fn last(&self, file: HandleKey, writes: bool) -> Option<OpenRecord> {
        let (place, tag) = self.place(file, writes);
        let found = place.load(Ordering::Relaxed);
        (found & TAG == tag && found & IS_RECORD != 0).then_some(OpenRecord { bits: found & !(TAG | IS_RECORD) })
    }
}

/// What a process knows of the opens of a file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LastOpens {
    /// Opens that are there.
    pub opens: usize,
    /// Those of them that may write.
    pub writing: usize,
    /// The last open for reading alone, if the process still knows it.
    pub read: Option<OpenRecord>,
    /// The last open for writing, if the process still knows it.
    pub written: Option<OpenRecord>,
}

/// `opens=2 writing=1`, and a line `read` or `written` for each record: `past` if its program goes past the mount, whether the kernel
/// serves it, and each path with what became of it.
impl fmt::Display for LastOpens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "opens={} writing={}", self.opens, self.writing)?;
        for (name, record) in [("read", self.read), ("written", self.written)] {
            let Some(record) = record else { continue };
            write!(f, "\n{name}{}", if record.is_past_the_mount() { " past" } else { "" })?;
            if record.is_served_by_kernel() {
                write!(f, " {SERVED_BY_KERNEL}")?;
            }
            for (kind, path) in PathKind::ALL {
                write!(f, " {path}={}", record.state(kind).word())?;
            }
        }
        Ok(())
    }
}

/// That a mount says something that this release does not understand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnknownRecord;

impl fmt::Display for UnknownRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the mount says of its opens what this release does not understand")
    }
}

impl std::error::Error for UnknownRecord {}

impl FromStr for LastOpens {
    type Err = UnknownRecord;

    /// Reads what `Display` wrote, also of a later release that has more paths and reasons.
    fn from_str(text: &str) -> Result<Self, UnknownRecord> {
        let mut lines = text.lines();
        let mut found = Self::default();
        for word in lines.next().ok_or(UnknownRecord)?.split(' ') {
            let (name, number) = word.split_once('=').ok_or(UnknownRecord)?;
            let number = number.parse().map_err(|_| UnknownRecord)?;
            match name {
                "opens" => found.opens = number,
                "writing" => found.writing = number,
                _ => {}
            }
        }
        for line in lines {
            let mut words = line.split(' ');
            let place = match words.next() {
                Some("read") => &mut found.read,
                Some("written") => &mut found.written,
                _ => continue,
            };
            let mut record = OpenRecord::default();
            for word in words {
                match word {
                    "past" => {
                        record.bits |= PAST_THE_MOUNT;
                        continue;
                    }
                    SERVED_BY_KERNEL => {
                        record = record.served_by_kernel();
                        continue;
                    }
                    _ => {}
                }
                let (name, state) = word.split_once('=').ok_or(UnknownRecord)?;
                // A path or a reason of a later release is left out.
                let kind = PathKind::ALL.iter().find(|(_, path)| *path == name);
                if let Some(((kind, _), state)) = kind.zip(PathState::of_word(state)) {
                    record = record.with(*kind, state);
                }
            }
            *place = Some(record);
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn every_state() -> impl Iterator<Item = PathState> {
        [PathState::NotAsked, PathState::Taken].into_iter().chain(NotTaken::ALL.map(|row| PathState::Not(row.0)))
    }

    #[test]
    fn the_lists_have_all_in_the_order_of_their_numbers() {
        assert!(PathKind::ALL.iter().enumerate().all(|(number, (kind, _))| *kind as usize == number));
        assert!(NotTaken::ALL.iter().enumerate().all(|(number, row)| row.0 as usize == number));
        assert!(PathKind::ALL.len() as u32 * STATE_BITS <= PAST_THE_MOUNT.trailing_zeros());
        assert!(every_state().count() <= 1 << STATE_BITS);
        // No two of them have a bit of each other.
        let bits = [PAST_THE_MOUNT, BY_KERNEL, IS_RECORD, TAG];
        assert_eq!(bits.iter().fold(0, |all, bit| all | bit).count_ones(), bits.map(u64::count_ones).iter().sum());
    }

    #[test]
    fn the_page_has_each_reason() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/hints.md");
        let page = std::fs::read_to_string(page).unwrap();
        let told = page.split_once("| reason | which |").unwrap().1.split_once("\n\n").unwrap().0;
        let rows = told.lines().filter_map(|line| line.split('|').nth(1));
        let words: Vec<&str> = rows.flat_map(|reasons| reasons.split('`').skip(1).step_by(2)).collect();
        for (_, word, _) in NotTaken::ALL {
            assert_eq!(words.iter().filter(|told| **told == word).count(), 1, "{word}");
        }
        assert_eq!(words.len(), NotTaken::ALL.len());
    }

    #[test]
    fn a_record_keeps_each_state_of_each_path_and_is_read_as_it_was_written() {
        for (kind, _) in PathKind::ALL {
            for state in every_state() {
                let record = OpenRecord::default().with(PathKind::Direct, PathState::Taken).with(kind, state);
                for (other, _) in PathKind::ALL.into_iter().filter(|(other, _)| *other != kind) {
                    let expected = if other == PathKind::Direct { PathState::Taken } else { PathState::NotAsked };
                    assert_eq!(record.state(other), expected);
                }
                assert_eq!(record.state(kind), state);
                let said = LastOpens { opens: 3, writing: 1, read: Some(record), written: None };
                assert_eq!(said.to_string().parse(), Ok(said));
            }
        }
        let past = OpenRecord { bits: PAST_THE_MOUNT };
        let said = LastOpens { opens: 1, writing: 1, read: None, written: Some(past) };
        assert!(said.to_string().contains("written past inline=-"));
        assert_eq!(said.to_string().parse(), Ok(said));
        let by_kernel = OpenRecord::default().with(PathKind::Striped, PathState::Taken).served_by_kernel();
        let said = LastOpens { opens: 1, writing: 0, read: Some(by_kernel), written: Some(past.served_by_kernel()) };
        assert!(by_kernel.is_served_by_kernel() && !by_kernel.is_past_the_mount() && !past.is_served_by_kernel());
        assert_eq!(said.to_string().parse(), Ok(said));
        // An earlier release asks for `=` in each word but one, and leaves out what it does not know.
        assert!(
            said.to_string()
                .lines()
                .skip(1)
                .flat_map(|line| line.split(' ').skip(1))
                .all(|word| word == "past" || word.contains('='))
        );
        for other in ["", "opens", "opens=x", "opens=1\nread inline"] {
            assert_eq!(other.parse::<LastOpens>(), Err(UnknownRecord), "{other}");
        }
        let later = "opens=1 writing=0 more=2\nread striped=taken newer=x cached=newer\nother";
        let read = OpenRecord::default().with(PathKind::Striped, PathState::Taken);
        assert_eq!(later.parse(), Ok(LastOpens { opens: 1, writing: 0, read: Some(read), written: None }));
    }

    #[test]
    fn the_table_tells_of_the_last_open_until_another_file_comes_to_its_place() {
        let records = OpenRecords::default();
        let record = OpenRecord::default().with(PathKind::Striped, PathState::Taken);
        assert_eq!(records.last((7, 8), false), None);
        records.note((7, 8), false, PathKind::Cached, PathState::Taken);
        assert_eq!(records.last((7, 8), false), None, "nothing was opened");
        records.put((7, 8), false, record);
        assert_eq!((records.last((7, 8), false), records.last((7, 8), true)), (Some(record), None));
        let (place, tag) = records.place((7, 8), false);
        let other = (0..).find(|number| std::ptr::eq(records.place((9, *number), false).0, place)).unwrap();
        assert_ne!(records.place((9, other), false).1, tag);
        let state = PathState::Not(NotTaken::Memory);
        records.note((9, other), false, PathKind::ReadAhead, state);
        assert_eq!(records.last((7, 8), false), Some(record), "it is of another file");
        records.note((7, 8), false, PathKind::ReadAhead, state);
        records.note_past((7, 8), false);
        let changed = records.last((7, 8), false).unwrap();
        records.put((7, 8), false, changed.served_by_kernel());
        let by_kernel = records.last((7, 8), false).unwrap();
        assert_eq!((by_kernel.is_served_by_kernel(), changed.is_served_by_kernel()), (true, false));
        assert_eq!((changed.state(PathKind::ReadAhead), changed.is_past_the_mount()), (state, true));
        records.put((9, other), false, record);
        assert_eq!((records.last((7, 8), false), records.last((9, other), false)), (None, Some(record)));
    }
}
