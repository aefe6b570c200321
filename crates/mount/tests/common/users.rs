//! A shared pool with several users: each acts with system calls of its own, through root's mount or one of its own.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use stripewise_store::handle::{ATTRIBUTE, Handle};

use super::{Mounted, TestPool, need, succeeded};

pub const ALICE: u32 = 62101;
pub const BOB: u32 = 62102;
pub const CAROL: u32 = 62103;
/// Alice's and Bob's.
pub const PROJECT: u32 = 62200;

pub fn groups(user: u32) -> String {
    if user == CAROL { user.to_string() } else { format!("{user},{PROJECT}") }
}

/// A shared pool with root's mount, which all may use.
pub struct Users {
    pub pool: TestPool,
    pub mount: Mounted,
}

impl Users {
    pub fn new() -> Users {
        Users::of(TestPool::shared())
    }

    pub fn of(pool: TestPool) -> Users {
        need("python3");
        let mount = Mounted::new(&pool, "mnt", "allow_other");
        Users { pool, mount }
    }

    /// A Python script as a user, with the pool's paths at hand.
    pub fn run(&self, user: u32, script: &str) -> Output {
        let groups = groups(user);
        let path = |name: &str| self.pool.path(name).to_string_lossy().into_owned();
        let script = format!(
            "import os, sys, errno, fcntl, struct, time, stat, ctypes\nos.setgroups([{groups}]); os.setresgid({user}, {user}, {user}); \
             os.setresuid({user}, {user}, {user})\nM, TREE, NS, OUT = {:?}, {:?}, {:?}, {:?}\nSERVERS = \
             {:?}\nos.umask(0o022)\ndef refused(call, *codes):\n    try: call()\n    except OSError as error:\n        \
             assert error.errno in codes, error\n        return\n    raise AssertionError('it was allowed')\n{script}",
            path("mnt"),
            path("ns/tree"),
            path("ns"),
            path("out"),
            [path("s0"), path("s1"), path("s2")],
        );
        // As root until it has begun: its files may be root's alone.
        Command::new("timeout").args(["120", "python3", "-c", &script]).stdin(Stdio::null()).output().unwrap()
    }

    pub fn ok(&self, user: u32, script: &str) -> String {
        succeeded(script, &self.run(user, script))
    }

    pub fn tree(&self, name: &str) -> PathBuf {
        self.pool.path("ns/tree").join(name)
    }

    pub fn handle(&self, name: &str) -> Handle {
        let mut bytes = [0; 4096];
        let length = rustix::fs::getxattr(self.tree(name), ATTRIBUTE, &mut bytes[..]).unwrap();
        Handle::decode(&bytes[..length]).unwrap()
    }

    /// Has a user write a handle into the namespace inode of a file of that user.
    pub fn forge(&self, user: u32, name: &str, handle: &Handle) {
        let real = fs::metadata(self.tree(name)).unwrap().ino();
        let bytes = Handle { real, ..handle.clone() }.encode().unwrap();
        self.set(user, name, &bytes);
    }

    pub fn set(&self, user: u32, name: &str, bytes: &[u8]) {
        self.ok(user, &format!("os.setxattr(TREE + '/{name}', '{ATTRIBUTE}', bytes({bytes:?}))"));
    }

    /// The datafiles of a file, on whichever servers it has some.
    pub fn datafiles(&self, handle: &Handle) -> Vec<PathBuf> {
        let prefix = format!("{:016x}.", handle.logical);
        let mut all = self.pool.datafiles();
        all.retain(|path| path.file_name().unwrap().to_string_lossy().starts_with(&prefix));
        all
    }

    pub fn modes(&self, handle: &Handle) -> Vec<(u32, u32, u32)> {
        let of =
            |path: &PathBuf| fs::symlink_metadata(path).map(|m| (m.uid(), m.gid(), m.permissions().mode() & 0o7777));
        // Those of a removed file go in their own time.
        let there = |found: std::io::Result<_>| match found {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
            found => Some(found.unwrap()),
        };
        let mut all: Vec<_> = self.datafiles(handle).iter().filter_map(|path| there(of(path))).collect();
        all.dedup();
        all
    }
}

/// A command of a user on a mount of that user, with `/dev/fuse` as a host has it.
pub fn private(users: &Users, user: u32, script: &str) -> Output {
    need("setpriv");
    need("unshare");
    let fuse = users.pool.path("out/fuse");
    let groups = groups(user);
    // Where the user can reach it.
    let program = users.pool.path("out/stripewise-mount");
    if !program.exists() {
        fs::copy(super::BIN, &program).unwrap();
    }
    let outer = format!(
        "set -e; umask 0; test -e {fuse} || mknod -m 666 {fuse} c 10 229; mount --bind {fuse} /dev/fuse; umount -l {mnt} \
         2>/dev/null || true; exec timeout 120 setpriv --reuid {user} --regid {user} --groups {groups} -- {bin} --private \
         {pool} -- sh -euc 'cd {mnt}; {script}'",
        fuse = fuse.display(),
        mnt = users.pool.mnt().display(),
        bin = program.display(),
        pool = users.pool.file().display(),
    );
    Command::new("unshare").args(["-m", "--", "sh", "-c", &outer]).stdin(Stdio::null()).output().unwrap()
}

/// Whether this machine does not let an unprivileged user mount; says so.
pub fn cannot_be_had(said: &str) -> bool {
    let cannot = ["mount namespace", "/dev/fuse", "mknod", "unshare"].iter().any(|what| said.contains(what));
    if cannot {
        eprintln!("skipped: private mounts of unprivileged users: {said}");
    }
    cannot
}
