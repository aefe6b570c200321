//! [`Excerpt`]: some files, ranks and programs of a log, as a log.

use crate::about::About;
use crate::error::ImportError;
use crate::imported::Imported;
use crate::scratch::ScratchTrace;
use crate::sink::BATCH_ROWS;
use std::collections::{HashMap, HashSet};
use std::path::Path;
use stripewise_trace::{Record, Tables, Trace};

/// Which records of a log are wanted; `None` is all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Excerpt {
    /// Numbers of files.
    pub files: Option<HashSet<u32>>,
    /// Ranks.
    pub ranks: Option<HashSet<u32>>,
    /// Numbers of programs.
    pub programs: Option<HashSet<u32>>,
}

/// Program, rank and process id, as of a record.
type ProcessKey = (u32, u32, u32);

fn has(wanted: Option<&HashSet<u32>>, number: u32) -> bool {
    wanted.is_none_or(|wanted| wanted.contains(&number))
}

impl Excerpt {
    /// The wanted records of `trace` as a temporary trace, and what `about` knows of their files. Files are numbered
    /// anew, programs are not. Where ranks or programs are wanted, files that these did not use are left out, and so
    /// are counters of all ranks together where ranks are. `log` is for messages. O(n log n).
    ///
    /// # Errors
    /// No room for the temporary trace.
    pub fn of(&self, trace: &Trace, about: &About, log: &Path) -> Result<Imported, ImportError> {
        let mut scratch = ScratchTrace::new(log)?;
        let mut made: HashMap<ProcessKey, u64> = HashMap::new();
        let mut new_ids = vec![u32::MAX; trace.files().len()];
        let mut tables = Tables { programs: trace.programs().to_vec(), ..Tables::default() };
        for file in trace.files().iter().filter(|file| has(self.files.as_ref(), file.id)) {
            let has_records = self.copy(trace, file.id, &mut scratch, &mut made)?;
            if has_records || !self.is_of_processes() {
                new_ids[file.id as usize] = tables.files.len() as u32;
                tables.files.push(file.path.as_os_str().as_encoded_bytes().to_vec());
            }
        }
        for process in trace.processes() {
            if let Some(&records) = made.get(&(process.program, process.rank, process.pid)) {
                tables.processes.push(stripewise_trace::Process { records, ..process.clone() });
            }
        }
        let mut about = self.about(about, &new_ids);
        if self.is_of_processes() {
            about.processes = Some(tables.processes.len() as u64);
        }
        let trace = scratch.into_trace(tables, Some(trace.start_unix_ns()), Some(&new_ids))?;
        Ok(Imported { trace, about })
    }

    fn is_of_processes(&self) -> bool {
        self.programs.is_some() || self.ranks.is_some()
    }

    /// Copies the wanted records of a file, counts them by process, and tells whether there are any.
    fn copy(
        &self,
        trace: &Trace,
        file: u32,
        scratch: &mut ScratchTrace,
        made: &mut HashMap<ProcessKey, u64>,
    ) -> Result<bool, ImportError> {
        let mut any = false;
        for window in trace.windows_of(file, BATCH_ROWS) {
            let is_wanted =
                |record: &&Record| has(self.programs.as_ref(), record.program) && has(self.ranks.as_ref(), record.rank);
            let records: Vec<Record> = window.iter().filter(is_wanted).copied().collect();
            for record in &records {
                *made.entry((record.program, record.rank, record.pid)).or_default() += 1;
            }
            any |= !records.is_empty();
            scratch.push(&records).map_err(|source| scratch.no_room(source))?;
        }
        Ok(any)
    }

    /// What is known of the files that have new numbers.
    fn about(&self, about: &About, new_ids: &[u32]) -> About {
        let new_id = |file: u32| new_ids.get(file as usize).copied().filter(|&id| id != u32::MAX);
        let is_wanted =
            |rank: Option<u32>| self.ranks.as_ref().is_none_or(|ranks| rank.is_some_and(|rank| ranks.contains(&rank)));
        let mut own = About { counters: Vec::new(), lustre_layouts: Vec::new(), ..about.clone() };
        for counters in about.counters.iter().filter(|counters| is_wanted(counters.rank)) {
            own.counters.extend(new_id(counters.file).map(|file| crate::FileCounters { file, ..counters.clone() }));
        }
        for layout in &about.lustre_layouts {
            own.lustre_layouts.extend(new_id(layout.file).map(|file| crate::LustreLayout { file, ..layout.clone() }));
        }
        own
    }
}
