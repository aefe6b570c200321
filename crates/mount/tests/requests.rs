//! Which requests the kernel sends for each call of a program, by what strace sees of the mount's reads: no more than the
//! table of docs/mount.md says, and none of a kind that has been answered once for all.

mod common;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use common::{BIN, TestPool, need, succeeded};

/// Kinds of requests by their numbers (`enum fuse_opcode`).
const KINDS: &[(u32, &str)] = &[
    (1, "LOOKUP"),
    (3, "GETATTR"),
    (4, "SETATTR"),
    (5, "READLINK"),
    (6, "SYMLINK"),
    (9, "MKDIR"),
    (10, "UNLINK"),
    (11, "RMDIR"),
    (12, "RENAME"),
    (13, "LINK"),
    (14, "OPEN"),
    (15, "READ"),
    (16, "WRITE"),
    (17, "STATFS"),
    (20, "FSYNC"),
    (21, "SETXATTR"),
    (22, "GETXATTR"),
    (25, "FLUSH"),
    (27, "OPENDIR"),
    (28, "READDIR"),
    (35, "CREATE"),
    (39, "IOCTL"),
    (43, "FALLOCATE"),
    (44, "READDIRPLUS"),
    (45, "RENAME2"),
    (46, "LSEEK"),
    (47, "COPY_FILE_RANGE"),
    (50, "SYNCFS"),
    (51, "TMPFILE"),
    (52, "STATX"),
    (53, "COPY_FILE_RANGE_64"),
];
/// For which no program waits; they come when the kernel finds the time.
const AFTERWARDS: &[u32] = &[2, 18, 29, 36, 42];

/// Calls of a program, and the requests of each. LOOKUP and GETATTR come on top where the kernel's knowledge is old.
const CALLS: &[(&str, &str, &[&str])] = &[
    ("create and close", "os.close(os.open('f', os.O_CREAT | os.O_EXCL | os.O_WRONLY))", &["CREATE"]),
    ("open", "f = os.open('f', os.O_RDWR)", &["OPEN"]),
    ("write of 4 KiB", "os.pwrite(f, bytes(4096), 0)", &["WRITE"]),
    ("read of 4 KiB", "os.pread(f, 4096, 0)", &["READ"]),
    ("fsync", "os.fsync(f)", &["FSYNC"]),
    ("close", "os.close(f)", &[]),
    ("stat", "os.stat('f')", &[]),
    ("statx of the time of birth", "subprocess.run(['stat', '-c', '%w', 'f'], check=True, stdout=-3)", &["STATX"]),
    ("chmod", "os.chmod('f', 0o600)", &["SETATTR"]),
    ("utimensat", "os.utime('f', (1, 2))", &["SETATTR"]),
    ("truncate", "os.truncate('f', 100)", &["GETXATTR", "SETATTR"]),
    ("setxattr", "os.setxattr('f', 'user.a', b'b')", &["SETXATTR"]),
    ("getxattr", "os.getxattr('f', 'user.a')", &["GETXATTR"]),
    ("link", "os.link('f', 'g')", &["LINK"]),
    ("rename", "os.rename('g', 'h')", &["RENAME"]),
    ("unlink", "os.unlink('h')", &["UNLINK"]),
    ("symlink", "os.symlink('f', 's')", &["SYMLINK"]),
    ("readlink", "os.readlink('s')", &["READLINK"]),
    ("mkdir", "os.mkdir('d')", &["MKDIR"]),
    ("list of an empty directory", "os.listdir('d')", &["OPENDIR", "READDIRPLUS", "READDIR"]),
    ("rmdir", "os.rmdir('d')", &["RMDIR"]),
    ("open of a file without a name", "f = os.open('.', os.O_TMPFILE | os.O_RDWR)", &["TMPFILE"]),
    ("its close", "os.close(f)", &[]),
    ("statvfs", "os.statvfs('.')", &["STATFS"]),
];

/// The script of all calls, each behind a lookup that says its number.
fn script() -> String {
    let mut script = "import os, subprocess\nos.chdir(os.environ['M'])\n".to_owned();
    script += "def mark(name):\n    try: os.stat(name)\n    except FileNotFoundError: pass\n";
    // The first close has the kernel learn that it need not ask, and the first change of a file's bytes likewise.
    script += "mark('mark-start')\nopen('first', 'wb').write(b'x')\n";
    for (number, (_, call, _)) in CALLS.iter().enumerate() {
        script += &format!("mark('mark-{number:03}')\n{call}\n");
    }
    script + "mark('mark-end')\n"
}

/// A message that strace has seen: its kind, and the text of its body.
fn message(line: &str) -> Option<(u32, String)> {
    let hex = line.split('"').nth(1)?;
    let bytes: Vec<u8> = hex.split("\\x").filter_map(|digits| u8::from_str_radix(digits.get(..2)?, 16).ok()).collect();
    let kind = u32::from_ne_bytes(bytes.get(4..8)?.try_into().ok()?);
    Some((kind, String::from_utf8_lossy(bytes.get(40..)?).into_owned()))
}

/// The requests of each call, as strace sees `server` read them, which serves `$M` and runs the script itself or beside it.
fn requests(trace: &Path, server: &mut Command) -> Vec<Vec<&'static str>> {
    let script = script();
    succeeded(&script, &server.output().unwrap());
    let names: BTreeMap<u32, &str> = KINDS.iter().copied().collect();
    let mut found: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    let mut current = None;
    for (kind, body) in std::fs::read_to_string(trace).unwrap().lines().filter_map(message) {
        if kind == 1 && body.starts_with("mark-") {
            current = Some(body.trim_end_matches('\0').to_owned());
        } else if let Some(mark) = current.clone().filter(|_| !AFTERWARDS.contains(&kind)) {
            found.entry(mark).or_default().push(names.get(&kind).copied().unwrap_or("another"));
        }
    }
    assert_eq!(current.as_deref(), Some("mark-end"), "strace saw all of it");
    (0..CALLS.len()).map(|number| found.remove(&format!("mark-{number:03}")).unwrap_or_default()).collect()
}

/// Requests for which a program waits, from the lookup of the name `mark-begin` to that of `mark-end` in this script of Python.
fn asked_between_marks(pool: &TestPool, script: &str) -> Vec<(u32, String)> {
    need("strace");
    let trace = pool.path("out/trace");
    let mut command = traced(&trace);
    command.args([BIN, "--private"]).arg(pool.file()).args(["--", "python3", "-c", script]).env("M", pool.mnt());
    command.env("STRIPEWISE_FUSE_DEVICE", "1");
    succeeded("the script", &command.output().unwrap());
    let text = std::fs::read_to_string(&trace).unwrap();
    let mut requests: Vec<_> =
        text.lines().filter_map(message).filter(|(kind, _)| !AFTERWARDS.contains(kind)).collect();
    let of = |name| requests.iter().position(|(kind, body)| *kind == 1 && body.starts_with(name)).unwrap();
    let (begin, end) = (of("mark-begin") + 1, of("mark-end"));
    requests.drain(begin..end).collect()
}

/// strace of what a program reads of the device, into `trace`.
fn traced(trace: &Path) -> Command {
    let mut command = Command::new("strace");
    command.args(["-f", "-qq", "-e", "trace=read", "-P", "/dev/fuse", "-s", "64", "-xx", "-o"]).arg(trace);
    command
}

#[test]
fn a_call_has_no_request_but_its_own() {
    need("strace");
    let pool = TestPool::new();
    let trace = pool.path("out/trace");
    let mut command = traced(&trace);
    command.args([BIN, "--private"]).arg(pool.file()).args(["--", "python3", "-c", &script()]).env("M", pool.mnt());
    // What travels by io_uring no tracer sees; the kernel sends the same.
    command.env("STRIPEWISE_FUSE_DEVICE", "1");
    let found = requests(&trace, &mut command);
    for ((what, _, expected), mut own) in CALLS.iter().zip(found) {
        println!("{what}: {}", own.join(" "));
        // Old knowledge is asked for again, and how old it is depends on the machine.
        own.retain(|kind| !matches!(*kind, "LOOKUP" | "GETATTR"));
        own.dedup();
        assert_eq!(own, *expected, "{what}");
    }
}

/// What the kernel was told it believes for seconds where the mount is alone: names, attributes of what has not changed for a while,
/// and that a name is not there.
#[test]
fn a_mount_that_is_alone_is_not_asked_again_for_seconds() {
    const SCRIPT: &str = "import mmap, os, time\n\
        def look(*names):\n\
        \x20   for name in names:\n\
        \x20       try: os.stat(name)\n\
        \x20       except FileNotFoundError: pass\n\
        os.chdir(os.environ['M'])\n\
        os.mkdir('d')\n\
        open('d/f', 'wb').write(b'x')\n\
        # Until the file's time of status is old enough to tell of each change.\n\
        time.sleep(2.5)\n\
        look('d', 'd/f', 'd/absent', 'mark-begin')\n\
        # Beside other mounts all of it had to be asked for again by now.\n\
        time.sleep(1.2)\n\
        look('d', 'd/f', 'd/absent', 'mark-end')\n\
        # On one server: the kernel serves the file itself, for root.\n\
        before = os.stat('d/f').st_mtime_ns\n\
        with open('d/f', 'r+b') as f, mmap.mmap(f.fileno(), 1) as m:\n\
        \x20   m[:1] = b'y'\n\
        \x20   m.flush()\n\
        \x20   assert os.stat('d/f').st_mtime_ns > before\n";
    let pool = TestPool::with("4KiB", &["s0"]);
    let asked = asked_between_marks(&pool, SCRIPT);
    assert!(asked.is_empty(), "{asked:?}");
}

/// The attributes of a small file are those of its inode, and final once it is closed: the kernel asks for them once, and not again
/// for seconds, nor for each entry of a list. What changes the file is seen at once.
#[test]
fn a_small_file_that_was_just_closed_is_not_asked_for_again() {
    const SCRIPT: &str = "import os, time\n\
        def mark(name):\n\
        \x20   try: os.stat(name)\n\
        \x20   except FileNotFoundError: pass\n\
        def sizes(): return [os.stat(f'd/f{n}').st_size for n in range(20)]\n\
        os.chdir(os.environ['M'])\n\
        os.mkdir('d')\n\
        for n in range(20): open(f'd/f{n}', 'wb').write(b'x' * n)\n\
        # Until what the answers to CREATE said has run out.\n\
        time.sleep(0.3)\n\
        assert sizes() == list(range(20))\n\
        time.sleep(0.3)\n\
        mark('mark-begin')\n\
        assert sizes() == list(range(20))\n\
        mark('mark-end')\n\
        os.truncate('d/f7', 70)\n\
        with open('d/f8', 'ab') as f: f.write(b'y' * 72)\n\
        assert sizes()[6:10] == [6, 70, 80, 9], sizes()\n";
    let pool = TestPool::new();
    pool.hint("small=64K");
    let asked = asked_between_marks(&pool, SCRIPT);
    assert!(asked.is_empty(), "{asked:?}");
}

/// A directory whose entries the kernel knows is listed again without a look at each, and no entry is asked for afterwards.
#[test]
fn what_the_kernel_knows_is_listed_by_name_alone() {
    const SCRIPT: &str = "import os, time\n\
        def mark(name):\n\
        \x20   try: os.stat(name)\n\
        \x20   except FileNotFoundError: pass\n\
        def look(): return sorted((entry.name, entry.stat().st_size) for entry in os.scandir('d'))\n\
        os.chdir(os.environ['M'])\n\
        os.mkdir('d')\n\
        for n in range(20): open(f'd/entry-{n}', 'wb').write(b'x' * n)\n\
        time.sleep(2.5)\n\
        mark('mark-first')\n\
        first = look()\n\
        mark('mark-again')\n\
        assert look() == first and len(first) == 20, first\n\
        mark('mark-changed')\n\
        with open('d/entry-7', 'wb') as f: f.write(b'x' * 700)\n\
        os.rename('d/entry-8', 'd/entry-80')\n\
        os.unlink('d/entry-9')\n\
        now = {name: size for name, size in first} | {'entry-7': 700, 'entry-80': 8}\n\
        del now['entry-8'], now['entry-9']\n\
        assert dict(look()) == now, look()\n";
    need("strace");
    let pool = TestPool::new();
    let trace = pool.path("out/trace");
    let mut command = Command::new("strace");
    command.args(["-f", "-qq", "-e", "trace=openat,newfstatat,statx", "-o"]).arg(&trace);
    command.args([BIN, "--private"]).arg(pool.file()).args(["--", "python3", "-c", SCRIPT]).env("M", pool.mnt());
    succeeded("the script", &command.output().unwrap());
    let text = std::fs::read_to_string(&trace).unwrap();
    // The mount looks at names below a directory's descriptor, the script at those below where it works.
    let looks = |from: &str, to: &str| {
        let after = text.lines().skip_while(|line| !line.contains(from));
        after.take_while(|line| !line.contains(to)).filter(|line| line.contains("\"entry-")).count()
    };
    assert!(looks("\"mark-first", "\"mark-again") >= 20, "{text}");
    assert_eq!(looks("\"mark-again", "\"mark-changed"), 0, "{text}");
}

/// A list of names looks at few of the entries. A program that looks at all names after its list has them looked up one by one in its
/// first directory, and in none after that.
#[test]
fn a_list_has_the_attributes_that_its_program_looks_at() {
    const MAKE: &str = "import os\n\
        os.chdir(os.environ['M'])\n\
        for d in 'abc':\n\
        \x20   os.mkdir(d)\n\
        \x20   for n in range(150): open(f'{d}/entry-{n}', 'wb').write(b'x' * n)\n";
    const SCRIPT: &str = "import os\n\
        def mark(name):\n\
        \x20   try: os.stat(name)\n\
        \x20   except FileNotFoundError: pass\n\
        def names(d): return sorted(os.listdir(d), key=lambda name: int(name.split('-')[1]))\n\
        os.chdir(os.environ['M'])\n\
        expected = [f'entry-{n}' for n in range(150)]\n\
        mark('mark-begin')\n\
        for d in 'ab': assert names(d) == expected\n\
        mark('mark-looks')\n\
        for d in 'bca':\n\
        \x20   mark(f'mark-of-{d}')\n\
        \x20   assert [os.stat(f'{d}/{name}').st_size for name in names(d)] == list(range(150))\n\
        mark('mark-end')\n";
    let pool = TestPool::new();
    let mut made = Command::new(BIN);
    made.arg("--private").arg(pool.file()).args(["--", "python3", "-c", MAKE]).env("M", pool.mnt());
    succeeded("files", &made.output().unwrap());
    let asked = asked_between_marks(&pool, SCRIPT);
    let at = |mark: &str| asked.iter().position(|(_, body)| body.starts_with(mark)).unwrap();
    let looked_up = |from: usize, to: usize| {
        asked[from..to].iter().filter(|(kind, body)| *kind == 1 && body.starts_with("entry-")).count()
    };
    let lists = at("mark-looks");
    assert_eq!(looked_up(0, lists), 0, "{asked:?}");
    let [b, c, a] = ["mark-of-b", "mark-of-c", "mark-of-a"].map(at);
    assert!((1..=150 - 32).contains(&looked_up(b, c)), "{asked:?}");
    assert_eq!(looked_up(c, a), 0, "{asked:?}");
    assert_eq!(looked_up(a, asked.len()), 0, "{asked:?}");
}

/// A file without a datafile goes without a way through /proc, also where a rename has moved the time by which the mount knows it.
#[test]
fn a_small_file_that_was_renamed_goes_without_a_way_through_proc() {
    const FILES: usize = 20;
    need("strace");
    // SAFETY: all arguments are null: the kernel knows the call, or not.
    if unsafe { libc::syscall(464, -1, 0, 0, 0, 0, 0) } < 0
        && std::io::Error::last_os_error().raw_os_error() == Some(libc::ENOSYS)
    {
        eprintln!("NOT RUN: this kernel has no getxattrat; Linux 6.13 has");
        return;
    }
    let pool = TestPool::new();
    let trace = pool.path("out/trace");
    let script = format!(
        "import os\nos.chdir(os.environ['M'])\nfor n in range({FILES}): open(f'f{{n}}', 'w').close()\n\
         for n in range({FILES}): os.rename(f'f{{n}}', f'g{{n}}')\nfor n in range({FILES}): os.unlink(f'g{{n}}')\n"
    );
    let mut command = Command::new("strace");
    command.args(["-f", "-qq", "-e", "trace=getxattr,unlinkat", "-o"]).arg(&trace);
    command.args([BIN, "--private"]).arg(pool.file()).args(["--", "python3", "-c", &script]).env("M", pool.mnt());
    succeeded(&script, &command.output().unwrap());
    let text = std::fs::read_to_string(&trace).unwrap();
    let calls: Vec<&str> = text.lines().skip_while(|line| !line.contains("unlinkat(")).collect();
    let of = |what: &str| calls.iter().filter(|line| line.contains(what)).count();
    assert!(of("unlinkat(") >= FILES, "{text}");
    assert!(of("getxattr(\"/proc/self/fd/") < FILES / 2, "{text}");
}

/// The calls of names, of which libfuse's own file system gets no fewer requests (`docs/mount.md` has its list).
#[test]
fn libfuses_passthrough_gets_no_fewer_requests_of_names() {
    need("strace");
    let Some(build) = std::env::var_os("STRIPEWISE_LIBFUSE") else {
        eprintln!("NOT RUN: STRIPEWISE_LIBFUSE names no build of libfuse (docs/benchmarks.md says how to make one)");
        return;
    };
    let pool = TestPool::new();
    let trace = pool.path("out/trace");
    let program = Path::new(&build).join("example/passthrough_ll");
    let serve = r#"mkdir "$OUT/source"
        strace "$@" -o "source=$OUT/source,cache=auto,xattr,default_permissions" "$M" & server=$!
        for _ in $(seq 3000); do mountpoint -q "$M" && break; sleep 0.01; done
        python3 -c "$SCRIPT"; done=$?
        umount "$M"; wait $server; exit $done"#;
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", serve, "sh"]).args(traced(&trace).get_args()).arg(program).arg("-f");
    command.env("M", pool.mnt()).env("OUT", pool.path("out")).env("SCRIPT", script());
    let found = requests(&trace, &mut command);
    let names = ["create and close", "link", "rename", "unlink", "symlink", "mkdir", "rmdir", "stat"];
    for ((what, _, expected), theirs) in CALLS.iter().zip(found) {
        println!("{what}: {}", theirs.join(" "));
        if names.contains(what) {
            let own = theirs.iter().filter(|kind| !matches!(**kind, "LOOKUP" | "GETATTR")).count();
            assert!(expected.len() <= own, "{what}: {expected:?}, and theirs {theirs:?}");
        }
    }
}
