//! Mounting, unmounting, private runs: what comes and goes, and what is said when it does not.

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use common::{BIN, TestPool, succeeded};

fn run(args: &[&dyn AsRef<std::ffi::OsStr>]) -> Output {
    Command::new(BIN).args(args.iter().map(|arg| arg.as_ref())).stdin(Stdio::null()).output().unwrap()
}

fn error_of(output: &Output) -> String {
    assert!(!output.status.success(), "should have failed");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn is_mounted(dir: &Path) -> bool {
    stripewise_mount::mounted_at(&dir.canonicalize().unwrap()).unwrap().is_some()
}

/// Waits for something that comes about soon.
fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !done() {
        assert!(begin.elapsed() < Duration::from_secs(60), "{what} did not come about");
        sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_daemon_mounts_serves_and_ends() {
    let pool = TestPool::new();
    let output = run(&[&pool.file()]);
    succeeded("mount", &output);
    assert!(is_mounted(&pool.mnt()), "the command returns only when the pool is mounted");
    let entry = stripewise_mount::mounted_at(&pool.mnt().canonicalize().unwrap()).unwrap().unwrap();
    assert_eq!((entry.fs_type.as_str(), entry.source.to_str()), ("fuse.stripewise", Some("scratch")));
    fs::write(pool.mnt().join("f"), vec![7; 30_000]).unwrap();

    // A second time.
    let text = error_of(&run(&[&pool.file()]));
    assert!(text.contains("`scratch`") && text.contains("--unmount"), "{text}");
    // A private run uses it.
    let output = pool.private(&["sh", "-c", "cmp $M/f $M/f && echo $PPID"]).output().unwrap();
    let parent = succeeded("private on a mounted pool", &output);
    assert_eq!(parent.trim(), std::process::id().to_string(), "nothing should stand between it and its parent");

    // In use: refused, and nothing is lost.
    let open = fs::File::open(pool.mnt().join("f")).unwrap();
    let text = error_of(&run(&[&"--unmount", &pool.mnt()]));
    assert!(text.contains("still use it") && text.contains("--lazy"), "{text}");
    assert_eq!(fs::read(pool.mnt().join("f")).unwrap(), vec![7; 30_000]);
    drop(open);
    eventually("unmounting", || run(&[&"--unmount", &pool.mnt()]).status.success());
    assert!(!is_mounted(&pool.mnt()));
    let text = error_of(&run(&[&"--unmount", &pool.mnt()]));
    assert!(text.contains("nothing is mounted"), "{text}");
}

#[test]
fn a_lazy_unmount_serves_open_files_to_their_end() {
    use std::io::Write;
    let pool = TestPool::new();
    succeeded("mount", &run(&[&pool.file()]));
    let mut open = fs::File::create(pool.mnt().join("f")).unwrap();
    open.write_all(&[1; 10_000]).unwrap();
    succeeded("unmount", &run(&[&"--unmount", &pool.mnt(), &"--lazy"]));
    assert!(!is_mounted(&pool.mnt()));
    open.write_all(&[2; 10_000]).unwrap();
    drop(open);
    assert_eq!(pool.sh("stat -c %s f"), "20000\n");
}

#[test]
fn a_foreground_mount_ends_by_a_signal_and_puts_sizes() {
    let pool = TestPool::new();
    let mut server = Command::new(BIN).arg("--foreground").arg(pool.file()).spawn().unwrap();
    eventually("the mount", || is_mounted(&pool.mnt()));
    fs::write(pool.mnt().join("f"), vec![1; 12_345]).unwrap();
    // SAFETY: our own child, not yet waited for.
    unsafe { libc::kill(server.id() as i32, libc::SIGTERM) };
    assert!(server.wait().unwrap().success());
    assert!(!is_mounted(&pool.mnt()));
    assert_eq!(fs::metadata(pool.path("ns/tree/f")).unwrap().len(), 12_345);
}

#[test]
fn what_cannot_be_mounted_is_said() {
    let pool = TestPool::new();
    let text = error_of(&run(&[&pool.path("none.toml")]));
    assert!(text.contains("none.toml"), "{text}");
    fs::write(pool.path("file"), b"").unwrap();
    let text = error_of(&run(&[&pool.file(), &pool.path("file")]));
    assert!(text.contains("file") && text.contains("Not a directory"), "{text}");
    let text = error_of(&run(&[&pool.file(), &pool.path("missing")]));
    assert!(text.contains("missing") && text.contains("mkdir -p"), "{text}");
    fs::write(pool.mnt().join("hidden"), b"").unwrap();
    let text = error_of(&run(&[&pool.file()]));
    assert!(text.contains("not empty") && text.contains("nonempty"), "{text}");
    let text = error_of(&run(&[&pool.file(), &"-o", &"nosiud"]));
    assert!(text.contains("`nosiud`"), "{text}");
    fs::write(pool.file(), b"name = \"x\"\nmuont = \"y\"\n").unwrap();
    let text = error_of(&run(&[&pool.file()]));
    assert!(text.contains(":2") && text.contains("muont"), "{text}");
}

#[test]
fn options_reach_the_kernel() {
    let pool = TestPool::new();
    pool.sh("echo x > f");
    succeeded("mount", &run(&[&pool.file(), &"-o", &"ro,noexec"]));
    let error = fs::write(pool.mnt().join("g"), b"").unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EROFS));
    assert_eq!(fs::read(pool.mnt().join("f")).unwrap(), b"x\n");
    eventually("unmounting", || run(&[&"--unmount", &pool.mnt()]).status.success());
}

#[test]
fn a_private_run_passes_on_exit_codes_signals_and_the_environment() {
    let pool = TestPool::new();
    let code = |command: &[&str]| pool.private(command).output().unwrap().status.code();
    assert_eq!(code(&["sh", "-c", "exit 0"]), Some(0));
    assert_eq!(code(&["sh", "-c", "exit 7"]), Some(7));
    assert_eq!(code(&["sh", "-c", "kill -KILL $$"]), Some(137));
    assert_eq!(code(&["sh", "-c", "kill -TERM $$"]), Some(143));
    let output = pool.private(&["no-such-program"]).output().unwrap();
    assert_eq!(output.status.code(), Some(127));
    assert!(String::from_utf8_lossy(&output.stderr).contains("no-such-program: no such program"));
    let output = pool.private(&["/etc/passwd"]).output().unwrap();
    assert_eq!(output.status.code(), Some(126));
    assert!(String::from_utf8_lossy(&output.stderr).contains("/etc/passwd cannot be executed"));

    let script = "echo \"$WORD|$(umask)|$(ulimit -Sn)\"; id -u; id -g";
    let outside = Command::new("sh").args(["-c", script]).env("WORD", "a b").output().unwrap();
    let inside = pool.private(&["sh", "-c", script]).env("WORD", "a b").output().unwrap();
    assert_eq!(succeeded(script, &inside), succeeded(script, &outside));

    // Forwarded: the program handles it and ends as it likes.
    let script = "trap 'echo got it; exit 5' TERM; : > $M/ready; touch $OUT/ready; while :; do sleep 0.01; done";
    let child = pool.private(&["sh", "-c", script]).stdout(Stdio::piped()).spawn().unwrap();
    eventually("the program", || pool.path("out/ready").exists());
    // SAFETY: our own child, not yet waited for.
    unsafe { libc::kill(child.id() as i32, libc::SIGTERM) };
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(5), b"got it\n".as_slice()));
}

#[test]
fn a_private_mount_is_seen_by_nobody_else_and_leaves_nothing() {
    let pool = TestPool::new();
    let script = "echo x > $M/f; test -d $M; touch $OUT/ready; while test ! -e $OUT/go; do sleep 0.01; done; cat $M/f";
    let child = pool.private(&["sh", "-c", script]).stdout(Stdio::piped()).spawn().unwrap();
    eventually("the program", || pool.path("out/ready").exists());
    assert!(!is_mounted(&pool.mnt()) && fs::read_dir(pool.mnt()).unwrap().next().is_none());
    fs::write(pool.path("out/go"), b"").unwrap();
    assert_eq!(succeeded(script, &child.wait_with_output().unwrap()), "x\n");
    assert!(!is_mounted(&pool.mnt()));
    assert!(fs::read_dir(pool.path("ns/locks")).unwrap().next().is_none(), "no lock file should be left");
}

#[test]
fn a_program_started_in_the_mount_point_is_in_the_pool() {
    let pool = TestPool::new();
    pool.sh("mkdir d; echo here > d/f");
    fs::create_dir(pool.mnt().join("d")).unwrap();
    let output = pool.private(&["cat", "f"]).current_dir(pool.mnt().join("d")).output().unwrap();
    assert_eq!(succeeded("cat f", &output), "here\n");
    fs::create_dir(pool.mnt().join("other")).unwrap();
    let output = pool.private(&["cat", "f"]).current_dir(pool.mnt().join("other")).output().unwrap();
    assert_eq!(output.status.code(), Some(127));
    assert!(String::from_utf8_lossy(&output.stderr).contains("working directory"));
}

#[test]
fn what_a_program_leaves_running_finishes_its_files() {
    let pool = TestPool::new();
    let script = "cd $M; (exec > late; sleep 0.4; echo late) & echo early > early";
    succeeded(script, &pool.private(&["sh", "-c", script]).stdout(Stdio::null()).output().unwrap());
    assert_eq!(pool.sh("cat early late"), "early\nlate\n");
    // But not for ever.
    let script = "exec 3> $M/held; sleep 600 & echo $! > $OUT/pid; exit 4";
    let mut command = Command::new(BIN);
    command.args(["--grace", "1", "--private"]).arg(pool.file()).args(["--", "sh", "-c", script]);
    command.env("M", pool.mnt()).env("OUT", pool.path("out")).stdin(Stdio::null());
    let begin = Instant::now();
    assert_eq!(command.stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap().code(), Some(4));
    assert!(begin.elapsed() < Duration::from_secs(300), "the grace should have ended it");
    let pid = fs::read_to_string(pool.path("out/pid")).unwrap().trim().parse().unwrap();
    // SAFETY: the number of a process that this test started, which sleeps for ten minutes.
    unsafe { libc::kill(pid, libc::SIGKILL) };
}

#[test]
fn killing_the_server_of_a_private_mount_leaves_nothing() {
    let pool = TestPool::new();
    let script = "echo $$ > $OUT/pid.new; head -c 30000 /dev/zero > $M/f; mv $OUT/pid.new $OUT/pid; sleep 600";
    let mut server = pool.private(&["sh", "-c", script]).spawn().unwrap();
    eventually("the program", || pool.path("out/pid").exists());
    let pid = fs::read_to_string(pool.path("out/pid")).unwrap().trim().to_owned();
    server.kill().unwrap();
    assert_eq!(server.wait().unwrap().signal(), Some(libc::SIGKILL));
    eventually("the program's end", || {
        fs::read_to_string(format!("/proc/{pid}/stat")).map_or(true, |stat| stat.contains(") Z "))
    });
    assert!(!is_mounted(&pool.mnt()));
    assert_eq!(pool.sh("wc -c < f"), "30000\n");
}

/// As a user that is not root, with a /dev/fuse that any user may open, and with one that none may.
#[test]
fn without_root_a_user_namespace_does_or_the_reason_is_said() {
    if !rustix::process::geteuid().is_root() {
        let pool = TestPool::new();
        return assert_eq!(
            pool.sh("echo x > f; cat f; id -u"),
            format!("x\n{}\n", rustix::process::geteuid().as_raw())
        );
    }
    let pool = TestPool::new();
    let program = pool.path("out/stripewise-mount");
    fs::copy(BIN, &program).unwrap();
    for path in [".", "mnt", "ns", "s0", "s1", "s2", "out"] {
        std::os::unix::fs::chown(pool.path(path), Some(65534), Some(65534)).unwrap();
    }
    fs::set_permissions(pool.path("."), fs::Permissions::from_mode(0o755)).unwrap();
    succeeded(
        "chown",
        &Command::new("chown")
            .args(["-R", "65534:65534"])
            .arg(pool.path("ns"))
            .arg(pool.path("s0"))
            .arg(pool.path("s1"))
            .arg(pool.path("s2"))
            .output()
            .unwrap(),
    );
    let as_nobody = |mode: &str, script: &str| {
        let prepare = format!(
            "mknod \"$OUT/fuse\" c 10 229 && chmod {mode} \"$OUT/fuse\" && mount --bind \"$OUT/fuse\" /dev/fuse && rm \
             \"$OUT/fuse\" && cd \"$OUT\" && exec setpriv --reuid 65534 --regid 65534 --clear-groups \
             \"$OUT/stripewise-mount\" --private \"$POOL\" -- sh -euc '{script}'"
        );
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-euc", &prepare]).env("OUT", pool.path("out")).env("POOL", pool.file());
        command.env("M", pool.mnt()).env("HOME", pool.path("out")).stdin(Stdio::null()).output().unwrap()
    };
    let output = as_nobody("600", "true");
    let text = error_of(&output);
    assert!(text.contains("/dev/fuse cannot be opened"), "{text}");
    assert_eq!(output.status.code(), Some(1));
    let script = "cd $M; id -u; seq 1 9999 > f; wc -l < f; install -m 444 f g; cmp f g; stat -c \"%a %u\" g; rm f; \
                  tar -cf t.tar g; rm -f g; tar -xf t.tar; stat -c %a g; wc -c < g; \
                  mkdir r; cd r; git init -q; git config user.email a@b; git config user.name n; cp ../g .; git add g; \
                  git commit -qm one; git fsck --strict; git clone -q . ../r2; cmp g ../r2/g; echo cloned";
    let out = succeeded(script, &as_nobody("666", script));
    assert_eq!(out, "65534\n9999\n444 65534\n444\n48888\ncloned\n");
}

#[test]
fn a_machine_without_fuse_or_namespaces_is_told_so() {
    let pool = TestPool::new();
    let mark = pool.path("out/ran");
    let attempt = |prepare: &str| {
        let script = format!("{prepare} \"$BIN\" --private \"$POOL\" -- touch \"$MARK\"");
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--mount", "sh", "-euc", &script]).stdin(Stdio::null());
        let output = command.env("BIN", BIN).env("POOL", pool.file()).env("MARK", &mark).output().unwrap();
        assert!(!mark.exists(), "the program must not run");
        assert_eq!(output.status.code(), Some(1));
        error_of(&output)
    };
    let text = attempt("mount -t tmpfs none /dev; exec");
    assert!(text.contains("/dev/fuse does not exist") && text.contains("modprobe fuse"), "{text}");
    let limit = "echo 0 > /proc/sys/user/max_user_namespaces; exec setpriv --bounding-set=-all --inh-caps=-all";
    let text = attempt(limit);
    assert!(text.contains("needs a mount namespace") && text.contains("user.max_user_namespaces"), "{text}");
}
