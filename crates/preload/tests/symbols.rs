//! Every function that libc exports is classified, and the library has exactly the functions that the lists say.

mod common;

use common::{library, symbols};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

/// Functions that an ELF library exports, without those of glibc for itself.
fn exported(library: &Path) -> BTreeSet<String> {
    let listed = Command::new("nm").args(["-D", "--defined-only", "--with-symbol-versions"]).arg(library).output();
    let listed = listed.expect("this test needs nm (binutils)");
    assert!(listed.status.success(), "nm {}", library.display());
    String::from_utf8_lossy(&listed.stdout)
        .lines()
        .filter_map(|line| match line.split_whitespace().collect::<Vec<_>>()[..] {
            [_, "T" | "W" | "i", name] if !name.contains("GLIBC_PRIVATE") => Some(name.split('@').next()?.to_owned()),
            _ => None,
        })
        .collect()
}

/// The libc that this test itself runs with.
fn libc() -> std::path::PathBuf {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("maps");
    let line = maps.lines().find(|line| line.contains("/libc.so.6") || line.contains("/libc-2."));
    line.and_then(|line| line.find('/').map(|at| line[at..].into())).expect("a dynamic glibc")
}

#[test]
fn every_function_of_libc_is_in_one_list() {
    let mut classes: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (class, names) in symbols() {
        for name in names {
            classes.entry(name).or_default().push(class.clone());
        }
    }
    let twice: Vec<_> = classes.iter().filter(|(_, classes)| classes.len() != 1).collect();
    assert!(twice.is_empty(), "in more than one list of symbols.toml: {twice:?}");
    let exported = exported(&libc());
    assert!(exported.len() > 1000, "only {} functions found in libc", exported.len());
    let unknown: Vec<_> = exported.iter().filter(|name| !classes.contains_key(*name)).collect();
    assert!(unknown.is_empty(), "not in symbols.toml: {unknown:?}; classify them as its first lines say");
}

#[test]
fn the_library_wraps_what_the_lists_say() {
    let wrapped: BTreeSet<String> = symbols()
        .into_iter()
        .filter(|(class, _)| class != "reaches-the-mount" && class != "no-descriptor")
        .flat_map(|(_, names)| names)
        .collect();
    let ours: BTreeSet<String> =
        exported(library()).into_iter().filter(|name| !name.starts_with("MPI_File_")).collect();
    assert_eq!(ours.difference(&wrapped).collect::<Vec<_>>(), Vec::<&String>::new(), "wrapped, but not listed so");
    assert_eq!(wrapped.difference(&ours).collect::<Vec<_>>(), Vec::<&String>::new(), "listed as wrapped, but not");
}
