//! A connection from its first message to the last: threads that serve requests.

use std::ffi::CString;
use std::fmt;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use rustix::io::Errno;

use crate::connection::FuseDevice;
use crate::device::DeviceTransport;
use crate::init::{MAJOR, Negotiation, OLDEST_MINOR, OVER_IO_URING};
use crate::messages::{Call, RequestHeader};
use crate::reply::Reply;
use crate::transport::{ReplySink, Transport};
use crate::uring::{Asked, Registrations, UringTransport, prepare, put_one_queue_last};

/// Threads that read the device where requests travel by `io_uring`: it brings FORGET and INTERRUPT.
const BESIDE: usize = 2;
/// How long such a thread lets the next FORGETs gather, which are one message then. A program that removes files would have it
/// woken for each of them, on the processors that the program and its requests need.
const GATHER: Duration = Duration::from_millis(1);

/// What serves requests.
pub trait FuseServer: Send + Sync + 'static {
    /// Serves one request, from the thread that took it. A reply that is dropped is EIO. Where it travels only after this has
    /// returned, the program waits until then: what need not be done before is not done behind a reply.
    fn serve(&self, request: &RequestHeader, call: Call<'_>, reply: Reply<'_>);

    /// A thread of those that wait together has taken a request.
    fn takes(&self) {}

    /// It has served the request, which it began at `began`, and waits for the next when this has returned.
    fn rests(&self, _asker: u32, _began: Instant) {}

    /// The kernel gives back `lookups` references to an inode.
    fn forget(&self, ino: u64, lookups: u64);
}

/// How a connection is served.
#[derive(Clone, Copy, Debug)]
pub struct SessionOptions {
    /// Threads; by `io_uring` of each queue, as far as that is possible.
    pub threads: usize,
    /// Each thread that reads the device has a descriptor of its own.
    pub clone_fd: bool,
    /// Requests travel by `io_uring` where that is possible.
    pub by_ring: bool,
    /// Descriptors at most that transports may take, besides those of the device.
    pub most_descriptors: usize,
    /// The one user who is served; all, if there is none.
    pub only: Option<u32>,
}

/// A connection whose first message is answered.
#[derive(Debug)]
pub struct Session {
    device: Arc<FuseDevice>,
    options: SessionOptions,
    /// Entries of `io_uring`; none where requests come by the device.
    entries: Vec<UringTransport>,
    travel: Travel,
}

/// How requests travel, in words for a person.
#[derive(Clone, Debug)]
pub struct Travel {
    begun: Arc<str>,
    /// It began with entries of `io_uring`.
    by_ring: bool,
    /// The kernel has refused entries of `io_uring` after all.
    refused: Arc<OnceLock<String>>,
}

impl Travel {
    /// Whether requests travel by `io_uring`.
    pub fn is_by_ring(&self) -> bool {
        self.by_ring && self.refused.get().is_none()
    }
}

impl fmt::Display for Travel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.refused.get().map_or(&*self.begun, |text| text))
    }
}

impl Session {
    /// Answers the kernel's first message; `negotiate` says what is asked of it. Requests travel by `io_uring` where kernel and
    /// machine have it for this process, else by the device.
    ///
    /// # Errors
    /// Those of `negotiate`, which the kernel is told, too; `Unsupported` for a kernel before Linux 5.4;
    /// `NotConnected` when the mount has gone meanwhile; those of reading.
    pub fn begin(
        device: FuseDevice,
        options: SessionOptions,
        negotiate: impl Fn(&mut Negotiation) -> io::Result<()>,
    ) -> io::Result<Session> {
        let device = Arc::new(device);
        let mut transport = DeviceTransport::new(device.clone());
        let (mut entries, mut why) = (Vec::new(), String::new());
        let mut negotiate = |kernel: &mut Negotiation| {
            negotiate(kernel)?;
            let mut limited = *kernel;
            limited.ask_for_no_more_than_the_limit();
            let asked = Asked {
                wanted: options.by_ring,
                kernel_can: limited.ask(OVER_IO_URING),
                threads: options.threads,
                most_descriptors: options.most_descriptors,
                payload_bytes: limited.most_payload_bytes(),
            };
            // The kernel holds requests back from its answer on until all queues have entries: so they are made before.
            match prepare(&device, asked) {
                Ok(made) => (entries, *kernel) = (made, limited),
                Err(reason) => why = reason,
            }
            Ok(())
        };
        loop {
            let mut answered = Ok(false);
            if !transport.next(&mut |message, sink| answered = answer_first(message, sink, &mut negotiate))? {
                return Err(io::Error::new(io::ErrorKind::NotConnected, "the mount has gone before it was served"));
            }
            if answered? {
                break;
            }
        }
        let begun = match entries.last() {
            Some(last) => {
                let queues = usize::from(last.queue()) + 1;
                format!("io_uring, {queues} queues of {} threads", entries.len() / queues)
            }
            None => format!("the device ({why})"),
        };
        let travel = Travel { begun: begun.into(), by_ring: !entries.is_empty(), refused: Arc::default() };
        Ok(Session { device, options, entries, travel })
    }

    /// How requests travel.
    pub fn travel(&self) -> &Travel {
        &self.travel
    }

    /// The connection.
    pub fn device(&self) -> &Arc<FuseDevice> {
        &self.device
    }

    /// Serves requests of the mount on `mount_point` by `server` until the connection ends. It says `begun` when it has made its own
    /// requests, if it makes any: an unmount finds the mount busy meanwhile.
    ///
    /// # Errors
    /// Those of making threads and descriptors, before the first request is served; the first that ended a thread.
    pub fn run(self, server: &Arc<impl FuseServer>, mount_point: &Path, begun: impl FnOnce()) -> io::Result<()> {
        // Only the threads hold the connection: it ends with them.
        let Session { device, options, mut entries, travel } = self;
        let beside = !entries.is_empty();
        let of_device = if beside { BESIDE } else { options.threads };
        let mut transports = Vec::with_capacity(of_device);
        for number in 0..of_device {
            let another = options.clone_fd && number > 0;
            let device = if another { Arc::new(device.another()?) } else { device.clone() };
            transports.push(DeviceTransport::new(device));
        }
        drop(device);
        let mut threads = Vec::new();
        for (number, mut transport) in transports.into_iter().enumerate() {
            let server = server.clone();
            let gathers = beside.then_some(GATHER);
            let serve = move || serve_all(&mut transport, &*server, options.only, gathers);
            threads.push(std::thread::Builder::new().name(format!("fuse-{number}")).spawn(serve)?);
        }
        let registrations = Arc::new(put_one_queue_last(&mut entries));
        for (number, entry) in entries.into_iter().enumerate() {
            registrations.wait_for_turn(number);
            let (server, travel, name) = (server.clone(), travel.clone(), format!("fuse-cpu{}", entry.queue()));
            let all = registrations.clone();
            let serve = move || serve_entry((number, entry), &*server, options.only, &travel, &all);
            let thread = std::thread::Builder::new().name(name).spawn(serve);
            threads.push(thread.inspect_err(|_| registrations.give_up())?);
        }
        // The kernel has mounted on no path with a zero.
        if let (true, Ok(mount_point)) = (beside, CString::new(mount_point.as_os_str().as_bytes())) {
            registrations.ask_if_needed(&mount_point);
        }
        begun();
        let mut result = Ok(());
        for thread in threads {
            let ended = thread.join().unwrap_or_else(|_| Err(io::Error::other("a thread that serves panicked")));
            result = result.and(ended);
        }
        result
    }
}

/// Answers the first message; false: the kernel will ask once more.
fn answer_first(
    message: &[u8],
    sink: &dyn ReplySink,
    negotiate: impl FnOnce(&mut Negotiation) -> io::Result<()>,
) -> io::Result<bool> {
    let wrong = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
    let (header, body) =
        RequestHeader::parse(message).map_err(|_| wrong("the kernel's first message has no header"))?;
    let reply = Reply::new(sink, header.unique);
    let Ok(Call::Init { major, minor, max_readahead, flags }) = Call::parse(&header, body) else {
        reply.error(Errno::IO);
        return Err(wrong("the kernel's first message says no version"));
    };
    if major > MAJOR {
        reply.data(&Negotiation::answer_of_version());
        return Ok(false);
    }
    if major < MAJOR || minor < OLDEST_MINOR {
        reply.error(Errno::PROTO);
        let what = format!("the kernel speaks FUSE {major}.{minor}; {MAJOR}.{OLDEST_MINOR} is needed (Linux 5.4)");
        return Err(io::Error::new(io::ErrorKind::Unsupported, what));
    }
    let mut negotiation = Negotiation::new(flags, max_readahead);
    if let Err(error) = negotiate(&mut negotiation) {
        reply.error(Errno::from_io_error(&error).unwrap_or(Errno::IO));
        return Err(error);
    }
    reply.data(&negotiation.answer());
    Ok(true)
}

/// Serves by an entry of `io_uring`, or by the device if the kernel refuses it, until the connection ends.
fn serve_entry(
    (number, mut entry): (usize, UringTransport),
    server: &impl FuseServer,
    only: Option<u32>,
    travel: &Travel,
    registrations: &Registrations,
) -> io::Result<()> {
    entry.stay();
    let (answer, is_the_first) = (entry.register(), registrations.is_the_first(number));
    registrations.add();
    let Err(error) = answer else {
        if registrations.is_of_the_last(number) {
            registrations.wait_for_all();
        }
        if is_the_first {
            registrations.first_is_taken(entry.has_come());
        }
        return serve_all(&mut entry, server, only, None);
    };
    if is_the_first {
        registrations.first_is_taken(true);
    }
    // The first of them says it for all.
    let _ = travel.refused.set(format!("the device (the kernel has refused io_uring: {error})"));
    let mut transport = DeviceTransport::new(entry.device().clone());
    drop(entry);
    serve_all(&mut transport, server, only, None)
}

/// Serves requests until the connection ends. What panics is one program's error: the others are served, and it is told at the
/// end. After references that the kernel gives back it rests for as long as `gathers` says.
fn serve_all(
    transport: &mut impl Transport,
    server: &impl FuseServer,
    only: Option<u32>,
    gathers: Option<Duration>,
) -> io::Result<()> {
    let together = transport.threads_wait_together();
    let (mut last, mut result) = (false, Ok(()));
    while !last
        && transport.next(&mut |message, sink| {
            let served = catch_unwind(AssertUnwindSafe(|| serve_one(message, sink, server, only, together)));
            match served {
                Ok(Some(Served::References)) => gathers.into_iter().for_each(std::thread::sleep),
                Ok(Some(served)) => last = matches!(served, Served::Last),
                Ok(None) => {
                    let what = "the kernel sent a message without a header";
                    result = Err(io::Error::new(io::ErrorKind::InvalidData, what));
                }
                Err(_) => result = Err(io::Error::other("a thread that serves panicked")),
            }
        })?
    {}
    result
}

/// What one message was.
enum Served {
    /// A request.
    Request,
    /// References that the kernel gives back.
    References,
    /// The last.
    Last,
}

/// Serves one message; `None` if it has no header that an answer could name.
fn serve_one(
    message: &[u8],
    sink: &dyn ReplySink,
    server: &impl FuseServer,
    only: Option<u32>,
    together: bool,
) -> Option<Served> {
    let (header, body) = RequestHeader::parse(message).ok()?;
    let reply = Reply::new(sink, header.unique);
    match Call::parse(&header, body) {
        // Not ENOSYS, by which the kernel would never send this kind again.
        Err(_) => reply.error(Errno::IO),
        Ok(Call::Destroy) => {
            reply.ok();
            return Some(Served::Last);
        }
        Ok(Call::Forget { lookups }) => {
            reply.none();
            server.forget(header.ino, lookups);
            return Some(Served::References);
        }
        Ok(Call::ForgetMany(batch)) => {
            reply.none();
            Call::forgets(batch).for_each(|(ino, lookups)| server.forget(ino, lookups));
            return Some(Served::References);
        }
        Ok(Call::Init { .. }) => reply.error(Errno::IO),
        // The kernel asks no more for what there is not: interrupts, for one, as each request is served to its end.
        Ok(Call::Other { .. }) => reply.error(Errno::NOSYS),
        Ok(_) if only.is_some_and(|user| user != header.uid) && !header.is_of_the_kernel() => {
            reply.error(Errno::ACCESS);
        }
        Ok(call) if together => {
            server.takes();
            let began = Instant::now();
            server.serve(&header, call, reply);
            server.rests(header.pid, began);
        }
        Ok(call) => server.serve(&header, call, reply),
    }
    Some(Served::Request)
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsFd, AsRawFd};

    use super::*;

    const SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";

    /// A file system of one directory, of which nothing can be asked but its space.
    struct Empty;

    impl FuseServer for Empty {
        fn serve(&self, _request: &RequestHeader, call: Call<'_>, reply: Reply<'_>) {
            match call {
                Call::StatFs => reply.error(Errno::NOSPC),
                _ => reply.error(Errno::NOSYS),
            }
        }

        fn forget(&self, _ino: u64, _lookups: u64) {}
    }

    #[test]
    fn entries_that_the_kernel_refuses_leave_a_mount_by_the_device() {
        let is_on = std::fs::read_to_string(SWITCH).is_ok_and(|text| text.trim() == "Y");
        if !rustix::process::geteuid().is_root() || !is_on {
            eprintln!("NOT RUN: as root, `echo Y > {SWITCH}` has the kernel offer io_uring");
            return;
        }
        // All of them, or one, while others are in the kernel already or come after it.
        for refused in [0..usize::MAX, 0..1, 3..4] {
            let (dir, device) = (tempfile::tempdir().unwrap(), FuseDevice::open().unwrap());
            let options = format!("fd={},rootmode=40000,user_id=0,group_id=0\0", device.as_fd().as_raw_fd());
            let options = std::ffi::CStr::from_bytes_with_nul(options.as_bytes()).unwrap();
            rustix::mount::mount("test", dir.path(), "fuse", rustix::mount::MountFlags::empty(), options).unwrap();
            let asked = SessionOptions { threads: 2, clone_fd: false, by_ring: true, most_descriptors: 64, only: None };
            let mut session = Session::begin(device, asked, |_| Ok(())).unwrap();
            let count = session.entries.len();
            assert!(session.travel().is_by_ring());
            session.entries[refused.start.min(count - 1)..refused.end.min(count)]
                .iter_mut()
                .for_each(UringTransport::ask_for_no_queue);
            let travel = session.travel().clone();
            let (mount_point, (begun, has_begun)) = (dir.path().to_owned(), std::sync::mpsc::channel());
            let run = move || session.run(&Arc::new(Empty), &mount_point, move || begun.send(()).unwrap());
            let served = std::thread::spawn(run);
            for _ in 0..100 {
                assert_eq!(rustix::fs::statfs(dir.path()).unwrap_err(), Errno::NOSPC);
            }
            // The thread of the entry that is refused may come last.
            let until = Instant::now() + Duration::from_secs(120);
            while travel.is_by_ring() {
                assert!(Instant::now() < until, "{travel}");
                std::thread::yield_now();
            }
            assert!(travel.to_string().contains("has refused io_uring"), "{travel}");
            has_begun.recv().unwrap();
            rustix::mount::unmount(dir.path(), rustix::mount::UnmountFlags::empty()).unwrap();
            served.join().unwrap().unwrap();
        }
    }
}
