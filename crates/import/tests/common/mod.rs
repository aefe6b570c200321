//! Damaged copies of logs, and what every import must hold.

#![allow(dead_code, reason = "each test file uses its part")]

use std::io;
use std::path::{Path, PathBuf};
use stripewise_import::{Collected, FileCounters, ImportError, Importer, LustreLayout, Sink, Summary, import};
use stripewise_trace::{Api, Operation, Record};

/// Imports a file into memory.
pub fn collected(path: &Path) -> Result<(Collected, Summary), ImportError> {
    let mut all = Collected::default();
    let summary = import(path, &mut all)?;
    Ok((all, summary))
}

/// Writes a log and imports it.
pub fn of_bytes(bytes: &[u8]) -> Result<(Collected, Summary), ImportError> {
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

/// Cuts the log at `cuts` places spread over it, and flips a byte in each of `flips` copies; every copy must survive.
/// Returns how many of the copies were imported.
pub fn damage(importer: &dyn Importer, original: &[u8], cuts: usize, flips: usize) -> usize {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("damaged");
    let mut imported = 0;
    for cut in 0..cuts {
        std::fs::write(&path, &original[..original.len() * cut / cuts]).expect("written");
        imported += usize::from(survives(importer, &path).is_some());
    }
    let mut seed = 0x9e37_79b9_7f4a_7c15u64;
    let mut random = || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed
    };
    for _ in 0..flips {
        let mut copy = original.to_vec();
        let at = random() as usize % copy.len();
        copy[at] ^= (random() % 255 + 1) as u8;
        std::fs::write(&path, &copy).expect("written");
        imported += usize::from(survives(importer, &path).is_some());
    }
    imported
}

/// The folder of large logs, where `STRIPEWISE_TEST_DATA` names it.
pub fn test_data() -> Option<PathBuf> {
    std::env::var_os("STRIPEWISE_TEST_DATA").map(PathBuf::from)
}
