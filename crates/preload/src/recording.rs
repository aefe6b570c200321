//! Recording: which files, and the recorder of this process.

use crate::environment::variable;
use crate::paths::{self, is_below};
use crate::table::TABLE;
use std::ffi::{OsStr, c_int};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use stripewise_trace::{Api, Operation, ProcessInfo, Recorder, WrappedCall, flags, now_ns};

/// Where the files of the system are, not the user's; as Darshan leaves them out. A pool's files are always recorded.
const SYSTEM: [&[u8]; 17] = [
    b"/proc", b"/sys", b"/dev", b"/usr", b"/lib", b"/lib32", b"/lib64", b"/libx32", b"/bin", b"/sbin", b"/etc",
    b"/run", b"/boot", b"/opt", b"/var", b"/nix", b"/snap",
];

/// Parts of paths of an interpreter's own files, wherever it is installed.
const INTERPRETER: [&[u8]; 3] = [b"/site-packages/", b"/lib/python", b"/__pycache__/"];

/// Variables of launchers that hold the rank, first come first.
const RANK: [&std::ffi::CStr; 4] = [c"PMI_RANK", c"OMPI_COMM_WORLD_RANK", c"PMIX_RANK", c"SLURM_PROCID"];

/// What is recorded, and where.
pub(crate) struct Recording {
    dir: PathBuf,
    program: Vec<u8>,
    command: Vec<u8>,
    rank: u32,
    /// Prefixes that are always recorded.
    include: Option<Vec<u8>>,
    /// Prefixes that are not.
    exclude: Vec<Vec<u8>>,
    /// Whether interpreters' own files are left out.
    skip_interpreters: bool,
    recorder: AtomicPtr<Recorder>,
    failed: AtomicBool,
}

impl Recording {
    pub(crate) fn new(dir: &[u8], pool_mount: Option<&[u8]>) -> Self {
        let own = variable(c"STRIPEWISE_TRACE_EXCLUDE");
        let mut exclude: Vec<Vec<u8>> = match own {
            Some(list) => list.split(|&byte| byte == b':').filter(|p| !p.is_empty()).map(<[u8]>::to_vec).collect(),
            None => SYSTEM.iter().map(|prefix| prefix.to_vec()).collect(),
        };
        exclude.push(dir.to_vec());
        if own.is_none() {
            exclude.extend(installation());
        }
        let rank = RANK.iter().find_map(|name| std::str::from_utf8(variable(name)?).ok()?.parse().ok()).unwrap_or(0);
        let command = command_line();
        let program = match variable(c"STRIPEWISE_PROGRAM") {
            Some(name) => name.to_vec(),
            None => {
                let first = command.split(|&byte| byte == 0).next().unwrap_or_default();
                first.rsplit(|&byte| byte == b'/').next().unwrap_or_default().to_vec()
            }
        };
        Self {
            dir: PathBuf::from(OsStr::from_bytes(dir)),
            program,
            command,
            rank,
            include: pool_mount.map(<[u8]>::to_vec),
            exclude,
            skip_interpreters: own.is_none(),
            recorder: AtomicPtr::new(ptr::null_mut()),
            failed: AtomicBool::new(false),
        }
    }

    /// Whether what happens to the absolute `path` is recorded. A comparison per prefix.
    pub(crate) fn wants(&self, path: &[u8]) -> bool {
        if self.include.as_ref().is_some_and(|mount| is_below(path, mount)) {
            return true;
        }
        if self.exclude.iter().any(|prefix| is_below(path, prefix)) {
            return false;
        }
        let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
        let library = name.ends_with(b".so") || contains(name, b".so.") || name == b"pyvenv.cfg";
        !(self.skip_interpreters && (library || INTERPRETER.iter().any(|part| contains(path, part))))
    }

    /// This process's recorder, made on first use and again in a forked child. Two loads.
    #[inline]
    pub(crate) fn recorder(&self) -> Option<&Recorder> {
        // SAFETY: recorders are leaked: any thread may hold one.
        match unsafe { self.recorder.load(Ordering::Acquire).as_ref() } {
            Some(recorder) if !recorder.is_inherited() => Some(recorder),
            other => self.start(other),
        }
    }

    #[cold]
    fn start(&self, before: Option<&Recorder>) -> Option<&Recorder> {
        if self.failed.load(Ordering::Relaxed) {
            return None;
        }
        let info = ProcessInfo { program: &self.program, rank: self.rank, command: &self.command };
        let Ok(recorder) = Recorder::create(&self.dir, &info) else {
            // A disk that is full or a directory that is gone: the program runs on, unrecorded.
            self.failed.store(true, Ordering::Relaxed);
            return None;
        };
        let made = Box::into_raw(Box::new(recorder));
        let before = before.map_or(ptr::null_mut(), |before| ptr::from_ref(before).cast_mut());
        // SAFETY: `made` comes from `Box::into_raw`; once another recorder took its place, only this thread knows of
        // it. What is stored is never freed.
        unsafe {
            match self.recorder.compare_exchange(before, made, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => {
                    if !before.is_null() {
                        self.name_again();
                    }
                    made.as_ref()
                }
                Err(other) => {
                    let unused = Box::from_raw(made);
                    let _ = rustix::fs::unlinkat(rustix::fs::CWD, unused.path(), rustix::fs::AtFlags::empty());
                    drop(unused);
                    other.as_ref()
                }
            }
        }
    }

    /// In a forked child: the files of the descriptors that it got, in its own recorder.
    fn name_again(&self) {
        for (fd, entry) in TABLE.known().filter(|(_, entry)| entry.file() != 0) {
            TABLE.set_file(fd, entry, self.file_of(fd));
        }
    }

    /// The id of the file behind `fd`; 0 when it is not to be recorded.
    pub(crate) fn file_of(&self, fd: c_int) -> u32 {
        let mut buffer = [0; paths::MAX_BYTES];
        match paths::of_descriptor(fd, &mut buffer) {
            Some(path) if self.wants(path) => self.recorder().map_or(0, |recorder| recorder.file_id(path)),
            _ => 0,
        }
    }

    /// The id of the file `path` relative to `dirfd`; 0 when it is not to be recorded.
    pub(crate) fn file_at(&self, dirfd: c_int, path: &[u8]) -> u32 {
        let mut buffer = [0; paths::MAX_BYTES];
        match paths::absolute(dirfd, path, &mut buffer) {
            Some(path) if self.wants(path) => self.recorder().map_or(0, |recorder| recorder.file_id(path)),
            _ => 0,
        }
    }

    /// Records one operation that has just ended.
    #[inline]
    pub(crate) fn note(&self, event: TimedOperation) {
        if let Some(recorder) = self.recorder() {
            let TimedOperation { file, api, op, offset, size, start_ns, flags } = event;
            recorder.record(&WrappedCall { file, api, op, offset, size, start_ns, end_ns: now_ns(), flags });
        }
    }
}

/// An operation from its begin on.
#[derive(Clone, Copy)]
pub(crate) struct TimedOperation {
    pub(crate) file: u32,
    pub(crate) api: Api,
    pub(crate) op: Operation,
    pub(crate) offset: u64,
    pub(crate) size: u64,
    pub(crate) start_ns: u64,
    pub(crate) flags: u16,
}

impl TimedOperation {
    pub(crate) fn posix(op: Operation, file: u32) -> Self {
        Self { file, api: Api::Posix, op, offset: 0, size: 0, start_ns: now_ns(), flags: 0 }
    }

    /// With what the call returned: negative is a failure.
    pub(crate) fn result(mut self, result: i64) -> Self {
        if result < 0 {
            self.flags |= flags::FAILED;
        }
        self
    }
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

/// The directories of what the running program was installed with, if it stands in a `bin`: an interpreter looks there
/// for its parts.
fn installation() -> impl Iterator<Item = Vec<u8>> {
    let program = rustix::fs::readlink(c"/proc/self/exe", Vec::new()).unwrap_or_default();
    let directory = program.to_bytes().rsplitn(2, |&byte| byte == b'/').nth(1).unwrap_or_default();
    let prefix = directory.strip_suffix(b"/bin").map(<[u8]>::to_vec);
    prefix
        .into_iter()
        .flat_map(|prefix| [&b"/bin"[..], b"/lib", b"/lib64", b"/share"].map(|part| [prefix.as_slice(), part].concat()))
}

/// `/proc/self/cmdline`, as much of it as a trace keeps.
fn command_line() -> Vec<u8> {
    let mut command = vec![0; 3584];
    let filled = paths::read_start(c"/proc/self/cmdline", &mut command);
    command.truncate(filled);
    command
}
