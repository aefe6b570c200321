//! An entry of a queue, its ring and its thread: the transport.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;

use io_uring::{IoUring, cqueue, opcode, squeue, types};
use rustix::io::Errno;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::connection::FuseDevice;
use crate::niceness::go_before_programs;
use crate::transport::{ReplySink, Transport};
use crate::uring::memory::{EntryMemory, ReplyRoom};

/// `FUSE_IO_URING_CMD_REGISTER`: the entry waits for its first request.
const REGISTER: u32 = 1;
/// `FUSE_IO_URING_CMD_COMMIT_AND_FETCH`: a reply, and the entry waits for the next request.
const COMMIT_AND_FETCH: u32 = 2;
/// Where an entry of a ring has the number of places that its address points to (`io_uring_sqe.len`).
const PLACES_AT: usize = 24;
/// `IORING_ENTER_GETEVENTS`.
const GET_EVENTS: u32 = 1 << 0;
/// `IORING_ENTER_NO_IOWAIT`: a thread without work is none that waits for a disk.
const NO_IO_WAIT: u32 = 1 << 7;

/// One thread's entry of the queue of one processor.
pub struct UringTransport {
    ring: IoUring<squeue::Entry128, cqueue::Entry>,
    enter_flags: u32,
    memory: ManuallyDrop<EntryMemory>,
    device: Arc<FuseDevice>,
    queue: u16,
    state: State,
}

/// Whose the entry and its memory are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The kernel knows nothing of it.
    New,
    /// The kernel's, until it completes the command.
    Kernel,
    /// Ours: a request has come, and is not served yet.
    Came,
    /// Ours: the reply to this request is written, and not told yet.
    Served(u64),
    /// The kernel has taken all entries back.
    Ended,
}

impl fmt::Debug for UringTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UringTransport").field("queue", &self.queue).field("state", &self.state).finish_non_exhaustive()
    }
}

impl Drop for UringTransport {
    fn drop(&mut self) {
        // The last reply; a connection that has ended takes none.
        if let State::Served(request) = self.state {
            self.command(COMMIT_AND_FETCH, request, None);
            self.state = State::Kernel;
            let _ = self.ring.submit();
        }
        if matches!(self.state, State::New | State::Ended) {
            // SAFETY: it is not used after this.
            unsafe { ManuallyDrop::drop(&mut self.memory) };
        }
        // Else the kernel may still write there, up to the end of this thread. That comes with the connection's end only, or by a
        // defect: the memory is left to the process.
    }
}

/// A ring of one entry, for the thread that enables it. The kernel completes commands only while that thread waits for them, by
/// a wake-up alone; else it would interrupt the thread.
fn ring() -> io::Result<IoUring<squeue::Entry128, cqueue::Entry>> {
    IoUring::builder().dontfork().setup_single_issuer().setup_defer_taskrun().setup_r_disabled().build(1)
}

impl UringTransport {
    /// Whether this process may make rings and use them: one that may do the first alone would find that out when the kernel
    /// counts on its entries already, and gives no request to the device.
    ///
    /// # Errors
    /// Those of `io_uring_setup`, `io_uring_register` and `io_uring_enter`: there is none, or not for this process.
    pub fn try_ring() -> io::Result<()> {
        let mut ring = ring()?;
        ring.submitter().register_enable_rings()?;
        // SAFETY: it has nothing that the kernel could touch.
        unsafe { ring.submission().push(&opcode::Nop::new().build().into()) }.expect("a ring that is empty has room");
        ring.submit_and_wait(1).map(drop)
    }

    /// An entry of `queue` for messages with `payload_bytes` behind their headers. The kernel knows nothing of it yet.
    ///
    /// # Errors
    /// Those of `io_uring_setup`, and of `mmap`.
    pub fn new(device: &Arc<FuseDevice>, queue: u16, payload_bytes: usize) -> io::Result<UringTransport> {
        let ring = ring()?;
        let enter_flags = if ring.params().is_feature_no_iowait() { GET_EVENTS | NO_IO_WAIT } else { GET_EVENTS };
        let memory = ManuallyDrop::new(EntryMemory::new(payload_bytes)?);
        Ok(UringTransport { ring, enter_flags, memory, device: device.clone(), queue, state: State::New })
    }

    /// The connection.
    pub fn device(&self) -> &Arc<FuseDevice> {
        &self.device
    }

    /// Has it ask for a queue that there is not, which the kernel refuses.
    #[cfg(test)]
    pub fn ask_for_no_queue(&mut self) {
        self.queue = u16::MAX;
    }

    /// The queue, which is the processor's number.
    pub fn queue(&self) -> u16 {
        self.queue
    }

    /// Has the calling thread, which is to serve by this, run on the processor of the queue, if it may there: a program and
    /// what serves it take turns, and neither wakes another processor up. Their turns are equally long: with shorter ones of
    /// this thread the kernel (Linux 6.18) wakes the program up on an idle processor more than twice as often. The thread goes
    /// before programs, if it may: of several with requests, those that had the processor last would wait for all programs,
    /// and one that waits while another answers has the kernel wake the program up elsewhere.
    pub fn stay(&self) {
        let Ok(allowed) = sched_getaffinity(None) else { return };
        let processor = usize::from(self.queue);
        if processor < CpuSet::MAX_CPU && allowed.is_set(processor) {
            let mut only = CpuSet::new();
            only.set(processor);
            // Elsewhere it is slower, and as right.
            let _ = sched_setaffinity(None, &only);
        }
        // Where it may not, it serves as well.
        let _ = go_before_programs();
    }

    /// Makes the entry known to the kernel, which from now on fills it by the thread that calls this. Two system calls.
    ///
    /// # Errors
    /// Those of the kernel, which has then nothing of this; requests come by the device.
    pub fn register(&mut self) -> io::Result<()> {
        // From now on the ring is this thread's.
        self.ring.submitter().register_enable_rings()?;
        let places = self.memory.places();
        self.command(REGISTER, 0, Some(&places));
        self.ring.submit()?;
        self.state = State::Kernel;
        // It completes to refuse, or with a request.
        let Some(completed) = self.ring.completion().next() else { return Ok(()) };
        if completed.result() < 0 {
            self.state = State::New;
            return Err(io::Error::from_raw_os_error(-completed.result()));
        }
        self.state = State::Came;
        Ok(())
    }

    /// Whether a request has come, which is not served yet; also if that cannot be told. It waits for none. One system call.
    pub fn has_come(&mut self) -> bool {
        if self.state != State::Kernel {
            return self.state == State::Came;
        }
        // SAFETY: nothing is given to the kernel.
        let entered = unsafe { self.ring.submitter().enter::<libc::sigset_t>(0, 0, GET_EVENTS, None) };
        entered.is_err() || !self.ring.completion().is_empty()
    }

    /// Puts a command into the ring, which has room for one and is empty whenever this is called.
    fn command(&mut self, command: u32, request: u64, places: Option<&[libc::iovec; 2]>) {
        // `fuse_uring_cmd_req`: flags, the request that is replied to, the queue.
        let mut fields = [0_u8; 80];
        fields[8..16].copy_from_slice(&request.to_ne_bytes());
        fields[16..18].copy_from_slice(&self.queue.to_ne_bytes());
        let fd = types::Fd(self.device.as_fd().as_raw_fd());
        let address = places.map(|places| places.as_ptr() as u64);
        let mut entry = opcode::UringCmd80::new(fd, command).cmd(fields).addr(address).build();
        if let Some(places) = places {
            // SAFETY: an entry is laid out as the kernel's (`#[repr(C)]`, 128 bytes), which has a number of 32 bits here; the
            // library has no way to set it for this kind of command.
            unsafe { (&raw mut entry).cast::<u8>().add(PLACES_AT).cast::<u32>().write(places.len() as u32) };
        }
        // SAFETY: the kernel reads `places` before the system call returns that submits this. The descriptor is open as long as
        // this transport is. The memory is not touched until the command is completed, and stays mapped as long as the kernel
        // may write there (see `drop`).
        unsafe { self.ring.submission().push(&entry) }.expect("a ring that is empty has room");
    }

    /// Submits what is in the ring and waits for the completion: 0 or more for a request, an errno below 0. One system call,
    /// but for signals.
    fn wait(&mut self) -> io::Result<i32> {
        loop {
            if let Some(completed) = self.ring.completion().next() {
                return Ok(completed.result());
            }
            let submit = self.ring.submission().len() as u32;
            // SAFETY: nothing is given to the kernel but what `command` has put into the ring.
            let entered = unsafe { self.ring.submitter().enter::<libc::sigset_t>(submit, 1, self.enter_flags, None) };
            match entered {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
                _ => {}
            }
        }
    }
}

impl Transport for UringTransport {
    fn next(&mut self, serve: &mut dyn FnMut(&[u8], &dyn ReplySink)) -> io::Result<bool> {
        if let State::Served(request) = self.state {
            self.command(COMMIT_AND_FETCH, request, None);
            self.state = State::Kernel;
        }
        if self.state == State::Kernel {
            let completed = self.wait()?;
            self.state = match -completed {
                errno if errno <= 0 => State::Came,
                libc::ENOTCONN | libc::ECONNABORTED | libc::ENODEV => State::Ended,
                errno => return Err(io::Error::from_raw_os_error(errno)),
            };
        }
        if self.state != State::Came {
            return Ok(false);
        }
        let request = self.memory.commit_id();
        // Whatever becomes of it, a program waits for an answer, and others for the entry.
        let (mut error, mut bytes) = (-Errno::IO.raw_os_error(), 0);
        if let Some((message, room)) = self.memory.request() {
            let sink = UringSink { device: &self.device, room: RefCell::new(room), sent: Cell::new(None) };
            serve(message, &sink);
            if let Some(sent) = sink.sent.get() {
                (error, bytes) = sent;
            }
        }
        self.memory.reply(error, request, bytes);
        self.state = State::Served(request);
        Ok(true)
    }

    fn threads_wait_together(&self) -> bool {
        false
    }
}

/// A reply that is told to the kernel when the request is served.
struct UringSink<'a> {
    device: &'a Arc<FuseDevice>,
    room: RefCell<ReplyRoom<'a>>,
    /// Error and bytes of the reply, if there is one.
    sent: Cell<Option<(i32, usize)>>,
}

impl ReplySink for UringSink<'_> {
    fn send(&self, header: &[u8; 16], parts: &[&[u8]]) -> Result<(), Errno> {
        let error = i32::from_ne_bytes([header[4], header[5], header[6], header[7]]);
        let bytes = parts.iter().map(|part| part.len()).sum();
        let mut room = self.room.borrow_mut();
        if bytes > room.most() {
            return Err(Errno::INVAL);
        }
        let mut rest = room.take(bytes);
        for part in parts {
            let (here, behind) = rest.split_at_mut(part.len());
            here.copy_from_slice(part);
            rest = behind;
        }
        self.sent.set(Some((error, bytes)));
        Ok(())
    }

    fn fill(&self, _unique: u64, most: usize, fill: &mut dyn FnMut(&mut [u8]) -> Option<usize>) -> Result<bool, Errno> {
        let mut room = self.room.borrow_mut();
        if most > room.most() {
            return Err(Errno::INVAL);
        }
        let filled = fill(room.take(most));
        if let Some(bytes) = filled {
            self.sent.set(Some((0, bytes.min(most))));
        }
        Ok(filled.is_some())
    }

    fn device(&self) -> &Arc<FuseDevice> {
        self.device
    }
}
