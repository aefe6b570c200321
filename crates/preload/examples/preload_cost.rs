//! What the library costs and gains, in pairs of short runs. The machine may be busy: of each process the least
//! disturbed round counts, of several processes the median.
//!
//! Prints, each with the figure to reach: the cost of recording one 4 KiB request; the cost on files outside the pool;
//! and the throughput of a placed file with one server on tmpfs against a plain file there, at 4 KiB and 512 KiB.
//!
//! `cargo run --release -p stripewise-preload --example preload_cost` after
//! `cargo build --release -p stripewise-preload -p stripewise-mount`.

use std::ffi::{CString, c_int, c_void};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;
use stripewise_store::Pool;

const PAIRS: usize = 41;
const FILE_BYTES: usize = 16 << 20;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    match arguments.get(1).map(String::as_str) {
        Some("worker") => worker(&arguments[2..]),
        Some(other) => panic!("unknown argument {other}: this program takes none"),
        None => measure(),
    }
}

type Pread = unsafe extern "C" fn(c_int, *mut c_void, usize, i64) -> isize;

/// libc's own `pread`, past the library.
fn own_pread() -> Pread {
    // SAFETY: libc is loaded and has the function, of this type.
    unsafe {
        let libc = libc::dlopen(c"libc.so.6".as_ptr(), libc::RTLD_LAZY);
        std::mem::transmute::<*mut c_void, Pread>(libc::dlsym(libc, c"pread64".as_ptr()))
    }
}

/// Runs in the process under the library: `worker KIND SIZE PATH…` prints the nanoseconds a request of each path in its
/// least disturbed round, all measured in turns. With `own/` before it a path is read by libc itself.
fn worker(arguments: &[String]) {
    let [kind, size, paths @ ..] = arguments else { panic!("worker KIND SIZE PATH...") };
    let size: usize = size.parse().expect("a size");
    let count = (FILE_BYTES / size).min(2048);
    let mut buffer = vec![7_u8; size];
    let own_pread = own_pread();
    let targets: Vec<(c_int, bool)> = paths
        .iter()
        .map(|path| match path.strip_prefix("own") {
            Some(path) => (prepare(path), true),
            None => (prepare(path), false),
        })
        .collect();
    let mut times = vec![Vec::new(); paths.len()];
    for round in 0..=PAIRS {
        for turn in 0..targets.len() {
            // Whoever comes first finds other things in the cache.
            let index = (turn + round) % targets.len();
            let (fd, own) = targets[index];
            let start = Instant::now();
            for request in 0..count {
                // Spread over the file, the same for all.
                let offset = (request * 7919 % count * size) as i64;
                // SAFETY: the buffer has `size` bytes and the descriptor is open.
                let moved = unsafe {
                    match kind.as_str() {
                        "read" if own => own_pread(fd, buffer.as_mut_ptr().cast(), size, offset),
                        "read" => libc::pread(fd, buffer.as_mut_ptr().cast(), size, offset),
                        _ => libc::pwrite(fd, buffer.as_ptr().cast(), size, offset),
                    }
                };
                assert_eq!(moved, size as isize, "{}", paths[index]);
            }
            // The first round opens datafiles and warms caches.
            if round > 0 {
                times[index].push(start.elapsed().as_nanos() as f64 / count as f64);
            }
        }
    }
    let lines: Vec<String> =
        times.into_iter().map(|times| format!("{:.1}", times.into_iter().fold(f64::MAX, f64::min))).collect();
    println!("{}", lines.join(" "));
}

fn prepare(path: &str) -> c_int {
    let name = CString::new(path).expect("a path");
    // SAFETY: a path with a zero at its end.
    let fd = unsafe { libc::open(name.as_ptr(), libc::O_CREAT | libc::O_RDWR, 0o600) };
    assert!(fd >= 0, "{path}: {}", std::io::Error::last_os_error());
    let block = vec![1_u8; 1 << 20];
    for offset in (0..FILE_BYTES).step_by(block.len()) {
        // SAFETY: as above.
        let written = unsafe { libc::pwrite(fd, block.as_ptr().cast(), block.len(), offset as i64) };
        assert_eq!(written, block.len() as isize, "{path}");
    }
    fd
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

struct Bench {
    dir: tempfile::TempDir,
    library: PathBuf,
    mount: PathBuf,
    program: PathBuf,
}

impl Bench {
    fn new() -> Self {
        let program = std::env::current_exe().expect("this program");
        let target = program.ancestors().nth(2).expect("target/<profile>/examples").to_owned();
        let (library, mount) = (target.join("libstripewise_preload.so"), target.join("stripewise-mount"));
        for file in [&library, &mount] {
            let build = "cargo build --release -p stripewise-preload -p stripewise-mount";
            assert!(file.exists(), "{} does not exist: run `{build}`", file.display());
        }
        let shared = Path::new("/dev/shm");
        let dir = if shared.is_dir() { tempfile::tempdir_in(shared) } else { tempfile::tempdir() };
        let bench = Self { dir: dir.expect("a directory"), library, mount, program };
        for name in ["mnt", "ns", "s0", "trace"] {
            std::fs::create_dir(bench.path(name)).expect("a directory");
        }
        let text =
            "name = \"bench\"\nmount = \"mnt\"\nnamespace = \"ns\"\n[[tier]]\nname = \"ssd\"\nservers = [\"s0\"]\n";
        std::fs::write(bench.path("pool.toml"), text).expect("a pool file");
        Pool::load(&bench.path("pool.toml")).expect("a pool").prepare().expect("its directories");
        bench
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).to_str().expect("text").to_owned()
    }

    /// Nanoseconds a request on each path.
    fn run(&self, mut command: Command, kind: &str, size: usize, paths: &[String]) -> Vec<f64> {
        command.args(["worker", kind, &size.to_string()]).args(paths);
        let output = command.output().expect("a worker");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8_lossy(&output.stdout);
        text.split_whitespace().map(|word| word.parse().expect("a number")).collect()
    }

    /// The worker under the library with this environment.
    fn plain(&self, environment: &[(&str, String)]) -> Command {
        let mut command = Command::new(&self.program);
        command.env("LD_PRELOAD", &self.library);
        command.envs(environment.iter().map(|(name, value)| (name, value)));
        command
    }
}

fn measure() {
    let bench = Bench::new();
    let file = [bench.text("plain")];
    let pool = [("STRIPEWISE_POOL", bench.text("pool.toml"))];
    let trace = [("STRIPEWISE_TRACE", bench.text("trace")), ("STRIPEWISE_TRACE_EXCLUDE", "/proc".to_owned())];

    let (mut cost, mut outside) = (Vec::new(), Vec::new());
    let own = [format!("own{}", file[0]), file[0].clone()];
    for _ in 0..7 {
        let times = bench.run(bench.plain(&pool), "read", 4096, &own);
        outside.push(100.0 * (times[1] / times[0] - 1.0));
        let times = bench.run(bench.plain(&trace), "read", 4096, &own);
        cost.push(times[1] - times[0]);
    }
    println!("recording a 4 KiB read: {:+.0} ns (to reach: under 300 ns)", median(cost));
    println!("4 KiB reads of a file outside the pool: {:+.1} % (to reach: under 2 %)", median(outside));

    for (size, least) in [(4096, 0.8), (512 << 10, 0.95)] {
        for kind in ["read", "write"] {
            let mut ratios = Vec::new();
            for _ in 0..3 {
                let mut command = Command::new(&bench.mount);
                command.arg("--private").arg(bench.path("pool.toml")).arg("--").arg("env");
                command.arg(format!("LD_PRELOAD={}", bench.library.display()));
                command.arg(format!("STRIPEWISE_POOL={}", pool[0].1)).arg(&bench.program);
                let times = bench.run(command, kind, size, &[bench.text("plain"), bench.text("mnt/placed")]);
                ratios.push(times[0] / times[1]);
            }
            let size_kib = size >> 10;
            println!(
                "placed file, one server on tmpfs, {kind}s of {size_kib} KiB: {:.2} x the plain file (to reach: {least})",
                median(ratios)
            );
        }
    }
}
