//! Files of one kind: in one directory, named alike but for numbers, laid out alike and used alike. A kind is one row
//! of advice, of however many files.

use crate::gather::AdvisedFile;
use crate::usage::Use;
use std::collections::HashMap;
use stripewise_layout::Layout;

/// Files of one kind.
#[derive(Debug, Clone)]
pub(crate) struct FileKind {
    /// Their path, or the pattern of their paths: numbers are `*`.
    pub path: String,
    /// Indices of the files, in order of path.
    pub files: Vec<usize>,
    /// All their uses.
    pub used: Use,
}

/// What files of one kind have in common.
#[derive(PartialEq, Eq, Hash)]
struct Alike {
    pattern: String,
    /// Regions: offset, stripes, width of the first.
    layout: Vec<(u64, usize, u64)>,
    /// Quarters of bytes that are read; powers of four of the mean request; powers of four of the end; shared or not.
    used: (u32, u32, u32, bool),
}

/// The kinds of `files`, those that move most first. O(files x ranks of each).
pub(crate) fn kinds(files: &[AdvisedFile], layouts: &[Layout]) -> Vec<FileKind> {
    let mut found: HashMap<Alike, usize> = HashMap::new();
    let mut kinds: Vec<FileKind> = Vec::new();
    for (index, (file, layout)) in files.iter().zip(layouts).enumerate() {
        let pattern = numbers_replaced(&file.path);
        let alike = Alike { layout: shape(layout), used: use_of(&file.used), pattern };
        let pattern = alike.pattern.clone();
        let at = *found.entry(alike).or_insert_with(|| {
            kinds.push(FileKind { path: pattern, files: Vec::new(), used: Use::none() });
            kinds.len() - 1
        });
        kinds[at].files.push(index);
        kinds[at].used.add(&file.used);
    }
    for kind in &mut kinds {
        if let [only] = kind.files[..] {
            kind.path = files[only].path.clone();
        }
    }
    kinds.sort_by(|a, b| {
        let bytes = |kind: &FileKind| kind.used.both().bytes;
        bytes(b).cmp(&bytes(a)).then_with(|| a.path.cmp(&b.path)).then(a.files.cmp(&b.files))
    });
    kinds
}

/// What layouts of one kind share: which servers they are on may differ.
fn shape(layout: &Layout) -> Vec<(u64, usize, u64)> {
    let regions = layout.regions().iter();
    regions.map(|region| (region.offset(), region.stripes().len(), region.stripes()[0].width_bytes)).collect()
}

fn use_of(used: &Use) -> (u32, u32, u32, bool) {
    let both = used.both();
    let quarters = if both.bytes == 0 { 0 } else { (4.0 * used.reads.bytes as f64 / both.bytes as f64).round() as u32 };
    let fours = |bytes: u64| bytes.checked_ilog2().map_or(0, |power| power / 2 + 1);
    (quarters, fours(both.mean_bytes() as u64), fours(used.end), used.sharers > 1)
}

/// `path` with every run of digits as `*`, and as a pattern of layout files: what stands for other characters there is
/// taken as it is.
pub fn numbers_replaced(path: &str) -> String {
    let mut out = String::with_capacity(path.len());
    for character in path.chars() {
        match character {
            '0'..='9' if out.ends_with('*') && !out.ends_with("\\*") => {}
            '0'..='9' => out.push('*'),
            '*' | '?' | '\\' => out.extend(['\\', character]),
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use stripewise_layout::{Pattern, ServerId};

    fn file(path: &str, bytes: u64) -> AdvisedFile {
        let mut used = Use::default();
        used.writes.count = 1;
        used.writes.bytes = bytes;
        used.end = bytes;
        AdvisedFile { id: 0, path: path.into(), named: true, used, counted: false }
    }

    #[test]
    fn files_that_differ_by_numbers_alone_are_one_kind() {
        let layout = Layout::striped([ServerId(0)], 1 << 20).unwrap();
        let files: Vec<AdvisedFile> =
            (0..2048).map(|n| file(&format!("run{}/rank.{n:04}.out", n / 1024), 1 << 20)).collect();
        let found = kinds(&files, &vec![layout.clone(); 2048]);
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].path.as_str(), found[0].files.len()), ("run*/rank.*.out", 2048));
        assert_eq!(found[0].used.writes.count, 2048);
        let two = kinds(&[file("a1", 1 << 20), file("a2", 1 << 30)], &[layout.clone(), layout.clone()]);
        assert_eq!(two.iter().map(|kind| kind.path.as_str()).collect::<Vec<_>>(), ["a2", "a1"], "used otherwise");
        let other = Layout::striped([ServerId(0), ServerId(1)], 1 << 20).unwrap();
        assert_eq!(kinds(&[file("a1", 1 << 20), file("a2", 1 << 20)], &[layout, other]).len(), 2, "laid out otherwise");
    }

    proptest::proptest! {
        #[test]
        fn a_pattern_matches_what_it_was_made_of(path in "[a-z0-9*?\\\\]{1,8}(/[a-z0-9*?\\\\é ]{1,8}){0,2}") {
            let pattern = Pattern::new(&numbers_replaced(&path)).unwrap();
            proptest::prop_assert!(pattern.matches(path.as_bytes()));
        }
    }
}
