//! What counting the load of the metadata tier costs a request on bytes of an inode, and one on a name.
//!
//! `cargo bench -p stripewise-store --bench meta_load` prints nanoseconds of one read of 4 KiB from an inode in memory, counted and
//! not, in turn, and the difference: the medians of many short runs. Then the same of one `stat` of its name.

use rustix::fs::{Mode, OFlags};
use std::io::{IoSlice, IoSliceMut};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;
use stripewise_optimisation::SMALL;
use stripewise_store::handle::Optimisations;
use stripewise_store::pool::{PoolSpec, TierSpec};
use stripewise_store::{File, Files, Pool};

const CALLS: u32 = 2_000;
const RUNS: usize = 501;

/// A small file of a pool in memory.
struct Small {
    _directory: tempfile::TempDir,
    files: Arc<Files>,
    file: File,
}

impl Small {
    /// Where its requests are not counted, a directory stands in the place of the page of the load.
    fn new(is_counted: bool) -> Self {
        let directory = tempfile::tempdir_in("/dev/shm").expect("a directory in /dev/shm");
        let base = directory.path();
        let tier = TierSpec { name: "mem".into(), servers: vec![base.join("s")], ..TierSpec::default() };
        let (mount, namespace) = (base.join("mount"), base.join("names"));
        let spec = PoolSpec { name: "bench".into(), mount, namespace, default_width_bytes: None, tiers: vec![tier] };
        let pool = Pool::init(&base.join("pool.toml"), &spec).expect("a pool");
        if !is_counted {
            std::fs::create_dir(pool.namespace.join("meta-load.2")).expect("a directory");
        }
        let files: Arc<Files> = Files::open(pool).expect("the pool");
        let mut small = Optimisations::default();
        small.enable(SMALL.index, 64 << 10).expect("64 KiB");
        files.store().change_hints(Path::new("."), |hints| hints.set(None, small)).expect("a hint");
        let flags = OFlags::RDWR | OFlags::CREATE;
        let file = files.open_file(Path::new("file"), flags, Mode::RUSR | Mode::WUSR).expect("a file");
        file.write_at(&[IoSlice::new(&[7; 4096])], 0).expect("its bytes");
        Self { _directory: directory, files, file }
    }

    fn read_ns(&self) -> f64 {
        let mut bytes = [0; 4096];
        let start = Instant::now();
        for _ in 0..CALLS {
            let count = self.file.read_at(&mut [IoSliceMut::new(&mut bytes)], 0).expect("its bytes");
            assert_eq!(count, bytes.len());
        }
        start.elapsed().as_nanos() as f64 / f64::from(CALLS)
    }

    fn stat_ns(&self) -> f64 {
        let start = Instant::now();
        for _ in 0..CALLS {
            let stat = self.files.stat(Path::new("file"), true).expect("its attributes");
            assert_eq!(stat.st_size, 4096);
        }
        start.elapsed().as_nanos() as f64 / f64::from(CALLS)
    }
}

fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}

fn main() {
    let (counted, plain) = (Small::new(true), Small::new(false));
    let measure = |what: &str, call_ns: fn(&Small) -> f64| {
        let pairs: Vec<(f64, f64)> = (0..RUNS).map(|_| (call_ns(&counted), call_ns(&plain))).collect();
        println!("counted: {:.0} ns a {what}", median(pairs.iter().map(|pair| pair.0).collect()));
        println!("not counted: {:.0} ns a {what}", median(pairs.iter().map(|pair| pair.1).collect()));
        println!("counting: {:.0} ns a {what}", median(pairs.iter().map(|pair| pair.0 - pair.1).collect()));
    };
    measure("read", Small::read_ns);
    measure("stat", Small::stat_ns);
}
