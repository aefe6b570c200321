//! The form of a journal's records: 16 words of 8 bytes, big-endian, the first of which makes the record valid.

use super::gone::{DatafileRun, Gone, MAX_RUNS};
use crate::file::rights::Rights;
use crate::format::identity::Identity;

/// Words of a record.
pub(super) const WORDS: usize = 16;
/// Bytes of a record.
pub(super) const BYTES: usize = WORDS * 8;
/// Words of a record in front of its runs.
const FIXED: usize = WORDS - MAX_RUNS;

/// What is known of a file beside that it has lost its last name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RemovalState {
    /// A power cut may bring the name back.
    Seen = 1,
    /// It may not: that the name is gone is on the disk.
    Certain = 2,
    /// The file was not in use when its datafiles were to go, and some servers could not remove theirs.
    Left = 3,
}

/// What stands in a record's place.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum StoredRecord {
    Nothing,
    Damage,
    Record(RemovalState, Gone),
}

fn pair(high: u32, low: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

fn halves(word: u64) -> (u32, u32) {
    ((word >> 32) as u32, word as u32)
}

/// The words of a record. The first is to be stored last.
pub(super) fn encode(state: RemovalState, gone: &Gone) -> [u64; WORDS] {
    let mut words = [0; WORDS];
    words[1] = gone.handle;
    words[2] = gone.identity.inode;
    words[3] = pair(gone.identity.generation, gone.version);
    words[4] = pair(gone.rights.uid, gone.rights.gid);
    words[5] = pair(gone.rights.mode, gone.runs.len() as u32);
    for (word, run) in words[FIXED..].iter_mut().zip(&gone.runs) {
        *word = pair(run.generation, u32::from(run.first) << 16 | u32::from(run.count));
    }
    words[0] = pair(checksum(&words), state as u32);
    words
}

/// The first word of the record `words` in another state.
pub(super) fn in_state(words: &[u64; WORDS], state: RemovalState) -> u64 {
    pair(checksum(words), state as u32)
}

fn checksum(words: &[u64; WORDS]) -> u32 {
    words[1..].iter().fold(0, |sum, word| crc32c::crc32c_append(sum, &word.to_be_bytes()))
}

/// Reads a record. Whatever stands there, no more than [`MAX_RUNS`] runs come of it.
pub(super) fn decode(words: &[u64; WORDS]) -> StoredRecord {
    let (sum, state) = halves(words[0]);
    let state = match state {
        0 if sum == 0 => return StoredRecord::Nothing,
        1 => RemovalState::Seen,
        2 => RemovalState::Certain,
        3 => RemovalState::Left,
        _ => return StoredRecord::Damage,
    };
    let (mode, count) = halves(words[5]);
    if sum != checksum(words) || count as usize > MAX_RUNS || words[1] == 0 {
        return StoredRecord::Damage;
    }
    let run = |word: &u64| {
        let (generation, servers) = halves(*word);
        DatafileRun { generation, first: (servers >> 16) as u16, count: servers as u16 }
    };
    let runs: Vec<_> = words[FIXED..][..count as usize].iter().map(run).collect();
    if runs.iter().any(|run| run.count == 0) {
        return StoredRecord::Damage;
    }
    let (generation, version) = halves(words[3]);
    let (uid, gid) = halves(words[4]);
    let gone = Gone {
        handle: words[1],
        identity: Identity { inode: words[2], generation },
        rights: Rights { uid, gid, mode },
        version,
        runs,
    };
    StoredRecord::Record(state, gone)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn gone(runs: Vec<DatafileRun>) -> Gone {
        Gone {
            handle: 0xfeed_0000_0000_00ab,
            identity: Identity { inode: 1 << 40, generation: 9 },
            rights: Rights { uid: 1000, gid: 100, mode: 0o640 },
            version: 4,
            runs,
        }
    }

    proptest! {
        #[test]
        fn reads_what_it_wrote_and_sees_every_damage(
            runs in proptest::collection::vec((any::<u32>(), any::<u16>(), 1_u16..), 0..=MAX_RUNS),
            word in 0..WORDS, bit in 0..64_u32,
        ) {
            let runs = runs.into_iter().map(|(generation, first, count)| DatafileRun { generation, first, count }).collect();
            let gone = gone(runs);
            for state in [RemovalState::Seen, RemovalState::Certain, RemovalState::Left] {
                let words = encode(state, &gone);
                prop_assert_eq!(decode(&words), StoredRecord::Record(state, gone.clone()));
                let mut other = words;
                other[0] = in_state(&words, RemovalState::Left);
                prop_assert_eq!(decode(&other), StoredRecord::Record(RemovalState::Left, gone.clone()));
                let mut damaged = words;
                damaged[word] ^= 1 << bit;
                // The state itself is one of three in one word with the checksum of the rest.
                prop_assert!(word == 0 && bit < 2 || decode(&damaged) == StoredRecord::Damage);
            }
        }

        #[test]
        fn random_words_are_no_record(words in any::<[u64; WORDS]>()) {
            prop_assert_eq!(decode(&words), StoredRecord::Damage);
        }
    }

    #[test]
    fn zeros_are_nothing() {
        assert_eq!(decode(&[0; WORDS]), StoredRecord::Nothing);
    }
}
