//! A small file system over this crate's own device, as the kernel drives it: what programs read and write arrives, every
//! request has an answer, and a thread's defect is one program's error.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use stripewise_fuse::{
    Call, DirectoryEntries, EntryReply, FileAttr, FuseDevice, FuseServer, Notifier, OpenReply, Reply, RequestHeader,
    Session, SessionOptions, open_flags,
};

const FILE: u64 = 2;
/// Threads of the device, or of each queue.
const THREADS: usize = 3;
/// Longer than any of this takes on any machine.
const PATIENCE: Duration = Duration::from_secs(120);
/// The kernel's switch for FUSE by io_uring.
const SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";

fn ring_is_on() -> bool {
    std::fs::read_to_string(SWITCH).is_ok_and(|text| text.trim() == "Y")
}

/// One file in one directory, in memory.
#[derive(Default)]
struct Memory {
    bytes: Mutex<Vec<u8>>,
    forgotten: Mutex<u64>,
    /// Requests that wait until it is said how many may go on.
    waiting: Gate,
    /// Requests that wait until as many as there are threads have come.
    together: Gate,
}

/// Where requests wait for another request, or for the test.
#[derive(Default)]
struct Gate {
    /// Those that have come, and how many may pass.
    state: Mutex<(usize, usize)>,
    changed: Condvar,
}

impl Gate {
    /// A request comes and waits until it may pass.
    fn pass(&self) {
        self.pass_with(usize::MAX);
    }

    /// A request comes and waits until it may pass; the one of this number lets all pass that have come.
    fn pass_with(&self, last: usize) {
        let mut state = self.state.lock().unwrap();
        state.0 += 1;
        let number = state.0;
        if number == last {
            state.1 = last;
        }
        self.changed.notify_all();
        drop(self.changed.wait_while(state, |state| state.1 < number).unwrap());
    }

    /// Waits until `number` have come.
    fn have_come(&self, number: usize) {
        let state = self.state.lock().unwrap();
        let waited = self.changed.wait_timeout_while(state, PATIENCE, |state| state.0 < number).unwrap();
        assert!(!waited.1.timed_out(), "{number} requests come");
    }

    /// Lets all pass that have come.
    fn open_for_all(&self) {
        let mut state = self.state.lock().unwrap();
        state.1 = state.0;
        self.changed.notify_all();
    }
}

impl Memory {
    fn attr(&self, ino: u64) -> FileAttr {
        let mode = if ino == FILE { libc::S_IFREG | 0o644 } else { libc::S_IFDIR | 0o755 };
        let size = if ino == FILE { self.bytes.lock().unwrap().len() as u64 } else { 0 };
        FileAttr { ino, mode, size, nlink: 1, blksize: 4096, ..FileAttr::default() }
    }

    fn entry(&self, ino: u64) -> EntryReply {
        EntryReply { attr: self.attr(ino), name_holds: Duration::ZERO, attr_holds: Duration::ZERO }
    }
}

impl FuseServer for Memory {
    fn serve(&self, request: &RequestHeader, call: Call<'_>, reply: Reply<'_>) {
        match call {
            Call::Lookup { name } if name == "file" => reply.entry(&self.entry(FILE)),
            Call::Lookup { .. } => reply.error(Errno::NOENT),
            Call::GetAttr => reply.attr(&self.attr(request.ino), Duration::ZERO),
            Call::SetAttr(change) => {
                if let Some(size) = change.size_bytes {
                    self.bytes.lock().unwrap().resize(size as usize, 0);
                }
                reply.attr(&self.attr(request.ino), Duration::ZERO);
            }
            Call::Open { .. } => reply.opened(&OpenReply { handle: 7, flags: open_flags::DIRECT_IO, backing: 0 }),
            Call::OpenDir => reply.opened(&OpenReply { handle: 8, flags: 0, backing: 0 }),
            Call::Read { handle: 7, offset, size, .. } => {
                let bytes = self.bytes.lock().unwrap();
                let bytes = &bytes[(offset as usize).min(bytes.len())..];
                let filled = reply.filled(size as usize, |room| {
                    let count = bytes.len().min(room.len());
                    room[..count].copy_from_slice(&bytes[..count]);
                    Ok::<_, Errno>(count)
                });
                assert!(filled.is_ok());
            }
            Call::SetXattr { name, value, .. } if name == "user.long" => {
                *self.bytes.lock().unwrap() = value.to_vec();
                reply.ok();
            }
            Call::GetXattr { name, size } if name == "user.long" => {
                let bytes = self.bytes.lock().unwrap();
                if size == 0 { reply.xattr_size(bytes.len() as u32) } else { reply.data(&bytes) }
            }
            Call::Write { handle: 7, offset, data, .. } => {
                let mut bytes = self.bytes.lock().unwrap();
                let end = offset as usize + data.len();
                let length = bytes.len().max(end);
                bytes.resize(length, 0);
                bytes[offset as usize..end].copy_from_slice(data);
                reply.written(data.len() as u32);
            }
            Call::ReadDir { handle: 8, offset, size } => {
                let mut entries = DirectoryEntries::new(size);
                if offset == 0 {
                    let _ = entries.add(FILE, 1, libc::S_IFREG, "file".as_ref());
                }
                reply.entries(&entries);
            }
            Call::Release { .. } | Call::ReleaseDir { .. } => reply.ok(),
            // An answer that is owed and not given.
            Call::FSync { .. } => drop(reply),
            // The kernel lets these come side by side.
            Call::GetXattr { name, .. } if name == "user.wait" => {
                self.waiting.pass();
                reply.error(Errno::NODATA);
            }
            Call::GetXattr { name, .. } if name == "user.pass" => {
                self.waiting.open_for_all();
                reply.error(Errno::NODATA);
            }
            Call::GetXattr { name, .. } if name == "user.together" => {
                self.together.pass_with(THREADS);
                reply.error(Errno::NODATA);
            }
            Call::LSeek { .. } => panic!("on purpose"),
            // More than an answer to this has room for.
            Call::ReadLink | Call::StatFs => reply.data(&[0; 9000]),
            _ => reply.error(Errno::NOSYS),
        }
    }

    fn forget(&self, ino: u64, lookups: u64) {
        assert_eq!(ino, FILE);
        *self.forgotten.lock().unwrap() += lookups;
    }
}

struct Mounted {
    dir: tempfile::TempDir,
    memory: Arc<Memory>,
    notifier: Notifier,
    served: Option<JoinHandle<std::io::Result<()>>>,
    /// Says when it makes no request of its own any more.
    has_begun: mpsc::Receiver<()>,
}

impl Mounted {
    /// Mounts it, served by three threads, or with `by_ring` by three for each processor; `None` where this user may not mount, or has
    /// no io_uring.
    fn new(clone_fd: bool, by_ring: bool) -> Option<Mounted> {
        let (mounted, travel) = Mounted::begin(clone_fd, by_ring)?;
        assert_eq!(travel.starts_with("io_uring, "), by_ring, "{travel}");
        Some(mounted)
    }

    /// The same, and how requests travel, whatever that is.
    fn begin(clone_fd: bool, by_ring: bool) -> Option<(Mounted, String)> {
        Mounted::begin_after(clone_fd, by_ring, |_| ())
    }

    /// The same, after `first` with what is mounted there and not served yet.
    fn begin_after(clone_fd: bool, by_ring: bool, first: impl FnOnce(&Path)) -> Option<(Mounted, String)> {
        if !rustix::process::geteuid().is_root() || !Path::new("/dev/fuse").exists() {
            eprintln!("not run: it mounts, as root, with /dev/fuse");
            return None;
        }
        if by_ring && !ring_is_on() {
            eprintln!("NOT RUN over io_uring: `echo Y > {SWITCH}` as root has the kernel offer it");
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        let device = FuseDevice::open().unwrap();
        let options = format!("fd={},rootmode=40000,user_id=0,group_id=0\0", device.as_fd().as_raw_fd());
        let options = std::ffi::CStr::from_bytes_with_nul(options.as_bytes()).unwrap();
        rustix::mount::mount("test", dir.path(), "fuse", rustix::mount::MountFlags::empty(), options).unwrap();
        first(dir.path());
        let memory = Arc::new(Memory::default());
        let options = SessionOptions { threads: THREADS, clone_fd, by_ring, most_descriptors: 64, only: None };
        let session = Session::begin(device, options, |kernel| {
            assert!(!kernel.ask(1 << 63), "no kernel has this yet");
            Ok(())
        });
        let session = session.unwrap();
        let travel = session.travel().to_string();
        let notifier = Notifier::new(session.device().clone());
        let server = memory.clone();
        let (mount_point, (begun, has_begun)) = (dir.path().to_owned(), mpsc::channel());
        // A test that fails does not wait for it.
        let run = move || {
            session.run(&server, &mount_point, move || {
                let _ = begun.send(());
            })
        };
        let served = Some(std::thread::spawn(run));
        Some((Mounted { dir, memory, notifier, served, has_begun }, travel))
    }

    fn open(&self) -> File {
        File::options().read(true).write(true).open(self.dir.path().join("file")).unwrap()
    }

    fn end(mut self) -> Arc<Memory> {
        assert_eq!(self.has_begun.recv_timeout(PATIENCE), Ok(()));
        rustix::mount::unmount(self.dir.path(), rustix::mount::UnmountFlags::empty()).unwrap();
        self.served.take().unwrap().join().unwrap().unwrap();
        self.memory.clone()
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if self.served.is_some() {
            // A test has failed before it ended the mount. Its own threads may wait for it, which no kill would end.
            let flags = rustix::mount::UnmountFlags::DETACH | rustix::mount::UnmountFlags::FORCE;
            let _ = rustix::mount::unmount(self.dir.path(), flags);
            self.memory.waiting.open_for_all();
            self.memory.together.open_for_all();
        }
    }
}

#[test]
fn what_programs_write_arrives_and_comes_back() {
    for (clone_fd, by_ring) in [(false, false), (true, false), (false, true)] {
        let Some(mounted) = Mounted::new(clone_fd, by_ring) else { continue };
        let bytes: Vec<u8> = (0..3_000_000_u32).map(|at| (at % 251) as u8).collect();
        let mut file = mounted.open();
        file.write_all(&bytes).unwrap();
        file.write_all_at(b"middle", 1_000_001).unwrap();
        let mut back = Vec::new();
        mounted.open().read_to_end(&mut back).unwrap();
        let mut expected = bytes;
        expected[1_000_001..1_000_007].copy_from_slice(b"middle");
        assert!(back == expected);
        file.set_len(5).unwrap();
        assert_eq!(mounted.open().metadata().unwrap().len(), 5);
        let names: Vec<_> =
            std::fs::read_dir(mounted.dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["file"]);
        drop(file);
        mounted.notifier.forget_inode(FILE, -1, 0).unwrap();
        mounted.notifier.expire_name(1, b"file").unwrap();
        assert_eq!(mounted.notifier.expire_name(1, b"absent"), Err(Errno::NOENT));
        let memory = mounted.end();
        assert_eq!(*memory.bytes.lock().unwrap(), expected[..5]);
    }
}

#[test]
fn a_request_without_an_answer_is_an_error_and_the_next_is_served() {
    for by_ring in [false, true] {
        let Some(mounted) = Mounted::new(false, by_ring) else { continue };
        let file = mounted.open();
        assert_eq!(file.sync_all().unwrap_err().raw_os_error(), Some(libc::EIO));
        let refused = rustix::fs::statfs(mounted.dir.path()).unwrap_err();
        assert!(refused == Errno::IO || refused == Errno::INVAL, "{refused}");
        file.write_all_at(b"alive", 0).unwrap();
        assert_eq!(std::fs::read(mounted.dir.path().join("file")).unwrap(), b"alive");
        // The kernel knows of no such inode.
        assert_eq!(mounted.notifier.forget_inode(99, 0, 0), Err(Errno::NOENT));
        drop(file);
        mounted.end();
    }
}

#[test]
fn a_device_that_nothing_is_mounted_by_is_an_error() {
    let Some(mounted) = Mounted::new(false, false) else { return };
    mounted.end();
    let device = FuseDevice::open().unwrap();
    // Nothing is mounted: there is no first message.
    let options = SessionOptions { threads: THREADS, clone_fd: false, by_ring: true, most_descriptors: 64, only: None };
    assert!(Session::begin(device, options, |_| Ok(())).is_err());
}

/// From now on the system call `number`, or only the one whose first argument is `first`, is refused to this thread, and to those that
/// it makes.
fn refuse(number: libc::c_long, first: Option<u32>) {
    let step = |code: u32, jf, k| libc::sock_filter { code: code as u16, jt: 0, jf, k };
    // The number comes first, and the first argument after 16 bytes (`struct seccomp_data`).
    let tests: Vec<_> = [(0, number as u32)].into_iter().chain(first.map(|first| (16, first))).collect();
    let mut steps = Vec::new();
    for (index, (at, value)) in tests.iter().enumerate() {
        let behind = 2 * (tests.len() - index - 1) as u8 + 1;
        steps.push(step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, *at));
        steps.push(step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, behind, *value));
    }
    steps.push(step(libc::BPF_RET | libc::BPF_K, 0, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32));
    steps.push(step(libc::BPF_RET | libc::BPF_K, 0, libc::SECCOMP_RET_ALLOW));
    let program = libc::sock_fprog { len: steps.len() as u16, filter: steps.as_mut_ptr() };
    // SAFETY: the kernel copies the steps before it returns.
    let refused = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) == 0
    };
    assert!(refused, "{}", std::io::Error::last_os_error());
}

#[test]
fn a_process_that_may_not_use_io_uring_is_served_by_the_device() {
    for call in [libc::SYS_io_uring_setup, libc::SYS_io_uring_register, libc::SYS_io_uring_enter] {
        let begin = move || {
            refuse(call, None);
            Mounted::begin(false, true)
        };
        let Some((mounted, travel)) = std::thread::spawn(begin).join().unwrap() else { return };
        assert!(travel.starts_with("the device (this process may have no io_uring"), "{travel}");
        mounted.open().write_all_at(b"arrives", 0).unwrap();
        assert_eq!(std::fs::read(mounted.dir.path().join("file")).unwrap(), b"arrives");
        mounted.end();
    }
}

/// Where the mount can have no process that asks for it, or none that may do what it has to, it is served all the same.
#[test]
fn a_mount_that_may_not_ask_itself_is_served() {
    // Threads are made by other calls of these, or with other flags.
    for (call, first) in [(libc::SYS_clone, Some(libc::CLONE_FILES as u32)), (libc::SYS_close_range, None)] {
        let begin = move || {
            refuse(call, first);
            // One that comes as the last queue gets its first entry; only one of the processors has that queue.
            let (tell, told) = mpsc::channel();
            let ask_all = |dir: &Path| {
                for processor in processors() {
                    let (dir, tell) = (dir.to_owned(), tell.clone());
                    std::thread::spawn(move || {
                        stay_on(processor);
                        let answer = rustix::fs::getxattr(&dir, "user.pass", &mut [0_u8; 8]);
                        tell.send(answer.unwrap_err()).unwrap();
                    });
                }
            };
            let (mounted, _) = Mounted::begin_after(false, true, ask_all)?;
            for _ in processors() {
                assert_eq!(told.recv_timeout(PATIENCE), Ok(Errno::NODATA));
            }
            Some(mounted)
        };
        let Some(mounted) = std::thread::spawn(begin).join().unwrap() else { return };
        mounted.open().write_all_at(b"arrives", 0).unwrap();
        assert_eq!(std::fs::read(mounted.dir.path().join("file")).unwrap(), b"arrives");
        mounted.end();
    }
}

/// Has this thread, and those that it makes, run on the first processor that it may: their requests are of one queue.
fn on_one_processor() {
    stay_on(processors()[0]);
}

/// The processors on which the calling thread may run, at least one.
fn processors() -> Vec<usize> {
    let allowed = sched_getaffinity(None).unwrap();
    (0..CpuSet::MAX_CPU).filter(|processor| allowed.is_set(*processor)).collect()
}

fn stay_on(processor: usize) {
    let mut one = CpuSet::new();
    one.set(processor);
    sched_setaffinity(None, &one).unwrap();
}

/// How long the scheduler lets a thread of this process go on while others of its processor have work; 0 for a kernel before Linux
/// 6.12, which does not say it. `None` if there is no such thread.
fn turn_ns(thread: libc::pid_t) -> Option<u64> {
    // SAFETY: all fields may be 0, and the kernel fills in as many bytes as it is told that there are.
    unsafe {
        let mut found: libc::sched_attr = std::mem::zeroed();
        let bytes = size_of::<libc::sched_attr>();
        let done = libc::syscall(libc::SYS_sched_getattr, thread, &raw mut found, bytes, 0) == 0;
        done.then_some(found.sched_runtime)
    }
}

/// The threads of this process that serve by io_uring.
fn serving() -> Vec<libc::pid_t> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().map(|task| task.unwrap().path());
    // One of another test may have ended meanwhile.
    let serving =
        tasks.filter(|task| std::fs::read_to_string(task.join("comm")).is_ok_and(|name| name.starts_with("fuse-cpu")));
    serving.map(|task| task.file_name().unwrap().to_str().unwrap().parse().unwrap()).collect()
}

/// Waits until `is_so` of all threads that serve. It begins before they have begun.
fn eventually_all(what: &str, is_so: impl Fn(libc::pid_t) -> bool) {
    let until = Instant::now() + PATIENCE;
    loop {
        let threads = serving();
        if threads.len() >= THREADS && threads.iter().all(|&thread| is_so(thread)) {
            return;
        }
        assert!(Instant::now() < until, "{what}: {threads:?}");
        std::thread::yield_now();
    }
}

/// With shorter turns of theirs, the kernel wakes the program that they serve up on an idle processor more than twice as often.
#[test]
fn threads_that_serve_have_turns_as_long_as_those_of_programs() {
    let Some(mounted) = Mounted::new(false, true) else { return };
    // The thread that has answered this has begun.
    assert_eq!(ask(&mounted.open(), "user.pass"), Errno::NODATA);
    let own_ns = turn_ns(0).unwrap();
    eventually_all("their turns", |thread| turn_ns(thread).is_none_or(|turn_ns| turn_ns == own_ns));
    mounted.end();
}

#[test]
fn threads_that_serve_go_before_programs() {
    let Some(mounted) = Mounted::new(false, true) else { return };
    let nice = |thread| rustix::process::getpriority_process(rustix::process::Pid::from_raw(thread));
    let expected = (nice(0).unwrap() - 10).max(-20);
    eventually_all("how nice they are", |thread| nice(thread).is_ok_and(|nice| nice == expected));
    mounted.end();
}

/// Asks for an attribute that no file has; the answer.
fn ask(file: &File, name: &str) -> Errno {
    rustix::fs::fgetxattr(file, name, &mut [0_u8; 8]).unwrap_err()
}

#[test]
fn a_request_is_served_while_others_of_its_processor_wait_for_it() {
    for by_ring in [false, true] {
        let Some(mounted) = Mounted::new(false, by_ring) else { continue };
        on_one_processor();
        for round in 0..20 {
            // All threads but one wait for the request that comes after them.
            let (before, waiting) = (round * (THREADS - 1), THREADS - 1);
            let threads: Vec<_> = (0..waiting)
                .map(|_| {
                    let file = mounted.open();
                    std::thread::spawn(move || ask(&file, "user.wait"))
                })
                .collect();
            mounted.memory.waiting.have_come(before + waiting);
            assert_eq!(ask(&mounted.open(), "user.pass"), Errno::NODATA);
            threads.into_iter().for_each(|thread| assert_eq!(thread.join().unwrap(), Errno::NODATA));
        }
        mounted.end();
    }
}

#[test]
fn what_comes_before_a_queue_has_all_its_entries_is_served() {
    for processor in processors().iter().cycle().take(100) {
        let Some(mounted) = Mounted::new(false, true) else { return };
        let open = |mounted: &Mounted| {
            let (path, processor) = (mounted.dir.path().join("file"), *processor);
            move || {
                stay_on(processor);
                File::open(path).unwrap()
            }
        };
        let threads: Vec<_> = (0..THREADS - 1)
            .map(|_| {
                let open = open(&mounted);
                std::thread::spawn(move || ask(&open(), "user.wait"))
            })
            .collect();
        // The first of them may have the only entry when the others come, or this.
        let (open, memory) = (open(&mounted), mounted.memory.clone());
        let (tell, told) = mpsc::channel();
        let passes = std::thread::spawn(move || {
            let file = open();
            memory.waiting.have_come(THREADS - 1);
            tell.send(ask(&file, "user.pass")).unwrap();
        });
        assert_eq!(told.recv_timeout(2 * PATIENCE), Ok(Errno::NODATA));
        passes.join().unwrap();
        threads.into_iter().for_each(|thread| assert_eq!(thread.join().unwrap(), Errno::NODATA));
        mounted.end();
    }
}

/// As many requests as a queue has threads come in the moment in which it gets its first entry. None has an answer before all have
/// come, and no further request comes to that processor.
#[test]
fn requests_that_wait_for_each_other_as_a_queue_gets_its_first_entry_are_served() {
    for (round, processor) in processors().into_iter().cycle().take(40).enumerate() {
        let (tell, told) = mpsc::channel();
        let ask_all = |dir: &Path| {
            for _ in 0..THREADS {
                let (dir, tell) = (dir.to_owned(), tell.clone());
                std::thread::spawn(move || {
                    stay_on(processor);
                    // It is one request.
                    let answer = rustix::fs::getxattr(&dir, "user.together", &mut [0_u8; 8]);
                    tell.send(answer.unwrap_err()).unwrap();
                });
            }
        };
        let Some((mounted, _)) = Mounted::begin_after(false, true, ask_all) else { return };
        for _ in 0..THREADS {
            assert_eq!(told.recv_timeout(PATIENCE), Ok(Errno::NODATA), "round {round}, processor {processor}");
        }
        mounted.end();
    }
}

#[test]
fn more_requests_at_once_than_threads_are_all_served() {
    for by_ring in [false, true] {
        let Some(mounted) = Mounted::new(false, by_ring) else { continue };
        mounted.open().write_all_at(&[7; 100_000], 0).unwrap();
        on_one_processor();
        std::thread::scope(|scope| {
            for number in 0..8 * THREADS {
                let file = mounted.open();
                scope.spawn(move || {
                    for round in 0..50 {
                        let mut bytes = vec![0; 1 + (number * 97 + round * 1013) % 90_000];
                        file.read_exact_at(&mut bytes, 3).unwrap();
                        assert!(bytes.iter().all(|byte| *byte == 7));
                    }
                });
            }
        });
        mounted.end();
    }
}

#[test]
fn what_panics_is_one_programs_error_however_often() {
    for by_ring in [false, true] {
        let Some(mut mounted) = Mounted::new(false, by_ring) else { continue };
        on_one_processor();
        let file = mounted.open();
        for _ in 0..3 * THREADS {
            let errno = rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(0)).unwrap_err();
            assert_eq!(errno, Errno::IO);
            file.write_all_at(b"alive", 0).unwrap();
        }
        drop(file);
        assert_eq!(mounted.has_begun.recv_timeout(PATIENCE), Ok(()));
        rustix::mount::unmount(mounted.dir.path(), rustix::mount::UnmountFlags::empty()).unwrap();
        let ended = mounted.served.take().unwrap().join().unwrap();
        assert!(ended.unwrap_err().to_string().contains("panicked"));
    }
}

#[test]
fn an_end_in_the_middle_ends_every_request_and_every_thread() {
    for by_ring in [false, true] {
        let Some(mut mounted) = Mounted::new(false, by_ring) else { continue };
        let writer = mounted.open();
        let threads: Vec<_> = (0..THREADS)
            .map(|_| {
                let file = mounted.open();
                std::thread::spawn(move || ask(&file, "user.wait"))
            })
            .collect();
        mounted.memory.waiting.have_come(THREADS);
        // It aborts the connection: the mount point is in use.
        let flags = rustix::mount::UnmountFlags::FORCE | rustix::mount::UnmountFlags::DETACH;
        rustix::mount::unmount(mounted.dir.path(), flags).unwrap();
        for thread in threads {
            let errno = thread.join().unwrap();
            assert!([Errno::CONNABORTED, Errno::NOTCONN].contains(&errno), "{errno}");
        }
        let errno = writer.write_all_at(b"x", 0).unwrap_err().raw_os_error().unwrap();
        assert!([libc::ECONNABORTED, libc::ENOTCONN].contains(&errno), "{errno}");
        // Those that serve still wait; then they find that the connection has ended.
        mounted.memory.waiting.open_for_all();
        drop(writer);
        mounted.served.take().unwrap().join().unwrap().unwrap();
    }
}

#[test]
fn names_and_values_stay_as_they_came_until_their_request_is_served() {
    for by_ring in [false, true] {
        let Some(mounted) = Mounted::new(false, by_ring) else { continue };
        let (path, mut back) = (mounted.dir.path().join("file"), vec![0; 65_536]);
        for length in [1, 100, 4096, 65_000] {
            let value: Vec<u8> = (0..length).map(|at| (at % 253) as u8).collect();
            rustix::fs::setxattr(&path, "user.long", &value, rustix::fs::XattrFlags::empty()).unwrap();
            let got = rustix::fs::getxattr(&path, "user.long", &mut back).unwrap();
            assert!(back[..got] == value);
        }
        mounted.end();
    }
}
