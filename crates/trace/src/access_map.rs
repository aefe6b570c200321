//! [`AccessTotals`] and [`AccessMaps`]: what a report draws of a trace of any size, in memory that does not grow with
//! it.

use crate::heat_map::{Axis, HeatMap};
use crate::reader::Trace;
use crate::record::{Operation, Record};
use std::collections::{BTreeMap, HashMap, HashSet};

/// Parts of an octave that request sizes are told apart by.
pub const SIZE_STEPS: u64 = 4;

/// Requests of one kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AccessLoad {
    /// How many.
    pub requests: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Sum of their times, in nanoseconds.
    pub service_ns: u64,
}

impl AccessLoad {
    fn count(&mut self, record: &Record) {
        self.requests += 1;
        self.bytes = self.bytes.saturating_add(record.size);
        self.service_ns = self.service_ns.saturating_add(record.end_ns.saturating_sub(record.start_ns));
    }
}

/// Reads, then writes.
pub type AccessLoads = [AccessLoad; 2];

/// The process that made `record`.
fn process_id(record: &Record) -> ProcessId {
    (record.program, record.rank, record.pid)
}

fn way(record: &Record) -> usize {
    usize::from(record.op == Operation::Write as u8)
}

/// One file that was read or written.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FileTotals {
    /// Its id in the trace.
    pub file: u32,
    /// What was done to it.
    pub loads: AccessLoads,
    /// End of the furthest byte moved.
    pub extent_bytes: u64,
    /// Smallest and largest request in bytes.
    pub sizes: (u64, u64),
    /// Processes that moved bytes of it.
    pub processes: u64,
}

/// Program, rank, process id: forked processes have one rank, ranks of a log no process id.
pub type ProcessId = (u32, u32, u32);

/// A trace in sums.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AccessTotals {
    /// By process: program, rank, and process id where one is known.
    pub processes: BTreeMap<ProcessId, AccessLoads>,
    /// Those that were read or written, in order of id.
    pub files: Vec<FileTotals>,
    /// By the power of two at or below the size: requests of 2^i up to 2^(i+1) bytes.
    pub sizes: BTreeMap<u32, AccessLoads>,
    /// First begin and last end of a request, in nanoseconds.
    pub span_ns: (u64, u64),
}

impl AccessTotals {
    /// Reads the trace once, as a stream. O(requests); memory for processes and files alone. `progress` is called with
    /// each file's number of records, and may end it.
    ///
    /// # Errors
    /// What `progress` ended it with.
    pub fn of<E>(trace: &Trace, mut progress: impl FnMut(u64) -> Result<(), E>) -> Result<Self, E> {
        let mut totals = Self { span_ns: (u64::MAX, 0), ..Self::default() };
        let mut by_process: HashMap<ProcessId, AccessLoads> = HashMap::new();
        let mut sizes = [AccessLoads::default(); 64];
        for file in trace.files() {
            let mut of = FileTotals { file: file.id, sizes: (u64::MAX, 0), ..FileTotals::default() };
            let mut processes = HashSet::new();
            for record in trace.stream(file.id) {
                let (who, way) = (process_id(record), way(record));
                of.loads[way].count(record);
                of.extent_bytes = of.extent_bytes.max(record.end());
                of.sizes = (of.sizes.0.min(record.size), of.sizes.1.max(record.size));
                processes.insert(who);
                by_process.entry(who).or_default()[way].count(record);
                sizes[record.size.max(1).ilog2() as usize][way].count(record);
                totals.span_ns = (totals.span_ns.0.min(record.start_ns), totals.span_ns.1.max(record.end_ns));
            }
            of.processes = processes.len() as u64;
            if of.processes > 0 {
                totals.files.push(of);
            }
            progress(file.records.len() as u64)?;
        }
        totals.processes = by_process.into_iter().collect();
        totals.sizes = (0..).zip(sizes).filter(|(_, loads)| loads.iter().any(|load| load.requests > 0)).collect();
        totals.span_ns.0 = totals.span_ns.0.min(totals.span_ns.1);
        Ok(totals)
    }
}

/// A file of which less than this part of the bytes of the most moved one is moved gets no map.
const LEAST_SHARE: u64 = 100;

impl AccessTotals {
    /// The `most` files of which most bytes were moved, those left out of which next to none were.
    pub fn most_moved(&self, most: usize) -> Vec<u32> {
        let bytes = |file: &FileTotals| file.loads.iter().fold(0, |sum: u64, load| sum.saturating_add(load.bytes));
        let mut ranked: Vec<(u64, u32)> = self.files.iter().map(|file| (bytes(file), file.file)).collect();
        let most_bytes = ranked.iter().map(|file| file.0).max().unwrap_or(0);
        ranked.retain(|file| file.0 > 0 && file.0 >= most_bytes / LEAST_SHARE);
        ranked.sort_by_key(|&(bytes, file)| (std::cmp::Reverse(bytes), file));
        ranked.into_iter().take(most).map(|(_, file)| file).collect()
    }
}

/// How fine maps are.
#[derive(Debug, Clone, Copy)]
pub struct Fineness {
    /// Most columns.
    pub columns: usize,
    /// Most rows.
    pub rows: usize,
}

/// Reads, then writes.
pub type Maps = [HeatMap; 2];

/// One file's maps.
#[derive(Debug, Clone)]
pub struct FileMaps {
    /// Its id in the trace.
    pub file: u32,
    /// Bytes by time (columns, ns) and offset (rows, bytes).
    pub heat: Maps,
    /// Requests by offset (columns, bytes) and size (rows, see [`size_step`]).
    pub sizes: Maps,
}

/// A trace in pictures.
#[derive(Debug, Clone)]
pub struct AccessMaps {
    /// Bytes by time (columns, ns) and process (rows: places in [`AccessTotals::processes`]).
    pub processes: Maps,
    /// Of the files that were asked for, in the order in which they were.
    pub files: Vec<FileMaps>,
}

/// The row of a request size: [`SIZE_STEPS`] an octave, evenly within it, from 0 for sizes below 2 bytes.
pub fn size_step(size: u64) -> u64 {
    let octave = u64::from(size.max(1).ilog2());
    let within = (u128::from(size.max(1) - (1 << octave)) * u128::from(SIZE_STEPS)) >> octave;
    octave * SIZE_STEPS + within as u64
}

impl AccessMaps {
    /// The maps of `files` (ids) and of all processes, `totals` being the trace's. Reads the trace once more.
    /// O(requests); 16 bytes a cell. `progress` as for [`AccessTotals::of`].
    ///
    /// # Errors
    /// What `progress` ended it with.
    pub fn of<E>(
        trace: &Trace,
        totals: &AccessTotals,
        files: &[u32],
        fineness: Fineness,
        mut progress: impl FnMut(u64) -> Result<(), E>,
    ) -> Result<Self, E> {
        let Fineness { columns, rows } = fineness;
        let time = Axis::over(totals.span_ns.0..totals.span_ns.1, columns, 1);
        let places: HashMap<ProcessId, u64> = totals.processes.keys().copied().zip(0..).collect();
        let empty = |across, down| [HeatMap::new(across, down), HeatMap::new(across, down)];
        let mut maps = Self {
            processes: empty(time, Axis::over(0..places.len() as u64, rows, 1)),
            files: Vec::with_capacity(files.len()),
        };
        for file in trace.files() {
            let asked = files.contains(&file.id);
            let of = totals.files.binary_search_by_key(&file.id, |of| of.file).ok().map(|at| &totals.files[at]);
            let mut own = of.filter(|_| asked).map(|of| {
                let (from, to) = (size_step(of.sizes.0), size_step(of.sizes.1) + 1);
                let offsets =
                    |most| Axis::over(0..of.extent_bytes, most, if of.extent_bytes > 1 << 20 { 4096 } else { 1 });
                FileMaps {
                    file: file.id,
                    heat: empty(time, offsets(rows)),
                    sizes: empty(offsets(columns), Axis { from, cell: 1, cells: (to - from) as usize }),
                }
            });
            for record in trace.stream(file.id) {
                let (way, when) = (way(record), record.start_ns..record.end_ns);
                let place = places.get(&process_id(record)).copied().unwrap_or(0);
                if let Some(own) = &mut own {
                    let step = size_step(record.size);
                    own.heat[way].add(when.clone(), record.offset..record.end(), record.size);
                    own.sizes[way].add(record.offset..record.offset, step..step, 1);
                }
                maps.processes[way].add(when, place..place + 1, record.size);
            }
            maps.files.extend(own);
            progress(file.records.len() as u64)?;
        }
        maps.files.sort_by_key(|of| files.iter().position(|&file| file == of.file));
        Ok(maps)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_told_apart_by_quarters_of_an_octave() {
        assert_eq!([0, 1, 2, 3, 4, 5, 8].map(size_step), [0, 0, 4, 6, 8, 9, 12]);
        assert_eq!(size_step(u64::MAX), 255);
        assert!((1..5000).all(|size| size_step(size) <= size_step(size + 1)));
    }
}
