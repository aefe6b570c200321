//! Many small files on Lustre: each has an object on a target, with a lock and a round trip, beside its entry on the metadata
//! server, which could hold its bytes, too.

use super::finding::{Finding, Hints, Severity, percent};
use crate::gather::SmallFiles;
use crate::settable::{LOCK_S, OBJECT_S};
use std::collections::BTreeMap;
use std::path::Path;

/// Fewer files are not worth a setting.
const FILES: usize = 100;

/// Less of the I/O time is not worth a word.
const SHARE: f64 = 0.05;

/// On small files by directory below `root` (`None`: names were replaced), of which each of `processes` processes spends `io_s` seconds on all I/O.
/// O(directories).
pub(crate) fn small_files(
    root: Option<&Path>,
    directories: &BTreeMap<String, SmallFiles>,
    processes: usize,
    io_s: f64,
) -> Option<Finding> {
    let files: usize = directories.values().map(|of| of.files).sum();
    let opens = directories.values().map(|of| of.opens.max(of.files as u64)).fold(0, u64::saturating_add);
    let of_each_s = opens as f64 / processes.max(1) as f64 * (OBJECT_S + LOCK_S);
    let part = if io_s > 0.0 { (of_each_s / io_s).min(1.0) } else { 0.0 };
    let (directory, most) = directories.iter().max_by_key(|(_, of)| of.files)?;
    if files < FILES || part < SHARE {
        return None;
    }
    let path = root.map(|root| root.join(directory));
    let text = path
        .as_deref()
        .and_then(Path::to_str)
        .filter(|text| text.chars().all(|c| c.is_ascii_alphanumeric() || "/._-+".contains(c)));
    let place = text.unwrap_or("<their directory>");
    Some(Finding {
        kind: "small-files",
        severity: if part >= 0.3 { Severity::Medium } else { Severity::Low },
        words: format!(
            "{files} files of at most 1MiB, {} of them in one directory: an object, a lock and a round trip for each open are \
             some {} of the I/O time of a process, by a price of {:.1} ms",
            most.files,
            percent(part),
            1e3 * (OBJECT_S + LOCK_S)
        ),
        numbers: vec![("files", files as f64), ("opens", opens as f64), ("seconds", of_each_s), ("time_share", part)],
        mend: vec![
            format!(
                "new files with their bytes on the metadata server, where lctl get_param lod.*.dom_stripesize allows it: \
                 lfs setstripe -E 1M -L mdt -E eof -c 1 -S 1M {place}"
            ),
            format!(
                "else one stripe alone: lfs setstripe -c 1 {place}; or join them into one (HDF5, tar, a data base)"
            ),
        ],
        hints: Hints::default(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: usize, opens: u64, io_s: f64, directory: &str) -> Option<Finding> {
        let of = SmallFiles { files, opens, made_end: None };
        small_files(Some(Path::new("/lustre/me")), &BTreeMap::from([(directory.to_owned(), of)]), 4, io_s)
    }

    #[test]
    fn many_small_files_are_told_with_what_they_cost() {
        let finding = found(1000, 4000, 1.0, "out").expect("0.4 s of each process");
        assert_eq!(finding.severity, Severity::Medium);
        assert!(finding.words.contains("40 % of the I/O time"), "{}", finding.words);
        assert!(finding.mend[0].ends_with("lfs setstripe -E 1M -L mdt -E eof -c 1 -S 1M /lustre/me/out"));
        assert_eq!(found(1000, 4000, 100.0, "out"), None, "they cost nothing beside the rest");
        assert_eq!(found(99, 4000, 1.0, "out"), None);
        assert_eq!(found(1000, 4000, 0.0, "out"), None, "what the log does not time has no share");
    }

    #[test]
    fn no_name_is_a_command() {
        for hostile in ["a b", "$(touch x)", "a\u{1b}[31m"] {
            let finding = found(1000, 4000, 1.0, hostile).expect("the same");
            assert!(finding.mend.iter().all(|mend| mend.contains("<their directory>")), "{finding:?}");
        }
    }
}
