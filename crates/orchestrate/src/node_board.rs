//! What an orchestrator says of the nodes that take part: a JSON file in the namespace, for its owner alone, since programs of all
//! users are in it. `--status` and `top` read it on any node.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fs::{Mode, OFlags};
use serde::{Deserialize, Serialize};

use crate::nodes::{NodeStatus, check_node_name};
use crate::plan_page::text_of;

/// Name of the file.
const BOARD_FILE: &str = "nodes.status";
/// Its version.
const BOARD_VERSION: u32 = 2;
/// It is written this often: once a second.
const WRITE_EVERY_NS: u64 = 1_000_000_000;
/// One that is older is of an orchestrator that has ended: 10 s.
const MOST_AGE_NS: u64 = 10_000_000_000;
/// Bytes of it that are read, and programs of a node that are in it.
const MOST_BYTES: u64 = 16 << 20;
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
    pub(crate) fn write(&mut self, nodes: Vec<NodeStatus>, now_ns: u64) {
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

/// The nodes, as the orchestrator of the pool with this namespace has said in the last seconds, and when that was, in nanoseconds
/// since 1970; `None` where it has said nothing, or the file is another user's.
pub(crate) fn read_board(namespace: &Path, is_shared: bool) -> Option<(u64, Vec<NodeStatus>)> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = rustix::fs::open(namespace.join(BOARD_FILE), flags, Mode::empty()).ok()?;
    let file = File::from(file);
    let own = rustix::process::geteuid().as_raw();
    let is_believed =
        file.metadata().is_ok_and(|found| found.is_file() && (found.uid() == 0 || (!is_shared && found.uid() == own)));
    let mut bytes = Vec::new();
    if !is_believed || file.take(MOST_BYTES).read_to_end(&mut bytes).is_err() {
        return None;
    }
    parse(&String::from_utf8_lossy(&bytes), unix_ns())
}

fn unix_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}

/// What stands in the file.
#[derive(Serialize, Deserialize)]
struct Board {
    version: u32,
    written_ns: u64,
    nodes: Vec<NodeStatus>,
}

fn text(nodes: Vec<NodeStatus>, now_ns: u64) -> String {
    let mut board = Board { version: BOARD_VERSION, written_ns: now_ns, nodes };
    board.nodes.iter_mut().for_each(|one| one.programs.truncate(MOST_PROGRAMS));
    serde_json::to_string(&board).unwrap_or_default()
}

/// `None`: it is no such text, or too old.
fn parse(text: &str, now_ns: u64) -> Option<(u64, Vec<NodeStatus>)> {
    let mut board: Board = serde_json::from_str(text).ok()?;
    let age_ns = now_ns.saturating_sub(board.written_ns);
    if board.version != BOARD_VERSION || age_ns > MOST_AGE_NS {
        return None;
    }
    for one in &mut board.nodes {
        check_node_name(&one.name).ok()?;
        one.address = text_of(one.address.as_bytes());
        one.programs.iter_mut().for_each(|program| program.name = text_of(program.name.as_bytes()));
        one.heard_ns = one.heard_ns.saturating_add(age_ns);
    }
    Some((board.written_ns, board.nodes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node_program::NodeProgram;
    use crate::snapshot::ServerDone;
    use proptest::prelude::*;
    use stripewise_schedule::{ProgramKey, ProgramTraits, ServerUseBy};

    fn program(name: &str) -> NodeProgram {
        let uses = vec![ServerUseBy { server: 0, gap_bytes: 4096.0, reuse_ns: f32::NAN }];
        let key = ProgramKey(7 << 32 | 5);
        NodeProgram::of(&ProgramTraits { requests: 3, bytes: 12_288, uses, ..ProgramTraits::named(key, name) }, 0)
    }

    fn nodes() -> Vec<NodeStatus> {
        let one = NodeStatus {
            name: "n1".to_owned(),
            address: "10.0.0.2:4000".to_owned(),
            is_joined: true,
            clock_offset_ns: Some(-5_000_000_000),
            clock_error_ns: 300,
            heard_ns: 20,
            is_in_turns: Some(true),
            programs: ["sim, or so", "a\tb\u{1b}[2J"].map(program).to_vec(),
            served: vec![ServerDone { requests: 3, bytes: 12_288 }],
        };
        let gone = NodeStatus {
            name: "n2".to_owned(),
            is_joined: false,
            clock_offset_ns: None,
            is_in_turns: None,
            programs: vec![],
            served: vec![],
            ..one.clone()
        };
        vec![one, gone]
    }

    #[test]
    fn nodes_are_read_as_they_were_written_until_they_are_too_old() {
        let mut expected = nodes();
        expected[0].programs[1] = program("a?b?[2J");
        let written = text(nodes(), 1000);
        assert_eq!(parse(&written, 1000), Some((1000, expected.clone())));
        expected.iter_mut().for_each(|one| one.heard_ns += 500);
        assert_eq!(parse(&written, 1500), Some((1000, expected)));
        assert_eq!(parse(&written, 1001 + MOST_AGE_NS), None);
        assert_eq!(parse(&written.replace("\"n1\"", "\"../n\""), 1000), None);
        assert_eq!(parse(&written.replace("\"version\":2", "\"version\":1"), 1000), None);
        assert_eq!(parse("", 0), None);
    }

    #[test]
    fn the_file_is_its_owner_s_alone_and_goes_with_its_orchestrator() {
        let dir = tempfile::tempdir().unwrap();
        let mut board = NodeBoard::new(dir.path());
        assert!(board.is_due(5) && read_board(dir.path(), false).is_none());
        board.write(nodes(), 5);
        assert!(!board.is_due(5 + WRITE_EVERY_NS - 1));
        assert_eq!(read_board(dir.path(), false).map(|(_, nodes)| nodes.len()), Some(2));
        let path = dir.path().join(BOARD_FILE);
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        drop(board);
        assert!(!path.exists());
        // A link to what another file says is none.
        std::fs::write(dir.path().join("other"), text(nodes(), unix_ns())).unwrap();
        std::os::unix::fs::symlink("other", &path).unwrap();
        assert!(read_board(dir.path(), false).is_none());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn garbage_is_no_node(garbage: String, cut in 0..200_usize) {
            let _ = parse(&garbage, 0);
            let written = text(nodes(), 1000);
            let cut: String = written.chars().take(cut).chain(garbage.chars()).collect();
            for node in parse(&cut, 1000).map_or_else(Vec::new, |(_, nodes)| nodes) {
                prop_assert!(!node.programs.iter().any(|program| program.name.contains(char::is_control)));
            }
        }
    }
}
