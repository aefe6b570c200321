//! A mount that root alone may use, where the kernel checks no permissions: what root's programs see is what they see on the file
//! system of the namespace, and no other user comes in.

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use common::{Mounted, TestPool, need, succeeded};

/// One line for each answer.
const CASES: &str = r#"
import os, struct, subprocess, sys
os.chdir(sys.argv[1])
def tried(what, call):
    try: print(what, call())
    except OSError as error: print(what, error.strerror)
for mode in (0o000, 0o644, 0o755, 0o4711, 0o010):
    name = f'file-{mode:o}'
    with open(name, 'w') as file: file.write('#!/bin/sh\necho ran\n')
    os.chmod(name, mode)
    for asked in (os.F_OK, os.R_OK, os.W_OK, os.X_OK, os.R_OK | os.X_OK):
        tried(f'access {asked} {name}', lambda: os.access(name, asked))
    tried(f'run {name}', lambda: subprocess.run(['./' + name], capture_output=True, text=True).stdout)
    tried(f'read {name}', lambda: open(name).read())
    tried(f'append {name}', lambda: open(name, 'a').write('#'))
    directory = f'directory-{mode:o}'
    os.mkdir(directory)
    os.chown(directory, 62101, 62101)
    os.chmod(directory, mode)
    tried(f'make in {directory}', lambda: open(directory + '/made', 'x').close())
    tried(f'work in {directory}', lambda: (os.chdir(directory), os.listdir('.'), os.chdir('..')))
    tried(f'remove in {directory}', lambda: os.unlink(directory + '/made'))
tried('access of nothing', lambda: os.access('absent', os.F_OK))
tried('work in a file', lambda: os.chdir('file-755'))
def acl(*entries):
    # user:: 1, user:ID: 2, group:: 4, mask:: 16, other:: 32
    return struct.pack('<I', 2) + b''.join(struct.pack('<HHI', *entry) for entry in entries)
NONE = 0xffffffff
os.umask(0o027)
os.mkdir('lists')
handed_down = acl((1, 7, NONE), (2, 7, 62101), (4, 5, NONE), (16, 7, NONE), (32, 0, NONE))
tried('list', lambda: os.setxattr('lists', 'system.posix_acl_default', handed_down))
open('lists/made', 'w').close()
os.mkdir('lists/below')
open('plain', 'w').close()
own = acl((1, 6, NONE), (2, 6, 62102), (4, 4, NONE), (16, 6, NONE), (32, 0, NONE))
tried('list', lambda: os.setxattr('plain', 'system.posix_acl_access', own))
def lists():
    for name in ('lists', 'lists/made', 'lists/below', 'plain'):
        print(name, oct(os.stat(name).st_mode))
        for kind in ('access', 'default'):
            tried(kind, lambda: os.getxattr(name, 'system.posix_acl_' + kind).hex())
lists()
os.chmod('plain', 0o600)
os.chmod('lists/made', 0o611)
lists()
tried('no list', lambda: os.removexattr('plain', 'system.posix_acl_access'))
tried('not a list', lambda: os.setxattr('plain', 'system.posix_acl_access', b'x'))
lists()
"#;

fn cases(dir: &Path) -> String {
    fs::create_dir(dir).unwrap();
    let mut command = Command::new("timeout");
    let output = command.args(["60", "python3", "-c", CASES]).arg(dir).stdin(Stdio::null()).output().unwrap();
    succeeded("the calls", &output)
}

#[test]
fn root_sees_what_it_sees_in_the_namespace_and_no_other_user_comes_in() {
    for program in ["python3", "setpriv"] {
        need(program);
    }
    assert!(rustix::process::geteuid().is_root(), "this test mounts for root alone: run it as root");
    for servers in [&["s0"][..], &["s0", "s1", "s2"]] {
        let pool = TestPool::with("4KiB", servers);
        for path in [pool.path("."), pool.path("out")] {
            fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        let mounted = Mounted::new(&pool, "mnt", "noallow_other");
        let (bare, ours) = (cases(&pool.path("out/cases")), cases(&mounted.path("cases")));
        assert!(bare.lines().count() > 80, "{bare}");
        let wrong: Vec<_> = bare.lines().zip(ours.lines()).filter(|(bare, ours)| bare != ours).collect();
        assert!(wrong.is_empty() && bare.lines().count() == ours.lines().count(), "bare, then ours: {wrong:#?}");
        let open = mounted.path("open");
        fs::write(&open, b"bytes").unwrap();
        fs::set_permissions(&open, fs::Permissions::from_mode(0o666)).unwrap();
        for (uid, gid) in [("62101", "62101"), ("0", "62101"), ("62101", "0")] {
            let mut other = Command::new("setpriv");
            other.args(["--reuid", uid, "--regid", gid, "--clear-groups", "cat"]).arg(&open).stdin(Stdio::null());
            let output = other.output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(!output.status.success() && said.contains("Permission denied"), "{uid} {gid}: {said}");
        }
    }
}
