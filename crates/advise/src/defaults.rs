//! [`Directories`]: what a directory gives the files that a program makes in it. A default is for files to come, so it is set
//! once and not file by file; and small files that come beside large ones must not be striped as those are.
//!
//! Where they are in one directory, the large ones get a progressive layout (Lustre's PFL): one stripe up to where the small
//! ones end, then as many as are worth it. Files that ranks write collectively get none: MPI-IO takes the stripes of a
//! file's first component for its number of writers.

use crate::gather::Gathered;
use crate::usage::Use;
use std::collections::{BTreeMap, HashSet};
use stripewise_layout::{Layout, Pattern, Stripe};

/// The first stripe of a progressive layout is for this many bytes at least: an administrator's choice for small files.
const LEAST_FIRST_BYTES: u64 = 16 << 20;

/// And for no more: a file of this size is worth more than one stripe.
const MOST_FIRST_BYTES: u64 = 1 << 30;

/// Large files are this many times as long as their first stripe at least, or they gain too little.
const TIMES: u64 = 16;

/// The files that a program makes in one directory.
#[derive(Debug, Default)]
struct Made {
    /// By index.
    files: Vec<usize>,
    /// First byte after the longest of those that move next to nothing.
    others_end: Option<u64>,
}

/// The directories that a program makes files in.
pub(crate) struct Directories(BTreeMap<String, Made>);

/// Whether the program makes a file: it writes more of it than it reads.
fn is_made(used: &Use) -> bool {
    used.writes.bytes > 0 && used.writes.bytes >= used.reads.bytes
}

/// The directory of a path below the root; the root itself is empty.
pub(crate) fn directory_of(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(directory, _)| directory)
}

impl Directories {
    /// Of a log. O(files).
    pub(crate) fn of(gathered: &Gathered) -> Self {
        let mut found: BTreeMap<String, Made> = BTreeMap::new();
        for (index, file) in gathered.files.iter().enumerate().filter(|(_, file)| is_made(&file.used)) {
            found.entry(directory_of(&file.path).to_owned()).or_default().files.push(index);
        }
        for (directory, of) in &gathered.small {
            if let Some(made) = found.get_mut(directory) {
                made.others_end = of.made_end;
            }
        }
        Self(found)
    }

    /// Gives the files of `wished` that are to have several stripes beside small ones a progressive layout; by index, up to
    /// where they have one stripe. O(files).
    pub(crate) fn progressive(
        &self,
        gathered: &Gathered,
        present: &[Layout],
        wished: &mut [Layout],
    ) -> BTreeMap<usize, u64> {
        let mut given = BTreeMap::new();
        for made in self.0.values() {
            let used = |file: usize| &gathered.files[file].used;
            let is_changed = |file: &&usize| wished[**file] != present[**file] && stripes(&wished[**file]) > 1;
            let (large, rest): (Vec<usize>, Vec<usize>) = made.files.iter().partition(|file| is_changed(file));
            let small = rest.iter().map(|&file| (stripes(&wished[file]) == 1).then(|| used(file).end));
            let Some(ends) = small.chain(made.others_end.map(Some)).collect::<Option<Vec<u64>>>() else { continue };
            let Some(longest) = ends.into_iter().max() else { continue };
            let first_bytes = longest.max(LEAST_FIRST_BYTES).checked_next_power_of_two().unwrap_or(u64::MAX);
            let fits = |&file: &usize| {
                first_bytes <= MOST_FIRST_BYTES.min(used(file).end / TIMES) && !used(file).is_collective().1
            };
            if large.is_empty() || !large.iter().all(fits) {
                continue;
            }
            for file in large {
                if let Some(layout) = with_first(&wished[file], first_bytes) {
                    wished[file] = layout;
                    given.insert(file, first_bytes);
                }
            }
        }
        given
    }

    /// Those in which several files that are made change and all can have one default, with the pattern of what is in them,
    /// where `layouts` differ from the `present` ones. O(files).
    pub(crate) fn defaults(
        &self,
        gathered: &Gathered,
        present: &[Layout],
        layouts: &[Layout],
    ) -> BTreeMap<String, Pattern> {
        // The pattern of a directory names what is only read there, too.
        let read = gathered.files.iter().filter(|file| !is_made(&file.used));
        let read: HashSet<&str> = read.map(|file| directory_of(&file.path)).collect();
        let has_one = |made: &Made| {
            let changed: Vec<usize> =
                made.files.iter().copied().filter(|&file| layouts[file] != present[file]).collect();
            let [first, _, ..] = changed[..] else { return false };
            let wanted = shape(&layouts[first]);
            // Up to there a small file is on one stripe.
            let first_bytes = match &wanted[..] {
                [(_, 1, _)] => u64::MAX,
                [(_, 1, _), (end, ..), ..] => *end,
                _ => 0,
            };
            let is_small = |file: usize| stripes(&layouts[file]) == 1 && gathered.files[file].used.end <= first_bytes;
            made.others_end.is_none_or(|end| end <= first_bytes)
                && made.files.iter().all(|&file| {
                    let is_changed = layouts[file] != present[file];
                    if is_changed { shape(&layouts[file]) == wanted } else { is_small(file) }
                })
        };
        let all = self.0.iter().filter(|(directory, made)| !read.contains(directory.as_str()) && has_one(made));
        all.filter_map(|(directory, _)| Some((directory.clone(), pattern_of(directory)?))).collect()
    }
}

/// The pattern of all that is in a directory.
fn pattern_of(directory: &str) -> Option<Pattern> {
    if directory.is_empty() {
        return Pattern::new("*").ok();
    }
    let exact = Pattern::exact(directory).ok()?;
    Pattern::new(&format!("{}/*", exact.as_str())).ok()
}

/// Offset, stripes and width of each region.
fn shape(layout: &Layout) -> Vec<(u64, usize, u64)> {
    let of =
        |region: &stripewise_layout::Region| (region.offset(), region.stripes().len(), region.stripes()[0].width_bytes);
    layout.regions().iter().map(of).collect()
}

/// Of the widest region.
fn stripes(layout: &Layout) -> usize {
    layout.regions().iter().map(|region| region.stripes().len()).max().unwrap_or(1)
}

/// `layout` with one stripe up to `first_bytes`, where that is a whole number of its stripes.
fn with_first(layout: &Layout, first_bytes: u64) -> Option<Layout> {
    let [region] = layout.regions() else { return None };
    let first: Stripe = *region.stripes().first()?;
    if !first_bytes.is_multiple_of(first.width_bytes) {
        return None;
    }
    Layout::new([(0, vec![first]), (first_bytes, region.stripes().to_vec())]).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gather::{AdvisedFile, SmallFiles};
    use std::path::Path;
    use stripewise_layout::ServerId;

    fn on(servers: u16) -> Layout {
        Layout::striped((0..servers).map(ServerId), 1 << 20).expect("a layout")
    }

    /// A log of files that are written, by path and size.
    fn made(files: &[(&str, u64)]) -> Gathered {
        let mut gathered = Gathered::nothing(Path::new("/lustre"));
        gathered.files = files
            .iter()
            .map(|(path, end)| {
                let mut used = Use::default();
                (used.end, used.writes.bytes, used.writes.count) = (*end, *end, 1);
                AdvisedFile { id: 0, path: (*path).into(), named: true, used, counted: false }
            })
            .collect();
        gathered
    }

    #[test]
    fn large_files_beside_small_ones_begin_on_one_stripe() {
        let files = made(&[("out/a", 20 << 30), ("out/b", 30 << 30), ("out/log", 3 << 20), ("in/a", 20 << 30)]);
        let present = vec![on(1); 4];
        let mut wished = vec![on(8), on(8), on(1), on(8)];
        let directories = Directories::of(&files);
        let given = directories.progressive(&files, &present, &mut wished);
        assert_eq!(given.into_iter().collect::<Vec<_>>(), [(0, 16 << 20), (1, 16 << 20)]);
        assert_eq!(shape(&wished[0]), [(0, 1, 1 << 20), (16 << 20, 8, 1 << 20)]);
        assert_eq!((&wished[2], &wished[3]), (&on(1), &on(8)));
        let defaults = directories.defaults(&files, &present, &wished);
        assert_eq!(defaults.keys().collect::<Vec<_>>(), ["out"], "a single file has a command of its own");
        assert_eq!(defaults["out"].as_str(), "out/*");
    }

    #[test]
    fn what_advice_is_not_given_on_is_made_there_too() {
        let mut files = made(&[("out/a", 20 << 30), ("out/b", 20 << 30)]);
        let (present, mut wished) = (vec![on(1); 2], vec![on(8); 2]);
        let plain = Directories::of(&files);
        assert!(plain.progressive(&files, &present, &mut wished).is_empty());
        assert_eq!(plain.defaults(&files, &present, &wished).len(), 1);
        files.small.insert("out".into(), SmallFiles { files: 3, opens: 3, made_end: Some(40 << 20) });
        let beside = Directories::of(&files);
        assert!(beside.defaults(&files, &present, &wished).is_empty(), "they would get eight stripes each");
        assert_eq!(beside.progressive(&files, &present, &mut wished)[&0], 64 << 20);
        assert_eq!(beside.defaults(&files, &present, &wished).len(), 1);
    }

    #[test]
    fn shared_files_of_mpi_and_files_that_are_not_much_larger_get_no_first_stripe() {
        let mut files = made(&[("out/a", 20 << 30), ("out/log", 2 << 30)]);
        let (present, mut wished) = (vec![on(1); 2], vec![on(8), on(1)]);
        assert!(Directories::of(&files).progressive(&files, &present, &mut wished).is_empty());
        files.files[1].used.end = 1 << 20;
        files.files[0].used.asked.writes.collective = 100;
        assert!(Directories::of(&files).progressive(&files, &present, &mut wished).is_empty());
        assert_eq!(wished, [on(8), on(1)]);
    }

    #[test]
    fn a_directory_with_inputs_has_no_default() {
        let mut files = made(&[("a", 20 << 30), ("b", 20 << 30), ("input", 20 << 30)]);
        let (present, wished) = (vec![on(1); 3], vec![on(8), on(8), on(1)]);
        files.files[2].used.reads.bytes = 40 << 30;
        assert!(Directories::of(&files).defaults(&files, &present, &wished).is_empty());
    }
}
