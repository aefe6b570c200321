//! The namespace directory, and the markers by which a server's directory is known.
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

use crate::backend;
use crate::os::error::{Error, Result};
use crate::pool::layouts::Layouts;
use crate::pool::pool_file::{Pool, Server};
use crate::pool::shared;
use rustix::fs::{Mode, OFlags, XattrFlags};
use rustix::io::Errno;
use serde::Deserialize;
use std::path::Path;

/// Name of the marker file in each server's directory and in the namespace.
pub const MARKER_FILE: &str = ".stripewise";
/// Directory of the names, in the namespace.
pub const TREE: &str = "tree";
/// Directory of the layouts, in the namespace.
pub const LAYOUTS: &str = "layouts";
/// Directory of the lock files, in the namespace.
pub const LOCKS: &str = "locks";

/// What a marker says.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Marker {
    /// Name of the pool.
    pub(crate) pool: String,
    /// Its uuid.
    pub(crate) uuid: String,
    /// Which directory of the pool it is.
    pub(crate) server: String,
    /// Several users use the pool directly (`crate::pool::shared`); what the namespace's says counts.
    #[serde(default)]
    pub(crate) shared: bool,
}

/// The text of a marker.
pub(crate) fn marker_text(marker: &Marker) -> String {
    let Marker { pool, uuid, server, shared } = marker;
    let shared = if *shared { "shared = true\n" } else { "" };
    format!(
        "# A directory of a Stripewise pool. Do not remove: without this file it counts as missing.\n\
         pool = \"{pool}\"\nuuid = \"{uuid}\"\nserver = \"{server}\"\n{shared}"
    )
}

/// Reads the text of a marker; says what is wrong otherwise.
pub(crate) fn read_marker(text: &[u8]) -> Result<Marker, String> {
    let text = std::str::from_utf8(text).map_err(|_| format!("its {MARKER_FILE} is not text"))?;
    toml::from_str(text).map_err(|error| format!("its {MARKER_FILE} is damaged: {}", error.message()))
}

/// What a marker calls a server: name and id, because layouts name servers by id, and adding one in the middle of the
/// pool file would shift the ids of those behind it.
pub(crate) fn marker_server(name: &str, id: stripewise_layout::ServerId) -> String {
    format!("{name} #{}", id.0)
}

/// Checks that the marker `text` is that of `server` in the pool of `uuid`; says what is wrong otherwise.
pub(crate) fn check_marker(text: &[u8], uuid: &str, server: &str) -> Result<(), String> {
    let marker = read_marker(text)?;
    if marker.uuid != uuid {
        return Err(format!("it belongs to another pool, '{}' ({})", marker.pool, marker.uuid));
    }
    if marker.server != server {
        return Err(format!(
            "it is server {}, the pool file makes it {server}; keep the order of servers, add new ones in a tier at the end",
            marker.server
        ));
    }
    Ok(())
}

/// The pool's uuid, from the marker in its namespace.
pub(crate) fn namespace_uuid(pool: &Pool) -> Result<String> {
    let path = pool.namespace.join(MARKER_FILE);
    match crate::os::sys::read_file(&path, 4096) {
        Ok(text) => read_marker(&text).map(|marker| marker.uuid).map_err(|reason| {
            Error::Invalid(format!("namespace {}: {reason}; restore the file", pool.namespace.display()))
        }),
        Err(Error::Io { errno: Errno::NOENT, .. }) => Err(Error::Invalid(format!(
            "namespace {} of pool '{}' does not exist or has no {MARKER_FILE}: mount it, or run `stripewise pool init`",
            pool.namespace.display(),
            pool.name
        ))),
        Err(error) => Err(error),
    }
}

/// Whether the pool is one that several users use directly, as the administrator chose when it was made.
pub(crate) fn is_shared(pool: &Pool) -> Result<bool> {
    let text = crate::os::sys::read_file(&pool.namespace.join(MARKER_FILE), 4096)?;
    read_marker(&text).map(|marker| marker.shared).map_err(Error::Invalid)
}

/// Makes what is missing of the pool's directories. `shared` is for a new pool; one that exists stays what it is.
#[expect(clippy::too_many_lines, reason = "the steps that make a pool, in their order")]
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
    // For one user, and for several; only a shared pool's must be exactly so.
    let make = |path: &Path, own: u32, several: u32| {
        if shared {
            return shared::make_directory(path, several);
        }
        crate::os::sys::make_directories(path, Mode::from_raw_mode(own)).map_err(Error::io("make directory", path))
    };
    let text_for = |uuid: &str, server: &str| {
        marker_text(&Marker { pool: pool.name.clone(), uuid: uuid.to_owned(), server: server.to_owned(), shared })
    };
    make(&pool.namespace, 0o700, 0o755)?;
    let tree = pool.namespace.join(TREE);
    // What the administrator has made of a shared tree stays. The marker comes when the tree is there.
    if !shared || !known {
        make(&tree, 0o755, 0o1777)?;
    }
    let uuid = match namespace_uuid(pool) {
        Ok(uuid) => uuid,
        Err(_) if !exists(&pool.namespace.join(MARKER_FILE))? => {
            let uuid = format!("{:032x}", u128::from_ne_bytes(crate::os::sys::random()));
            write_marker(&pool.namespace, &text_for(&uuid, "namespace"))?;
            uuid
        }
        Err(error) => return Err(error),
    };
    make(&pool.namespace.join(LAYOUTS), 0o700, 0o1777)?;
    make(&pool.namespace.join(LOCKS), 0o700, 0o1733)?;
    crate::pool::removals::prepare(&pool.namespace, shared)?;
    probe_attributes(&tree)?;
    let mount = crate::os::sys::make_directories(&pool.mount, Mode::from_raw_mode(0o755));
    mount.map_err(Error::io("make directory", &pool.mount))?;
    if shared {
        make(&pool.namespace.join(shared::EPOCHS), 0o700, 0o1777)?;
        drop(crate::pool::epoch::EpochPage::open(&pool.namespace, true)?);
    }
    let has_files = !is_empty(&tree)?;
    if shared && !has_files {
        // Before any is marked as this pool's.
        for server in &pool.servers {
            backend::site(server).make(shared)?;
            probe_binding(server)?;
        }
    }
    for server in &pool.servers {
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
    // So that in a shared pool no user puts it first, and takes it away from the others.
    Layouts::open(&pool.namespace, shared, pool.servers.len())?.keep(&pool.default_layout()).map(drop)
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

/// Sets a user attribute on a directory and removes it.
pub(crate) fn set_attribute(directory: &Path) -> rustix::io::Result<()> {
    const PROBE: &str = "user.stripewise.probe";
    rustix::fs::setxattr(directory, PROBE, b"1", XattrFlags::empty())?;
    rustix::fs::removexattr(directory, PROBE)
}

/// Handles are user attributes: says so now if the file system of the namespace has none.
fn probe_attributes(tree: &Path) -> Result<()> {
    set_attribute(tree).map_err(Error::io("set user attributes in", tree))
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
