//! What each call becomes.

use super::event::{Category, Hash, LogEvent};
use super::files::{CursorKey, CursorPosition, FileNumber, FileTable, HashScope};
use crate::error::ImportError;
use crate::lacks::Lacks;
use crate::out::Out;
use crate::sink::Summary;
use std::collections::HashMap;
use stripewise_trace::{Api, Operation, Record, flags};

/// Rows that wait for the name of their file; names come before the calls but for those of other threads.
const MAX_WAITING: usize = 1 << 16;

const O_CREAT: i64 = 0o100;
const O_TRUNC: i64 = 0o1000;
const O_APPEND: i64 = 0o2000;

struct Process {
    pid: u32,
    rank: Option<u32>,
    program: u32,
    directory: Option<Box<[u8]>>,
    space: HashScope,
}

/// Everything that the log has told so far.
pub(super) struct DftracerState<'a> {
    pub out: Out<'a>,
    /// Calls of POSIX and stdio that were seen, and whether any said more than its name.
    pub calls: u64,
    pub any_args: bool,
    counters: u64,
    part: usize,
    files: FileTable,
    processes: Vec<Process>,
    by_pid: HashMap<(usize, i64, Hash), u32>,
    /// The newest process of a part and pid.
    newest_of: HashMap<(usize, i64), u32>,
    spaces: HashScope,
    last_process: Option<((usize, i64, Hash), u32)>,
    /// Rank by part and pid; `None` where it was told twice and differently.
    ranks: HashMap<(usize, i64), Option<u32>>,
    /// Rows were made of a process before its rank was told.
    late_rank: bool,
    /// Time 0, and nanoseconds of the log's unit.
    base: Option<i64>,
    unit_ns: u64,
    before_base: u64,
    waiting: Vec<(FileNumber, Record)>,
    unknown_offsets: u64,
    newest: u64,
    unnamed: u64,
    unsized_calls: u64,
    duplicated: u64,
}

/// What a call does, as far as it matters.
enum Does {
    /// Moves bytes where the cursor is, or at a recorded offset.
    Data {
        writes: bool,
        at: bool,
    },
    /// One character.
    Byte {
        writes: bool,
    },
    /// An unknown number of bytes.
    Lost,
    Open,
    Create,
    Close,
    Seek,
    /// stdio's, which says how far and not where it ends.
    SeekStream,
    Tell,
    Rewind,
    Unget,
    Truncate,
    Plain(Operation),
    Mmap,
    Directory,
    Duplicate,
    Nothing,
}

fn does(category: Category, name: &[u8]) -> Does {
    use Does::*;
    if category == Category::Stdio {
        return match name {
            b"fread" | b"fread_unlocked" => Data { writes: false, at: false },
            b"fwrite" | b"fwrite_unlocked" => Data { writes: true, at: false },
            b"fgets" | b"fgets_unlocked" => Data { writes: false, at: false },
            b"getc" | b"fgetc" | b"getc_unlocked" | b"fgetc_unlocked" => Byte { writes: false },
            b"putc" | b"fputc" | b"putc_unlocked" | b"fputc_unlocked" => Byte { writes: true },
            b"fopen" | b"fopen64" | b"fdopen" | b"freopen" | b"freopen64" => Open,
            b"fclose" => Close,
            b"fseek" | b"fseeko" | b"fseeko64" => SeekStream,
            b"ftell" | b"ftello" | b"ftello64" => Tell,
            b"rewind" => Rewind,
            b"ungetc" => Unget,
            b"fflush" | b"fflush_unlocked" => Plain(Operation::Sync),
            b"fputs" | b"puts" | b"getw" | b"putw" | b"getline" | b"getdelim" | b"fscanf" | b"vfscanf" | b"fprintf"
            | b"vfprintf" | b"fsetpos" | b"fsetpos64" => Lost,
            _ => Nothing,
        };
    }
    match name {
        b"read" | b"readv" => Data { writes: false, at: false },
        b"write" | b"writev" => Data { writes: true, at: false },
        b"pread" | b"pread64" | b"preadv" | b"preadv64" | b"preadv2" => Data { writes: false, at: true },
        b"pwrite" | b"pwrite64" | b"pwritev" | b"pwritev64" | b"pwritev2" => Data { writes: true, at: true },
        b"lseek" | b"lseek64" => Seek,
        b"open" | b"open64" | b"openat" | b"openat64" => Open,
        b"creat" | b"creat64" => Create,
        b"close" => Close,
        b"ftruncate" | b"ftruncate64" | b"truncate" | b"truncate64" => Truncate,
        b"fsync" | b"fdatasync" | b"sync_file_range" | b"msync" => Plain(Operation::Sync),
        b"unlink" | b"unlinkat" | b"remove" => Plain(Operation::Unlink),
        b"rename" | b"renameat" | b"renameat2" => Plain(Operation::Rename),
        b"mmap" | b"mmap64" => Mmap,
        b"posix_fallocate" | b"posix_fallocate64" | b"fallocate" | b"fallocate64" => Plain(Operation::Allocate),
        b"chmod" | b"fchmod" | b"fchmodat" | b"chown" | b"fchown" | b"lchown" | b"fchownat" | b"utime" | b"utimes"
        | b"utimensat" | b"futimens" => Plain(Operation::SetAttributes),
        b"posix_fadvise" | b"posix_fadvise64" | b"readahead" => Plain(Operation::Advise),
        b"copy_file_range" | b"sendfile" | b"sendfile64" => Lost,
        b"access" | b"faccessat" => Plain(Operation::Stat),
        b"chdir" => Directory,
        b"dup" | b"dup2" | b"dup3" => Duplicate,
        _ if memchr::memmem::find(name, b"stat").is_some() && !name.ends_with(b"vfs") => Plain(Operation::Stat),
        _ => Nothing,
    }
}

impl<'a> DftracerState<'a> {
    pub fn new(out: Out<'a>) -> Self {
        DftracerState {
            out,
            calls: 0,
            any_args: false,
            counters: 0,
            part: 0,
            files: FileTable::default(),
            processes: Vec::new(),
            by_pid: HashMap::new(),
            newest_of: HashMap::new(),
            spaces: 0,
            last_process: None,
            ranks: HashMap::new(),
            late_rank: false,
            base: None,
            unit_ns: 1000,
            before_base: 0,
            waiting: Vec::new(),
            unknown_offsets: 0,
            newest: 0,
            unnamed: 0,
            unsized_calls: 0,
            duplicated: 0,
        }
    }

    pub fn begin_part(&mut self, part: usize) {
        self.part = part;
    }

    /// A line about the process that is not a call: its rank.
    pub fn rank_told(&mut self, part: usize, event: &LogEvent<'_>) {
        let text = event.args.text.as_deref().and_then(|text| std::str::from_utf8(text).ok());
        let number =
            text.map_or(event.args.value.and_then(|value| u32::try_from(value).ok()), |text| text.parse().ok());
        if let (Some(b"rank"), Some(rank), Some(pid)) = (event.args.name.as_deref(), number, event.pid) {
            self.ranks.entry((part, pid)).and_modify(|one| *one = one.filter(|one| *one == rank)).or_insert(Some(rank));
        }
    }

    /// A time of the log's first lines, or its unit.
    pub fn time_seen(&mut self, event: &LogEvent<'_>) {
        if let Some(begin) = event.begin {
            self.base = Some(self.base.map_or(begin, |base| base.min(begin)));
        }
        if event.name.as_ref() == b"CM" && event.args.name.as_deref() == Some(b"time_metric") {
            self.unit_ns = match event.args.text.as_deref() {
                Some(b"NS") => 1,
                Some(b"MS") => 1_000_000,
                Some(b"S" | b"SEC") => 1_000_000_000,
                _ => 1000,
            };
        }
    }

    /// Takes one line.
    pub fn event(&mut self, event: &LogEvent<'_>) -> Result<(), ImportError> {
        match event.category {
            Category::Other => Ok(()),
            Category::Own => self.own(event),
            _ if event.is_counter => {
                self.counters += 1;
                Ok(())
            }
            _ => self.call(event),
        }
    }

    fn own(&mut self, event: &LogEvent<'_>) -> Result<(), ImportError> {
        match (event.name.as_ref(), event.args.value, event.args.name.as_deref()) {
            (b"FH" | b"SH", Some(hash), Some(name)) => self.files.name(self.part, hash, name),
            (b"PR", ..) => {
                let pid = (self.part, event.pid.unwrap_or(0));
                let before = self.ranks.get(&pid).copied();
                self.rank_told(self.part, event);
                if before.is_none()
                    && let Some(process) = self.newest_of.get(&pid)
                {
                    self.late_rank = true;
                    self.processes[*process as usize].rank = self.ranks.get(&pid).copied().flatten();
                }
            }
            (b"start", ..) => {
                let process = self.process(event)?;
                let part = self.part;
                let named = |hash: Option<Hash>| hash.and_then(|hash| self.files.name_of(part, hash));
                let directory = named(event.args.cwd).map(Box::from);
                // Words of the command are parted by semicolons.
                let command = named(event.args.command).unwrap_or_default();
                let first = command.split(|byte| matches!(byte, b';' | b' ')).next().unwrap_or_default();
                let name = first.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
                let program = if name.is_empty() { None } else { Some(self.out.program(name)?) };
                self.spaces += 1;
                let process = &mut self.processes[process as usize];
                process.space = self.spaces;
                process.directory = directory;
                process.program = program.unwrap_or(process.program);
            }
            _ => {}
        }
        Ok(())
    }

    /// The process of a line: the same pid is another process in another file, and on another host.
    #[inline]
    fn process(&mut self, event: &LogEvent<'_>) -> Result<u32, ImportError> {
        let pid = event.pid.unwrap_or(0);
        let key = (self.part, pid, event.args.host.unwrap_or(0));
        if let Some((last, process)) = self.last_process
            && last == key
        {
            return Ok(process);
        }
        let process = match self.by_pid.get(&key) {
            Some(&process) => process,
            None => {
                let program = self.out.program(b"unknown")?;
                let rank = self.ranks.get(&(self.part, pid)).copied().flatten();
                self.spaces += 1;
                let space = self.spaces;
                self.processes.push(Process { pid: pid as u32, rank, program, directory: None, space });
                let process = (self.processes.len() - 1) as u32;
                self.by_pid.insert(key, process);
                self.newest_of.insert((self.part, pid), process);
                process
            }
        };
        self.last_process = Some((key, process));
        Ok(process)
    }

    #[expect(clippy::too_many_lines, reason = "a table: an arm for each call of the log")]
    fn call(&mut self, event: &LogEvent<'_>) -> Result<(), ImportError> {
        self.calls += 1;
        self.any_args |= event.has_args;
        let does = does(event.category, &event.name);
        if matches!(does, Does::Nothing) {
            return Ok(());
        }
        let process = self.process(event)?;
        let args = &event.args;
        let Process { space, ref directory, .. } = self.processes[process as usize];
        let directory = directory.as_deref();
        let slot = match (args.file, &args.file_name) {
            (Some(hash), _) => self.files.of_hash(space, self.part, hash, directory),
            (None, Some(name)) => self.files.of_name(name, directory),
            (None, None) => {
                self.unnamed += u64::from(matches!(does, Does::Data { .. } | Does::Byte { .. }));
                return Ok(());
            }
        };
        if let Does::Directory = does {
            let path = self.files.files[slot as usize].path.clone();
            self.spaces += 1;
            let of = &mut self.processes[process as usize];
            (of.directory, of.space) = (path, self.spaces);
            return Ok(());
        }
        if let Does::Duplicate = does {
            self.duplicated += 1;
            return Ok(());
        }
        let Some(moment) = self.moment(event) else { return Ok(()) };
        let number = |value: Option<i64>| value.and_then(|value| u64::try_from(value).ok());
        let stdio = event.category == Category::Stdio;
        let descriptor = |value: Option<i64>| value.and_then(|fd| u32::try_from(fd).ok()).filter(|_| !stdio);
        let handle = match descriptor(args.fd) {
            _ if stdio => CursorKey::Stream(process, slot),
            Some(fd) => CursorKey::Descriptor(process, fd),
            None => CursorKey::File(process, slot),
        };
        let failed = args.ret.is_some_and(|ret| ret < 0);
        let base = Record {
            tid: event.tid.unwrap_or(0) as u32,
            api: if stdio { Api::Stdio } else { Api::Posix } as u8,
            flags: if failed { flags::FAILED } else { 0 },
            start_ns: moment.0,
            end_ns: moment.1,
            ..Record::default()
        };
        let row = |op: Operation, offset: u64, size: u64| Record { op: op as u8, offset, size, ..base };
        let row = match does {
            Does::Data { writes, at } => {
                let op = if writes { Operation::Write } else { Operation::Read };
                let asked = number(args.count).map(|count| count.saturating_mul(number(args.size).unwrap_or(1)));
                if failed {
                    let offset = number(args.offset).filter(|_| at).unwrap_or(0);
                    row(op, offset, asked.unwrap_or(0))
                } else {
                    let done = match (number(args.ret_len), number(args.ret)) {
                        (Some(bytes), _) => Some(bytes),
                        (None, Some(items)) => {
                            Some(items.saturating_mul(number(args.size).filter(|_| stdio).unwrap_or(1)))
                        }
                        (None, None) => None,
                    };
                    let Some(size) = done else {
                        self.lost(handle, slot);
                        return Ok(());
                    };
                    let place = if at {
                        let offset = number(args.offset);
                        if writes {
                            self.files.wrote_to(slot, offset.and_then(|offset| offset.checked_add(size)));
                        }
                        CursorPosition { offset, append: false, newest: false }
                    } else {
                        self.out.summary.lacks |= Lacks::OFFSETS_RECORDED;
                        self.files.advance(process, handle, slot, size, writes)
                    };
                    self.at(place, row(op, 0, size), asked)
                }
            }
            Does::Byte { writes } => {
                if failed || args.ret.is_none() {
                    return Ok(());
                }
                self.out.summary.lacks |= Lacks::OFFSETS_RECORDED;
                let place = self.files.advance(process, handle, slot, 1, writes);
                self.at(place, row(if writes { Operation::Write } else { Operation::Read }, 0, 1), Some(1))
            }
            Does::Lost => {
                self.lost(handle, slot);
                return Ok(());
            }
            Does::Open | Does::Create => {
                let bits = if matches!(does, Does::Create) { O_CREAT | O_TRUNC } else { args.flags.unwrap_or(0) };
                let mode = args.mode.as_deref().filter(|_| stdio).unwrap_or_default();
                let (append, truncate) = if stdio {
                    (mode.starts_with(b"a"), mode.starts_with(b"w"))
                } else {
                    (bits & O_APPEND != 0, bits & O_TRUNC != 0)
                };
                let creates = truncate || append && stdio || !stdio && bits & O_CREAT != 0;
                let handle = match descriptor(args.ret) {
                    Some(fd) if !stdio => CursorKey::Descriptor(process, fd),
                    _ => handle,
                };
                if !failed {
                    self.files.open(handle, slot, append, truncate);
                }
                let more = if append { flags::APPEND } else { 0 } | if creates { flags::CREATE } else { 0 };
                Record { flags: base.flags | more, ..row(Operation::Open, 0, 0) }
            }
            Does::Close => {
                self.files.close(handle);
                row(Operation::Close, 0, 0)
            }
            Does::Seek => {
                let Some(position) = number(args.ret) else { return Ok(()) };
                self.files.place(handle, slot, Some(position));
                if let (Some(2), Some(offset)) = (args.whence, args.offset) {
                    self.files.set_size(slot, position.checked_add_signed(offset.saturating_neg()));
                }
                row(Operation::Seek, position, 0)
            }
            Does::SeekStream => {
                if failed {
                    return Ok(());
                }
                let from = match args.whence {
                    Some(0) => Some(0),
                    Some(1) => self.files.position(handle, slot),
                    Some(2) => self.files.size(slot),
                    _ => None,
                };
                let position = from.zip(args.offset).and_then(|(from, offset)| from.checked_add_signed(offset));
                self.files.place(handle, slot, position);
                let unknown = if position.is_none() { flags::OFFSET_UNKNOWN } else { 0 };
                Record { flags: base.flags | unknown, ..row(Operation::Seek, position.unwrap_or(0), 0) }
            }
            Does::Tell => {
                self.files.place(handle, slot, number(args.ret));
                return Ok(());
            }
            Does::Rewind => {
                self.files.place(handle, slot, Some(0));
                row(Operation::Seek, 0, 0)
            }
            Does::Unget => {
                let before = self.files.position(handle, slot).and_then(|position| position.checked_sub(1));
                self.files.place(handle, slot, before);
                return Ok(());
            }
            Does::Truncate => {
                let length = number(args.length);
                if !failed {
                    self.files.set_size(slot, length);
                }
                row(Operation::Truncate, 0, length.unwrap_or(0))
            }
            Does::Mmap => {
                // Writable mappings are not told from others.
                row(Operation::Mmap, number(args.offset).unwrap_or(0), number(args.length).unwrap_or(0))
            }
            Does::Plain(op) => {
                if op == Operation::Rename
                    && let Some(hash) = args.new_path
                {
                    let directory = self.processes[process as usize].directory.as_deref();
                    let new = self.files.of_hash(space, self.part, hash, directory);
                    self.row(process, new, row(op, 0, 0))?;
                }
                row(op, number(args.offset).unwrap_or(0), number(args.length).unwrap_or(0))
            }
            Does::Directory | Does::Duplicate | Does::Nothing => return Ok(()),
        };
        self.row(process, slot, row)
    }

    /// Bytes were moved, and the log does not say how many.
    fn lost(&mut self, handle: CursorKey, slot: FileNumber) {
        self.unsized_calls += 1;
        self.files.place(handle, slot, None);
        self.files.set_size(slot, None);
    }

    fn at(&mut self, place: CursorPosition, row: Record, asked: Option<u64>) -> Record {
        let mut bits = row.flags | if place.append { flags::APPEND } else { 0 };
        if asked.is_some_and(|asked| asked > row.size) {
            bits |= flags::SHORT;
        }
        if place.offset.is_none() {
            bits |= flags::OFFSET_UNKNOWN;
            self.unknown_offsets += 1;
        }
        self.newest += u64::from(place.newest && place.offset.is_some());
        Record { offset: place.offset.unwrap_or(0), flags: bits, ..row }
    }

    /// Begin and end in nanoseconds since time 0; `None` for a line without a time.
    fn moment(&mut self, event: &LogEvent<'_>) -> Option<(u64, u64)> {
        let begin = event.begin?;
        let base = *self.base.get_or_insert(begin);
        self.before_base += u64::from(begin < base);
        let since = u64::try_from(begin.saturating_sub(base)).unwrap_or(0).saturating_mul(self.unit_ns);
        let long = u64::try_from(event.duration.unwrap_or(0)).unwrap_or(0).saturating_mul(self.unit_ns);
        Some((since, since.saturating_add(long)))
    }

    #[inline]
    fn row(&mut self, process: u32, slot: FileNumber, row: Record) -> Result<(), ImportError> {
        let of = &self.processes[process as usize];
        let mut row = Record { pid: of.pid, rank: of.rank.unwrap_or(0), program: of.program, ..row };
        if of.rank.is_none() {
            self.out.summary.lacks |= Lacks::RANKS;
        }
        let file = &mut self.files.files[slot as usize];
        row.file = match (file.told, &file.path) {
            (Some(told), _) => told,
            (None, Some(path)) => *file.told.insert(self.out.file(path)?),
            (None, None) => {
                self.waiting.push((slot, row));
                return if self.waiting.len() < MAX_WAITING { Ok(()) } else { self.settle() };
            }
        };
        self.out.row(row)
    }

    /// Hands on the rows that wait for names; those whose name did not come get one made of its hash.
    pub fn settle(&mut self) -> Result<(), ImportError> {
        for (slot, mut row) in std::mem::take(&mut self.waiting) {
            row.file = match self.files.files[slot as usize].told {
                Some(told) => told,
                None => {
                    let (part, hash) = self.files.files[slot as usize].hash;
                    let made_up = format!("dftracer-file-{hash:016x}");
                    let name = self.files.name_of(part, hash);
                    if name.is_none() {
                        self.out.summary.lacks |= Lacks::NAMES;
                    }
                    let told = self.out.file(name.unwrap_or(made_up.as_bytes()))?;
                    self.files.files[slot as usize].told = Some(told);
                    told
                }
            };
            self.out.row(row)?;
        }
        Ok(())
    }

    /// Why nothing of the log can be used.
    pub fn why_empty(&self) -> String {
        if self.calls > 0 {
            let calls = self.calls;
            format!(
                "none of its {calls} calls names a file or a size; record again with DFTRACER_INC_METADATA=1 in the environment"
            )
        } else if self.counters > 0 {
            "it has only sums over intervals; record again without DFTRACER_ENABLE_AGGREGATION".to_owned()
        } else {
            "it has no calls of POSIX or stdio; record again with DFTRACER_DISABLE_IO unset, and with DFTRACER_INIT=PRELOAD \
             for programs that are not Python"
                .to_owned()
        }
    }

    pub fn finish(mut self) -> Result<Summary, ImportError> {
        let summary = &mut self.out.summary;
        let nanoseconds = |base: i64| u64::try_from(base).ok()?.checked_mul(self.unit_ns);
        // Times that are not since 1970 (old logs, other units) tell no date.
        summary.start_unix_ns = self.base.and_then(nanoseconds).filter(|ns| *ns > 1_000_000_000_000_000_000);
        if self.unit_ns > 1 {
            summary.lacks |= Lacks::FINE_TIMES;
        }
        if self.late_rank {
            summary.lacks |= Lacks::RANKS;
            summary
                .note("some processes tell their rank only after their first 4 MiB: requests before count as rank 0");
        }
        if self.unknown_offsets > 0 {
            summary.lacks |= Lacks::OFFSETS;
            let text = "requests are not known: their files were opened before, by another process or by a call that is not traced";
            summary.note(format!("the offsets of {} {text}", self.unknown_offsets));
        }
        if self.newest > 0 {
            let text = "requests were made while their process had the file open more than once: they stand where the newest was";
            summary.note(format!("{} {text}", self.newest));
        }
        if self.unnamed > 0 {
            summary.lacks |= Lacks::NAMES;
            summary.note(format!("{} reads and writes name no file and are left out", self.unnamed));
        }
        if self.unsized_calls > 0 {
            summary
                .note(format!("{} calls moved bytes and do not say how many; they are left out", self.unsized_calls));
        }
        if self.duplicated > 0 {
            let text =
                "times a descriptor was duplicated: dftracer does not see what is done with the copy (dd does all so)";
            summary.note(format!("{} {text}", self.duplicated));
        }
        if self.files.shared_hashes > 0 {
            summary.lacks |= Lacks::NAMES;
            summary.note(format!(
                "{} times a hash stood for another file from then on: some requests may count for the wrong one",
                self.files.shared_hashes
            ));
        }
        if self.before_base > 0 {
            summary.note(format!(
                "{} requests began before the first that was found: they begin with it",
                self.before_base
            ));
        }
        self.out.finish()
    }
}
