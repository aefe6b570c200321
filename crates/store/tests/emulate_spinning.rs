//! Two processes on emulated servers while fourteen others spin in a barrier, as MPI ranks do: every request is counted,
//! none ends early, and the run says how far it was off.

use std::fs::File;
use std::sync::atomic::{AtomicU32, Ordering};

use stripewise_layout::ServerId;
use stripewise_store::emulate::{Device, MAX_MEDIAN_ERROR, Op, Verdict, preset};

const WORKERS: u32 = 2;
const SPINNERS: u32 = 14;
const REQUESTS: u32 = 50;

#[test]
fn a_run_beside_spinning_ranks_reports_its_error() {
    let directory = tempfile::tempdir().unwrap();
    let device =
        Device::open(File::open(directory.path()).unwrap(), ServerId(0), &preset("ssd-sata").unwrap()).unwrap();
    // SAFETY: a new anonymous mapping; it is zeroed, aligned, long enough and never unmapped.
    let (ended, early) = unsafe {
        let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
        let address = libc::mmap(std::ptr::null_mut(), 4096, access, flags, -1, 0);
        assert_ne!(address, libc::MAP_FAILED);
        let words = address.cast::<AtomicU32>();
        (&*words, &*words.add(1))
    };
    let children: Vec<libc::pid_t> = (0..WORKERS + SPINNERS)
        .map(|rank| {
            // SAFETY: the child allocates nothing and leaves by `_exit`.
            let child = unsafe { libc::fork() };
            if child == 0 {
                if rank < WORKERS {
                    for _ in 0..REQUESTS {
                        let ticket = device.reserve(Op::Read, 65536);
                        device.finish(ticket);
                        if stripewise_store::emulate::now_ns() < ticket.deadline_ns {
                            early.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                    ended.fetch_add(1, Ordering::Relaxed);
                }
                while ended.load(Ordering::Relaxed) < WORKERS {
                    std::hint::spin_loop();
                }
                // SAFETY: ends the child only.
                unsafe { libc::_exit(0) }
            }
            child
        })
        .collect();
    for child in children {
        let mut status = 0;
        // SAFETY: waits for a child of this test.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0);
    }
    assert_eq!(early.load(Ordering::Relaxed), 0);
    let statistics = device.statistics();
    assert_eq!(statistics.read.requests, u64::from(WORKERS * REQUESTS));
    assert_eq!(statistics.read.bytes, u64::from(WORKERS * REQUESTS) * 65536);
    // How loaded the machine is decides which of the two it is; that it is the right one is this test's matter.
    let median = statistics.median_error().unwrap();
    match Verdict::of([&statistics]) {
        Verdict::Valid(error) => assert!(median <= MAX_MEDIAN_ERROR && error.requests == 100, "{error}"),
        Verdict::Invalid(error) => assert!(median > MAX_MEDIAN_ERROR && error.requests == 100, "{error}"),
        Verdict::Idle => panic!("100 requests were made"),
    }
}
