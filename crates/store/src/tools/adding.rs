//! Adds servers to a pool, while programs use it.
//!
//! ```text
//! check     each directory is no other pool's, and lies in none of the pool's own; nothing is changed before
//! mark      each directory gets its marker
//! write     the pool file gets the servers, behind all others; their ids are new ones
//! ```
//! Killed in between, marked directories are left that the same command takes. Mounts that are there learn of a server when a
//! layout names it, and give it to new files when they look at the pool file, within a second.

use crate::backend::{self, Server, ServerState, Setting};
use crate::format::marker::{MARKER_FILE, Marker, marker_server, marker_text, read_marker};
use crate::os::error::{Error, Result};
use crate::os::sys::retry;
use crate::pool::layouts::Layouts;
use crate::pool::pool_file::{MAX_SERVERS, Pool};
use crate::pool::shared::is_root;
use crate::pool::store::Store;
use rustix::fs::{Gid, Mode, OFlags, Uid};
use rustix::io::Errno;
use std::path::{Path, PathBuf};
use stripewise_layout::ServerId;

/// Adds directories, which are made, as servers of tiers to the pool in `file`; their names. A directory that is a server of that
/// tier already stays one. All are checked before the first is made, and the pool file gets all at once.
///
/// # Errors
/// A directory is another pool's, has datafiles, or lies in a server or in the namespace or around one; the pool has no
/// such tier; in a shared pool, it cannot have user attributes. Nothing was changed.
pub fn add_servers(file: &Path, asked: &[(String, PathBuf)]) -> Result<Vec<String>> {
    let store = Store::of_file(file)?;
    let _alone = store.begin_apply()?;
    let planned = NewServers::of(&store, asked)?;
    planned.make(file, &store, None)?;
    Ok(planned.names)
}

/// [`add_servers`] for one.
///
/// # Errors
/// As [`add_servers`].
pub fn add_server(file: &Path, tier: &str, root: &Path) -> Result<String> {
    add_servers(file, &[(tier.to_owned(), root.to_owned())]).map(|names| names.into_iter().collect())
}

/// Directories that were just made and have nothing in them. One that cannot be cleared away is taken by the next addition.
fn unmake(made: &[&Server]) {
    for server in made {
        let _ = backend::site(server).unmake();
    }
}

/// Servers that can be added, and the pool as it is with them.
pub(crate) struct NewServers {
    /// Names of all that were asked for, in order.
    pub(crate) names: Vec<String>,
    /// Those that the pool does not have.
    pub(crate) new: Vec<Server>,
    /// The pool with them.
    pub(crate) pool: Pool,
}

impl NewServers {
    /// Checks that the directories can be servers of those tiers. Nothing is changed.
    ///
    /// # Errors
    /// As [`add_servers`].
    pub(crate) fn of(store: &Store, asked: &[(String, PathBuf)]) -> Result<Self> {
        let mut planned = Self { names: Vec::new(), new: Vec::new(), pool: store.pool().clone() };
        for (tier, root) in asked {
            planned.add(store, tier, root)?;
        }
        Ok(planned)
    }

    /// Makes the directories and writes the servers into the pool file, which with the same write says that the server in whose place one
    /// comes, by tier and number, is drained.
    ///
    /// # Errors
    /// A directory cannot be made, or the pool file not be written. What was made is cleared away.
    pub(crate) fn make(&self, file: &Path, store: &Store, in_place_of: Option<(&str, u16)>) -> Result<()> {
        let mut made = Vec::new();
        for server in &self.new {
            let was_there = backend::site(server).marker().is_ok();
            if !was_there {
                made.push(server);
            }
            make(store, server).inspect_err(|_| unmake(&made))?;
        }
        if self.new.is_empty() {
            return Ok(());
        }
        let entry = |server: &Server| (self.pool.tiers[server.tier].name.clone(), server.root.clone(), server.id);
        let entries: Vec<_> = self.new.iter().map(entry).collect();
        Pool::write_new_servers(file, &entries, in_place_of).inspect_err(|_| {
            // A pool file that could not be synced may be in use all the same: mounts put files on its new servers then.
            let is_new = |server: &Server| self.new.iter().any(|new| new.root == server.root);
            if Pool::load(file).is_ok_and(|pool| !pool.there().any(is_new)) {
                unmake(&made);
            }
        })?;
        let pool = Pool::load(file)?;
        Layouts::open(&pool, store.plane().is_shared())?.keep_of(&pool)
    }

    fn add(&mut self, store: &Store, tier: &str, root: &Path) -> Result<()> {
        let pool = &mut self.pool;
        let index = pool.tiers.iter().position(|of| of.name == tier).ok_or_else(|| {
            let known: Vec<_> = pool.tiers.iter().map(|tier| &*tier.name).collect();
            Error::Invalid(format!("the pool has no tier '{tier}'; name one of {}", known.join(", ")))
        })?;
        if let Some(server) = pool.there().find(|server| is_one_directory(&server.root, root)) {
            if server.tier == index && server.is_used() {
                self.names.push(server.name.clone());
                return Ok(());
            }
            let remedy = match server.state {
                ServerState::Draining => {
                    format!("which is drained: `stripewise pool drain --cancel` takes that back for {}", server.name)
                }
                _ => format!("of tier {}: name that tier", pool.tiers[server.tier].name),
            };
            return Err(Error::Invalid(format!(
                "{} is already the directory of {}, {remedy}",
                root.display(),
                server.name
            )));
        }
        if pool.servers.len() == MAX_SERVERS {
            return Err(Error::Invalid(format!(
                "the pool has had {MAX_SERVERS} servers, which are all that it can have"
            )));
        }
        if store.plane().is_shared() && !is_root() {
            return Err(Error::Invalid("a pool of several users belongs to root: run this as root".into()));
        }
        if root.to_str().is_none() {
            return Err(Error::Invalid(format!("{} is not UTF-8 text", root.display())));
        }
        let of = &pool.tiers[index];
        let server = Server {
            id: ServerId(pool.servers.len() as u16),
            name: format!("{tier}.{}", of.servers.len()),
            tier: index,
            kind: of.kind,
            root: root.to_owned(),
            capacity_bytes: of.capacity_bytes,
            emulate: of.emulate,
            state: ServerState::Used,
            replaced_by: None,
            seeks: None,
        };
        check_place(pool, root)?;
        check_directory(&server, &marker_of(store, &server))?;
        pool.tiers[index].servers.push(server.id);
        pool.servers.push(server.clone());
        self.names.push(server.name.clone());
        self.new.push(server);
        Ok(())
    }
}

/// Whether two paths lead to one directory, also through links; of directories that are not there the same path.
pub(crate) fn is_one_directory(one: &Path, other: &Path) -> bool {
    let identity = |path: &Path| rustix::fs::stat(path).map(|stat| (stat.st_dev, stat.st_ino));
    one == other || identity(one).is_ok_and(|one| identity(other) == Ok(one))
}

fn marker_of(store: &Store, server: &Server) -> Marker {
    Marker {
        pool: store.pool().name.clone(),
        uuid: store.plane().pool_uuid().to_string(),
        server: marker_server(&server.name, server.id),
        shared: store.plane().is_shared(),
    }
}

/// Refuses a directory that lies in one of the pool's own, or around one, or in another pool's.
fn check_place(pool: &Pool, root: &Path) -> Result<()> {
    let own = pool.there().map(|server| (&*server.root, &*server.name));
    let own = own.chain([(&*pool.namespace, "the namespace"), (&*pool.mount, "the mount")]);
    for (directory, name) in own {
        if root.starts_with(directory) || directory.starts_with(root) {
            return Err(Error::Invalid(format!(
                "{} lies inside {name} ({}), or around it: name a directory of its own, best on a disk of its own",
                root.display(),
                directory.display()
            )));
        }
    }
    for above in root.ancestors().skip(1) {
        let marked =
            crate::os::sys::read_file(&above.join(MARKER_FILE), 4096).ok().and_then(|text| read_marker(&text).ok());
        if let Some(marker) = marked {
            return Err(Error::Invalid(format!(
                "{} lies inside {} ({}) of pool '{}': name a directory of its own",
                root.display(),
                marker.server,
                above.display(),
                marker.pool
            )));
        }
    }
    Ok(())
}

/// Refuses a directory that another pool marked, and one with datafiles: they would be taken for files' of this pool.
fn check_directory(server: &Server, own: &Marker) -> Result<()> {
    let root = server.root.display();
    let text = match backend::site(server).marker() {
        Ok(text) => text,
        Err(Errno::NOENT | Errno::NOTDIR) => Vec::new(),
        Err(errno) => return Err(Error::io("read", server.root.join(MARKER_FILE))(errno)),
    };
    if !text.is_empty() {
        let marker =
            read_marker(&text).map_err(|what| Error::Invalid(format!("{root}: {what}; remove the directory")))?;
        if marker.uuid != own.uuid {
            let (pool, uuid) = (marker.pool, marker.uuid);
            return Err(Error::Invalid(format!(
                "{root} belongs to another pool, '{pool}' ({uuid}): name another directory"
            )));
        }
    }
    let backend = backend::of(&Server { emulate: None, ..server.clone() }, &Setting::default());
    if backend.connect().is_err() {
        return Ok(());
    }
    let upkeep = backend.upkeep();
    for part in 0..upkeep.parts() {
        let mut listed = upkeep.list(part).map_err(Error::io("read", &server.root))?;
        if listed.any(|found| !matches!(found, Ok(backend::Found::Unknown(_)))) {
            return Err(Error::Invalid(format!(
                "{root} has datafiles, of a server that was removed or of another pool: empty it, or name another directory"
            )));
        }
    }
    Ok(())
}

/// Makes the directory and marks it.
fn make(store: &Store, server: &Server) -> Result<()> {
    let (site, marker) = (backend::site(server), marker_of(store, server));
    site.make(marker.shared)?;
    if marker.shared {
        site.probe_binding().map_err(Error::io("set user attributes in", &server.root))?;
        site.make_shared()?;
    } else if rustix::process::geteuid().is_root() {
        give(&server.root, &store.pool().namespace).map_err(Error::io("change the owner of", &server.root))?;
    }
    site.write_marker(&marker_text(&marker)).map_err(Error::io("write", server.root.join(MARKER_FILE)))
}

/// Gives an empty directory of root's to the owner of the namespace: a pool of one user is of no use to that user with a server that only
/// root may write. One that has something in it stays whose it is.
fn give(directory: &Path, namespace: &Path) -> rustix::io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = match retry(|| rustix::fs::open(directory, flags, Mode::empty())) {
        // A link may lead to what is not this user's.
        Err(Errno::LOOP | Errno::NOTDIR) => return Ok(()),
        opened => opened?,
    };
    let owner = rustix::fs::stat(namespace)?;
    let mut entries = rustix::fs::Dir::read_from(&directory)?;
    let is_empty = entries.all(|entry| entry.is_ok_and(|entry| matches!(entry.file_name().to_bytes(), b"." | b"..")));
    if is_empty && rustix::fs::fstat(&directory)?.st_uid == 0 {
        let (user, group) = (Uid::from_raw(owner.st_uid), Gid::from_raw(owner.st_gid));
        rustix::fs::fchown(&directory, Some(user), Some(group))?;
    }
    Ok(())
}
