//! What emulated servers cost and how far they are off, also beside ranks that spin in a barrier.
//!
//! `cargo bench -p stripewise-store --bench emulation`

use std::fs::File;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use rustix::thread::{ClockId, clock_nanosleep_absolute};
use rustix::time::Timespec;
use stripewise_layout::ServerId;
use stripewise_store::emulate::{
    Device, LogHistogram, NOWHERE, Op, ServerStatistics, Verdict, now_ns, preset, sleep_until,
};

/// A word in memory that all processes share.
fn shared_word() -> &'static AtomicU32 {
    // SAFETY: a new anonymous mapping; it is zeroed, aligned, long enough and never unmapped.
    unsafe {
        let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
        let address = libc::mmap(std::ptr::null_mut(), 4096, access, flags, -1, 0);
        assert_ne!(address, libc::MAP_FAILED);
        &*address.cast::<AtomicU32>()
    }
}

/// Runs `work(rank)` in `count` processes and waits for them.
fn in_processes(count: u32, work: impl Fn(u32)) {
    let children: Vec<libc::pid_t> = (0..count)
        .map(|rank| {
            // SAFETY: this process has one thread, so the child may do whatever it may; it leaves by `_exit`.
            match unsafe { libc::fork() } {
                0 => {
                    work(rank);
                    // SAFETY: ends the child only.
                    unsafe { libc::_exit(0) }
                }
                child => child,
            }
        })
        .collect();
    for child in children {
        // SAFETY: waits for a child of this process; the status is not wanted.
        assert_eq!(unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) }, child);
    }
}

fn cost_of_a_request() {
    let directory = tempfile::tempdir().unwrap();
    let device = Device::open(File::open(directory.path()).unwrap(), ServerId(0), &preset("nvme").unwrap()).unwrap();
    const REQUESTS: u32 = 1_000_000;
    let start = Instant::now();
    for _ in 0..REQUESTS {
        let ticket = device.reserve_at(Op::Read, NOWHERE, 65536, 1);
        device.complete(&ticket, ticket.deadline_ns, ticket.deadline_ns);
    }
    let ns = start.elapsed().as_nanos() / u128::from(REQUESTS);
    println!("reserve and complete: {ns} ns a sub-request");
}

fn print_overshoot(what: &str, sleep: impl Fn(u64) -> u64) {
    let mut overshoot_ns = LogHistogram::default();
    for i in 0..1000 {
        let deadline_ns = now_ns() + 200_000 + i * 97 % 1000 * 1000;
        overshoot_ns.add(sleep(deadline_ns) - deadline_ns);
    }
    let quantile = |q| overshoot_ns.quantile(q).unwrap_or(0.0) / 1000.0;
    println!(
        "{what}: overshoot median {:.1} us, 90 % {:.1} us, 99 % {:.1} us",
        quantile(0.5),
        quantile(0.9),
        quantile(0.99)
    );
}

fn sleeps() {
    in_processes(1, |_| {
        print_overshoot("plain clock_nanosleep", |deadline_ns| {
            let (s, ns) = (deadline_ns / 1_000_000_000, deadline_ns % 1_000_000_000);
            let _ = clock_nanosleep_absolute(ClockId::Monotonic, &Timespec { tv_sec: s as i64, tv_nsec: ns as i64 });
            now_ns()
        });
    });
    in_processes(1, |_| print_overshoot("sleep_until", sleep_until));
}

/// Six HDDs and two SSDs; `rounds` of `requests` of 512 KiB from each of `workers` processes, on one server each in turn,
/// with a barrier that spins after each round; `spinners` are in the barrier all the time.
fn ranks(what: &str, workers: u32, spinners: u32, rounds: u32, requests: u32, servers: std::ops::Range<usize>) {
    let directories: [_; 8] = std::array::from_fn(|_| tempfile::tempdir().unwrap());
    let devices: [Device; 8] = std::array::from_fn(|i| {
        let config = preset(if i < 6 { "hdd-7200" } else { "ssd-sata" }).unwrap();
        Device::open(File::open(directories[i].path()).unwrap(), ServerId(i as u16), &config).unwrap()
    });
    let data = tempfile::NamedTempFile::new().unwrap();
    let (arrived, ended) = (shared_word(), shared_word());
    in_processes(workers + spinners, |rank| {
        if rank >= workers {
            while ended.load(Ordering::Relaxed) < workers {
                std::hint::spin_loop();
            }
            return;
        }
        let mut buffer = vec![0_u8; 512 << 10];
        for round in 1..=rounds {
            for i in 0..requests {
                let device = &devices[servers.start + (rank + i) as usize % servers.len()];
                let ticket = device.reserve(Op::Write, buffer.len() as u64);
                let _ = rustix::io::pwrite(&data, &buffer, u64::from(rank) << 20);
                device.finish(ticket);
            }
            // What a rank computes between its requests and the barrier.
            buffer.iter_mut().for_each(|byte| *byte = byte.wrapping_add(1));
            arrived.fetch_add(1, Ordering::Relaxed);
            while arrived.load(Ordering::Relaxed) < round * workers {
                std::hint::spin_loop();
            }
        }
        ended.fetch_add(1, Ordering::Relaxed);
    });
    let statistics: Vec<ServerStatistics> = devices.iter().map(Device::statistics).collect();
    println!("{what}: {}", Verdict::of(&statistics));
}

fn main() {
    cost_of_a_request();
    sleeps();
    ranks("2 processes on HDDs, alone", 2, 0, 10, 10, 0..6);
    ranks("2 processes on HDDs, 14 spinning", 2, 14, 10, 10, 0..6);
    ranks("2 processes on SSDs, 14 spinning", 2, 14, 10, 50, 6..8);
    ranks("16 processes on HDDs, in and out of a barrier", 16, 0, 8, 5, 0..6);
    ranks("16 processes on SSDs, in and out of a barrier", 16, 0, 20, 20, 6..8);
}
