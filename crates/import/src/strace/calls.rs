//! What each system call does to descriptors, positions and sizes, and the row it becomes.

use super::scan::{Call, Leader, UNFINISHED, angled, call, descriptor, number, unescape, unquote};
use super::tables::{KernelTables, OpenDescription, TracedThread};
use crate::error::ImportError;
use crate::lacks::Lacks;
use crate::out::Out;
use crate::sink::Summary;
use memchr::memmem;
use std::collections::HashMap;
use stripewise_trace::{Api, Operation, Record, flags};

/// A call that waits for its end keeps at most this much of its line.
const MAX_PENDING_BYTES: usize = 64 * 1024;

/// Everything that the log has told so far.
pub(super) struct StraceState<'a> {
    pub out: Out<'a>,
    /// Lines that were understood.
    pub understood: u64,
    tables: KernelTables,
    threads: HashMap<u32, TracedThread>,
    /// Threads whose fork is not finished, oldest first.
    forking: Vec<u32>,
    /// Data calls on descriptors that nothing named.
    unnamed: u64,
    unknown_offsets: u64,
    unended: u64,
    ambiguous_forks: u64,
    path: Vec<u8>,
}

/// Where the row of a data call stands.
#[derive(Clone, Copy)]
enum Place {
    /// At the descriptor's position, which moves.
    Cursor,
    /// At this offset.
    At(u64),
}

/// When a call was made.
#[derive(Clone, Copy)]
struct Moment {
    thread: u32,
    start_ns: u64,
    end_ns: u64,
}

impl<'a> StraceState<'a> {
    pub fn new(out: Out<'a>) -> Self {
        StraceState {
            out,
            understood: 0,
            tables: KernelTables::default(),
            threads: HashMap::new(),
            forking: Vec::new(),
            unnamed: 0,
            unknown_offsets: 0,
            unended: 0,
            ambiguous_forks: 0,
            path: Vec::new(),
        }
    }

    /// Takes one line without its leader; `false` where it could not be understood.
    pub fn line(&mut self, leader: Leader, now_ns: u64, body: &[u8]) -> Result<bool, ImportError> {
        if leader.thread.is_none() {
            self.out.summary.lacks |= Lacks::PIDS;
        }
        let id = leader.thread.unwrap_or(0);
        let understood = if body.is_empty() || body.starts_with(b"strace: ") || body.starts_with(b"--- ") {
            true
        } else if body.starts_with(b"+++ ") {
            self.exit(id);
            true
        } else if let Some(resumed) = body.strip_prefix(b"<... ") {
            self.resumed(id, now_ns, resumed)?
        } else if let Some(begun) = body.strip_suffix(UNFINISHED) {
            self.suspend(id, now_ns, begun)?;
            true
        } else if let Some(at) = memmem::find(body, b"strace: Process ").filter(|_| body.ends_with(b" attached")) {
            // strace's own message in the middle of a line, when both go to the terminal.
            self.suspend(id, now_ns, &body[..at])?;
            true
        } else {
            match call(body) {
                Some(call) => {
                    let end_ns = now_ns.saturating_add(call.duration_ns.unwrap_or(0));
                    self.returned(Moment { thread: id, start_ns: now_ns, end_ns }, &call)?;
                    true
                }
                // The exit of a process that something else ended: `exit_group(0 <unfinished ...>) = ?` and the like.
                None => memmem::find(body, b" = ?").is_some(),
            }
        };
        self.understood += u64::from(understood);
        Ok(understood)
    }

    pub fn finish(mut self) -> Result<Summary, ImportError> {
        self.unended += self.threads.values().filter(|thread| is_data(&thread.pending)).count() as u64;
        let summary = &mut self.out.summary;
        if self.unnamed > 0 {
            summary.lacks |= Lacks::NAMES;
            let text =
                "reads and writes on descriptors that were opened before the log began are left out; use `strace -y`";
            summary.note(format!("{} {text}", self.unnamed));
        }
        if self.unknown_offsets > 0 {
            summary.lacks |= Lacks::OFFSETS;
            summary.note(format!("the offsets of {} requests are not known", self.unknown_offsets));
        }
        if self.unended > 0 {
            summary.lacks |= Lacks::CUT;
            summary.note(format!(
                "{} reads and writes had not returned when their process or the log ended",
                self.unended
            ));
        }
        if self.ambiguous_forks > 0 {
            let text = "processes began while several others were forking: their descriptors are those of the one that began first";
            summary.note(format!("{} {text}", self.ambiguous_forks));
        }
        if self.tables.overflow {
            summary.lacks |= Lacks::NAMES;
            summary.note("processes with millions of descriptors: some children began without");
        }
        self.out.finish()
    }

    /// The thread of this number; a new one takes the descriptors of the process that is forking.
    fn thread(&mut self, id: u32) -> Result<&mut TracedThread, ImportError> {
        if !self.threads.contains_key(&id) {
            let parent = (!self.forking.is_empty()).then(|| self.forking.remove(0));
            self.ambiguous_forks += u64::from(!self.forking.is_empty());
            match parent {
                Some(parent) => {
                    let pending = self.threads.get(&parent).map(|thread| thread.pending.clone()).unwrap_or_default();
                    self.fork(parent, id, &pending)?;
                }
                None => self.adopt(id, TracedThread::alone)?,
            }
        }
        Ok(self.threads.get_mut(&id).expect("inserted above"))
    }

    fn adopt(&mut self, id: u32, make: fn(u32, usize, u32) -> TracedThread) -> Result<(), ImportError> {
        let program = self.out.program(b"unknown")?;
        let table = self.tables.new_table();
        self.threads.insert(id, make(id, table, program));
        Ok(())
    }

    /// `child` begins as a copy of `parent`, or as a thread of it: `call` holds the arguments.
    fn fork(&mut self, parent: u32, child: u32, call: &[u8]) -> Result<(), ImportError> {
        if self.threads.contains_key(&child) {
            return Ok(());
        }
        let Some(&TracedThread { pid, table, program, .. }) = self.threads.get(&parent) else {
            return self.adopt(child, TracedThread::alone);
        };
        let shares = memmem::find(call, b"CLONE_FILES").is_some();
        let table = if shares { self.tables.share_table(table) } else { self.tables.copy_table(table) };
        let pid = if memmem::find(call, b"CLONE_THREAD").is_some() { pid } else { child };
        self.threads.insert(child, TracedThread { pid, ..TracedThread::alone(child, table, program) });
        Ok(())
    }

    fn exit(&mut self, id: u32) {
        if let Some(thread) = self.threads.remove(&id) {
            self.unended += u64::from(is_data(&thread.pending));
            self.tables.drop_table(thread.table);
            self.forking.retain(|&forking| forking != id);
        }
    }

    fn suspend(&mut self, id: u32, now_ns: u64, begun: &[u8]) -> Result<(), ImportError> {
        let thread = self.thread(id)?;
        thread.pending.clear();
        thread.pending_ns = now_ns;
        if begun.len() <= MAX_PENDING_BYTES {
            thread.pending.extend_from_slice(begun);
        }
        self.forking.retain(|&forking| forking != id);
        if begins_fork(begun) {
            self.forking.push(id);
        }
        Ok(())
    }

    fn resumed(&mut self, id: u32, now_ns: u64, body: &[u8]) -> Result<bool, ImportError> {
        let Some(at) = memmem::find(body, b" resumed>") else { return Ok(false) };
        let (name, rest) = (&body[..at], &body[at + b" resumed>".len()..]);
        let thread = self.thread(id)?;
        let mut text = std::mem::take(&mut thread.pending);
        let start_ns = thread.pending_ns;
        if !text.starts_with(name) || text.get(name.len()) != Some(&b'(') {
            // Its begin is not in the log.
            return Ok(true);
        }
        let begun = text.len();
        text.extend_from_slice(rest);
        // A call can be interrupted twice: `<... read resumed> <unfinished ...>`.
        if let Some(kept) = text.strip_suffix(UNFINISHED) {
            let kept = kept.len();
            text.truncate(kept.max(begun));
            self.suspend(id, start_ns, &text)?;
            return Ok(true);
        }
        let understood = match call(&text) {
            Some(call) => {
                let end_ns = call.duration_ns.map_or(now_ns, |ns| start_ns.saturating_add(ns)).max(start_ns);
                self.returned(Moment { thread: id, start_ns, end_ns }, &call)?;
                true
            }
            None => memmem::find(&text, b" = ?").is_some(),
        };
        self.forking.retain(|&forking| forking != id);
        text.clear();
        if let Some(thread) = self.threads.get_mut(&id) {
            thread.pending = text;
        }
        Ok(understood)
    }

    /// A call came back.
    #[expect(clippy::too_many_lines, reason = "a table: an arm for each system call")]
    fn returned(&mut self, moment: Moment, call: &Call<'_>) -> Result<(), ImportError> {
        let id = moment.thread;
        // `exit_group(0) = ?` never returns: that it has no duration says nothing of the log.
        if call.duration_ns.is_none() && moment.start_ns == moment.end_ns && !call.result.starts_with(b"?") {
            self.out.summary.lacks |= Lacks::DURATIONS;
        }
        let table = self.thread(id)?.table;
        match call.name {
            b"read" => self.data(moment, call, Operation::Read, Place::Cursor, call.unsigned(2)),
            b"write" => self.data(moment, call, Operation::Write, Place::Cursor, call.unsigned(2)),
            b"readv" => self.data(moment, call, Operation::Read, Place::Cursor, None),
            b"writev" => self.data(moment, call, Operation::Write, Place::Cursor, None),
            b"pread64" | b"pread" => self.data(moment, call, Operation::Read, place(call, 3), call.unsigned(2)),
            b"pwrite64" | b"pwrite" => self.data(moment, call, Operation::Write, place(call, 3), call.unsigned(2)),
            b"preadv" | b"preadv2" => self.data(moment, call, Operation::Read, place(call, 3), None),
            b"pwritev" | b"pwritev2" => self.data(moment, call, Operation::Write, place(call, 3), None),
            b"lseek" | b"_llseek" | b"llseek" => self.seek(moment, call),
            b"open" => self.opened(moment, call, 0, call.argument(1)),
            b"openat" | b"openat2" => self.opened(moment, call, 1, call.argument(2)),
            b"creat" => self.opened(moment, call, 0, b"O_WRONLY|O_CREAT|O_TRUNC"),
            b"close" => self.closed(moment, call),
            b"dup" | b"dup2" | b"dup3" | b"fcntl" | b"fcntl64" => {
                self.duplicated(table, call);
                Ok(())
            }
            b"close_range" => {
                if let (Some(first), Some(last), Some(0)) = (call.unsigned(0), call.unsigned(1), call.returned()) {
                    let at_exec = memmem::find(call.argument(2), b"CLOSE_RANGE_CLOEXEC").is_some();
                    let bound = |fd: u64| u32::try_from(fd).unwrap_or(u32::MAX);
                    self.tables.close_range(table, bound(first), bound(last), at_exec);
                }
                Ok(())
            }
            b"fork" | b"vfork" | b"clone" | b"clone3" => {
                self.forking.retain(|&forking| forking != id);
                match call.returned().and_then(|child| u32::try_from(child).ok()) {
                    Some(child) if child > 0 && child != id => {
                        // The arguments are one text up to the result.
                        let (first, last) = (call.argument(0), call.argument(3));
                        let joined = [first, call.argument(1), call.argument(2), last].join(&b' ');
                        self.fork(id, child, &joined)
                    }
                    _ => Ok(()),
                }
            }
            b"execve" | b"execveat" if call.returned() == Some(0) => self.exec(id, call),
            b"ftruncate" | b"ftruncate64" => {
                self.on_descriptor(moment, call, 0, Operation::Truncate, 0, call.unsigned(1))
            }
            b"truncate" | b"truncate64" => self.on_path(moment, call, 0, Operation::Truncate, call.unsigned(1)),
            b"fallocate" => self.on_descriptor(
                moment,
                call,
                0,
                Operation::Allocate,
                call.unsigned(2).unwrap_or(0),
                call.unsigned(3),
            ),
            b"fsync" | b"fdatasync" => self.on_descriptor(moment, call, 0, Operation::Sync, 0, None),
            b"sync_file_range" => {
                self.on_descriptor(moment, call, 0, Operation::Sync, call.unsigned(1).unwrap_or(0), call.unsigned(2))
            }
            b"fstat" | b"fstat64" => {
                self.learn_size(table, call);
                self.on_descriptor(moment, call, 0, Operation::Stat, 0, None)
            }
            b"newfstatat" | b"fstatat64" | b"statx" => {
                self.learn_size(table, call);
                if call.argument(1) == b"\"\"" {
                    self.on_descriptor(moment, call, 0, Operation::Stat, 0, None)
                } else {
                    self.on_path(moment, call, 1, Operation::Stat, None)
                }
            }
            b"stat" | b"lstat" | b"stat64" | b"lstat64" | b"access" => {
                self.on_path(moment, call, 0, Operation::Stat, None)
            }
            b"faccessat" | b"faccessat2" => self.on_path(moment, call, 1, Operation::Stat, None),
            b"unlink" => self.on_path(moment, call, 0, Operation::Unlink, None),
            b"unlinkat" => self.on_path(moment, call, 1, Operation::Unlink, None),
            b"rename" => self.rename(moment, call, 0, 1),
            b"renameat" | b"renameat2" => self.rename(moment, call, 1, 3),
            b"chmod" | b"chown" | b"lchown" | b"utime" | b"utimes" | b"setxattr" | b"lsetxattr" => {
                self.on_path(moment, call, 0, Operation::SetAttributes, None)
            }
            b"fchmodat" | b"fchmodat2" | b"fchownat" => self.on_path(moment, call, 1, Operation::SetAttributes, None),
            b"fchmod" | b"fchown" | b"fsetxattr" => {
                self.on_descriptor(moment, call, 0, Operation::SetAttributes, 0, None)
            }
            b"fadvise64" | b"fadvise64_64" | b"readahead" => {
                self.on_descriptor(moment, call, 0, Operation::Advise, call.unsigned(1).unwrap_or(0), call.unsigned(2))
            }
            b"mmap" | b"mmap2" => self.mmap(moment, call),
            b"copy_file_range" => self.kernel_copy(moment, call, (0, 1), (2, Some(3)), 4),
            b"sendfile" | b"sendfile64" => self.kernel_copy(moment, call, (1, 2), (0, None), 3),
            b"pipe" | b"pipe2" | b"socketpair" => {
                let at = if call.name == b"socketpair" { 3 } else { 0 };
                if call.returned() == Some(0) {
                    let ends = call.argument(at).strip_prefix(b"[").and_then(|text| text.strip_suffix(b"]"));
                    for end in ends.unwrap_or_default().split(|&byte| byte == b',') {
                        self.no_file(table, end.trim_ascii());
                    }
                }
                Ok(())
            }
            b"socket" | b"accept" | b"accept4" | b"epoll_create" | b"epoll_create1" | b"eventfd" | b"eventfd2"
            | b"signalfd" | b"signalfd4" | b"timerfd_create" | b"inotify_init" | b"inotify_init1" | b"memfd_create"
            | b"pidfd_open" | b"userfaultfd" | b"perf_event_open" | b"io_uring_setup" => {
                if call.name == b"io_uring_setup" && call.returned().is_some() {
                    self.out.summary.note("the program uses io_uring, whose requests strace does not see");
                }
                self.no_file(table, call.result);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn no_file(&mut self, table: usize, text: &[u8]) {
        if let Some((fd, _)) = descriptor(text) {
            let open = OpenDescription { file: None, shown: Box::default(), position: None, append: false };
            self.tables.open(table, fd, open, false);
        }
    }

    /// Makes sure that the table has what `-y` shows of descriptor argument `index`; the number of the descriptor.
    fn known(&mut self, table: usize, text: &[u8]) -> Result<Option<u32>, ImportError> {
        let Some((fd, shown)) = descriptor(text) else { return Ok(None) };
        if let Some(shown) = shown {
            let matches = self.tables.get(table, fd).is_some_and(|open| {
                *open.shown == *shown || (open.file.is_none() && open.shown.is_empty() && !is_path(shown))
            });
            if !matches {
                self.shown_otherwise(table, fd, shown)?;
            }
        }
        Ok(Some(fd))
    }

    /// The log shows another file behind a descriptor than the table has: it was renamed, or lines are missing.
    fn shown_otherwise(&mut self, table: usize, fd: u32, shown: &[u8]) -> Result<(), ImportError> {
        let file = if is_path(shown) {
            self.path.clear();
            unescape(shown, &mut self.path);
            Some(self.out.file(&self.path)?)
        } else {
            None
        };
        if let Some(open) = self.tables.get(table, fd) {
            let renamed =
                open.file.is_some_and(|old| self.tables.renamed.get(&old).is_some_and(|new| Some(*new) == file));
            // Without a name so far (opened by a path that was a symbolic link, or before a rename): the same.
            if renamed || open.file == file {
                let open = self.tables.get_mut(table, fd).expect("found above");
                open.file = file;
                open.shown = shown.into();
                return Ok(());
            }
        }
        let open = OpenDescription { file, shown: shown.into(), position: None, append: false };
        self.tables.open(table, fd, open, false);
        Ok(())
    }

    fn row(
        &mut self,
        moment: Moment,
        file: u32,
        op: Operation,
        offset: u64,
        size: u64,
        bits: u16,
    ) -> Result<(), ImportError> {
        let thread = &self.threads[&moment.thread];
        let row = Record {
            offset,
            size,
            start_ns: moment.start_ns,
            end_ns: moment.end_ns,
            file,
            program: thread.program,
            rank: 0,
            pid: thread.pid,
            tid: moment.thread,
            api: Api::Posix as u8,
            op: op as u8,
            flags: bits,
        };
        self.out.row(row)
    }

    /// `read`, `write` and their kin. `asked`: bytes that were asked for, where the call says.
    fn data(
        &mut self,
        moment: Moment,
        call: &Call<'_>,
        op: Operation,
        place: Place,
        asked: Option<u64>,
    ) -> Result<(), ImportError> {
        let table = self.threads[&moment.thread].table;
        let Some(fd) = self.known(table, call.argument(0))? else { return Ok(()) };
        let Some(open) = self.tables.get(table, fd) else {
            self.unnamed += 1;
            return Ok(());
        };
        let Some(file) = open.file else { return Ok(()) };
        let (append, position) = (open.append && op == Operation::Write, open.position);
        let size = call.returned();
        let mut bits = if append { flags::APPEND } else { 0 };
        let offset = match place {
            _ if append => self.tables.sizes.get(&file).copied(),
            Place::Cursor => position,
            Place::At(offset) => Some(offset),
        };
        if size.is_none() {
            bits |= flags::FAILED;
        } else if asked.is_some_and(|asked| size < Some(asked)) || size == Some(0) {
            bits |= flags::SHORT;
        }
        if offset.is_none() {
            bits |= flags::OFFSET_UNKNOWN;
            self.unknown_offsets += 1;
        } else if append || matches!(place, Place::Cursor) {
            self.out.summary.lacks |= Lacks::OFFSETS_RECORDED;
        }
        if let Some(size) = size {
            let end = offset.map(|offset| offset.saturating_add(size));
            if matches!(place, Place::Cursor) {
                self.tables.get_mut(table, fd).expect("found above").position = end;
            }
            match end {
                Some(end) if op == Operation::Write && size > 0 => {
                    // Only what is known to be the size can grow: another size may be larger.
                    if let Some(known) = self.tables.sizes.get_mut(&file) {
                        *known = end.max(*known);
                    }
                }
                None if op == Operation::Write => {
                    self.tables.sizes.remove(&file);
                }
                _ => {}
            }
        }
        self.row(moment, file, op, offset.unwrap_or(0), size.or(asked).unwrap_or(0), bits)
    }

    fn seek(&mut self, moment: Moment, call: &Call<'_>) -> Result<(), ImportError> {
        let table = self.threads[&moment.thread].table;
        let Some(fd) = self.known(table, call.argument(0))? else { return Ok(()) };
        let (to, whence) = if call.name == b"lseek" {
            (call.returned(), call.argument(2))
        } else {
            let inner = call.argument(2).strip_prefix(b"[").and_then(|text| text.strip_suffix(b"]"));
            let to = inner.and_then(number).and_then(|to| u64::try_from(to).ok());
            (to.filter(|_| call.returned() == Some(0)), call.argument(3))
        };
        let Some(open) = self.tables.get_mut(table, fd) else { return Ok(()) };
        let Some(file) = open.file else { return Ok(()) };
        if to.is_some() {
            open.position = to;
        }
        if let (Some(to), b"SEEK_END", Some(0)) = (to, whence, call.unsigned(1)) {
            self.tables.sizes.insert(file, to);
        }
        let bits = if to.is_none() { flags::FAILED } else { 0 };
        self.row(moment, file, Operation::Seek, to.unwrap_or(0), 0, bits)
    }

    /// `open` and its kin: the path is argument `at`, what it is relative to the one before.
    fn opened(&mut self, moment: Moment, call: &Call<'_>, at: usize, mode: &[u8]) -> Result<(), ImportError> {
        let has = |flag: &[u8]| memmem::find(mode, flag).is_some();
        let creates = has(b"O_CREAT") || has(b"O_TRUNC");
        let bits = if creates { flags::CREATE } else { 0 } | if has(b"O_APPEND") { flags::APPEND } else { 0 };
        let result = descriptor(call.result);
        let Some((fd, shown)) = result else {
            let Some(file) = self.path_file(moment.thread, call, at)? else { return Ok(()) };
            return self.row(moment, file, Operation::Open, 0, 0, bits | flags::FAILED);
        };
        let table = self.threads[&moment.thread].table;
        let file = match shown {
            Some(shown) if !is_path(shown) => None,
            Some(shown) => {
                self.path.clear();
                unescape(shown, &mut self.path);
                Some(self.out.file(&self.path)?)
            }
            None => self.path_file(moment.thread, call, at)?,
        };
        let open = OpenDescription {
            file,
            shown: shown.unwrap_or_default().into(),
            position: Some(0),
            append: has(b"O_APPEND"),
        };
        self.tables.open(table, fd, open, has(b"O_CLOEXEC"));
        let Some(file) = file else { return Ok(()) };
        if has(b"O_TRUNC") || (has(b"O_CREAT") && has(b"O_EXCL")) {
            self.tables.sizes.insert(file, 0);
        }
        self.row(moment, file, Operation::Open, 0, 0, bits)
    }

    fn closed(&mut self, moment: Moment, call: &Call<'_>) -> Result<(), ImportError> {
        let table = self.threads[&moment.thread].table;
        let Some(fd) = self.known(table, call.argument(0))? else { return Ok(()) };
        let file = self.tables.get(table, fd).and_then(|open| open.file);
        self.tables.close(table, fd);
        match file {
            Some(file) if !call.failed() => self.row(moment, file, Operation::Close, 0, 0, 0),
            _ => Ok(()),
        }
    }

    fn duplicated(&mut self, table: usize, call: &Call<'_>) {
        let (Some((from, _)), Some((to, _))) = (descriptor(call.argument(0)), descriptor(call.result)) else { return };
        let command = call.argument(1);
        let close_on_exec = match call.name {
            b"dup" | b"dup2" => false,
            b"dup3" => memmem::find(call.argument(2), b"O_CLOEXEC").is_some(),
            _ => match command {
                b"F_DUPFD" => false,
                b"F_DUPFD_CLOEXEC" => true,
                b"F_SETFD" => {
                    let set = memmem::find(call.argument(2), b"FD_CLOEXEC").is_some();
                    return self.tables.set_close_on_exec(table, from, set);
                }
                b"F_SETFL" => {
                    if let Some(open) = self.tables.get_mut(table, from) {
                        open.append = memmem::find(call.argument(2), b"O_APPEND").is_some();
                    }
                    return;
                }
                _ => return,
            },
        };
        if !self.tables.duplicate(table, from, to, close_on_exec) {
            // A copy of what is not known is not known either.
            self.tables.close(table, to);
        }
    }

    fn exec(&mut self, id: u32, call: &Call<'_>) -> Result<(), ImportError> {
        let at = usize::from(call.name == b"execveat");
        let mut path = std::mem::take(&mut self.path);
        let named = unquote(call.argument(at), &mut path);
        let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
        let program = if named { Some(self.out.program(name)?) } else { None };
        self.path = path;
        let thread = self.threads.get_mut(&id).expect("the caller looked it up");
        thread.program = program.unwrap_or(thread.program);
        thread.table = self.tables.exec(thread.table);
        Ok(())
    }

    /// The file that path argument `at` names; `None` where there is no path.
    fn path_file(&mut self, id: u32, call: &Call<'_>, at: usize) -> Result<Option<u32>, ImportError> {
        let mut path = std::mem::take(&mut self.path);
        let mut found = unquote(call.argument(at), &mut path) && !path.is_empty();
        if found && at > 0 && path[0] != b'/' {
            let base = call.argument(at - 1);
            let from = memchr::memchr(b'<', base).and_then(|open| angled(&base[open..]));
            let mut whole = Vec::new();
            if let Some(from) = from {
                unescape(from, &mut whole);
            } else if let Some((fd, _)) = descriptor(base) {
                let table = self.threads[&id].table;
                if let Some(open) = self.tables.get(table, fd) {
                    unescape(&open.shown, &mut whole);
                }
            }
            if !whole.is_empty() {
                if whole.last() != Some(&b'/') {
                    whole.push(b'/');
                }
                whole.extend_from_slice(path.strip_prefix(b"./").unwrap_or(&path));
                path = whole;
            }
        }
        found &= path.len() <= 16 * 1024;
        let file = if found { Some(self.out.file(&path)?) } else { None };
        self.path = path;
        Ok(file)
    }

    fn on_path(
        &mut self,
        moment: Moment,
        call: &Call<'_>,
        at: usize,
        op: Operation,
        size: Option<u64>,
    ) -> Result<(), ImportError> {
        let Some(file) = self.path_file(moment.thread, call, at)? else { return Ok(()) };
        let failed = call.returned().is_none();
        if !failed {
            match (op, size) {
                (Operation::Truncate, Some(size)) => drop(self.tables.sizes.insert(file, size)),
                (Operation::Unlink, _) => drop(self.tables.sizes.remove(&file)),
                _ => {}
            }
        }
        self.row(moment, file, op, 0, size.unwrap_or(0), if failed { flags::FAILED } else { 0 })
    }

    fn on_descriptor(
        &mut self,
        moment: Moment,
        call: &Call<'_>,
        at: usize,
        op: Operation,
        offset: u64,
        size: Option<u64>,
    ) -> Result<(), ImportError> {
        let table = self.threads[&moment.thread].table;
        let Some(fd) = self.known(table, call.argument(at))? else { return Ok(()) };
        let Some(file) = self.tables.get(table, fd).and_then(|open| open.file) else { return Ok(()) };
        let failed = call.returned().is_none();
        if let (false, Operation::Truncate, Some(size)) = (failed, op, size) {
            self.tables.sizes.insert(file, size);
        }
        if let (false, Operation::Allocate, Some(size)) = (failed, op, size) {
            let keeps = memmem::find(call.argument(1), b"KEEP_SIZE").is_some();
            match self.tables.sizes.get_mut(&file) {
                Some(known) if !keeps => *known = offset.saturating_add(size).max(*known),
                _ => {}
            }
        }
        self.row(moment, file, op, offset, size.unwrap_or(0), if failed { flags::FAILED } else { 0 })
    }

    /// The size that a stat of an open file shows: appends begin there.
    fn learn_size(&mut self, table: usize, call: &Call<'_>) {
        let Some((fd, _)) = descriptor(call.argument(0)) else { return };
        let Some(file) = self.tables.get(table, fd).and_then(|open| open.file) else { return };
        let shown = call.argument(if call.name.starts_with(b"fstat") && call.name != b"fstatat64" { 1 } else { 2 });
        if call.name == b"statx" || call.returned() != Some(0) {
            return;
        }
        let Some(at) = memmem::find(shown, b"st_size=") else { return };
        let text = &shown[at + b"st_size=".len()..];
        let end = text.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
        if let Some(size) = number(&text[..end]).and_then(|size| u64::try_from(size).ok()) {
            self.tables.sizes.insert(file, size);
        }
    }

    fn rename(&mut self, moment: Moment, call: &Call<'_>, from: usize, to: usize) -> Result<(), ImportError> {
        let old = self.path_file(moment.thread, call, from)?;
        let new = self.path_file(moment.thread, call, to)?;
        let bits = if call.returned().is_none() { flags::FAILED } else { 0 };
        if let (Some(old), Some(new), 0) = (old, new, bits) {
            self.tables.renamed.insert(old, new);
            match self.tables.sizes.remove(&old) {
                Some(size) => drop(self.tables.sizes.insert(new, size)),
                None => drop(self.tables.sizes.remove(&new)),
            }
        }
        for file in [old, new].into_iter().flatten() {
            self.row(moment, file, Operation::Rename, 0, 0, bits)?;
        }
        Ok(())
    }

    fn mmap(&mut self, moment: Moment, call: &Call<'_>) -> Result<(), ImportError> {
        let writes = memmem::find(call.argument(2), b"PROT_WRITE").is_some();
        let shared = memmem::find(call.argument(3), b"MAP_SHARED").is_some();
        let table = self.threads[&moment.thread].table;
        let Some(fd) = self.known(table, call.argument(4))? else { return Ok(()) };
        let Some(file) = self.tables.get(table, fd).and_then(|open| open.file) else { return Ok(()) };
        let mut bits = if writes && shared { flags::KERNEL_WRITE } else { 0 };
        if call.returned().is_none() {
            bits |= flags::FAILED;
        }
        let offset = call.unsigned(5).unwrap_or(0);
        self.row(moment, file, Operation::Mmap, offset, call.unsigned(1).unwrap_or(0), bits)
    }

    /// `copy_file_range` and `sendfile`: two rows, where both ends are files. `source` and `target`: the arguments of
    /// descriptor and offset.
    fn kernel_copy(
        &mut self,
        moment: Moment,
        call: &Call<'_>,
        source: (usize, usize),
        target: (usize, Option<usize>),
        asked: usize,
    ) -> Result<(), ImportError> {
        let size = call.returned();
        let table = self.threads[&moment.thread].table;
        let ends = [(source.0, Some(source.1), 0), (target.0, target.1, flags::KERNEL_WRITE)];
        for (fd_at, offset_at, mut bits) in ends {
            let Some(fd) = self.known(table, call.argument(fd_at))? else { continue };
            let Some(open) = self.tables.get(table, fd) else {
                self.unnamed += 1;
                continue;
            };
            let Some(file) = open.file else { continue };
            let given = offset_at.and_then(|at| {
                let inner = call.argument(at).strip_prefix(b"[")?;
                let end = memchr::memchr(b']', inner)?;
                u64::try_from(number(&inner[..end])?).ok()
            });
            let offset = given.or(open.position);
            if let Some(size) = size {
                let end = offset.map(|offset| offset.saturating_add(size));
                if given.is_none() {
                    self.tables.get_mut(table, fd).expect("found above").position = end;
                }
                if bits == flags::KERNEL_WRITE
                    && let (Some(end), Some(known)) = (end, self.tables.sizes.get_mut(&file))
                {
                    *known = end.max(*known);
                }
                if size == 0 {
                    bits |= flags::SHORT;
                }
            } else {
                bits |= flags::FAILED;
            }
            if offset.is_none() {
                bits |= flags::OFFSET_UNKNOWN;
                self.unknown_offsets += 1;
            }
            let bytes = size.or(call.unsigned(asked)).unwrap_or(0);
            self.row(moment, file, Operation::KernelCopy, offset.unwrap_or(0), bytes, bits)?;
        }
        Ok(())
    }
}

impl TracedThread {
    /// A process of one thread.
    fn alone(pid: u32, table: usize, program: u32) -> Self {
        TracedThread { pid, table, program, pending: Vec::new(), pending_ns: 0 }
    }
}

/// The offset argument at `index`; -1 (of `preadv2`) is the descriptor's own position.
fn place(call: &Call<'_>, index: usize) -> Place {
    call.unsigned(index).map_or(Place::Cursor, Place::At)
}

/// Whether what `-y` shows is a path and no pipe or socket (`-x` escapes the slash too).
fn is_path(shown: &[u8]) -> bool {
    shown.starts_with(b"/") || shown.starts_with(b"\\x2f")
}

fn begins_fork(text: &[u8]) -> bool {
    [&b"fork("[..], b"vfork(", b"clone(", b"clone3("].iter().any(|name| text.starts_with(name))
}

fn is_data(pending: &[u8]) -> bool {
    [&b"read"[..], b"write", b"pread", b"pwrite"].iter().any(|name| pending.starts_with(name))
}
