//! A connection from its first message to the last: threads that serve requests.

use std::io;
use std::sync::Arc;

use rustix::io::Errno;

use crate::connection::FuseDevice;
use crate::device::DeviceTransport;
use crate::init::{MAJOR, Negotiation, OLDEST_MINOR};
use crate::messages::{Call, RequestHeader};
use crate::reply::Reply;
use crate::transport::{ReplySink, Transport};

/// What serves requests.
pub trait FuseServer: Send + Sync + 'static {
    /// Serves one request, from the thread that took it. A reply that is dropped is EIO.
    fn serve(&self, request: &RequestHeader, call: Call<'_>, reply: Reply<'_>);

    /// The kernel gives back `lookups` references to an inode.
    fn forget(&self, ino: u64, lookups: u64);
}

/// How a connection is served.
#[derive(Clone, Copy, Debug)]
pub struct SessionOptions {
    /// Threads.
    pub threads: usize,
    /// Each thread has a descriptor of its own.
    pub clone_fd: bool,
    /// The one user who is served; all, if there is none.
    pub only: Option<u32>,
}

/// A connection whose first message is answered.
#[derive(Debug)]
pub struct Session {
    device: Arc<FuseDevice>,
}

impl Session {
    /// Answers the kernel's first message; `negotiate` says what is asked of it.
    ///
    /// # Errors
    /// Those of `negotiate`, which the kernel is told, too; `Unsupported` for a kernel before Linux 5.4;
    /// `NotConnected` when the mount has gone meanwhile; those of reading.
    pub fn begin(device: FuseDevice, negotiate: impl Fn(&mut Negotiation) -> io::Result<()>) -> io::Result<Session> {
        let device = Arc::new(device);
        let mut transport = DeviceTransport::new(device.clone());
        loop {
            let mut answered = Ok(false);
            if !transport.next(&mut |message, sink| answered = answer_first(message, sink, &negotiate))? {
                return Err(io::Error::new(io::ErrorKind::NotConnected, "the mount has gone before it was served"));
            }
            if answered? {
                return Ok(Session { device });
            }
        }
    }

    /// The connection.
    pub fn device(&self) -> &Arc<FuseDevice> {
        &self.device
    }

    /// Serves requests by `server` until the connection ends.
    ///
    /// # Errors
    /// Those of making threads and descriptors, before the first request is served; the first that ended a thread.
    pub fn run(self, server: &Arc<impl FuseServer>, options: SessionOptions) -> io::Result<()> {
        let mut transports = vec![DeviceTransport::new(self.device.clone())];
        for _ in 1..options.threads {
            let device = if options.clone_fd { Arc::new(self.device.another()?) } else { self.device.clone() };
            transports.push(DeviceTransport::new(device));
        }
        // Only the threads hold the connection: it ends with them.
        drop(self);
        let mut threads = Vec::new();
        for (number, mut transport) in transports.into_iter().enumerate() {
            let server = server.clone();
            let serve = move || serve_all(&mut transport, &*server, options.only);
            threads.push(std::thread::Builder::new().name(format!("fuse-{number}")).spawn(serve)?);
        }
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
    negotiate: impl Fn(&mut Negotiation) -> io::Result<()>,
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

/// Serves requests until the connection ends.
fn serve_all(transport: &mut impl Transport, server: &impl FuseServer, only: Option<u32>) -> io::Result<()> {
    let mut last = false;
    let mut damaged = false;
    while transport.next(&mut |message, sink| match serve_one(message, sink, server, only) {
        Some(was_last) => last = was_last,
        None => damaged = true,
    })? {
        if damaged {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the kernel sent a message without a header"));
        }
        if last {
            return Ok(());
        }
    }
    Ok(())
}

/// Serves one message; whether it was the last, and `None` if it has no header that an answer could name.
fn serve_one(message: &[u8], sink: &dyn ReplySink, server: &impl FuseServer, only: Option<u32>) -> Option<bool> {
    let (header, body) = RequestHeader::parse(message).ok()?;
    let reply = Reply::new(sink, header.unique);
    match Call::parse(&header, body) {
        // Not ENOSYS, by which the kernel would never send this kind again.
        Err(_) => reply.error(Errno::IO),
        Ok(Call::Destroy) => {
            reply.ok();
            return Some(true);
        }
        Ok(Call::Forget { lookups }) => {
            reply.none();
            server.forget(header.ino, lookups);
        }
        Ok(Call::ForgetMany(batch)) => {
            reply.none();
            Call::forgets(batch).for_each(|(ino, lookups)| server.forget(ino, lookups));
        }
        Ok(Call::Init { .. }) => reply.error(Errno::IO),
        // The kernel asks no more for what there is not: interrupts, for one, as each request is served to its end.
        Ok(Call::Other { .. }) => reply.error(Errno::NOSYS),
        Ok(_) if only.is_some_and(|user| user != header.uid) && !header.is_of_the_kernel() => {
            reply.error(Errno::ACCESS);
        }
        Ok(call) => server.serve(&header, call, reply),
    }
    Some(false)
}
