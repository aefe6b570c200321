//! A pool, the mount and a script on it under watch, and what is looked at afterwards.

use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{OnceLock, PoisonError};

use rustix::fs::XattrFlags;
use rustix::mount::{MountFlags, UnmountFlags};
use stripewise_store::Pool;

use crate::check::{Mender, Seen, check};
use crate::disk::{Dice, Disk, Loss};
use crate::script::{Crash, Expected, LANDING_TIER, Script};
use crate::scripts;
use crate::trace::{FORKING, MARKS, OTHER, Role, Run, Step, Tracer};

pub const SCRIPT: &str = "STRIPEWISE_CRASH_SCRIPT";
pub const POOL: &str = "STRIPEWISE_CRASH_POOL";
pub const MOUNT: &str = "STRIPEWISE_CRASH_MOUNT";
pub const OTHER_MOUNT: &str = "STRIPEWISE_CRASH_OTHER_MOUNT";

/// How a script reaches its pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Through a mount.
    Mount,
    /// Past the mount, by the preload library.
    Preload,
    /// Through two mounts, by the numbers of its open files.
    TwoMounts,
}

/// The script of that name.
pub fn script(name: &str) -> Script {
    if let Some(seed) = name.strip_prefix("random-") {
        return scripts::random(seed.parse().expect("a seed"), 40);
    }
    if let Some(seed) = name.strip_prefix("small-") {
        return scripts::random_small(seed.parse().expect("a seed"), 40);
    }
    let mut all = scripts::all().into_iter().chain([scripts::past_the_mount(), scripts::through_two_mounts()]);
    all.find(|script| script.name == name).expect("a script of that name")
}

/// A directory in memory if its file system can hold a pool: power cuts are modelled, not made.
pub fn directory() -> tempfile::TempDir {
    let memory = tempfile::tempdir_in("/dev/shm");
    let fit =
        |dir: &tempfile::TempDir| rustix::fs::setxattr(dir.path(), "user.probe", b"1", XattrFlags::empty()).is_ok();
    memory.ok().filter(fit).unwrap_or_else(|| tempfile::tempdir().expect("a temporary directory"))
}

/// A pool, not mounted.
pub struct Bench {
    dir: tempfile::TempDir,
}

impl Bench {
    pub fn new() -> Bench {
        Bench::with(false, false)
    }

    /// One for this script, whose metadata tier can be filled if the script does that, and on one of whose servers new files land if the
    /// script has them leave it.
    pub fn of(script: &Script) -> Bench {
        Bench::with(script.fills_tier(), script.lands())
    }

    fn with(small_tier: bool, lands: bool) -> Bench {
        let dir = directory();
        for name in ["mnt", "ns", "s0", "s1", "s2"] {
            fs::create_dir(dir.path().join(name)).expect("a directory");
        }
        if small_tier {
            let mounted = rustix::mount::mount("none", dir.path().join("ns"), "tmpfs", MountFlags::empty(), c"size=6m");
            mounted.expect("run this as root");
        }
        let (default, tiers) = if lands {
            let fast = format!("[[tier]]\nname = \"{LANDING_TIER}\"\nservers = [\"s2\"]\n");
            (
                format!("land = \"{LANDING_TIER}\"\n"),
                format!("[[tier]]\nname = \"hdd\"\nservers = [\"s0\", \"s1\"]\n{fast}"),
            )
        } else {
            (String::new(), "[[tier]]\nname = \"hdd\"\nservers = [\"s0\", \"s1\", \"s2\"]\n".to_owned())
        };
        let text = format!(
            "name = \"scratch\"\nmount = \"mnt\"\nnamespace = \"ns\"\n[default]\nwidth = \"4KiB\"\n{default}{tiers}"
        );
        let bench = Bench { dir };
        fs::write(bench.pool(), text).expect("a pool file");
        Pool::load(&bench.pool()).expect("the pool file is right").prepare().expect("a pool");
        bench
    }

    pub fn base(&self) -> &Path {
        self.dir.path()
    }

    pub fn pool(&self) -> PathBuf {
        self.base().join("pool.toml")
    }

    pub fn mount(&self) -> PathBuf {
        self.base().join("mnt")
    }

    fn other_mount(&self) -> PathBuf {
        self.base().join(OTHER)
    }

    fn unmount(&self) {
        for mount in [self.mount(), self.other_mount()] {
            // A mount that is gone is none.
            let _ = rustix::mount::unmount(mount, UnmountFlags::DETACH);
        }
    }

    fn start_mount(&self, tracer: &mut Tracer, at: &Path) -> i32 {
        let mut mount = Command::new(env!("CARGO_BIN_EXE_stripewise-mount"));
        mount.arg(self.pool()).arg(at).args(["-f", "-o", "nopassthrough,threads=2"]);
        // The recorder takes any io_uring for one that writes to disks. What a request changes is the same by the device.
        mount.env("STRIPEWISE_FUSE_DEVICE", "1");
        tracer.start(quiet(mount), Role::Mount)
    }

    /// Runs a script on a mount of its own, or two, all under watch; the mounts are ended after it. The disks as they were
    /// before.
    fn run(&self, script: &Script, way: Way, kill_at: Option<usize>) -> (Disk, Run) {
        if way == Way::TwoMounts {
            fs::create_dir(self.other_mount()).expect("a directory");
        }
        let mut tracer = Tracer::new(self.base(), script.setup, kill_at);
        let disk = Disk::at(self.base(), tracer.objects());
        let mut mounts = vec![self.start_mount(&mut tracer, &self.mount())];
        let mut program = this_program();
        program.env(SCRIPT, &script.name).env(POOL, self.pool()).env(MOUNT, self.mount());
        match way {
            Way::Mount => {}
            Way::Preload => {
                program.env("LD_PRELOAD", preload_library());
                program.env("STRIPEWISE_POOL", self.pool()).env("STRIPEWISE_MOUNT", self.mount());
            }
            Way::TwoMounts => {
                mounts.push(self.start_mount(&mut tracer, &self.other_mount()));
                program.env(OTHER_MOUNT, self.other_mount());
            }
        }
        let program = tracer.start(program, Role::Script);
        tracer.until_end_of(program);
        for mount in mounts {
            if tracer.runs(mount) {
                // SAFETY: a child of ours that has not been waited for.
                unsafe { libc::kill(mount, libc::SIGTERM) };
                tracer.until_end_of(mount);
            }
        }
        self.unmount();
        let run = tracer.finish();
        assert!(
            matches!(run.script_code, Some(0 | 3) | Some(-9)),
            "{} ({way:?}): the script itself failed ({:?}) with {:?}",
            script.name,
            run.script_code,
            run.killed
        );
        (disk, run)
    }

    /// A run that nothing interrupts, recorded: replayed in the model, it gives the very files that are there.
    pub fn records_rightly(&self, script: &Script) {
        let (mut disk, run) = self.run(script, Way::Mount, None);
        assert_eq!(run.ended, script.ops.len(), "{}: the script ends", script.name);
        for step in &run.steps {
            if let Step::Effect(effect) = step {
                disk.happen(effect);
            }
        }
        let copy = directory();
        disk.crash(Loss::None, copy.path());
        let compared = compare(self.base(), copy.path());
        assert!(compared.is_empty(), "{}: the recorder has missed something: {compared:?}", script.name);
        let expected = Expected::after(script, run.ended, run.ended, Crash::Kill);
        check(&self.pool(), &expected, Mender::Fsck)
            .unwrap_or_else(|reason| panic!("{}: without any crash: {reason}", script.name));
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.unmount();
        // Most are no file system of their own.
        let _ = rustix::mount::unmount(self.base().join("ns"), UnmountFlags::DETACH);
    }
}

/// This program, to do something in a process of its own; it finds a descriptor for its marks.
pub fn this_program() -> Command {
    let mut program = Command::new(std::env::current_exe().expect("this program"));
    program.args(["performs_a_script_for_another_test", "--exact", "--nocapture", "--test-threads=1"]);
    let null = fs::File::options().write(true).open("/dev/null").expect("/dev/null");
    // SAFETY: dup2 is a plain system call; the closure keeps `null` open until the process has started.
    unsafe {
        program.pre_exec(move || match libc::dup2(null.as_raw_fd(), MARKS) {
            -1 => Err(std::io::Error::last_os_error()),
            _ => Ok(()),
        });
    }
    quiet(program)
}

/// The preload library, brought up to date once: cargo does not build other packages' libraries for a test.
fn preload_library() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let _alone = FORKING.write().unwrap_or_else(PoisonError::into_inner);
        let target = Path::new(env!("CARGO_BIN_EXE_stripewise-mount")).parent().expect("target/<profile>");
        let mut build = Command::new(env!("CARGO"));
        build.args(["build", "--quiet", "-p", "stripewise-preload"]);
        if target.ends_with("release") {
            build.arg("--release");
        }
        let status = build.current_dir(env!("CARGO_MANIFEST_DIR")).status().expect("cargo");
        assert!(status.success(), "the library does not build");
        target.join("libstripewise_preload.so")
    })
}

fn quiet(mut command: Command) -> Command {
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command
}

/// Files that processes share by maps, of which a recorder of system calls sees no change. What they say is checked where it is read.
const MAPPED: [&str; 3] = ["epoch", "mounts", "meta-load.2"];

/// Files that differ in bytes, or that only one directory has; pages that may be lost are left out.
fn compare(one: &Path, other: &Path) -> Vec<String> {
    let mut wrong = Vec::new();
    let names = |dir: &Path| -> Vec<_> {
        let mut names: Vec<_> =
            fs::read_dir(dir).expect("a directory").flatten().map(|entry| entry.file_name()).collect();
        names.retain(|name| name != "mnt");
        names.sort();
        names
    };
    if names(one) != names(other) {
        wrong.push(format!("{}: {:?}, {:?}", one.display(), names(one), names(other)));
        return wrong;
    }
    for name in names(one) {
        let (a, b) = (one.join(&name), other.join(&name));
        if a.is_dir() {
            wrong.extend(compare(&a, &b));
        } else if !MAPPED.iter().any(|mapped| name == *mapped)
            && fs::read(&a).expect("a file") != fs::read(&b).expect("a file")
        {
            wrong.push(format!("{}: other bytes", a.display()));
        }
    }
    wrong
}

/// What was tried, so that a test that tried nothing fails.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tried {
    pub kills: u64,
    /// Kills of the program itself.
    pub of_the_program: u64,
    /// Kills in the middle of an operation.
    pub inside: u64,
    /// Kills at which bytes had been synced.
    pub after_syncs: u64,
    pub seen: Seen,
}

impl std::ops::AddAssign for Tried {
    fn add_assign(&mut self, other: Tried) {
        self.kills += other.kills;
        self.of_the_program += other.of_the_program;
        self.inside += other.inside;
        self.after_syncs += other.after_syncs;
        self.seen += other.seen;
    }
}

impl Tried {
    /// Fails where no kill came in the middle of anything, or none after a sync.
    pub fn must_mean_something(&self, name: &str, problems: &[String]) {
        println!("{name}: {self:?}");
        assert!(self.inside > 0, "{name}: no kill came in the middle of anything: nothing was tested");
        assert!(self.after_syncs > 0, "{name}: nothing had been synced at any kill");
        assert!(self.seen.synced_bytes > 0 || !problems.is_empty(), "{name}: no byte was looked at");
    }
}

/// What power cuts met, so that a test that tried nothing fails.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cut {
    pub states: u64,
    /// In the middle of an operation.
    pub inside: u64,
    pub seen: Seen,
}

impl std::ops::AddAssign for Cut {
    fn add_assign(&mut self, other: Cut) {
        self.states += other.states;
        self.inside += other.inside;
        self.seen += other.seen;
    }
}

impl Cut {
    /// Fails where no power cut came in the middle of anything, or none after a sync.
    pub fn must_mean_something(&self, name: &str, problems: &[String]) {
        println!("{name}: {self:?}");
        assert!(self.inside > 0, "{name}: no power cut came in the middle of anything: nothing was tested");
        assert!(self.seen.synced_bytes > 0 || !problems.is_empty(), "{name}: nothing had been synced at any power cut");
    }
}

/// Kills the store at a fault point of a script and looks at what is left; `None` when the script ends before it.
fn kill_at(script: &Script, way: Way, point: usize, mender: Mender, tried: &mut Tried) -> Option<Result<(), String>> {
    let bench = Bench::of(script);
    let (_, run) = bench.run(script, way, Some(point));
    let (role, killed) = run.killed?;
    tried.kills += 1;
    tried.of_the_program += u64::from(role == Role::Script);
    tried.inside += u64::from(run.begun > run.ended);
    tried.after_syncs += u64::from(Expected::after(script, run.ended, run.begun, Crash::Power).has_synced());
    let expected = Expected::after(script, run.ended, run.begun, Crash::Kill);
    let checked = check(&bench.pool(), &expected, mender).and_then(|seen| {
        tried.seen += seen;
        // Nothing is lost by a kill, so that nothing may seem to be.
        if seen.short > 0 { Err("datafiles seem to be shorter than was recorded".to_owned()) } else { Ok(()) }
    });
    let op = script.ops.get(run.ended);
    Some(checked.map_err(|reason| {
        format!("{} ({way:?}), {role:?} killed at point {point}, before {killed}, in {op:?}: {reason}", script.name)
    }))
}

/// Kills the store at every `stride`th fault point of a script in turn; what was found wrong.
pub fn kill_at_points(script: &Script, way: Way, stride: usize) -> Vec<String> {
    let (mut problems, mut tried) = (Vec::new(), Tried::default());
    for point in (0..).step_by(stride) {
        let mender = if (point / stride).is_multiple_of(2) { Mender::Fsck } else { Mender::Writers };
        let Some(checked) = kill_at(script, way, point, mender, &mut tried) else { break };
        problems.extend(checked.err());
    }
    tried.must_mean_something(&script.name, &problems);
    if way == Way::Preload {
        assert!(tried.of_the_program > 0, "{}: the program did nothing past the mount", script.name);
    }
    problems
}

/// Kills the store at some fault points of a script, which its length chooses; adds to what was tried.
pub fn kill_at_random(script: &Script, times: usize, tried: &mut Tried) -> Vec<String> {
    let points = Bench::of(script).run(script, Way::Mount, None).1.points as u64;
    let mut dice = Dice(points);
    let mut problems = Vec::new();
    for _ in 0..times {
        let point = dice.roll(points) as usize;
        let mender = if dice.roll(2) == 0 { Mender::Fsck } else { Mender::Writers };
        problems.extend(kill_at(script, Way::Mount, point, mender, tried).and_then(Result::err));
    }
    if !problems.is_empty() {
        println!("{}: {:#?}", script.name, script.ops);
    }
    problems
}

/// Cuts the power at points of a script; what was found wrong in any of at most `states` states of the disks.
pub fn power_cuts(script: &Script, states: u64, cut: &mut Cut) -> Vec<String> {
    let bench = Bench::of(script);
    let (mut disk, run) = bench.run(script, Way::Mount, None);
    assert_eq!(run.ended, script.ops.len(), "{}: the script ends", script.name);
    let mut cuts = Vec::new();
    let (mut begun, mut ended) = (0, 0);
    for step in &run.steps {
        match step {
            Step::Begins(op) => begun = op + 1,
            Step::Ends(op) => ended = op + 1,
            Step::Effect(effect) => disk.happen(effect),
        }
        if ended >= script.setup {
            let pending = disk.pending();
            let some = pending.iter().flat_map(|&id| [Loss::Only(id), Loss::AllBut(id)]);
            let chance = (0..3).map(|round| Loss::Random(cuts.len() as u64 * 3 + round));
            let losses: Vec<Loss> = [Loss::All, Loss::None].into_iter().chain(some).chain(chance).collect();
            cuts.push((disk.clone(), begun, ended, losses));
        }
    }
    let mut all: Vec<(usize, Loss)> =
        cuts.iter().enumerate().flat_map(|(cut, (.., losses))| losses.iter().map(move |loss| (cut, *loss))).collect();
    let mut dice = Dice(1);
    for last in (1..all.len()).rev() {
        all.swap(last, dice.roll(last as u64 + 1) as usize);
    }
    // The end of the script first, when all has been synced that ever is: the others may all be from before.
    let end = (cuts.len() - 1, Loss::All);
    let (mut here, mut problems) = (Cut::default(), Vec::new());
    for (checked, (cut, loss)) in [end].iter().chain(&all).take(states as usize).enumerate() {
        let (disk, begun, ended, _) = &cuts[*cut];
        here.states += 1;
        here.inside += u64::from(begun > ended);
        let copy = directory();
        disk.crash(*loss, copy.path());
        let expected = Expected::after(script, *ended, *begun, Crash::Power);
        let mender = if checked % 2 == 0 { Mender::Fsck } else { Mender::Writers };
        match check(&copy.path().join("pool.toml"), &expected, mender) {
            Ok(found) => here.seen += found,
            Err(reason) => {
                let op = script.ops.get(*ended);
                problems.push(format!("{}, power cut {cut} ({loss:?}), in {op:?}: {reason}", script.name));
            }
        }
    }
    println!("{}: of {} states {here:?}", script.name, all.len());
    if !problems.is_empty() {
        println!("{}: {:#?}", script.name, script.ops);
    }
    *cut += here;
    problems
}
