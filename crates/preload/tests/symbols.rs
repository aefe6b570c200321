//! Every function that libc exports is classified, the library has exactly the functions that the lists say, and the
//! documentation is printed from them.

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

/// Makes rows of text of the table from which the library makes its functions.
macro_rules! fast_path {
    ($($name:ident($($arg:ident: $type:ty),*) => $direction:expr, $buffers:expr, $position:expr, plain if $plain:expr;)*) => {
        /// Name, direction, position, and when the call is left to libc.
        const FAST_PATH: &[[&str; 4]] =
            &[$([stringify!($name), stringify!($direction), stringify!($position), stringify!($plain)]),*];
    };
}
include!("../src/calls/fast_path.rs");

#[test]
fn the_fast_path_has_a_list_of_its_own() {
    let rows: BTreeSet<_> = FAST_PATH.iter().map(|[name, ..]| (*name).to_owned()).collect();
    assert_eq!(rows.into_iter().collect::<Vec<_>>(), symbols()["wrapped-bypass"]);
}

fn fast_path_table() -> String {
    let mut text = "| call | moves bytes | at | left to the mount |\n|---|---|---|---|\n".to_owned();
    for [name, direction, position, plain] in FAST_PATH {
        let direction = if *direction == "Read" { "to the program" } else { "from the program" };
        let position = match *position {
            "Cursor" => "the descriptor's offset",
            "At(offset)" => "`offset`",
            "at_or_cursor(offset)" => "`offset`, the descriptor's for -1",
            other => panic!("say in words what `{other}` means"),
        };
        let plain = match *plain {
            "false" => "",
            "flags != 0" => "with any flag",
            "count > room" => "an overflow, which ends the program",
            other => panic!("say in words what `{other}` means"),
        };
        text += &format!("| `{name}` | {direction} | {position} | {plain} |\n");
    }
    text
}

fn other_calls_table() -> String {
    let mut text = "| what the library does | calls |\n|---|---|\n".to_owned();
    let symbols = symbols();
    for (class, does) in [
        ("opens-descriptor", "enters what is returned, copies an entry, or clears it; then libc's own"),
        ("closes-descriptor", "clears the entry first, and keeps its own descriptors; then libc's own"),
        (
            "changes-sharing",
            "hands the file (a mapping) or the whole process (memory shared, descriptors not; filtered system calls) to the mount",
        ),
        ("wrapped-record", "records, if asked to; libc's own call reaches the mount"),
    ] {
        let names: Vec<_> = symbols[class].iter().map(|name| format!("`{name}`")).collect();
        text += &format!("| {does} | {} |\n", names.join(" "));
    }
    text
}

/// `STRIPEWISE_UPDATE_SNAPSHOTS=1` prints them anew; the change is then read in the diff.
#[test]
fn the_documentation_is_printed_from_the_lists() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/preload.md");
    let text = std::fs::read_to_string(&page).expect("docs/preload.md");
    let mut printed = text.clone();
    for (name, table) in [("fast path", fast_path_table()), ("other calls", other_calls_table())] {
        let (begin, end) = (format!("<!-- {name}: printed -->\n"), format!("<!-- {name}: end -->"));
        let from = printed.find(&begin).expect("the mark before a table") + begin.len();
        let to = from + printed[from..].find(&end).expect("the mark behind a table");
        printed.replace_range(from..to, &table);
    }
    if std::env::var_os("STRIPEWISE_UPDATE_SNAPSHOTS").is_some() {
        std::fs::write(&page, &printed).expect("docs/preload.md");
    }
    assert!(
        printed == text || std::env::var_os("STRIPEWISE_UPDATE_SNAPSHOTS").is_some(),
        "docs/preload.md is not what the lists say: run this test with STRIPEWISE_UPDATE_SNAPSHOTS=1 and read the diff"
    );
}
