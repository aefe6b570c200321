//! The preload in programs of several users of one pool: what it goes past the mount for, and what no user can make it
//! do.

mod common;

use common::succeeded;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use stripewise_store::Pool;
use stripewise_store::handle::{ATTRIBUTE, Handle};
use stripewise_store::pool::{PoolSpec, TierSpec};

const ALICE: u32 = 62101;
const CAROL: u32 = 62103;

/// A shared pool with root's mount.
struct Users {
    dir: tempfile::TempDir,
}

impl Users {
    fn new() -> Users {
        assert!(rustix::process::geteuid().is_root(), "this test makes a pool of several users: run it as root");
        let users = Users { dir: tempfile::tempdir().expect("a directory") };
        let open = |path: PathBuf| fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("its mode");
        open(users.dir.path().to_owned());
        let spec = PoolSpec {
            name: "shared".into(),
            mount: users.path("mnt"),
            namespace: users.path("ns"),
            default_width_bytes: Some(4096),
            tiers: vec![TierSpec {
                name: "ssd".into(),
                servers: ["s0", "s1", "s2"].map(|name| users.path(name)).to_vec(),
                ..TierSpec::default()
            }],
        };
        Pool::init_shared(&users.path("pool.toml"), &spec).expect("a pool");
        // Where a user can reach it.
        fs::copy(common::library(), users.path("preload.so")).expect("the library");
        open(users.path("pool.toml"));
        open(users.path("preload.so"));
        let mounted = Command::new(common::mount_program())
            .arg(users.path("pool.toml"))
            .args(["-o", "allow_other"])
            .stdin(Stdio::null())
            .output();
        succeeded("mount", &mounted.expect("the mount"));
        users
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A Python script as a user, under the library from its first instruction on.
    fn ok(&self, user: u32, script: &str) -> String {
        let script = format!(
            "import os, errno\nos.setgroups([{user}]); os.setresgid({user}, {user}, {user}); os.setresuid({user}, {user}, \
             {user})\nM, TREE = {:?}, {:?}\ndef bypassed():\n    links = [f'/proc/self/fd/{{n}}' for n in \
             os.listdir('/proc/self/fd')]\n    return [l for l in (os.readlink(l) for l in links if os.path.lexists(l)) if \
             '/s0/' in l or '/s1/' in l or '/s2/' in l]\n{script}",
            self.path("mnt"),
            self.path("ns/tree"),
        );
        let mut python = Command::new("timeout");
        python.args(["120", "python3", "-c", &script]).stdin(Stdio::null());
        python.env("LD_PRELOAD", self.path("preload.so")).env("STRIPEWISE_POOL", self.path("pool.toml"));
        python.env("STRIPEWISE_MOUNT", self.path("mnt"));
        succeeded(&script, &python.output().expect("python3"))
    }

    /// The handle of a file.
    fn handle(&self, name: &str) -> Handle {
        let mut bytes = [0; 4096];
        let length =
            rustix::fs::getxattr(self.path("ns/tree").join(name), ATTRIBUTE, &mut bytes[..]).expect("a handle");
        Handle::decode(&bytes[..length]).expect("a handle")
    }

    fn forge(&self, user: u32, name: &str, of: &str) {
        let handle = self.handle(of);
        let real = fs::metadata(self.path("ns/tree").join(name)).expect("a file").ino();
        let forged = Handle { real, ..handle }.encode().expect("a handle");
        self.ok(user, &format!("os.setxattr(TREE + '/{name}', '{ATTRIBUTE}', bytes({forged:?}))"));
    }
}

impl Drop for Users {
    fn drop(&mut self) {
        let program = common::mount_program();
        let _ = Command::new(program).args(["--lazy", "--unmount"]).arg(self.path("mnt")).output();
    }
}

const SECRET: &str = "fd = os.open(M + '/secret', os.O_CREAT | os.O_RDWR, 0o600)\nos.write(fd, b'alice' * 8000)\n";

#[test]
fn own_files_are_read_past_the_mount_and_others_files_through_it() {
    let users = Users::new();
    users.ok(
        ALICE,
        "fd = os.open(M + '/f', os.O_CREAT | os.O_RDWR, 0o644)\nos.fchmod(fd, 0o644); os.write(fd, b'alice' * 8000)\n\
         assert os.pread(fd, 5, 0) == b'alice' and bypassed()",
    );
    users.ok(
        CAROL,
        "fd = os.open(M + '/f', os.O_RDONLY)\nassert os.read(fd, 50000) == b'alice' * 8000 and not bypassed()\n\
         try: os.write(fd, b'x')\nexcept OSError as error: assert error.errno == errno.EBADF\nelse: assert False",
    );
}

#[test]
fn a_forged_handle_neither_reads_another_users_bytes_nor_has_a_victim_write_them() {
    let users = Users::new();
    users.ok(ALICE, SECRET);
    users.ok(
        CAROL,
        "fd = os.open(M + '/bait', os.O_CREAT | os.O_RDWR)\nos.fchmod(fd, 0o666); os.write(fd, b'c' * 40000)",
    );
    users.forge(CAROL, "bait", "secret");
    users.ok(
        CAROL,
        "try: found = open(M + '/bait', 'rb').read()\nexcept OSError as error: assert error.errno == errno.EIO\n\
         else: assert b'alice' not in found",
    );
    // Alice has her own file open and writes to Carol's: the one must not be taken for the other.
    users.ok(
        ALICE,
        "own = os.open(M + '/secret', os.O_RDWR)\nos.pread(own, 10, 0)\nassert bypassed()\n\
         try: os.pwrite(os.open(M + '/bait', os.O_RDWR), b'written' * 5000, 0)\nexcept OSError: pass\n\
         assert os.pread(own, 50000, 0) == b'alice' * 8000",
    );
    users.ok(ALICE, "assert open(M + '/secret', 'rb').read() == b'alice' * 8000");
}

#[test]
fn a_link_into_another_pool_reaches_that_pools_file() {
    let (own, other) = (Users::new(), Users::new());
    own.ok(ALICE, SECRET);
    other.ok(ALICE, "os.close(os.open(M + '/bait', os.O_CREAT | os.O_RDWR, 0o600))");
    // As a hostile server of the other file system would have it: its file claims to be the one in this pool.
    let forged = Handle { logical: own.handle("secret").logical, ..other.handle("bait") }.encode().expect("a handle");
    rustix::fs::setxattr(other.path("ns/tree/bait"), ATTRIBUTE, &forged, rustix::fs::XattrFlags::empty())
        .expect("a handle");
    std::os::unix::fs::symlink(other.path("mnt/bait"), own.path("mnt/link")).expect("a link");
    for name in
        ["M + '/link'", "os.chdir(M) or 'link'", "os.chdir(os.path.dirname(os.readlink(M + '/link'))) or 'bait'"]
    {
        let script = format!(
            "name = {name}\nfd = os.open(name, os.O_RDWR)\nos.pwrite(fd, b'bait' * 9000, 0)\n\
             assert os.pread(fd, 50000, 0) == b'bait' * 9000 and not bypassed()\n\
             secret = os.open(M + '/secret', os.O_RDWR)\nassert os.pread(secret, 50000, 0) == b'alice' * 8000\n\
             assert bypassed()\nos.dup2(secret, fd); os.close(fd); fd = os.open(name, os.O_RDWR)\n\
             assert os.pread(fd, 50000, 0) == b'bait' * 9000\nos.ftruncate(fd, 0)"
        );
        own.ok(ALICE, &script);
    }
    // A descriptor that a program is started with.
    own.ok(
        ALICE,
        "fd = os.open(M + '/link', os.O_RDWR); os.set_inheritable(fd, True)\n\
         os.execv('/bin/sh', ['sh', '-c', f'printf written >&{fd}'])",
    );
    own.ok(ALICE, "assert open(M + '/secret', 'rb').read() == b'alice' * 8000");
    other.ok(ALICE, "assert open(M + '/bait', 'rb').read() == b'written'");
}

#[test]
fn a_handle_planted_into_a_file_that_all_may_write_leads_to_none_of_its_owners_others() {
    let users = Users::new();
    users.ok(
        ALICE,
        "fd = os.open(M + '/p', os.O_CREAT | os.O_RDWR, 0o644)\nos.fchmod(fd, 0o644); os.write(fd, b'alice' * 8000)",
    );
    users.ok(
        ALICE,
        "fd = os.open(M + '/log', os.O_CREAT | os.O_RDWR)\nos.fchmod(fd, 0o666); os.write(fd, b'log!' * 8000)",
    );
    users.forge(CAROL, "log", "p");
    users.ok(ALICE, "os.chmod(M + '/p', 0o600)");
    users.ok(
        CAROL,
        "for flags in os.O_RDONLY, os.O_RDWR:\n    try: fd = os.open(M + '/log', flags); found = os.read(fd, 50000)\n    \
         except OSError as error: assert error.errno == errno.EIO, error\n    else: assert b'alice' not in found\n\
         try: os.pwrite(os.open(M + '/log', os.O_RDWR), b'carol' * 8000, 0)\nexcept OSError: pass",
    );
    // Both are Alice's, so that only the inode tells the one from the other in a process that has both open.
    users.ok(
        ALICE,
        "own = os.open(M + '/p', os.O_RDWR)\nos.pread(own, 10, 0)\nassert bypassed()\n\
         try: os.pwrite(os.open(M + '/log', os.O_RDWR), b'written' * 5000, 0)\nexcept OSError: pass\n\
         try: assert b'alice' not in os.pread(os.open(M + '/log', os.O_RDONLY), 50000, 0)\nexcept OSError: pass\n\
         assert os.pread(own, 50000, 0) == b'alice' * 8000",
    );
    users.ok(ALICE, "os.unlink(M + '/log')\nassert open(M + '/p', 'rb').read() == b'alice' * 8000");
}

#[test]
fn a_program_with_anothers_rights_takes_nothing_from_the_environment() {
    let users = Users::new();
    // The loader takes no library into such a program unless it is installed as one of the system's; what the library
    // would do there is seen by a program that says so itself.
    let source = users.path("secure.c");
    let text = "#define _GNU_SOURCE\n#include <stdio.h>\n#include <stdlib.h>\n#include <sys/auxv.h>\n\
                int main(void) { printf(\"%lu %d\", getauxval(AT_SECURE), secure_getenv(\"STRIPEWISE_POOL\") == NULL); }\n";
    fs::write(&source, text).expect("a program");
    let program = users.path("secure");
    let built = Command::new("cc").arg(&source).arg("-o").arg(&program).output();
    succeeded("cc", &built.expect("cc"));
    std::os::unix::fs::chown(&program, Some(ALICE), Some(ALICE)).expect("its owner");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o4755)).expect("its mode");
    let run = format!("os.execv({program:?}, ['secure'])");
    assert_eq!(users.ok(CAROL, &run), "1 1");
}
