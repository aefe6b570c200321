//! Every kind of fault on every server, while owner, group or mode of a file change: inode and datafiles are changed all
//! or not at all, and no datafile allows more than the inode.

mod common;

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, fchown};
use std::path::Path;

use common::cluster::{Cluster, SERVERS};
use fuser::Errno;

const OLD: u32 = 62101;
const NEW: u32 = 62102;
/// A program of the user, set-user-id, which others may run and read.
const MODE: u32 = 0o4754;
/// What is changed, of a file that is open or by its name.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Change {
    Owner,
    Group,
    ModeUp,
    ModeDown,
    ModeAcross,
    List,
}

const CHANGES: [Change; 6] =
    [Change::Owner, Change::Group, Change::ModeUp, Change::ModeDown, Change::ModeAcross, Change::List];

impl Change {
    fn mode(self) -> u32 {
        match self {
            Change::ModeUp => 0o4777,
            Change::ModeDown => 0o4700,
            Change::ModeAcross => 0o4723,
            _ => MODE,
        }
    }

    fn make(self, path: &Path, file: Option<&File>) -> io::Result<()> {
        let mode = fs::Permissions::from_mode(self.mode());
        match (self, file) {
            (Change::Owner, Some(file)) => fchown(file, Some(NEW), None),
            (Change::Owner, None) => chown(path, Some(NEW), None),
            (Change::Group, Some(file)) => fchown(file, None, Some(NEW)),
            (Change::Group, None) => chown(path, None, Some(NEW)),
            (Change::List, Some(file)) => set_list(|name, list| rustix::fs::fsetxattr(file, name, list, flags())),
            (Change::List, None) => set_list(|name, list| rustix::fs::setxattr(path, name, list, flags())),
            (_, Some(file)) => file.set_permissions(mode),
            (_, None) => fs::set_permissions(path, mode),
        }
    }
}

fn flags() -> rustix::fs::XattrFlags {
    rustix::fs::XattrFlags::empty()
}

/// Another user may read and write; the mask, and so the mode of the group, becomes 6.
fn set_list(set: impl FnOnce(&str, &[u8]) -> rustix::io::Result<()>) -> io::Result<()> {
    let entries: [(u16, u16, u32); 5] = [(1, 7, !0), (2, 6, NEW), (4, 5, !0), (16, 6, !0), (32, 4, !0)];
    let entries =
        entries.map(|(tag, may, id)| [&tag.to_le_bytes()[..], &may.to_le_bytes(), &id.to_le_bytes()].concat());
    Ok(set("system.posix_acl_access", &[&2_u32.to_le_bytes()[..], &entries.concat()].concat())?)
}

/// Owner, group and mode.
type Rights = (u32, u32, u32);

fn rights(path: &Path) -> Rights {
    let found = fs::symlink_metadata(path).unwrap();
    (found.uid(), found.gid(), found.permissions().mode() & 0o7777)
}

/// All that a change may touch.
#[derive(Debug, PartialEq)]
struct State {
    inode: Rights,
    datafiles: Vec<Rights>,
    has_list: bool,
}

fn cluster() -> Cluster {
    assert!(rustix::process::geteuid().is_root(), "this test gives files away: run it as root");
    Cluster::new("suid,allow_other")
}

impl Cluster {
    /// A new file on all servers.
    fn file(&self, name: &str) -> File {
        let path = self.mounted.path(name);
        fs::write(&path, vec![b'x'; 20_000]).unwrap();
        chown(&path, Some(OLD), Some(OLD)).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(MODE)).unwrap();
        File::open(path).unwrap()
    }

    fn state(&self, name: &str) -> State {
        let tree = self.pool.path("ns/tree").join(name);
        let mut bytes = vec![0; 4096];
        let length = rustix::fs::getxattr(&tree, "user.stripewise", &mut bytes[..]).unwrap();
        let handle = stripewise_store::handle::Handle::decode(&bytes[..length]).unwrap().logical;
        let datafile = |server| {
            self.pool.path(&format!("below{server}")).join(format!("{:02x}/{handle:016x}.00000001", handle & 0xff))
        };
        State {
            inode: rights(&tree),
            datafiles: (0..SERVERS).map(|server| rights(&datafile(server))).collect(),
            has_list: rustix::fs::getxattr(&tree, "system.posix_acl_access", &mut bytes[..]).is_ok(),
        }
    }

    /// The change is made in full.
    fn is_done(&self, change: Change, name: &str) {
        let state = self.state(name);
        let (uid, gid, mode) = state.inode;
        match change {
            Change::Owner => assert_eq!((uid, gid), (NEW, OLD), "{name}"),
            Change::Group => assert_eq!((uid, gid), (OLD, NEW), "{name}"),
            Change::List => assert!(state.has_list, "{name}"),
            _ => assert_eq!((uid, gid, mode), (OLD, OLD, change.mode()), "{name}"),
        }
        let shared = if state.has_list { 0 } else { mode & 0o066 };
        assert_eq!(state.datafiles, [(uid, gid, 0o600 | shared); SERVERS], "{name}");
        assert!(fs::read(self.mounted.path(name)).unwrap() == [b'x'; 20_000], "{name}");
    }
}

/// Each change, by name and by descriptor.
fn ways() -> impl Iterator<Item = (Change, bool)> {
    CHANGES.into_iter().flat_map(|change| [(change, false), (change, true)])
}

#[test]
fn what_a_server_refuses_is_refused_as_a_whole() {
    let mut cluster = cluster();
    let kinds = [Some(Errno::ENOSPC), Some(Errno::EDQUOT), Some(Errno::EIO), Some(Errno::EROFS), None /* gone */];
    for (kind, server) in kinds.into_iter().flat_map(|kind| (0..SERVERS).map(move |server| (kind, server))) {
        let told = kind.unwrap_or(Errno::EIO).code();
        for (change, by_descriptor) in ways() {
            let name = format!("{told}-{}-{server}-{change:?}-{by_descriptor}", kind.is_some());
            let (path, file) = (cluster.mounted.path(&name), cluster.file(&name));
            let file = by_descriptor.then_some(&file);
            let before = cluster.state(&name);
            match kind {
                Some(errno) => cluster.servers[server].as_ref().unwrap().set(|faults| {
                    (faults.write, faults.create) = (Some(errno), Some(errno));
                    (faults.open, faults.change) = (Some(errno), Some(errno));
                }),
                None => cluster.take_away(server),
            }
            // What concerns no datafile is possible all the same.
            fs::set_permissions(&path, fs::Permissions::from_mode(0o4755)).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(MODE)).unwrap();
            let error = change.make(&path, file).expect_err(&name);
            assert_eq!(cluster.state(&name), before, "{name}: {error}");
            cluster.heal(server);
            assert_eq!(error.raw_os_error(), Some(told), "{name}: {error}");
            change.make(&path, file).unwrap();
            cluster.is_done(change, &name);
        }
    }
}

/// A server that has shown that it can be changed fails all the same, at each of its changes.
#[test]
fn what_a_server_fails_at_half_way_is_undone() {
    let cluster = cluster();
    for (change, by_descriptor) in ways() {
        for server in 0..SERVERS {
            let mut failed = 0;
            for number in 0..4 {
                let name = format!("{change:?}-{by_descriptor}-{server}-{number}");
                let (path, file) = (cluster.mounted.path(&name), cluster.file(&name));
                let before = cluster.state(&name);
                let faulty = cluster.servers[server].as_ref().unwrap();
                faulty.set(|faults| faults.one_change = Some((number, Errno::EIO)));
                let made = change.make(&path, by_descriptor.then_some(&file));
                faulty.well();
                match made {
                    Ok(()) => cluster.is_done(change, &name),
                    Err(error) => {
                        failed += 1;
                        assert_eq!(error.raw_os_error(), Some(libc::EIO), "{name}: {error}");
                        assert_eq!(cluster.state(&name), before, "{name}");
                        change.make(&path, None).unwrap();
                        cluster.is_done(change, &name);
                    }
                }
            }
            // Owner: shut, given, opened to others. Up: shown, opened. Down, and with a list: shut.
            let changes = match change {
                Change::Owner | Change::Group => 3,
                Change::ModeUp | Change::ModeAcross => 2,
                Change::ModeDown | Change::List => 1,
            };
            assert_eq!(failed, changes, "{change:?} {by_descriptor} {server}");
        }
    }
}
