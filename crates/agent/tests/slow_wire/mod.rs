//! Networks of their own, joined by wires that delay, lose and cut. The kernel's own emulation (`netem`) is not in every kernel; TUN
//! devices are: a thread carries the packets from one to the other.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::ioctl::{Setter, ioctl};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};

const TUN: &str = "/dev/net/tun";
/// `IFF_TUN | IFF_NO_PI`: packets of IP, with nothing before them.
const PACKETS: u16 = 0x1001;
const IFF_UP: u16 = 1;
const AF_INET: u16 = 2;
// Of linux/if_tun.h and linux/sockios.h.
const TUNSETIFF: u32 = 0x4004_54ca;
const SIOCSIFFLAGS: u32 = 0x8914;
const SIOCSIFADDR: u32 = 0x8916;
const SIOCSIFNETMASK: u32 = 0x891c;
/// Packets on their way in one direction; what comes beyond is lost, as in a router.
const QUEUE: usize = 1024;

/// `struct ifreq`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct InterfaceRequest {
    name: [u8; 16],
    value: [u8; 24],
}

impl InterfaceRequest {
    fn new(name: &str, words: &[&[u8]]) -> Self {
        let mut made = Self { name: [0; 16], value: [0; 24] };
        made.name[..name.len()].copy_from_slice(name.as_bytes());
        let bytes = words.concat();
        made.value[..bytes.len()].copy_from_slice(&bytes);
        made
    }

    fn flags(name: &str, flags: u16) -> Self {
        Self::new(name, &[&flags.to_ne_bytes()])
    }

    fn address(name: &str, address: Ipv4Addr) -> Self {
        Self::new(name, &[&AF_INET.to_ne_bytes(), &[0; 2], &address.octets()])
    }

    fn set<const OPCODE: u32>(self, to: impl AsFd) -> io::Result<()> {
        // SAFETY: the four requests above take an `ifreq`, and write no more than that.
        Ok(unsafe { ioctl(to, Setter::<OPCODE, Self>::new(self)) }?)
    }
}

/// A network of its own.
pub struct Network(File);

impl Network {
    /// # Errors
    /// The caller may not make one, or the kernel has none.
    pub fn new() -> io::Result<Self> {
        let made = std::thread::spawn(|| {
            // SAFETY: the network of this thread alone changes; no file descriptor does.
            unsafe { unshare_unsafe(UnshareFlags::NEWNET) }?;
            let own = InterfaceRequest::flags("lo", IFF_UP);
            own.set::<SIOCSIFFLAGS>(UdpSocket::bind("0.0.0.0:0")?)?;
            File::open("/proc/thread-self/ns/net")
        });
        made.join().unwrap().map(Self)
    }

    /// Runs `work` in it. Threads that `work` starts are in it, too.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|scope| {
            let there = scope.spawn(|| {
                move_into_link_name_space(self.0.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
                work()
            });
            there.join().unwrap()
        })
    }

    /// The end of a wire, which has `address` of a network of 256 here.
    fn end(&self, name: &str, address: Ipv4Addr) -> io::Result<File> {
        self.run(|| {
            let nonblocking = rustix::fs::OFlags::NONBLOCK.bits() as i32;
            let end = OpenOptions::new().read(true).write(true).custom_flags(nonblocking).open(TUN)?;
            InterfaceRequest::flags(name, PACKETS).set::<TUNSETIFF>(&end)?;
            let socket = UdpSocket::bind("0.0.0.0:0")?;
            InterfaceRequest::address(name, address).set::<SIOCSIFADDR>(&socket)?;
            InterfaceRequest::address(name, Ipv4Addr::new(255, 255, 255, 0)).set::<SIOCSIFNETMASK>(&socket)?;
            InterfaceRequest::flags(name, IFF_UP).set::<SIOCSIFFLAGS>(&socket)?;
            Ok(end)
        })
    }
}

/// What a wire does to packets.
#[derive(Default)]
struct Treatment {
    /// To the second end, and to the first.
    delay_ns: [AtomicU64; 2],
    lost_percent: AtomicU64,
    is_cut: AtomicBool,
    lost: AtomicU64,
}

/// A wire between two networks, until it is dropped.
pub struct Wire {
    treatment: Arc<Treatment>,
    /// The carrier ends when this is closed.
    stop: Option<UnixStream>,
    carrier: Option<JoinHandle<()>>,
}

impl Wire {
    /// `10.98.NUMBER.1` in the first network is joined to `10.98.NUMBER.2` in the second.
    ///
    /// # Errors
    /// There is no `/dev/net/tun`, or the caller may not use it.
    pub fn new(networks: [&Network; 2], number: u8) -> io::Result<Self> {
        let name = format!("wire{number}");
        let [one, other] = [0, 1].map(|end| networks[end].end(&name, Ipv4Addr::new(10, 98, number, end as u8 + 1)));
        let ends = [one?, other?];
        let treatment = Arc::new(Treatment::default());
        let (stop, stopped) = UnixStream::pair()?;
        let by = treatment.clone();
        let carrier = std::thread::spawn(move || carry(&ends, &by, &stopped));
        Ok(Self { treatment, stop: Some(stop), carrier: Some(carrier) })
    }

    /// How long packets take to the second end, and to the first.
    pub fn delay(&self, delays: [Duration; 2]) {
        for (delay_ns, delay) in self.treatment.delay_ns.iter().zip(delays) {
            delay_ns.store(delay.as_nanos() as u64, Ordering::Relaxed);
        }
    }

    /// How many of a hundred packets are lost.
    pub fn lose(&self, percent: u64) {
        self.treatment.lost_percent.store(percent, Ordering::Relaxed);
    }

    /// Packets that were lost.
    pub fn lost(&self) -> u64 {
        self.treatment.lost.load(Ordering::Relaxed)
    }

    /// From now on no packet comes through, or all do again. Neither end is told.
    pub fn cut(&self, is_cut: bool) {
        self.treatment.is_cut.store(is_cut, Ordering::Relaxed);
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(carrier) = self.carrier.take() {
            let _ = carrier.join();
        }
    }
}

fn carry(ends: &[File; 2], by: &Treatment, stopped: &UnixStream) {
    let mut on_way = [VecDeque::new(), VecDeque::new()];
    let mut packet = [0; 1 << 16];
    // Marsaglia's xorshift: the same packets are lost each time.
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    loop {
        let due = on_way.iter().filter_map(|queue| queue.front().map(|(due, _): &(Instant, Vec<u8>)| *due)).min();
        let wait = due.map(|due| due.saturating_duration_since(Instant::now()));
        let wait =
            wait.map(|wait| Timespec { tv_sec: 0, tv_nsec: wait.min(Duration::from_millis(999)).as_nanos() as i64 });
        let mut fds = [
            PollFd::new(&ends[0], PollFlags::IN),
            PollFd::new(&ends[1], PollFlags::IN),
            PollFd::new(stopped, PollFlags::IN),
        ];
        if poll(&mut fds, wait.as_ref()).is_err_and(|errno| errno != rustix::io::Errno::INTR)
            || !fds[2].revents().is_empty()
        {
            return;
        }
        for (from, queue) in on_way.iter_mut().enumerate() {
            loop {
                let count = match (&ends[from]).read(&mut packet) {
                    Ok(count) => count,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(_) => return,
                };
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                let is_lost = random % 100 < by.lost_percent.load(Ordering::Relaxed);
                if is_lost || by.is_cut.load(Ordering::Relaxed) || queue.len() == QUEUE {
                    by.lost.fetch_add(1, Ordering::Relaxed);
                    continue;
                }
                let delay = Duration::from_nanos(by.delay_ns[from].load(Ordering::Relaxed));
                queue.push_back((Instant::now() + delay, packet[..count].to_vec()));
            }
            // Of a shorter delay than before: no packet overtakes another.
            while queue.front().is_some_and(|(due, _)| *due <= Instant::now()) {
                let Some((_, packet)) = queue.pop_front() else { break };
                // A device that takes no more loses it.
                let _ = (&ends[1 - from]).write(&packet);
            }
        }
    }
}
