//! A pool, its mounts, and the agents that use it, each through its way in.

use crate::direct::Direct;
use crate::operation::{AgentRequest, Answer, CaseOperation, receive, send};
use crate::threshold::MovingThreshold;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, XattrFlags};
use std::collections::BTreeSet;
use std::fs;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};
use stripewise_layout::{Layout, Pattern, ServerId, Stripe};
use stripewise_optimisation::{OptimisationSetting, SMALL};
use stripewise_store::fsck::{CheckFinding, CheckOptions, DamageKind, check};
use stripewise_store::handle::Optimisations;
use stripewise_store::hints::DirectoryHints;
use stripewise_store::pool::{PoolSpec, TierSpec};
use stripewise_store::{Error, Pool, Store};

/// Servers of the pool.
pub const SERVERS: u16 = 4;
/// An agent that does not answer within this time hangs.
const PATIENCE: Timespec = Timespec { tv_sec: 120, tv_nsec: 0 };

/// A layout as regions of `(offset, round)`, a round as `(server, width in bytes)`; server 65535 is the metadata tier.
pub type LayoutRows = Vec<(u64, Vec<(u16, u64)>)>;

/// How an agent reaches its files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccessWay {
    /// A plain directory, without Stripewise: this tries the model.
    Bare,
    /// A mount, the first or the second of the pool.
    Mount(usize),
    /// A mount that may not let the kernel serve files itself.
    Longer(usize),
    /// A mount whose kernel keeps what is written (`writeback_cache`).
    Kept(usize),
    /// The preload over such a mount.
    KeptPreload(usize),
    /// A mount of the agent's own, in a namespace of its own.
    Private,
    /// The preload over a mount.
    Preload(usize),
    /// The preload over a mount of the agent's own.
    PrivatePreload,
    /// The store's interface, in the harness's process.
    Store,
    /// `import stripewise`, in a process of its own.
    Python,
}

impl AccessWay {
    fn mount(self) -> Option<(usize, &'static str)> {
        match self {
            Self::Mount(number) | Self::Preload(number) => Some((number, "rw")),
            Self::Longer(number) => Some((number, "nopassthrough")),
            Self::Kept(number) | Self::KeptPreload(number) => Some((number, "writeback_cache")),
            _ => None,
        }
    }

    fn is_private(self) -> bool {
        matches!(self, Self::Private | Self::PrivatePreload)
    }

    fn is_preloaded(self) -> bool {
        matches!(self, Self::Preload(_) | Self::KeptPreload(_) | Self::PrivatePreload)
    }

    /// Neither remembers names that the other has not: they have one kernel's mount between them, or none.
    fn shares_names_with(self, other: Self) -> bool {
        let mountless = |way| matches!(way, Self::Bare | Self::Store | Self::Python);
        mountless(self) && mountless(other) || self.mount().is_some() && self.mount() == other.mount()
    }

    /// Whether the way has the operation at all.
    fn has(self, operation: &CaseOperation) -> bool {
        match self {
            Self::Store => Direct::has(operation),
            // Files of Python have neither vectors nor duplicates.
            Self::Python => {
                let others = matches!(
                    operation,
                    CaseOperation::Dup { .. }
                        | CaseOperation::Readv { .. }
                        | CaseOperation::Writev { .. }
                        | CaseOperation::Fallocate { .. }
                        | CaseOperation::Link { .. }
                        | CaseOperation::Symlink { .. }
                        | CaseOperation::Readlink { .. }
                        | CaseOperation::Chmod { .. }
                        | CaseOperation::SetTimes { .. }
                );
                Direct::has(operation) && !others
            }
            _ => true,
        }
    }
}

/// What carries out operations.
struct Agent {
    way: AccessWay,
    /// The directory that it works in.
    root: PathBuf,
    runs: Runs,
}

/// Where an agent runs.
enum Runs {
    Here(Direct),
    InAProcess(Remote),
}

/// An agent in a process of its own.
struct Remote {
    process: Child,
    /// `None`: told to end.
    requests: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Remote {
    /// What it answers.
    fn ask(&mut self, request: &AgentRequest, data: &[u8]) -> std::io::Result<Answer> {
        let requests = self.requests.as_mut().ok_or_else(|| std::io::Error::other("it was ended"))?;
        send(requests, request, data)?;
        let mut ready = [PollFd::new(self.answers.get_ref(), PollFlags::IN)];
        if poll(&mut ready, Some(&PATIENCE))? == 0 {
            return Err(std::io::Error::other("no answer: it hangs"));
        }
        match receive(&mut self.answers)? {
            Some((Answer::Bytes { .. }, data)) => Ok(Answer::Bytes { data }),
            Some((answer, _)) => Ok(answer),
            None => Err(std::io::Error::other("it has died")),
        }
    }

    /// Ends it: by the end of its input, and if that does not help, by force.
    fn end(&mut self) {
        self.requests = None;
        let begin = Instant::now();
        while matches!(self.process.try_wait(), Ok(None)) {
            if begin.elapsed() > Duration::from_secs(10) {
                let _ = self.process.kill();
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Agent {
    fn end(&mut self) {
        if let Runs::InAProcess(remote) = &mut self.runs {
            remote.end();
        }
    }
}

/// A pool with agents.
pub struct World {
    store: Arc<Store>,
    agents: Vec<Agent>,
    mounts: Vec<PathBuf>,
    layouts: Vec<Layout>,
    hint: Option<OptimisationSetting>,
    /// Of the case, where its files are small ones that the threshold moves.
    threshold: Option<MovingThreshold>,
    case: u64,
    /// Left behind by cases that failed; they have been told of.
    known: BTreeSet<PathBuf>,
    directory: tempfile::TempDir,
}

/// Directory of the binaries built beside this test.
fn target() -> PathBuf {
    let test = std::env::current_exe().expect("this test");
    test.ancestors().nth(2).expect("target/<profile>/deps").to_owned()
}

/// Brings the library and the mount up to date once: cargo does not build other packages' binaries for a test.
fn built() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let mut build = Command::new(env!("CARGO"));
        build.args(["build", "--quiet", "-p", "stripewise-preload", "-p", "stripewise-mount"]);
        if target().ends_with("release") {
            build.arg("--release");
        }
        let status = build.current_dir(env!("CARGO_MANIFEST_DIR")).status().expect("cargo");
        assert!(status.success(), "the mount and the library do not build");
        target()
    })
}

/// The interpreter of the environment that `make setup` makes, which has `import stripewise`.
fn python() -> PathBuf {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.venv/bin/python");
    assert!(own.exists(), "{} does not exist: run `make setup`", own.display());
    own
}

/// A directory in memory where there is one that keeps users' attributes, so that files may reach to 2^63-1; else one
/// on a disk. `STRIPEWISE_CONFORMANCE_DIR` names another.
fn directory() -> tempfile::TempDir {
    let make = |path: &Path| tempfile::Builder::new().prefix("stripewise-conformance-").tempdir_in(path);
    if let Some(path) = std::env::var_os("STRIPEWISE_CONFORMANCE_DIR") {
        return make(Path::new(&path)).expect("a directory in STRIPEWISE_CONFORMANCE_DIR");
    }
    let memory = make(Path::new("/dev/shm")).ok().filter(|directory| {
        rustix::fs::setxattr(directory.path(), c"user.stripewise.test", b"1", XattrFlags::empty()).is_ok()
    });
    memory.unwrap_or_else(|| make(&std::env::temp_dir()).expect("a temporary directory"))
}

fn layout(rows: &LayoutRows) -> Result<Layout, String> {
    let stripe = |&(server, width_bytes): &(u16, u64)| Stripe { server: ServerId(server), width_bytes };
    Layout::new(rows.iter().map(|(offset, round)| (*offset, round.iter().map(stripe).collect())))
        .map_err(|error| error.to_string())
}

impl World {
    /// A fresh pool with servers of that kind, and an agent for each way. The directories of the cases have the `hint`.
    ///
    /// # Panics
    /// Something that the ways need is not there.
    pub fn new(ways: &[AccessWay], kind: &str, hint: Option<&str>) -> Self {
        assert!(
            Path::new("/dev/fuse").exists(),
            "/dev/fuse does not exist: these tests mount real file systems (modprobe fuse, or --device /dev/fuse)"
        );
        let directory = directory();
        let base = directory.path().to_owned();
        for name in ["mnt0", "mnt1", "bare"] {
            fs::create_dir(base.join(name)).expect("a directory");
        }
        let servers = (0..SERVERS).map(|number| base.join(format!("s{number}"))).collect();
        let spec = PoolSpec {
            name: "test".into(),
            mount: base.join("mnt0"),
            namespace: base.join("names"),
            default_width_bytes: Some(4096),
            tiers: vec![TierSpec { name: "disk".into(), kind: Some(kind.into()), servers, ..TierSpec::default() }],
        };
        let pool = Pool::init(&base.join("pool.toml"), &spec).expect("a pool");
        let store = Store::open(pool).expect("the pool");
        let (agents, mounts, known) = (Vec::new(), Vec::new(), BTreeSet::new());
        let hint = hint.map(|hint| OptimisationSetting::parse(hint).expect("a hint"));
        let threshold = hint.filter(|hint| hint.of() == &SMALL).map(|_| MovingThreshold::default());
        let layouts = Vec::new();
        let mut world = Self { store, agents, mounts, layouts, hint, threshold, case: 0, known, directory };
        for &way in ways {
            let root = world.mount(way);
            let agent = world.start(way, root);
            world.agents.push(agent);
        }
        world
    }

    fn base(&self) -> &Path {
        self.directory.path()
    }

    /// Mounts what the way needs; the directory where its agents find the files.
    fn mount(&mut self, way: AccessWay) -> PathBuf {
        let Some((number, options)) = way.mount() else {
            return self.base().join(if way == AccessWay::Bare { "bare" } else { "mnt0" });
        };
        let directory = self.base().join(format!("mnt{number}"));
        if !self.mounts.contains(&directory) {
            let mut mount = Command::new(built().join("stripewise-mount"));
            mount.arg(self.base().join("pool.toml")).arg(&directory).args(["-o", options]).stdin(Stdio::null());
            let output = mount.output().expect("stripewise-mount");
            assert!(output.status.success(), "mount: {}", String::from_utf8_lossy(&output.stderr));
            self.mounts.push(directory.clone());
        }
        directory
    }

    fn start(&self, way: AccessWay, root: PathBuf) -> Agent {
        let runs = match way {
            AccessWay::Store => Runs::Here(Direct::new(self.store.pool().clone()).expect("the pool")),
            _ => Runs::InAProcess(self.start_process(way, &root)),
        };
        Agent { way, root, runs }
    }

    fn start_process(&self, way: AccessWay, root: &Path) -> Remote {
        let mut command = Command::new(if way.is_private() { built().join("stripewise-mount") } else { "env".into() });
        if way.is_private() {
            command.arg("--private").arg(self.base().join("pool.toml")).args(["--", "env"]);
        }
        if way.is_preloaded() {
            command.arg(format!("LD_PRELOAD={}", built().join("libstripewise_preload.so").display()));
        }
        if way == AccessWay::Python {
            command.arg(python()).arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/agent.py"));
        } else {
            command.arg(target().join("conformance-agent"));
        }
        command.env("STRIPEWISE_POOL", self.base().join("pool.toml")).env("STRIPEWISE_MOUNT", root);
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("an agent");
        let requests = process.stdin.take();
        let answers = BufReader::new(process.stdout.take().expect("a pipe"));
        Remote { process, requests, answers }
    }

    /// Number of agents.
    pub fn agents(&self) -> usize {
        self.agents.len()
    }

    /// An agent's way in, for people.
    pub fn name_of(&self, who: usize) -> String {
        format!("agent {who} ({:?})", self.agents[who].way)
    }

    /// Whether the agent's way has the operation, and what it promises covers it.
    pub fn has(&self, who: usize, operation: &CaseOperation) -> bool {
        let way = self.agents[who].way;
        if !way.has(operation) {
            return false;
        }
        let others = || self.agents.iter().enumerate().filter(|(other, _)| *other != who).map(|(_, agent)| agent.way);
        let one_kernel = || others().all(|other| way.shares_names_with(other));
        match operation {
            // Another kernel notices within a second that a name has gone or leads elsewhere, or a directory's new
            // mode.
            CaseOperation::Rename { .. }
            | CaseOperation::Unlink { .. }
            | CaseOperation::Rmdir { .. }
            | CaseOperation::Chmod { .. } => one_kernel(),
            // Maps are of one mount.
            CaseOperation::Map { .. } => one_kernel(),
            // The kernel copies up to the size that it knows: no other way in may write the file meanwhile.
            CaseOperation::CopyRange { .. } => {
                way.is_preloaded() || others().all(|other| other == way && way.shares_names_with(other))
            }
            _ => true,
        }
    }

    /// Prepares a directory for a case, and its layouts.
    ///
    /// # Errors
    /// A layout that is none.
    pub fn begin(&mut self, rows: &[LayoutRows]) -> Result<(), String> {
        self.layouts = rows.iter().map(layout).collect::<Result<_, _>>()?;
        // A rule names the place of every byte: such a file is no small one.
        let ruled = if self.threshold.is_some() { 0 } else { self.layouts.len() };
        for (name, layout) in ["**/a", "**/b", "**/c"].iter().zip(&self.layouts[..ruled]) {
            let pattern = Pattern::new(name).map_err(|error| error.to_string())?;
            self.store.set_rule(&pattern, layout).map_err(|error| error.to_string())?;
        }
        if let Some(threshold) = &mut self.threshold {
            threshold.begin();
        }
        self.case += 1;
        let name = format!("case{}", self.case);
        rustix::fs::mkdirat(self.store.tree(), &*name, Mode::from_raw_mode(0o755))
            .map_err(|error| error.to_string())?;
        if let Some(hint) = &self.hint {
            let mut optimisations = Optimisations::default();
            let (index, parameters) = hint.pack();
            optimisations.enable(index, parameters).map_err(|error| error.to_string())?;
            let set = |hints: &mut DirectoryHints| hints.set(None, optimisations);
            self.store.change_hints(Path::new(&name), set).map_err(|error| error.to_string())?;
        }
        fs::create_dir(self.base().join("bare").join(&name)).map_err(|error| error.to_string())?;
        (0..self.agents.len()).try_for_each(|who| self.enter(who, &name))
    }

    fn enter(&mut self, who: usize, name: &str) -> Result<(), String> {
        let agent = &mut self.agents[who];
        let entered = match &mut agent.runs {
            Runs::Here(direct) => {
                direct.enter(name);
                return Ok(());
            }
            // Python's paths are the pool's.
            Runs::InAProcess(remote) if agent.way == AccessWay::Python => {
                remote.ask(&AgentRequest::Enter(name.to_owned()), &[])
            }
            Runs::InAProcess(remote) => {
                remote.ask(&AgentRequest::Enter(agent.root.join(name).to_string_lossy().into_owned()), &[])
            }
        };
        match entered {
            Ok(Answer::Done(0)) => Ok(()),
            other => Err(format!("{}: to go to {name}: {other:?}", self.name_of(who))),
        }
    }

    /// That a check takes no file for one that has lost bytes. Files that are still being closed are left alone by it.
    ///
    /// # Errors
    /// Such a file, or the check could not be made.
    pub fn raises_no_alarm(&self) -> Result<(), String> {
        let told: Mutex<Vec<CheckFinding>> = Mutex::default();
        let options = CheckOptions { dry_run: true, threads: 1, ..CheckOptions::default() };
        check(self.store.pool(), &options, &told).map_err(|error| format!("checking the pool: {error}"))?;
        let told = told.into_inner().unwrap_or_default();
        match told
            .into_iter()
            .find(|finding| matches!(finding.kind, DamageKind::ShortDatafile | DamageKind::MissingDatafile))
        {
            Some(finding) => Err(format!("a pool that is well is taken for a damaged one: {finding:?}")),
            None => Ok(()),
        }
    }

    /// Closes and removes what is left of a case; tells of what should have gone with it.
    ///
    /// # Errors
    /// Datafiles or lock files that are left.
    pub fn end(&mut self) -> Result<(), String> {
        for who in 0..self.agents.len() {
            if self.enter(who, ".").is_err() {
                let (way, root) = (self.agents[who].way, self.agents[who].root.clone());
                self.agents[who].end();
                self.agents[who] = self.start(way, root);
            }
        }
        let name = format!("case{}", self.case);
        // A case that failed leaves names, and with them datafiles.
        let clean = fs::remove_dir(self.store.pool().namespace.join("tree").join(&name)).is_ok();
        let _ = fs::remove_dir_all(self.store.pool().namespace.join("tree").join(&name));
        let _ = fs::remove_dir_all(self.base().join("bare").join(&name));
        let begin = Instant::now();
        loop {
            let left: Vec<_> = self.leftovers().difference(&self.known).cloned().collect();
            if left.is_empty() {
                return Ok(());
            }
            // The last close of a file comes to the mount after the program's has returned.
            if begin.elapsed() > Duration::from_secs(if clean { 20 } else { 0 }) {
                self.known.extend(left.iter().cloned());
                return Err(format!("left behind: {left:?}"));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Datafiles and lock files.
    fn leftovers(&self) -> BTreeSet<PathBuf> {
        let entries = |path: PathBuf| fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path());
        let servers = (0..SERVERS).flat_map(|number| entries(self.base().join(format!("s{number}"))));
        let datafiles = servers.filter(|path| path.is_dir()).flat_map(entries);
        datafiles.chain(entries(self.base().join("names/locks"))).collect()
    }

    /// Has an agent carry out an operation.
    ///
    /// # Errors
    /// The agent has died, or does not answer.
    pub fn run(&mut self, who: usize, operation: &CaseOperation, data: &[u8]) -> Result<Answer, String> {
        if let Some(threshold) = &mut self.threshold {
            threshold.step(&self.store)?;
        }
        if let CaseOperation::Move { path, layout } = operation {
            return self.move_file(path, *layout);
        }
        let answer = match &mut self.agents[who].runs {
            Runs::Here(direct) => Ok(direct.run(operation, data)),
            Runs::InAProcess(remote) => remote.ask(&AgentRequest::Do(operation.clone()), data),
        };
        answer.map_err(|error| format!("{}: {operation:?}: {error}", self.name_of(who)))
    }

    /// Files that the threshold has moved in all cases: to the servers, and back to their inodes.
    pub fn moved_by_threshold(&self) -> Option<(u64, u64)> {
        self.threshold.as_ref().map(|threshold| (threshold.sent_files, threshold.returned_files))
    }

    /// Gives a file another layout, as `stripewise apply` does: from a process of its own. One that is being written
    /// stays. Where the threshold moves files, nothing else does.
    fn move_file(&self, path: &str, layout: usize) -> Result<Answer, String> {
        if self.threshold.is_some() {
            return Ok(Answer::Done(0));
        }
        let path = Path::new(&format!("case{}", self.case)).join(path);
        // Neither a file in a directory that is a plain one, nor what is no file: nothing to move.
        let Ok(Some(inode)) = self.store.lookup(&path) else { return Ok(Answer::Done(0)) };
        match inode.move_to(&self.layouts[layout % self.layouts.len()], "a file", &mut |_, _| true) {
            Ok(_) | Err(Error::Busy { .. }) => Ok(Answer::Done(0)),
            Err(error) => Err(format!("moving {}: {error}", path.display())),
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        for agent in &mut self.agents {
            agent.end();
        }
        for mount in &self.mounts {
            let _ = Command::new(built().join("stripewise-mount")).args(["--lazy", "--unmount"]).arg(mount).output();
        }
    }
}
