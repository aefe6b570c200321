//! A server's directory on a file system of the kernel's own, on a loop device, which the kernel gives up when a test says so.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use super::{TestPool, eventually, need};

/// The file system on a file: with XFS the disk fails, and all gives EIO; ext4 finds an error, and turns read-only.
pub struct LoopDisk {
    device: String,
    mounted: PathBuf,
    kind: &'static str,
    /// What its file lies on, where that is a file system of its own.
    thin: Option<Thin>,
}

/// A file system in memory with less room than the disk on it says that it has.
struct Thin(PathBuf);

impl Drop for Thin {
    fn drop(&mut self) {
        let _ = run("umount", &["-l", self.0.to_str().unwrap()]);
    }
}

impl LoopDisk {
    /// Puts a file system of `kind`, `xfs` or `ext4`, under a server of the pool, with what the server has. `None` for another
    /// than root, where this machine gives no loop devices, or where its kernel does not have it.
    pub fn under(pool: &TestPool, server: &str, kind: &'static str) -> Option<LoopDisk> {
        if !has_own_mounts() {
            return None;
        }
        LoopDisk::on(&pool.path("image"), pool, server, kind, &[])
    }

    /// An ext4 whose file has less room than the disk says that it has: the kernel takes what is written, and cannot write it back once
    /// [`LoopDisk::fill`] has taken the rest. It has no journal, which would need room, too. `None` as [`LoopDisk::under`].
    pub fn thin(pool: &TestPool, server: &str) -> Option<LoopDisk> {
        if !has_own_mounts() {
            return None;
        }
        let thin = Thin(pool.path("thin"));
        fs::create_dir(&thin.0).unwrap();
        run("mount", &["-t", "tmpfs", "-o", "size=32M", "tmpfs", thin.0.to_str().unwrap()])?;
        let mut disk = LoopDisk::on(&thin.0.join("image"), pool, server, "ext4", &["-O", "^has_journal"])?;
        disk.thin = Some(thin);
        Some(disk)
    }

    fn on(image: &Path, pool: &TestPool, server: &str, kind: &'static str, options: &[&str]) -> Option<LoopDisk> {
        let make = format!("mkfs.{kind}");
        need(&make);
        let (mounted, before) = (pool.path(server), pool.path("before"));
        File::create(image).unwrap().set_len(320 << 20).unwrap();
        run(&make, &[&["-q"], options, &[image.to_str().unwrap()]].concat()).unwrap();
        let device = run("losetup", &["--find", "--show", image.to_str().unwrap()])?.trim().to_owned();
        let disk = LoopDisk { device, mounted, kind, thin: None };
        fs::rename(&disk.mounted, &before).unwrap();
        fs::create_dir(&disk.mounted).unwrap();
        disk.mount()?;
        let root = disk.mounted.to_str().unwrap();
        run("cp", &["-a", &format!("{}/.", before.display()), root]).unwrap();
        run("sync", &["--file-system", root]).unwrap();
        Some(disk)
    }

    fn mount(&self) -> Option<String> {
        let options = if self.kind == "ext4" { "errors=remount-ro" } else { "defaults" };
        run("mount", &["-t", self.kind, "-o", options, &self.device, self.mounted.to_str().unwrap()])
    }

    /// Takes all room that a thin disk has left.
    pub fn fill(&self) {
        let mut filler = File::create(self.filler()).unwrap();
        // Its last pages one by one.
        for bytes in [1 << 20, 4096] {
            while filler.write_all(&vec![1; bytes]).is_ok() {}
        }
    }

    /// Gives a thin disk its room back.
    pub fn relieve(&self) {
        fs::remove_file(self.filler()).unwrap();
    }

    fn filler(&self) -> PathBuf {
        self.thin.as_ref().expect("a thin disk").0.join("filler")
    }

    /// Has the kernel write back what it keeps of it, which may fail.
    pub fn write_back(&self) {
        let _ = run("sync", &["--file-system", self.mounted.to_str().unwrap()]);
    }

    /// The kernel gives it up.
    pub fn fail(&self) {
        if self.kind == "xfs" {
            need("xfs_io");
            run("xfs_io", &["-x", "-c", "shutdown", self.mounted.to_str().unwrap()]).unwrap();
        } else {
            let device = self.device.trim_start_matches("/dev/");
            fs::write(format!("/sys/fs/ext4/{device}/trigger_fs_error"), "1").unwrap();
        }
    }

    /// Mounts the disk until it answers: a look at the server that is under way at this moment holds the dead file system, and
    /// a mount then gives it once more.
    pub fn mount_again(&self) {
        eventually("the disk is there again", || {
            run("umount", &["-l", self.mounted.to_str().unwrap()]).unwrap();
            self.mount().unwrap();
            let probe = self.mounted.join(".probe");
            fs::read_dir(&self.mounted).and_then(|mut names| names.next().transpose()).is_ok()
                && fs::write(&probe, "").and_then(|()| fs::remove_file(&probe)).is_ok()
        });
    }
}

impl Drop for LoopDisk {
    fn drop(&mut self) {
        let _ = run("umount", &["-l", self.mounted.to_str().unwrap()]);
        let _ = run("losetup", &["--detach", &self.device]);
    }
}

/// Gives this thread, and what it starts, mounts of their own; not for another user than root.
fn has_own_mounts() -> bool {
    if !rustix::process::geteuid().is_root() {
        return false;
    }
    // A program that has the mounts for itself (`stripewise run`) takes a copy of each, and would keep a dead file system as long as it
    // runs.
    // SAFETY: no thread shares memory that depends on the mounts.
    unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNS) }.unwrap();
    let private = rustix::mount::MountPropagationFlags::REC | rustix::mount::MountPropagationFlags::PRIVATE;
    rustix::mount::mount_change("/", private).unwrap();
    true
}

/// What a program prints; `None`, with its words in the test's output, if it fails or is not there.
fn run(program: &str, arguments: &[&str]) -> Option<String> {
    let output = match std::process::Command::new(program).args(arguments).output() {
        Ok(output) => output,
        Err(error) => {
            eprintln!("{program}: {error}");
            return None;
        }
    };
    if !output.status.success() {
        eprintln!("{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        return None;
    }
    Some(String::from_utf8(output.stdout).unwrap())
}
