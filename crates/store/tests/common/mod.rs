//! A pool in a temporary directory.
#![allow(dead_code, reason = "each test binary uses a part")]

pub mod life;

use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use stripewise_control::{Action, Request, Sender, Way};
use stripewise_layout::{Layout, ServerId, Stripe};
use stripewise_optimisation::OptimisationSetting;
use stripewise_store::handle::Optimisations;
use stripewise_store::pool::{PoolSpec, ProfileSource, TierSpec};
use stripewise_store::{Files, Inode, Pool, Store};

pub struct TestPool {
    pub directory: tempfile::TempDir,
    pub pool: Pool,
}

impl TestPool {
    /// A pool with that many servers in one tier, default width 4 KiB.
    pub fn new(servers: usize) -> Self {
        Self::with_roots(|directory| (0..servers).map(|i| directory.join(format!("s{i}"))).collect())
    }

    /// The same, whose servers are as fast as a device of that name.
    pub fn as_fast_as(device: &str, servers: usize) -> Self {
        let mut made = Self::new(servers);
        let profile = stripewise_model::presets::device(device).expect("a device of the model");
        made.pool.tiers[0].profile = Some((profile, ProfileSource::PoolFile));
        made
    }

    /// The same for several users; root only.
    pub fn shared(servers: usize) -> Self {
        Self::made_by(Pool::init_shared, |directory| (0..servers).map(|i| directory.join(format!("s{i}"))).collect())
    }

    pub fn with_roots(roots: impl FnOnce(&Path) -> Vec<PathBuf>) -> Self {
        Self::made_by(Pool::init, roots)
    }

    fn made_by(
        init: impl FnOnce(&Path, &PoolSpec) -> stripewise_store::Result<Pool>,
        roots: impl FnOnce(&Path) -> Vec<PathBuf>,
    ) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let base = directory.path();
        let tier = TierSpec { name: "disk".into(), kind: kind(), servers: roots(base), ..TierSpec::default() };
        let spec = PoolSpec {
            name: "test".into(),
            mount: base.join("mount"),
            namespace: base.join("names"),
            default_width_bytes: Some(4096),
            tiers: vec![tier],
        };
        let pool = init(&base.join("pool.toml"), &spec).unwrap();
        Self { directory, pool }
    }

    pub fn open(&self) -> Arc<Store> {
        Store::open(self.pool.clone()).unwrap()
    }

    pub fn root(&self, server: usize) -> &Path {
        &self.pool.servers[server].root
    }
}

/// The kind of servers that the pools of this binary have.
fn kind() -> Option<String> {
    let name = env!("CARGO_CRATE_NAME");
    (name == "catalogue").then(|| name.into())
}

/// The full name of test `name`, whose file may be a module of another one.
fn full_name(name: &str) -> String {
    let within: Vec<_> = module_path!().split("::").skip(1).filter(|module| *module != "common").collect();
    [&within[..], &[name]].concat().join("::")
}

/// Hints the root of the tree.
pub fn hint(files: &Files, settings: &[&str]) {
    let mut optimisations = Optimisations::default();
    for setting in settings {
        let (index, parameters) = OptimisationSetting::parse(setting).unwrap().pack();
        optimisations.enable(index, parameters).unwrap();
    }
    files.store().change_hints(Path::new("."), |hints| hints.set(None, optimisations)).unwrap();
}

/// A request of this process, for what takes one.
pub fn request(action: Action, offset: u64, len: usize) -> Request {
    Request { sender: Sender::this_process(Way::Library), action, offset, len: len as u64, rank: 0 }
}

/// Creates `name` in the tree.
pub fn create(store: &Arc<Store>, name: &str) -> (OwnedFd, Arc<Inode>) {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let fd = rustix::fs::openat(store.tree(), name, flags, Mode::from_raw_mode(0o600)).unwrap();
    drop(store.create(fd.as_fd(), &Optimisations::default(), || Ok(name.into())).unwrap());
    let inode = store.inode(fd.as_fd()).unwrap().unwrap();
    (fd, inode)
}

/// Writes all of `bytes`, registered.
pub fn write(inode: &Inode, bytes: &[u8], offset: u64) {
    inode.register_writer().unwrap();
    write_all(inode, bytes, offset);
    inode.release_writer().unwrap();
}

pub fn write_all(inode: &Inode, bytes: &[u8], offset: u64) {
    let mut done = 0;
    while done < bytes.len() {
        done += inode.write_at(&bytes[done..], offset + done as u64).unwrap();
    }
}

/// Reads the whole file.
pub fn content(inode: &Inode) -> Vec<u8> {
    let size = inode.size_bytes().unwrap() as usize;
    let mut out = vec![0xee; size + 10];
    let mut done = 0;
    loop {
        match inode.read_at(&mut out[done..], done as u64).unwrap() {
            0 => break,
            count => done += count,
        }
    }
    assert_eq!(done, size);
    out.truncate(done);
    out
}

/// Bytes that differ everywhere.
pub fn pattern(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(2).wrapping_add(1);
    let step = |_| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 56) as u8 | 1
    };
    (0..len).map(step).collect()
}

/// A layout from `(offset, [(server, width)])`.
pub fn layout(regions: &[(u64, &[(u16, u64)])]) -> Layout {
    Layout::new(regions.iter().map(|(offset, round)| {
        let stripe = |&(server, width_bytes): &(u16, u64)| Stripe { server: ServerId(server), width_bytes };
        (*offset, round.iter().map(stripe).collect())
    }))
    .unwrap()
}

/// Runs test `name` of this binary again where it may mount file systems; `false` when this already is that place.
pub fn in_own_mounts(name: &str) -> bool {
    const INSIDE: &str = "STRIPEWISE_TEST_INSIDE";
    // Mounts of other tests, of which the name space would keep copies: their processes would not end before it does.
    const WITHOUT_OTHERS: &str = r#"umount -a -i -l -t fuse.stripewise; exec "$0" "$@""#;
    if std::env::var_os(INSIDE).is_some() {
        return false;
    }
    let root = rustix::process::getuid().is_root();
    let output = Command::new("unshare")
        .args(if root { "-m" } else { "-rm" }.split(' '))
        .args(["sh", "-c", WITHOUT_OTHERS])
        .arg(std::env::current_exe().unwrap())
        .args([&full_name(name), "--exact", "--nocapture"])
        .env(INSIDE, "1")
        .output()
        .expect("the command unshare of util-linux");
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "in a mount namespace of its own: {text}");
    true
}

pub fn mount_tmpfs(target: &Path, options: &str) {
    let options = std::ffi::CString::new(options).unwrap();
    rustix::mount::mount("none", target, "tmpfs", rustix::mount::MountFlags::empty(), options.as_c_str()).unwrap();
}
