//! Stretches of a file: which of its bytes stand in a datafile.

use crate::file::lengths::stretches;
use crate::format::placement::Datafiles;

/// Most stretches of a file that a finding lists.
const MOST_STRETCHES: usize = 4096;
/// Most of them that its words name.
const MOST_NAMED: usize = 4;

/// Stretches of a file that cannot be had, as `(from, to)` in ascending order.
#[derive(Debug, Default)]
pub(crate) struct Stretches {
    /// The first of them.
    pub(crate) listed: Vec<(u64, u64)>,
    /// Bytes of all of them.
    pub(crate) bytes: u64,
    /// How many there are.
    count: u64,
    /// Where the last one ends.
    end: u64,
}

impl Stretches {
    /// Those that stand in `[from, to)` of datafile `index` of a file of `size_bytes`.
    pub(crate) fn of(datafiles: &Datafiles, index: u16, place: (u64, u64), size_bytes: u64) -> Self {
        let mut all = Self::default();
        stretches(datafiles, index, place, size_bytes, |from, to| all.add(from, to));
        all
    }

    /// Adds a stretch behind all others.
    pub(crate) fn add(&mut self, from: u64, to: u64) {
        let goes_on = self.count > 0 && from == self.end;
        self.bytes += to - from;
        self.end = to;
        match self.listed.last_mut() {
            Some(last) if goes_on && last.1 == from => last.1 = to,
            _ if goes_on => {}
            _ => {
                self.count += 1;
                if self.listed.len() < MOST_STRETCHES {
                    self.listed.push((from, to));
                }
            }
        }
    }

    /// In words: bytes from the first to the last of each, both counted.
    pub(crate) fn words(&self) -> String {
        let named: Vec<_> = self.listed.iter().take(MOST_NAMED).map(|(a, b)| format!("{a}-{}", b - 1)).collect();
        let more = self.count - named.len() as u64;
        let rest = if more > 0 { format!(" and {more} more stretches up to {}", self.end - 1) } else { String::new() };
        format!("bytes {}{rest} ({} in all)", named.join(", "), self.bytes)
    }
}
