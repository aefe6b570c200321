//! Servers of unequal size: what `df` says can be written can be written, and new files leave out what is nearly full.

mod common;

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use common::{Mounted, TestPool};
use stripewise_store::{Pool, Store};

const FILE_BYTES: usize = 512 << 10;

/// A pool whose servers are file systems in memory of these sizes, and its mount. Root only.
struct Disks {
    // In the order in which they have to go.
    mounted: Mounted,
    disks: Vec<PathBuf>,
    pool: TestPool,
}

impl Disks {
    fn new(mib: [u64; 3]) -> Disks {
        assert!(rustix::process::geteuid().is_root(), "this test mounts file systems of its own: run it as root");
        let pool = TestPool::new();
        let disks: Vec<PathBuf> = ["s0", "s1", "s2"].map(|name| pool.path(name)).to_vec();
        for (disk, mib) in disks.iter().zip(mib) {
            let marker = fs::read(disk.join(".stripewise")).unwrap();
            let size = format!("size={mib}m");
            let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", &size, "none"]).arg(disk).status().unwrap();
            assert!(mounted.success());
            fs::write(disk.join(".stripewise"), marker).unwrap();
        }
        let mounted = Mounted::new(&pool, "mnt", "noatime");
        Disks { mounted, disks, pool }
    }

    /// Bytes that `df` says a user can still write; what else it says has to agree.
    fn available(&self) -> u64 {
        let found = rustix::fs::statvfs(&self.mounted.dir).unwrap();
        assert!(found.f_bavail <= found.f_bfree && found.f_bfree <= found.f_blocks);
        found.f_bavail * found.f_frsize
    }

    /// Writes files until one does not fit; how many did.
    fn fill(&self) -> usize {
        let content = vec![7; FILE_BYTES];
        for number in 0.. {
            let path = self.mounted.path(&format!("file-{number:04}"));
            if let Err(error) = fs::write(&path, &content) {
                assert_eq!(error.raw_os_error(), Some(libc::ENOSPC), "{error}");
                fs::remove_file(path).unwrap();
                return number;
            }
        }
        unreachable!("the disks are of finite size")
    }
}

impl Drop for Disks {
    fn drop(&mut self) {
        for disk in &self.disks {
            let _ = Command::new("umount").arg("-l").arg(disk).status();
        }
    }
}

#[test]
fn as_many_files_fit_as_df_said() {
    let disks = Disks::new([16, 48, 64]);
    let said = disks.available() as usize / FILE_BYTES;
    let fitted = disks.fill();
    assert!(fitted.abs_diff(said) <= 4, "df said {said} files, {fitted} were taken");
    assert!(fitted > 3 * 16 * (1 << 20) / FILE_BYTES, "more than striping over the smallest gives: {fitted}");
    // The file that met the smallest disk when it was full was the last to lie on it. What the next ones would get is left: the
    // reserves of the other two disks, of each as much as the smaller reserve (3 MiB).
    assert!(disks.available() <= 2 * (3 << 20), "{} bytes are said to be left", disks.available());
    // Every byte of what was taken is there.
    for number in 0..fitted {
        let found = fs::read(disks.mounted.path(&format!("file-{number:04}"))).unwrap();
        assert!(found.len() == FILE_BYTES && found.iter().all(|&byte| byte == 7), "file {number}");
    }
}

#[test]
fn a_new_file_leaves_out_what_is_nearly_full_or_read_only_and_says_so() {
    let disks = Disks::new([8, 32, 32]);
    let full = fs::File::create(disks.disks[0].join("other")).unwrap();
    rustix::fs::fallocate(&full, rustix::fs::FallocateFlags::empty(), 0, 8 << 20).unwrap_err();
    rustix::fs::fallocate(&full, rustix::fs::FallocateFlags::empty(), 0, (8 << 20) - 65536).unwrap();
    let remount = Command::new("mount").args(["-o", "remount,ro"]).arg(&disks.disks[1]).status().unwrap();
    assert!(remount.success());
    let store = Store::open(Pool::load(&disks.pool.file()).unwrap()).unwrap();
    let left_out = |name: &str| {
        let layout = store.lookup(name.as_ref()).unwrap().unwrap().layout().unwrap();
        let servers = store.left_out(store.default_layout(), &layout);
        servers.into_iter().map(|id| store.pool().server_name(id)).collect::<Vec<_>>()
    };
    let new = disks.mounted.path("new");
    common::eventually("a file without them", || {
        let _ = fs::remove_file(&new);
        fs::File::create(&new).unwrap();
        left_out("new") == ["hdd.0", "hdd.1"]
    });
    fs::write(&new, vec![1; FILE_BYTES]).unwrap();
    assert_eq!(fs::read(new).unwrap(), vec![1; FILE_BYTES]);
    // It comes back by itself.
    drop(full);
    fs::remove_file(disks.disks[0].join("other")).unwrap();
    assert!(Command::new("mount").args(["-o", "remount,rw"]).arg(&disks.disks[1]).status().unwrap().success());
    let again = disks.mounted.path("again");
    common::eventually("a file on all servers", || {
        let _ = fs::remove_file(&again);
        fs::write(&again, b"x").unwrap();
        let layout = store.lookup("again".as_ref()).unwrap().unwrap().layout().unwrap();
        layout == *store.default_layout()
    });
}
