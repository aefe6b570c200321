//! Which reads of a file follow each other, by all processes together: what a mount finds out to read ahead of them
//! (`readahead`, `crates/store/src/file/paths/pattern.rs`).

use std::collections::VecDeque;
use stripewise_model::Request;

/// Streams of a file that are told apart.
const MOST_FRONTS: usize = 8;
/// Reads of a stream after which it is judged: readers that drift apart move its end by more or by less than their number.
const JUDGED: usize = 64;
/// Before it is known as one, and at the end, fewer are judged.
const LEAST_JUDGED: usize = 16;
/// Pieces by which a reader may be ahead of the others or behind them: of 64 KiB, two windows of 8 MiB. A mount follows them farther.
const APART: u64 = 256;

/// Reads that follow each other, of one process or of several.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ReadTogetherOf {
    /// Its first byte.
    pub(crate) from: u64,
    /// Bytes from there on that are read.
    pub(crate) bytes: u64,
    /// One of the processes that read it.
    pub(crate) process: u32,
}

/// The reads of a file, told apart.
#[derive(Debug, Default)]
pub(crate) struct OrderedReads<'a> {
    /// What is read in order.
    pub(crate) streams: Vec<ReadTogetherOf>,
    /// How many reads they are.
    pub(crate) followed: usize,
    /// Bytes by which one of them was behind the first.
    pub(crate) apart_bytes: u64,
    /// All others.
    pub(crate) others: Vec<&'a Request>,
}

/// Where one stream is.
struct ReadsAt<'a> {
    len: u64,
    end: u64,
    /// Since it was judged last: where that was, and the reads.
    from: u64,
    reads: Vec<&'a Request>,
    apart_bytes: u64,
    /// What it has been so far, as it goes on.
    stream: Option<ReadTogetherOf>,
}

impl<'a> ReadsAt<'a> {
    /// Whether a read is one of its pieces, which is noted then.
    fn note(&mut self, read: &'a Request) -> bool {
        let apart = read.offset.abs_diff(self.end);
        if read.size != self.len || !apart.is_multiple_of(self.len) || apart / self.len > APART {
            return false;
        }
        let end = read.offset + read.size;
        self.apart_bytes = self.apart_bytes.max(self.end.saturating_sub(end));
        self.end = self.end.max(end);
        self.reads.push(read);
        true
    }

    /// Whether the reads since the last time have moved its end by as many pieces, or half or twice as many.
    fn judge(&mut self, found: &mut OrderedReads<'a>) {
        let moved = (self.end - self.from) / self.len;
        let reads = std::mem::take(&mut self.reads);
        let count = reads.len() as u64;
        if (count / 2..=2 * count).contains(&moved) {
            found.followed += reads.len();
            found.apart_bytes = found.apart_bytes.max(self.apart_bytes);
            let process = reads[0].process;
            let stream = self.stream.get_or_insert(ReadTogetherOf { from: self.from, bytes: 0, process });
            stream.bytes = self.end - stream.from;
        } else {
            found.others.extend(reads);
            found.streams.extend(self.stream.take());
        }
        (self.from, self.apart_bytes) = (self.end, 0);
    }

    fn finish(mut self, found: &mut OrderedReads<'a>) {
        if self.reads.len() >= LEAST_JUDGED {
            self.judge(found);
        }
        found.others.append(&mut self.reads);
        found.streams.extend(self.stream);
    }
}

/// Tells the reads of a file apart, which come in order of time and have no more bytes than a file can. O(reads).
pub(crate) fn ordered_reads<'a>(reads: impl IntoIterator<Item = &'a Request>) -> OrderedReads<'a> {
    let mut found = OrderedReads::default();
    let mut fronts: VecDeque<ReadsAt<'a>> = VecDeque::new();
    for read in reads {
        let at = fronts.iter_mut().position(|front| front.note(read));
        let mut front = at.and_then(|at| fronts.remove(at)).unwrap_or_else(|| {
            let (len, end) = (read.size, read.offset + read.size);
            ReadsAt { len, end, from: read.offset, reads: vec![read], apart_bytes: 0, stream: None }
        });
        if front.reads.len() == if front.stream.is_some() { JUDGED } else { LEAST_JUDGED } {
            front.judge(&mut found);
        }
        if fronts.len() == MOST_FRONTS {
            // Reads at random make a front of each: what has shown an order stays before those.
            let least = fronts.iter().rposition(|front| front.stream.is_none()).unwrap_or(MOST_FRONTS - 1);
            if let Some(front) = fronts.remove(least) {
                front.finish(&mut found);
            }
        }
        fronts.push_front(front);
    }
    fronts.into_iter().for_each(|front| front.finish(&mut found));
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use stripewise_model::Op;

    fn reads(pieces: impl IntoIterator<Item = u64>) -> Vec<Request> {
        let read = |(number, piece): (usize, u64)| Request {
            offset: piece * 10,
            size: 10,
            op: Op::Read,
            process: number as u32 % 16,
            start_s: number as f64,
            end_s: number as f64,
        };
        pieces.into_iter().enumerate().map(read).collect()
    }

    #[test]
    fn pieces_of_a_scan_are_told_from_others_beside_them() {
        // Every second one is for any of 640 pieces, and the scan comes in threes that are out of order.
        let mixed = (0..4000).map(|number| match number % 2 {
            0 => number / 2 / 3 * 3 + (number / 2 + 1) % 3,
            _ => 100_000 + number * 7919 % 640,
        });
        let mixed = reads(mixed);
        let found = ordered_reads(&mixed);
        assert!((1900..2200).contains(&found.followed), "{} reads", found.followed);
        let bytes: u64 = found.streams.iter().map(|stream| stream.bytes).sum();
        assert!((19_000..22_000).contains(&bytes), "{:?}", found.streams);
        assert_eq!(found.followed + found.others.len(), mixed.len(), "none is lost");
        assert!((10..=40).contains(&found.apart_bytes), "three pieces of 10 bytes: {}", found.apart_bytes);
        // The second half of the readers is 100 pieces behind.
        let apart = reads((0..4000).map(|number| number / 2 + if number % 2 == 0 { 100 } else { 0 }));
        let found = ordered_reads(&apart);
        assert!((900..1200).contains(&found.apart_bytes), "{}", found.apart_bytes);
    }

    #[test]
    fn reads_at_random_backwards_or_of_the_same_again_follow_nothing() {
        let random = (0..2000_u64).map(|number| number * number * 31 % 100_003);
        let backwards = (0..2000).map(|number| 3000 - number);
        let again = (0..2000).map(|number| number % 7);
        let few = (0..128_u64).map(|number| (number * number * 31 + number * 77) % 128);
        for all in [reads(random), reads(backwards), reads(again), reads(few)] {
            let found = ordered_reads(&all);
            assert!(found.followed <= 32, "{} of {} reads", found.followed, all.len());
            assert_eq!(found.followed + found.others.len(), all.len());
        }
    }
}
