//! Servers on a file system that bypasses the page cache, with a disk behind it that model and emulation do not know.

mod common;

use std::fs;
use std::ops::ControlFlow;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use common::TestPool;
use common::faulty::{Faulty, Pace};
use common::slow_disk::{DEPTH, DISK, SlowDisk};
use rustix::fs::{Mode, OFlags};
use stripewise_layout::{Layout, ServerId};
use stripewise_model::{Cluster, Op, Profile, Request, presets};
use stripewise_planner::{FileTrace, Job, PlanOptions, plan_by};
use stripewise_simulate::{ClosedLoop, SimulationOptions, simulate};
use stripewise_store::calibrate::{CalibrateOptions, calibrate, targets, tiers};
use stripewise_store::handle::Optimisations;
use stripewise_store::{Pool, Store};

/// Puts a file system of that pace under servers of the pool.
fn paced<P: Pace + 'static>(pool: &TestPool, servers: &[&str], pace: impl Fn() -> P) -> Vec<Faulty> {
    let mount = |server: &&str| {
        let (below, root) = (pool.path(&format!("below-{server}")), pool.path(server));
        fs::rename(&root, &below).unwrap();
        fs::create_dir(&root).unwrap();
        Faulty::paced(&below, &root, Box::new(pace()), DEPTH)
    };
    servers.iter().map(mount).collect()
}

/// Counts the bytes that are read.
#[derive(Clone, Default)]
struct Counter(Arc<AtomicU64>);

impl Pace for Counter {
    fn serve(&self, _node: u64, _offset: u64, bytes: u64, writes: bool) {
        if !writes {
            self.0.fetch_add(bytes, Ordering::SeqCst);
        }
    }
}

#[test]
fn what_bypasses_the_page_cache_is_read_once() {
    let (pool, counter) = (TestPool::new(), Counter::default());
    let _servers = paced(&pool, &["s0", "s1", "s2"], || counter.clone());
    let store = Store::open(Pool::load(&pool.file()).unwrap()).unwrap();
    let flags = OFlags::RDWR | OFlags::CREATE;
    let file = rustix::fs::openat(store.tree(), "f", flags, Mode::from_raw_mode(0o600)).unwrap();
    drop(store.create(file.as_fd(), &Optimisations::default(), || Ok("f".into())).unwrap());
    let inode = store.inode(file.as_fd()).unwrap().expect("a placed file");
    inode.register_writer().unwrap();
    let bytes: Vec<u8> = (0..60 << 10).map(|i: u32| (i / 7) as u8).collect();
    assert_eq!(inode.write_at(&bytes, 0).unwrap(), bytes.len());
    let before = counter.0.load(Ordering::SeqCst);
    let mut read = vec![0; bytes.len()];
    assert_eq!(inode.read_at(&mut read, 0).unwrap(), bytes.len());
    assert!(read == bytes);
    assert_eq!(counter.0.load(Ordering::SeqCst) - before, bytes.len() as u64);
    inode.release_writer().unwrap();
}

/// What `pool calibrate` finds of two disks.
fn calibrated() -> Profile {
    let pool = TestPool::with("64KiB", &["s0", "s1"]);
    let _servers = paced(&pool, &["s0", "s1"], || SlowDisk::new(DISK));
    let options = CalibrateOptions { budget_s: 1.0, scratch_bytes: 16 << 20, max_requests: 60 };
    let targets = targets(&Pool::load(&pool.file()).unwrap());
    let found = calibrate(&targets, &options, |_| ControlFlow::Continue(())).unwrap();
    tiers(&found)[0].profile
}

fn simulated_s(layout: &Layout, requests: &[Request], cluster: &Cluster) -> f64 {
    let workload = ClosedLoop::replay(&[requests], &[], false);
    let one = |seed| {
        let options = SimulationOptions { seed, ..SimulationOptions::default() };
        simulate(cluster, std::slice::from_ref(layout), &workload, &options).unwrap().makespan_s
    };
    (500..504).map(one).sum::<f64>() / 4.0
}

#[test]
fn a_foreign_disk_is_found_to_seek_and_its_streams_are_not_moved_for_nothing() {
    let disk = calibrated();
    for op in [disk.read, disk.write] {
        let head = op.head.expect("a disk has a head");
        assert!(head.sequential_startup_s < op.startup_max_s, "{op:?}");
    }
    let cluster = presets::cluster(&[("hdd", 4, disk), ("ssd", 2, presets::device("ssd-sata").unwrap())]);
    let default = Layout::striped((0..6).map(ServerId), 64 << 10).unwrap();
    for processes in [1, 4] {
        let request = |i: u64| {
            let (process, turn) = (i % processes, i / processes);
            let (offset, start_s) = ((process << 30) + (turn << 18), turn as f64 * 0.01);
            Request { offset, size: 1 << 18, op: Op::Read, process: process as u32, start_s, end_s: start_s + 0.009 }
        };
        let stream: Vec<Request> = (0..200).map(request).collect();
        let files = [FileTrace { name: "f".into(), requests: &stream, size_bytes: None }];
        let options = PlanOptions { simulations: 60, ..PlanOptions::default() };
        let job = Job::new(&files, &cluster, &options).unwrap();
        let planned = plan_by("auto", &job).unwrap().plan.files[0].layout.clone();
        let (planned_s, default_s) =
            (simulated_s(&planned, &stream, &cluster), simulated_s(&default, &stream, &cluster));
        assert!(planned_s <= 1.02 * default_s, "{processes}: {planned_s} {default_s}, {disk:?}");
    }
}
