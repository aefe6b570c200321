//! What an orchestrator says of the nodes that take part: a file of lines in the namespace, for its owner alone, since programs of
//! all users are in it. `--status` reads it on any node.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{Read, Write as _};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fs::{Mode, OFlags};

use crate::nodes::{NodeStatus, check_node_name};
use crate::plan_page::text_of;

/// Name of the file.
const BOARD_FILE: &str = "nodes.status";
/// Its first word, with its version.
const BOARD_WORD: &str = "stripewise-nodes-1";
/// It is written this often: once a second.
const WRITE_EVERY_NS: u64 = 1_000_000_000;
/// One that is older is of an orchestrator that has ended: 10 s.
const MOST_AGE_NS: u64 = 10_000_000_000;
/// Bytes of it that are read, and programs of a node that are in it.
const MOST_BYTES: u64 = 1 << 20;
const MOST_PROGRAMS: usize = 64;

/// The file, as its orchestrator writes it; removed when this is dropped.
#[derive(Debug)]
pub(crate) struct NodeBoard {
    path: PathBuf,
    next_ns: u64,
}

impl NodeBoard {
    /// In `namespace`.
    pub(crate) fn new(namespace: &Path) -> Self {
        Self { path: namespace.join(BOARD_FILE), next_ns: 0 }
    }

    /// Whether it is time to write it.
    pub(crate) fn is_due(&self, now_ns: u64) -> bool {
        now_ns >= self.next_ns
    }

    /// Writes it. One that cannot be written is left out: turns do not depend on it.
    pub(crate) fn write(&mut self, nodes: &[NodeStatus], now_ns: u64) {
        self.next_ns = now_ns.saturating_add(WRITE_EVERY_NS);
        let new = self.path.with_extension("new");
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let Ok(file) = rustix::fs::open(&new, flags, Mode::from_raw_mode(0o600)) else { return };
        if File::from(file).write_all(text(nodes, unix_ns()).as_bytes()).is_ok() {
            let _ = std::fs::rename(&new, &self.path);
        }
    }
}

impl Drop for NodeBoard {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// The nodes, as the orchestrator of the pool with this namespace has said in the last seconds; none where it has said nothing, or
/// the file is another user's.
pub(crate) fn read_board(namespace: &Path, is_shared: bool) -> Vec<NodeStatus> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let Ok(file) = rustix::fs::open(namespace.join(BOARD_FILE), flags, Mode::empty()) else { return Vec::new() };
    let file = File::from(file);
    let own = rustix::process::geteuid().as_raw();
    let is_believed =
        file.metadata().is_ok_and(|found| found.is_file() && (found.uid() == 0 || (!is_shared && found.uid() == own)));
    let mut bytes = Vec::new();
    if !is_believed || file.take(MOST_BYTES).read_to_end(&mut bytes).is_err() {
        return Vec::new();
    }
    parse(&String::from_utf8_lossy(&bytes), unix_ns()).unwrap_or_default()
}

fn unix_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}

fn text(nodes: &[NodeStatus], now_ns: u64) -> String {
    let mut text = format!("{BOARD_WORD}\t{now_ns}\n");
    for one in nodes {
        let gates = match one.is_in_turns {
            Some(true) => "turns",
            Some(false) => "open",
            None => "-",
        };
        let state = if one.is_joined { "joined" } else { "gone" };
        let offset_ns = one.clock_offset_ns.map_or_else(|| "-".to_owned(), |ns| ns.to_string());
        let NodeStatus { name, address, clock_error_ns, heard_ns, .. } = one;
        let _ = write!(text, "{name}\t{address}\t{state}\t{offset_ns}\t{clock_error_ns}\t{heard_ns}\t{gates}");
        for program in one.programs.iter().take(MOST_PROGRAMS) {
            let _ = write!(text, "\t{}", text_of(program.as_bytes()));
        }
        text.push('\n');
    }
    text
}

/// `None`: it is no such text, or too old.
fn parse(text: &str, now_ns: u64) -> Option<Vec<NodeStatus>> {
    let mut lines = text.lines();
    let (word, written_ns) = lines.next()?.split_once('\t')?;
    let age_ns = now_ns.saturating_sub(written_ns.parse().ok()?);
    if word != BOARD_WORD || age_ns > MOST_AGE_NS {
        return None;
    }
    let shown = |word: &str| text_of(word.as_bytes());
    let node = |line: &str| {
        let mut words = line.split('\t');
        let mut next = || words.next();
        let (name, address, state) = (next()?, next()?, next()?);
        check_node_name(name).ok()?;
        let (offset, clock_error_ns, heard_ns) = (next()?, next()?.parse().ok()?, next()?.parse::<u64>().ok()?);
        let is_in_turns = match next()? {
            "turns" => Some(true),
            "open" => Some(false),
            _ => None,
        };
        Some(NodeStatus {
            name: name.to_owned(),
            address: shown(address),
            is_joined: state == "joined",
            clock_offset_ns: offset.parse().ok(),
            clock_error_ns,
            heard_ns: heard_ns.saturating_add(age_ns),
            is_in_turns,
            programs: words.take(MOST_PROGRAMS).map(shown).collect(),
        })
    };
    lines.map(node).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn nodes() -> Vec<NodeStatus> {
        let one = NodeStatus {
            name: "n1".to_owned(),
            address: "10.0.0.2:4000".to_owned(),
            is_joined: true,
            clock_offset_ns: Some(-5_000_000_000),
            clock_error_ns: 300,
            heard_ns: 20,
            is_in_turns: Some(true),
            programs: vec!["sim, or so".to_owned(), "a\tb\u{1b}[2J".to_owned()],
        };
        let gone = NodeStatus {
            name: "n2".to_owned(),
            is_joined: false,
            clock_offset_ns: None,
            is_in_turns: None,
            programs: vec![],
            ..one.clone()
        };
        vec![one, gone]
    }

    #[test]
    fn nodes_are_read_as_they_were_written_until_they_are_too_old() {
        let mut expected = nodes();
        expected[0].programs[1] = "a?b?[2J".to_owned();
        let written = text(&nodes(), 1000);
        assert_eq!(parse(&written, 1000), Some(expected.clone()));
        expected.iter_mut().for_each(|one| one.heard_ns += 500);
        assert_eq!(parse(&written, 1500), Some(expected));
        assert_eq!(parse(&written, 1001 + MOST_AGE_NS), None);
        assert_eq!(parse(&written.replace("n1\t", "../n\t"), 1000), None);
        assert_eq!(parse(&written.replace("nodes-1", "nodes-2"), 1000), None);
        assert_eq!(parse("", 0), None);
    }

    #[test]
    fn the_file_is_its_owner_s_alone_and_goes_with_its_orchestrator() {
        let dir = tempfile::tempdir().unwrap();
        let mut board = NodeBoard::new(dir.path());
        assert!(board.is_due(5) && read_board(dir.path(), false).is_empty());
        board.write(&nodes(), 5);
        assert!(!board.is_due(5 + WRITE_EVERY_NS - 1));
        assert_eq!(read_board(dir.path(), false).len(), 2);
        let path = dir.path().join(BOARD_FILE);
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        drop(board);
        assert!(!path.exists());
        // A link to what another file says is none.
        std::fs::write(dir.path().join("other"), text(&nodes(), unix_ns())).unwrap();
        std::os::unix::fs::symlink("other", &path).unwrap();
        assert!(read_board(dir.path(), false).is_empty());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn garbage_is_no_node(garbage: String, cut in 0..200_usize) {
            let _ = parse(&garbage, 0);
            let written = text(&nodes(), 1000);
            let cut: String = written.chars().take(cut).chain(garbage.chars()).collect();
            for node in parse(&cut, 1000).into_iter().flatten() {
                prop_assert!(!node.programs.iter().any(|name| name.contains(char::is_control)));
            }
        }
    }
}
