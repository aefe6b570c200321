//! [`ProcessFile`]: reads what one process recorded, complete or killed.

use crate::error::TraceError;
use crate::format::{
    COMMAND_BYTES, COUNTERS_AT, HEADER_BYTES, KIND_PROCESS, NAME_MAX_BYTES, NAME_PART, NAME_PART_BYTES, ProcessHeader,
    RECORD_BYTES, SHORT_TEXT_BYTES, VERSION, kind_and_version, process_header_crc,
};
use crate::record::Record;
use std::collections::HashMap;
use std::fs::File;
use std::mem::offset_of;
use std::path::{Path, PathBuf};

/// One process's file, mapped and checked.
pub(crate) struct ProcessFile {
    map: memmap2::Mmap,
    path: PathBuf,
    slots: usize,
    records: u64,
    holes: u64,
    first_ns: Option<u64>,
}

impl ProcessFile {
    /// Maps `path` and checks every slot. O(slots).
    pub(crate) fn open(path: &Path) -> Result<Self, TraceError> {
        let file = File::open(path).map_err(|error| TraceError::io("open", path, error))?;
        let found_bytes = file.metadata().map_err(|error| TraceError::io("stat", path, error))?.len();
        if found_bytes < HEADER_BYTES as u64 {
            return Err(TraceError::Truncated {
                path: path.to_owned(),
                found_bytes,
                expected_bytes: HEADER_BYTES as u64,
            });
        }
        // SAFETY: the mapping is shared and read-only; a recorder may still be appending, and no slot is read as
        // anything but plain numbers, so a change under way gives at worst a record that was being written.
        let map = unsafe { memmap2::Mmap::map(&file) }.map_err(|error| TraceError::io("map", path, error))?;
        let mut this = Self { map, path: path.to_owned(), slots: 0, records: 0, holes: 0, first_ns: None };
        this.check_header(found_bytes)?;
        this.check_slots()?;
        Ok(this)
    }

    fn check_header(&mut self, found_bytes: u64) -> Result<(), TraceError> {
        let path = &self.path;
        match kind_and_version(&self.map[..HEADER_BYTES]) {
            Some((KIND_PROCESS, VERSION)) => {}
            Some((KIND_PROCESS, found)) => {
                return Err(TraceError::Version { path: path.clone(), found, known: VERSION });
            }
            _ => {
                return Err(TraceError::NotATrace {
                    path: path.clone(),
                    why: "it does not begin as a process's file does".into(),
                });
            }
        }
        if process_header_crc(&self.map[..HEADER_BYTES]) != self.word(offset_of!(ProcessHeader, crc)) {
            return Err(TraceError::damaged(path, 0, "its header does not match its check sum"));
        }
        let capacity = self.long(offset_of!(ProcessHeader, capacity_slots));
        let expected_bytes = capacity.saturating_mul(RECORD_BYTES as u64).saturating_add(HEADER_BYTES as u64);
        if found_bytes < expected_bytes {
            // A counter that was damaged promises absurd lengths; a cut file lacks a part of a sensible one.
            return Err(if expected_bytes > 1 << 44 {
                TraceError::damaged(path, COUNTERS_AT as u64, format!("it promises {capacity} slots"))
            } else {
                TraceError::Truncated { path: path.clone(), found_bytes, expected_bytes }
            });
        }
        self.slots = self.long(offset_of!(ProcessHeader, next_slot)).min(capacity) as usize;
        Ok(())
    }

    fn check_slots(&mut self) -> Result<(), TraceError> {
        let (mut records, mut holes, mut first_ns) = (0, 0, None::<u64>);
        for (index, slot) in self.slots().iter().enumerate() {
            let damaged =
                |why: String| TraceError::damaged(&self.path, (HEADER_BYTES + index * RECORD_BYTES) as u64, why);
            match slot.op {
                0 => holes += 1,
                NAME_PART if slot.program as usize > NAME_MAX_BYTES => {
                    return Err(damaged(format!("a file name of {} bytes", slot.program)));
                }
                NAME_PART => {}
                _ => {
                    slot.check().map_err(damaged)?;
                    records += 1;
                    first_ns = Some(first_ns.map_or(slot.start_ns, |first| first.min(slot.start_ns)));
                }
            }
        }
        (self.records, self.holes, self.first_ns) = (records, holes, first_ns);
        Ok(())
    }

    fn slots(&self) -> &[Record] {
        let bytes = &self.map[HEADER_BYTES..HEADER_BYTES + self.slots * RECORD_BYTES];
        // SAFETY: a page into a page-aligned mapping, so 8-aligned; the length was checked by the slice; any bytes
        // are a valid `Record`.
        unsafe { std::slice::from_raw_parts(bytes.as_ptr().cast(), self.slots) }
    }

    /// The records in order of their slots.
    pub(crate) fn records(&self) -> impl Iterator<Item = &Record> {
        self.slots().iter().filter(|slot| slot.op != 0 && slot.op != NAME_PART)
    }

    /// Names by id. A name of which a part is missing is left out.
    pub(crate) fn names(&self) -> HashMap<u32, Vec<u8>> {
        let mut building: HashMap<u32, (Vec<u8>, usize)> = HashMap::new();
        for part in self.slots().iter().filter(|slot| slot.op == NAME_PART) {
            let len = part.program as usize;
            let (name, parts) = building.entry(part.file).or_insert_with(|| (vec![0; len], 0));
            let from = usize::from(part.flags) * NAME_PART_BYTES;
            let words = [part.offset, part.size, part.start_ns, part.end_ns].map(u64::to_le_bytes);
            let to = name.len().min(from + NAME_PART_BYTES);
            if name.len() == len && (from < to || len == 0) {
                if let Some(place) = name.get_mut(from..to) {
                    place.copy_from_slice(&words.as_flattened()[..to - from]);
                }
                *parts += 1;
            }
        }
        building
            .into_iter()
            .filter(|(_, (name, parts))| *parts == name.len().div_ceil(NAME_PART_BYTES).max(1))
            .map(|(id, (name, _))| (id, name))
            .collect()
    }

    fn word(&self, at: usize) -> u32 {
        u32::from_le_bytes(self.map[at..at + 4].try_into().expect("four bytes"))
    }

    fn long(&self, at: usize) -> u64 {
        u64::from_le_bytes(self.map[at..at + 8].try_into().expect("eight bytes"))
    }

    fn text(&self, at: usize, room: usize, len_at: usize) -> &[u8] {
        &self.map[at..at + room.min(self.word(len_at) as usize)]
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn record_count(&self) -> u64 {
        self.records
    }

    pub(crate) fn holes(&self) -> u64 {
        self.holes
    }

    /// Start of the earliest record.
    pub(crate) fn first_ns(&self) -> Option<u64> {
        self.first_ns
    }

    pub(crate) fn rank(&self) -> u32 {
        self.word(offset_of!(ProcessHeader, rank))
    }

    pub(crate) fn pid(&self) -> u32 {
        self.word(offset_of!(ProcessHeader, pid))
    }

    pub(crate) fn parent_pid(&self) -> u32 {
        self.word(offset_of!(ProcessHeader, parent_pid))
    }

    pub(crate) fn start_ns(&self) -> u64 {
        self.long(offset_of!(ProcessHeader, start_ns))
    }

    pub(crate) fn wall_offset_ns(&self) -> i64 {
        self.long(offset_of!(ProcessHeader, wall_offset_ns)) as i64
    }

    pub(crate) fn dropped(&self) -> u64 {
        self.long(offset_of!(ProcessHeader, dropped))
    }

    pub(crate) fn names_dropped(&self) -> u64 {
        self.long(offset_of!(ProcessHeader, names_dropped))
    }

    pub(crate) fn program(&self) -> &[u8] {
        self.text(offset_of!(ProcessHeader, program), SHORT_TEXT_BYTES, offset_of!(ProcessHeader, program_len))
    }

    pub(crate) fn host(&self) -> &[u8] {
        self.text(offset_of!(ProcessHeader, host), SHORT_TEXT_BYTES, offset_of!(ProcessHeader, host_len))
    }

    pub(crate) fn command(&self) -> &[u8] {
        self.text(offset_of!(ProcessHeader, command), COMMAND_BYTES, offset_of!(ProcessHeader, command_len))
    }
}
