//! Data that says where it belongs: every 8-byte word of a file derives from (seed, file, offset, generation).

use crate::random::{mix, unmix};

/// What the files of one run contain.
#[derive(Debug, Clone, Copy)]
pub struct RunContent {
    /// Seed of the run.
    pub seed: u64,
}

/// Bytes that are not what was written there.
#[derive(Debug, PartialEq, Eq)]
pub struct Difference {
    /// Index of the first wrong byte in the buffer.
    pub at: usize,
    /// Up to 8 bytes that should be there.
    pub expected: Vec<u8>,
    /// What is there.
    pub found: Vec<u8>,
}

impl RunContent {
    fn key(self, file: u32, generation: u32) -> u64 {
        mix(mix(self.seed) ^ (u64::from(file) << 32 | u64::from(generation)))
    }

    /// Fills `buffer` with the bytes of `[offset, offset + buffer.len())`, the `generation`-th write of them.
    ///
    /// Cost: about 1 ns per 8 bytes.
    pub fn fill(self, buffer: &mut [u8], file: u32, offset: u64, generation: u32) {
        let key = self.key(file, generation);
        let mut word_index = offset / 8;
        let head = ((8 - offset % 8) % 8).min(buffer.len() as u64) as usize;
        let (head_bytes, rest) = buffer.split_at_mut(head);
        if head > 0 {
            let word = mix(word_index.wrapping_add(key)).to_le_bytes();
            let from = (offset % 8) as usize;
            head_bytes.copy_from_slice(&word[from..from + head]);
            word_index += 1;
        }
        let mut words = rest.chunks_exact_mut(8);
        for chunk in &mut words {
            chunk.copy_from_slice(&mix(word_index.wrapping_add(key)).to_le_bytes());
            word_index += 1;
        }
        let tail = words.into_remainder();
        tail.copy_from_slice(&mix(word_index.wrapping_add(key)).to_le_bytes()[..tail.len()]);
    }

    /// The first difference of `found` from the bytes that belong there; `expected` is working space of the same length.
    pub fn check(
        self,
        found: &[u8],
        expected: &mut [u8],
        file: u32,
        offset: u64,
        generation: u32,
    ) -> Option<Difference> {
        self.fill(expected, file, offset, generation);
        if found == expected {
            return None;
        }
        let at = found.iter().zip(expected.iter()).position(|(a, b)| a != b)?;
        let end = (at + 8).min(found.len());
        Some(Difference { at, expected: expected[at..end].to_vec(), found: found[at..end].to_vec() })
    }

    /// Where the word around the wrong byte belongs: the first of `files` and generations under which it is a word below
    /// `size`. `found` is the whole buffer, read at `offset`.
    pub fn origin(self, found: &[u8], at: usize, offset: u64, files: u32, generations: u32, size: u64) -> String {
        let byte = offset + at as u64;
        // The first whole word that has, or follows, the wrong byte.
        let start = (byte / 8 * 8).max(offset.next_multiple_of(8));
        let index = (start - offset) as usize;
        let Some(bytes) = found.get(index..index + 8) else { return String::new() };
        let word = u64::from_le_bytes(bytes.try_into().unwrap_or_default());
        if word == 0 {
            return " (zeros: never written, or a hole)".into();
        }
        for file in 0..files {
            for generation in 1..=generations {
                let place = unmix(word).wrapping_sub(self.key(file, generation));
                if place < size.div_ceil(8) {
                    let named = if files > 1 { format!(" of file {file}") } else { String::new() };
                    return format!(" (these are bytes of offset {}{named}, write {generation})", place * 8);
                }
            }
        }
        " (bytes of no place in this run)".into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const CONTENT: RunContent = RunContent { seed: 7 };

    proptest! {
        /// A byte depends on its place only, not on the request that it is part of.
        #[test]
        fn requests_agree_on_every_byte(offset in 0_u64..1000, length in 0_usize..100, cut in 0_usize..100) {
            let mut whole = vec![0; length];
            CONTENT.fill(&mut whole, 3, offset, 1);
            let cut = cut.min(length);
            let mut parts = vec![0; length];
            CONTENT.fill(&mut parts[..cut], 3, offset, 1);
            CONTENT.fill(&mut parts[cut..], 3, offset + cut as u64, 1);
            prop_assert_eq!(whole, parts);
        }

        #[test]
        fn any_changed_byte_is_seen(offset in 0_u64..1000, length in 1_usize..100, at in 0_usize..100, flip in 1_u8..) {
            let at = at % length;
            let mut data = vec![0; length];
            CONTENT.fill(&mut data, 0, offset, 2);
            let mut space = data.clone();
            prop_assert_eq!(CONTENT.check(&data, &mut space, 0, offset, 2), None);
            data[at] ^= flip;
            prop_assert_eq!(CONTENT.check(&data, &mut space, 0, offset, 2).unwrap().at, at);
        }
    }

    #[test]
    fn misplaced_bytes_say_where_they_belong() {
        let mut data = [0; 64];
        CONTENT.fill(&mut data, 2, 4096, 3);
        assert_eq!(
            CONTENT.origin(&data, 11, 65536, 4, 3, 1 << 20),
            " (these are bytes of offset 4104 of file 2, write 3)"
        );
        assert_eq!(CONTENT.origin(&[0; 64], 5, 65536, 4, 3, 1 << 20), " (zeros: never written, or a hole)");
        assert_eq!(CONTENT.origin(&[9; 64], 5, 65536, 4, 3, 1 << 20), " (bytes of no place in this run)");
    }

    #[test]
    fn seed_file_offset_and_generation_all_matter() {
        let block = |seed, file, offset, generation| {
            let mut data = [0; 8];
            RunContent { seed }.fill(&mut data, file, offset, generation);
            data
        };
        let all = [block(1, 0, 0, 1), block(2, 0, 0, 1), block(1, 1, 0, 1), block(1, 0, 8, 1), block(1, 0, 0, 2)];
        for (i, a) in all.iter().enumerate() {
            assert!(all[i + 1..].iter().all(|b| a != b));
        }
    }
}
