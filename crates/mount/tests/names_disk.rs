//! The namespace's own disk: full of bytes, full of names, read-only, taken away. Each is a small file system in memory, which
//! only root can mount.

mod common;

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use common::{BIN, Mounted, TestPool, eventually, need, succeeded};
use stripewise_store::Pool;

/// A pool whose namespace is a disk of its own.
struct Small {
    pool: TestPool,
}

impl Small {
    fn new(pool: TestPool, options: &str) -> Small {
        assert!(rustix::process::geteuid().is_root(), "this test mounts a small file system: run it as root");
        let small = Small { pool };
        // What is there is made anew, on the disk.
        let copy = small.pool.path("copy");
        fs::rename(small.names(), &copy).unwrap();
        fs::create_dir(small.names()).unwrap();
        small.run("mount", &["-t", "tmpfs", "-o", options, "tmpfs"]);
        succeeded(
            "cp",
            &Command::new("cp").args(["-a", "--"]).arg(copy.join(".")).arg(small.names()).output().unwrap(),
        );
        small
    }

    fn names(&self) -> PathBuf {
        self.pool.path("ns")
    }

    fn run(&self, program: &str, arguments: &[&str]) {
        succeeded(program, &Command::new(program).args(arguments).arg(self.names()).output().unwrap());
    }

    /// Takes all the space that there is.
    fn fill_bytes(&self) {
        let mut filler = File::create(self.names().join("filler")).unwrap();
        let error = loop {
            if let Err(error) = std::io::Write::write_all(&mut filler, &[1; 4096]) {
                break error;
            }
        };
        assert_eq!(error.raw_os_error(), Some(libc::ENOSPC), "{error}");
    }

    /// Takes all the inodes.
    fn fill_names(&self) {
        let dir = self.names().join("fillers");
        fs::create_dir(&dir).unwrap();
        let error = (0..).find_map(|number| File::create(dir.join(number.to_string())).err()).unwrap();
        assert_eq!(error.raw_os_error(), Some(libc::ENOSPC), "{error}");
    }

    /// Tries to mount the pool; it must have an end.
    fn mount(&self) -> Output {
        let mut command = Command::new("timeout");
        command.args(["20", BIN]).arg(self.pool.file()).arg(self.pool.mnt());
        command.stdin(Stdio::null()).output().unwrap()
    }

    fn is_refused(&self, words: &[&str]) {
        let output = self.mount();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{}: {text}", output.status);
        assert!(words.iter().all(|word| text.contains(word)), "{text}");
    }

    /// What a program of its own says to a script, within a bounded time: a request that never ends must not hold the test.
    fn python(&self, script: &str) -> String {
        need("python3");
        let script = format!("import os\nos.chdir({:?})\n{script}", self.pool.mnt());
        let mut command = Command::new("timeout");
        command.args(["--signal=KILL", "10", "python3", "-c", &script]);
        succeeded(&script, &command.stdin(Stdio::null()).output().unwrap())
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").args(["-l", "-q"]).arg(self.pool.mnt()).stderr(Stdio::null()).status();
        let _ = Command::new("umount").args(["-l", "-q"]).arg(self.names()).stderr(Stdio::null()).status();
    }
}

#[test]
fn a_full_disk_of_names_is_told_to_who_mounts() {
    for page in ["epoch", "mounts"] {
        let small = Small::new(TestPool::new(), "size=1m");
        if page == "mounts" {
            // The other page is there already, whole.
            fs::write(small.names().join("epoch"), vec![0; 1 << 19]).unwrap();
        }
        small.fill_bytes();
        small.is_refused(&[page, "No space left"]);
        fs::remove_file(small.names().join("filler")).unwrap();
        let mounted = Mounted::new(&small.pool, "mnt", "noatime");
        fs::write(mounted.path("file"), b"written").unwrap();
        assert_eq!(fs::read(mounted.path("file")).unwrap(), b"written");
    }
}

#[test]
fn a_page_with_holes_is_made_whole_before_it_is_used() {
    let small = Small::new(TestPool::new(), "size=1m");
    for (page, bytes) in [("epoch", 1 << 19), ("mounts", 4096)] {
        File::create(small.names().join(page)).unwrap().set_len(bytes).unwrap();
    }
    small.fill_bytes();
    small.is_refused(&["epoch", "No space left"]);
}

#[test]
fn a_lock_file_that_cannot_be_made_is_an_error_and_stops_nobody() {
    for shared in [false, true] {
        let pool = if shared { TestPool::shared() } else { TestPool::new() };
        let small = Small::new(pool, "size=4m,nr_inodes=120");
        let mounted = Mounted::new(&small.pool, "mnt", "noatime");
        fs::write(mounted.path("file"), vec![5; 20_000]).unwrap();
        // The kernel tells of a close after the program has gone on.
        let locks = small.names().join("locks");
        eventually("the file is closed", || fs::read_dir(&locks).unwrap().next().is_none());
        small.fill_names();
        let refused = "try:\n    os.open('file', os.O_RDWR)\nexcept OSError as error: print(error.errno)";
        // More of them than a small mount has threads.
        for _ in 0..12 {
            assert_eq!(small.python(refused), format!("{}\n", libc::ENOSPC), "shared: {shared}");
        }
        assert_eq!(small.python("print(len(open('file', 'rb').read()), os.stat('file').st_size)"), "20000 20000\n");
        fs::remove_dir_all(small.names().join("fillers")).unwrap();
        small.python("open('file', 'r+b').write(b'again')");
        assert!(fs::read(mounted.path("file")).unwrap().starts_with(b"again"));
    }
}

#[test]
fn a_read_only_disk_of_names_is_told_to_who_mounts() {
    let small = Small::new(TestPool::new(), "size=1m");
    small.run("mount", &["-o", "remount,ro"]);
    small.is_refused(&["Read-only file system", "remount it writable"]);
    small.run("mount", &["-o", "remount,rw"]);
    drop(Mounted::new(&small.pool, "mnt", "noatime"));
}

/// The mount has it open and goes on; a new one finds no pool.
#[test]
fn a_disk_of_names_that_was_taken_away_is_told_to_who_comes() {
    let small = Small::new(TestPool::new(), "size=1m");
    let mounted = Mounted::new(&small.pool, "mnt", "noatime");
    fs::write(mounted.path("file"), vec![5; 20_000]).unwrap();
    small.run("umount", &["-l"]);
    fs::write(mounted.path("file"), vec![6; 20_000]).unwrap();
    assert!(fs::read(mounted.path("file")).unwrap() == vec![6; 20_000]);
    let error = stripewise_store::Store::open(Pool::load(&small.pool.file()).unwrap()).unwrap_err().to_string();
    assert!(error.contains("does not exist or has no .stripewise"), "{error}");
}
