//! The namespace directory, and the steps that make a pool.
//!
//! ```text
//! <namespace>/.stripewise   marker with the pool's uuid
//!             tree/         the names: directories, inodes with handles, symlinks
//!             layouts/      each layout once, under its hash
//!             locks/        a lock file per handle that is being written
//!             removals/     a journal per mount: files without a name that may have datafiles
//!             rules.toml    layouts of files to come
//!             epoch         the epoch page
//!             mounts        how many mounts there have been; locked by those there are
//! ```

use crate::backend::meta::TREE;
use crate::backend::{self, Server};
use crate::format::marker::{MARKER_FILE, Marker, check_marker, marker_server, marker_text, read_marker};
use crate::os::error::{Error, Result};
use crate::pool::layouts::{LAYOUTS, Layouts};
use crate::pool::pool_file::{Pool, PoolSpec};
use crate::pool::shared;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// Directory of the lock files, in the namespace.
pub const LOCKS: &str = "locks";
/// Directory of the journals of removals, in the namespace. In a shared pool every user's mount has its journal there, and
/// no user removes another's.
pub(crate) const REMOVALS: &str = "removals";

/// The pool's uuid, from the marker in its namespace.
pub(crate) fn namespace_uuid(pool: &Pool) -> Result<String> {
    let path = pool.namespace.join(MARKER_FILE);
    match crate::os::sys::read_file(&path, 4096) {
        Ok(text) => read_marker(&text).map(|marker| marker.uuid).map_err(|reason| {
            Error::Invalid(format!("namespace {}: {reason}; restore the file", pool.namespace.display()))
        }),
        Err(Error::Io { errno: Errno::NOENT, .. }) => Err(Error::Invalid(format!(
            "namespace {} of pool '{}' does not exist or has no {MARKER_FILE}: mount its disk, or restore the directory",
            pool.namespace.display(),
            pool.name
        ))),
        Err(error) => Err(error),
    }
}

/// Whether the pool is one that several users use directly, as the administrator chose when it was made.
pub fn is_shared(pool: &Pool) -> Result<bool> {
    let text = crate::os::sys::read_file(&pool.namespace.join(MARKER_FILE), 4096)?;
    read_marker(&text).map(|marker| marker.shared).map_err(Error::Invalid)
}

impl Pool {
    /// Writes a new pool file at `path` (which must not exist), then makes its directories ([`Pool::prepare`]).
    pub fn init(path: &Path, spec: &PoolSpec) -> Result<Self> {
        Self::make(path, spec, false)
    }

    /// [`Pool::init`] for a pool that several users use directly; only root can make one.
    pub fn init_shared(path: &Path, spec: &PoolSpec) -> Result<Self> {
        Self::make(path, spec, true)
    }

    fn make(path: &Path, spec: &PoolSpec, shared: bool) -> Result<Self> {
        let text = spec.to_toml();
        let directory = rustix::process::getcwd(Vec::new()).map_err(Error::io("find the directory of", path))?;
        let file = Path::new(std::ffi::OsStr::from_bytes(directory.to_bytes())).join(path);
        let pool = Self::parse(&text, &file)?;
        if rustix::fs::lstat(&file).is_ok() {
            return Err(Error::io("create", &file)(rustix::io::Errno::EXIST));
        }
        // The pool file comes last, and whole: where there is one, there is a pool. A command that was killed before that does it
        // again.
        prepare(&pool, shared)?;
        crate::os::sys::create_file(&file, text.as_bytes(), Mode::from_raw_mode(0o644))
            .map_err(Error::io("create", &file))?;
        Ok(pool)
    }

    /// Makes what is missing of the pool's directories, markers and namespace. A directory that another pool marked is
    /// an error, as is a server that has lost its marker while the namespace already has files.
    pub fn prepare(&self) -> Result<()> {
        prepare(self, false)
    }
}

/// Makes what is missing of the pool's directories. `shared` is for a new pool; one that exists stays what it is.
pub(crate) fn prepare(pool: &Pool, shared: bool) -> Result<()> {
    let known = exists(&pool.namespace.join(MARKER_FILE))?;
    let shared = if known { is_shared(pool)? } else { shared };
    if shared {
        shared::check(pool)?;
        if !shared::is_root() {
            return Err(Error::Invalid(
                "a pool of several users belongs to root, so that none of them is trusted: run this as root".into(),
            ));
        }
    }
    let make = |path: &Path, own: u32, several: u32| make_directory(path, shared, own, several);
    let text_for = |uuid: &str, server: &str| {
        marker_text(&Marker { pool: pool.name.clone(), uuid: uuid.to_owned(), server: server.to_owned(), shared })
    };
    make(&pool.namespace, 0o700, 0o755)?;
    let tree = pool.namespace.join(TREE);
    // What the administrator has made of a shared tree stays. The marker comes when the tree is there.
    if !shared || !known {
        make(&tree, 0o755, 0o1777)?;
    }
    let uuid = if exists(&pool.namespace.join(MARKER_FILE))? {
        namespace_uuid(pool)?
    } else {
        let uuid = format!("{:032x}", u128::from_ne_bytes(crate::os::sys::random()));
        write_marker(&pool.namespace, &text_for(&uuid, "namespace"))?;
        uuid
    };
    make(&pool.namespace.join(LAYOUTS), 0o700, 0o1777)?;
    make(&pool.namespace.join(LOCKS), 0o700, 0o1733)?;
    make(&pool.namespace.join(REMOVALS), 0o700, 0o1777)?;
    // Handles are user attributes: a file system without them is an error now.
    crate::os::sys::probe_attributes(&tree).map_err(Error::io("set user attributes in", &tree))?;
    let mount = crate::os::sys::make_directories(&pool.mount, Mode::from_raw_mode(0o755));
    mount.map_err(Error::io("make directory", &pool.mount))?;
    if shared {
        make(&pool.namespace.join(shared::EPOCHS), 0o700, 0o1777)?;
        drop(crate::pool::epoch::EpochPage::open(&pool.namespace, true)?);
    }
    let has_files = !is_empty(&tree)?;
    if shared && !has_files {
        // Before any is marked as this pool's.
        for server in pool.there() {
            backend::site(server).make(shared)?;
            probe_binding(server)?;
        }
    }
    for server in pool.there() {
        let site = backend::site(server);
        let missing = |reason| backend::missing(server, reason);
        let name = marker_server(&server.name, server.id);
        let error = |action| Error::io(action, server.root.join(MARKER_FILE));
        let marker = match site.marker() {
            Ok(text) => Some(text),
            Err(Errno::NOENT | Errno::NOTDIR) => None,
            Err(errno) => return Err(error("read")(errno)),
        };
        if let Some(text) = marker {
            check_marker(&text, &uuid, &name).map_err(missing)?;
        } else if has_files {
            return Err(missing(format!(
                "the pool has files and this directory has no {MARKER_FILE}. If it is a new server, copy that of {} into it \
                 and write server = \"{name}\"",
                pool.namespace.display()
            )));
        } else {
            site.make(shared)?;
            if shared {
                site.make_shared()?;
            }
            site.write_marker(&text_for(&uuid, &name)).map_err(error("write"))?;
        }
    }
    Layouts::open(pool, shared)?.keep_of(pool)
}

/// Makes directory `path` with the mode for one user, or for several; only a shared pool's must be exactly so.
pub(crate) fn make_directory(path: &Path, shared: bool, own: u32, several: u32) -> Result<()> {
    if shared {
        return crate::os::sys::make_directory(path, several);
    }
    crate::os::sys::make_directories(path, Mode::from_raw_mode(own)).map_err(Error::io("make directory", path))
}

fn exists(path: &Path) -> Result<bool> {
    match rustix::fs::stat(path) {
        Ok(_) => Ok(true),
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(false),
        Err(errno) => Err(Error::io("look for", path)(errno)),
    }
}

fn write_marker(directory: &Path, text: &str) -> Result<()> {
    let path = directory.join(MARKER_FILE);
    let fd = crate::os::sys::open_directory(directory).map_err(Error::io("open", directory))?;
    crate::os::sys::replace_file(fd, MARKER_FILE, text.as_bytes(), Mode::from_raw_mode(0o644))
        .map_err(Error::io("write", path))
}

/// In a shared pool a user attribute says of which file a datafile is.
fn probe_binding(server: &Server) -> Result<()> {
    match backend::site(server).probe_binding() {
        Err(Errno::OPNOTSUPP) => Err(Error::Invalid(format!(
            "server {} ({}) is on a file system without user attributes, by which a shared pool knows of which file a \
             datafile is: choose a directory on another file system for it (ext4, XFS, Btrfs), or make the pool without --shared",
            server.name,
            server.root.display()
        ))),
        set => set.map_err(Error::io("set user attributes in", &server.root)),
    }
}

fn is_empty(directory: &Path) -> Result<bool> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let fd = rustix::fs::open(directory, flags, Mode::empty()).map_err(Error::io("open", directory))?;
    let entries = rustix::fs::Dir::new(fd).map_err(Error::io("read", directory))?;
    for entry in entries {
        let entry = entry.map_err(Error::io("read", directory))?;
        if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
            return Ok(false);
        }
    }
    Ok(true)
}
