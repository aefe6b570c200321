//! The content of a file in memory, sparse: files reach to 2^63-1.

use std::collections::BTreeMap;

const PAGE_BYTES: u64 = 4096;

/// The bytes of one file. What was never written is zeros.
#[derive(Debug, Clone, Default)]
pub struct Content {
    pages: BTreeMap<u64, Box<[u8; PAGE_BYTES as usize]>>,
    size_bytes: u64,
}

/// Cuts `[at, at + len)` at the borders of pages: page, offset in it, offset in the stretch, bytes.
fn pieces(at: u64, len: u64) -> impl Iterator<Item = (u64, usize, usize, usize)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        if done == len {
            return None;
        }
        let (page, inside) = ((at + done) / PAGE_BYTES, (at + done) % PAGE_BYTES);
        let count = (PAGE_BYTES - inside).min(len - done);
        let piece = (page, inside as usize, done as usize, count as usize);
        done += count;
        Some(piece)
    })
}

impl Content {
    /// Size in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Up to `len` bytes at `at`.
    pub fn read(&self, at: u64, len: usize) -> Vec<u8> {
        let len = self.size_bytes.saturating_sub(at).min(len as u64);
        let mut out = vec![0; len as usize];
        for (page, inside, from, count) in pieces(at, len) {
            if let Some(page) = self.pages.get(&page) {
                out[from..from + count].copy_from_slice(&page[inside..inside + count]);
            }
        }
        out
    }

    /// Puts `data` at `at`.
    pub fn write(&mut self, at: u64, data: &[u8]) {
        for (page, inside, from, count) in pieces(at, data.len() as u64) {
            let page = self.pages.entry(page).or_insert_with(|| Box::new([0; PAGE_BYTES as usize]));
            page[inside..inside + count].copy_from_slice(&data[from..from + count]);
        }
        if !data.is_empty() {
            self.size_bytes = self.size_bytes.max(at + data.len() as u64);
        }
    }

    /// Makes zeros of `[at, at + len)`; the size stays.
    pub fn clear(&mut self, at: u64, len: u64) {
        let end = at.saturating_add(len);
        for (page, bytes) in self.pages.range_mut(at / PAGE_BYTES..=end / PAGE_BYTES) {
            let start = page * PAGE_BYTES;
            let from = at.saturating_sub(start).min(PAGE_BYTES) as usize;
            let to = end.saturating_sub(start).min(PAGE_BYTES) as usize;
            bytes[from..to].fill(0);
        }
    }

    /// Sets the size.
    pub fn resize(&mut self, size_bytes: u64) {
        if size_bytes < self.size_bytes {
            self.clear(size_bytes, self.size_bytes - size_bytes);
        }
        self.size_bytes = size_bytes;
    }

    /// Whether `[from, to)` is zeros.
    pub fn is_zero(&self, from: u64, to: u64) -> bool {
        self.next_data(from).is_none_or(|data| data >= to)
    }

    /// The first byte at or after `at` that is not 0.
    pub fn next_data(&self, at: u64) -> Option<u64> {
        self.pages.range(at / PAGE_BYTES..).find_map(|(page, bytes)| {
            let start = page * PAGE_BYTES;
            let skip = at.saturating_sub(start) as usize;
            bytes[skip..].iter().position(|&byte| byte != 0).map(|index| start + (skip + index) as u64)
        })
    }

    /// Stretches to read for a comparison of all that is there: every page written, the pages beside them, the beginning
    /// and the end; `(from, len)`.
    pub fn stretches(&self) -> Vec<(u64, usize)> {
        let last = self.size_bytes / PAGE_BYTES;
        let near = self.pages.keys().flat_map(|&page| [page.saturating_sub(1), page, page + 1]);
        let mut pages: Vec<u64> = near.chain([0, last]).filter(|&page| page <= last).collect();
        pages.sort_unstable();
        pages.dedup();
        let mut stretches: Vec<(u64, usize)> = Vec::new();
        for page in pages {
            match stretches.last_mut() {
                Some((from, len)) if *from + *len as u64 == page * PAGE_BYTES => *len += PAGE_BYTES as usize,
                _ => stretches.push((page * PAGE_BYTES, PAGE_BYTES as usize)),
            }
        }
        // One byte more than there is, where that can be asked for.
        let end = i64::MAX as u64;
        stretches.into_iter().map(|(from, len)| (from, (len as u64 + 1).min(end - from) as usize)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_back_and_the_rest_is_zeros() {
        let mut content = Content::default();
        content.write(5000, &[1; 5000]);
        content.write(1 << 40, b"far");
        assert_eq!(content.size_bytes(), (1 << 40) + 3);
        assert_eq!(content.read(4999, 3), [0, 1, 1]);
        assert_eq!(content.read((1 << 40) - 1, 100), b"\0far");
        assert_eq!((content.next_data(0), content.next_data(10_000)), (Some(5000), Some(1 << 40)));
        content.resize(6000);
        content.resize(1 << 40);
        assert_eq!((content.next_data(5999), content.next_data(6000)), (Some(5999), None));
        content.clear(5000, u64::MAX);
        assert!(content.is_zero(0, u64::MAX) && content.stretches().len() == 2);
    }
}
