//! Damaged copies of logs, and what every import must hold.

#![allow(dead_code, reason = "each test file uses its part")]

use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use stripewise_import::{FileCounters, ImportError, Importer, LustreLayout, MemorySink, Sink, Summary, import};
use stripewise_trace::{Api, Operation, Record};

/// Imports a file into memory.
pub fn collected(path: &Path) -> Result<(MemorySink, Summary), ImportError> {
    let mut all = MemorySink::default();
    let summary = import(path, &mut all)?;
    Ok((all, summary))
}

/// Writes a log and imports it.
pub fn of_bytes(bytes: &[u8]) -> Result<(MemorySink, Summary), ImportError> {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("log");
    std::fs::write(&path, bytes).expect("written");
    collected(&path)
}

/// Checks what holds for every import, and keeps nothing.
#[derive(Default)]
pub struct Checked {
    pub files: u32,
    pub programs: u32,
    pub rows: u64,
    pub bytes: u64,
    pub counters: u64,
    pub layouts: u64,
}

impl Sink for Checked {
    fn file(&mut self, id: u32, _path: &[u8]) -> io::Result<()> {
        assert_eq!(id, self.files, "files count without gaps");
        self.files += 1;
        Ok(())
    }

    fn program(&mut self, id: u32, _name: &[u8]) -> io::Result<()> {
        assert_eq!(id, self.programs, "programs count without gaps");
        self.programs += 1;
        Ok(())
    }

    fn rows(&mut self, rows: &[Record]) -> io::Result<()> {
        for row in rows {
            assert!(row.file < self.files && row.program < self.programs, "{row:?} names what was not told");
            assert!(row.start_ns <= row.end_ns, "{row:?} ends before it begins");
            assert!(Api::from_number(row.api).is_some() && Operation::from_number(row.op).is_some(), "{row:?}");
            self.bytes = self.bytes.saturating_add(row.size);
        }
        self.rows += rows.len() as u64;
        Ok(())
    }

    fn counters(&mut self, counters: &FileCounters) -> io::Result<()> {
        assert!(counters.file < self.files);
        self.counters += 1;
        Ok(())
    }

    fn layout(&mut self, layout: &LustreLayout) -> io::Result<()> {
        assert!(layout.file < self.files);
        self.layouts += 1;
        Ok(())
    }
}

/// Imports a log that may be damaged, with the importer that it is for; the outcome is an error with words, or a
/// summary that agrees with what came.
pub fn survives(importer: &dyn Importer, path: &Path) -> Option<Summary> {
    let log = stripewise_import::Log::open(path).expect("the test wrote it");
    let mut checked = Checked::default();
    match importer.import(&log, &mut checked) {
        Ok(summary) => {
            assert_eq!((summary.rows, summary.files), (checked.rows, u64::from(checked.files)));
            Some(summary)
        }
        Err(error) => {
            let text = error.to_string();
            assert!(text.contains(&path.display().to_string()) && text.len() > path.as_os_str().len() + 20, "{text}");
            None
        }
    }
}

/// Flips land here half the time, elsewhere the other half: headers, first lines, lengths of regions.
const HEAD_BYTES: usize = 4096;

/// Cuts the log at `cuts` places spread over it, and flips a byte in each of `flips` copies (the same ones every time);
/// every copy must survive. Returns how many of the copies were imported. A worker a processor.
pub fn damage(importer: &dyn Importer, original: &[u8], cuts: usize, flips: usize) -> usize {
    let mut seed = 0x9e37_79b9_7f4a_7c15u64;
    let mut random = || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed
    };
    let flipped: Vec<(usize, u8)> = (0..flips)
        .map(|index| {
            let within = if index % 2 == 0 { original.len() } else { original.len().min(HEAD_BYTES) };
            (random() as usize % within, (random() % 255 + 1) as u8)
        })
        .collect();
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    let run = |worker: usize| {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("damaged");
        std::fs::write(&path, original).expect("written");
        let file = std::fs::File::options().write(true).open(&path).expect("opened");
        let mut imported = 0;
        for (at, mask) in flipped.iter().skip(worker).step_by(workers) {
            file.write_all_at(&[original[*at] ^ mask], *at as u64).expect("written");
            imported += usize::from(survives(importer, &path).is_some());
            file.write_all_at(&original[*at..=*at], *at as u64).expect("written");
        }
        for cut in (0..cuts).rev().skip(worker).step_by(workers) {
            file.set_len((original.len() * cut / cuts) as u64).expect("cut");
            imported += usize::from(survives(importer, &path).is_some());
        }
        imported
    };
    std::thread::scope(|scope| {
        let running: Vec<_> = (0..workers).map(|worker| scope.spawn(move || run(worker))).collect();
        running.into_iter().map(|worker| worker.join().expect("no copy may panic")).sum()
    })
}

/// The folder of large logs, where `STRIPEWISE_TEST_DATA` names it.
pub fn test_data() -> Option<PathBuf> {
    std::env::var_os("STRIPEWISE_TEST_DATA").map(PathBuf::from)
}

/// Every different log that the PyDarshan wheel ships, by name: in the folder that `STRIPEWISE_DARSHAN_LOGS` names (`make
/// test` sets it), else where the interpreter of this checkout has the package.
pub fn wheel_logs() -> BTreeMap<String, PathBuf> {
    let root = std::env::var_os("STRIPEWISE_DARSHAN_LOGS").map_or_else(installed_darshan, PathBuf::from);
    let mut logs = BTreeMap::new();
    for folder in ["examples/example_logs", "examples/darshan-graph", "tests/input"] {
        let entries = std::fs::read_dir(root.join(folder)).unwrap_or_else(|error| {
            panic!("no example logs of PyDarshan in {} ({error}); run `make setup`", root.display())
        });
        for path in entries.map(|entry| entry.expect("an entry").path()) {
            let name = path.file_name().expect("a name").to_string_lossy().into_owned();
            if name.ends_with(".darshan") {
                logs.insert(name, path);
            }
        }
    }
    assert!(logs.len() >= 10, "{} has only {} logs", root.display(), logs.len());
    logs
}

/// Folder of the Python package `darshan`, without importing it.
fn installed_darshan() -> PathBuf {
    let checkout = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("crates/import");
    let python = std::env::var_os("PYO3_PYTHON").map_or_else(|| checkout.join(".venv/bin/python"), PathBuf::from);
    let ask = "import importlib.util as u; print(u.find_spec('darshan').submodule_search_locations[0], end='')";
    let asked = std::process::Command::new(&python).args(["-c", ask]).output();
    match asked {
        Ok(answer) if answer.status.success() => PathBuf::from(String::from_utf8_lossy(&answer.stdout).into_owned()),
        other => panic!("{} has no package darshan ({other:?}); run `make setup`", python.display()),
    }
}
