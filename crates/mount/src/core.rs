//! The state of one mount, which its operations are on.

use std::sync::{Arc, OnceLock};

use rustix::io::Errno;
use rustix::mount::MountFlags;
use stripewise_fuse::{Notifier, Travel};
use stripewise_store::{Journal, Neighbours, Store};

use crate::believed::Believed;
use crate::charged::Charged;
use crate::crowd::Crowd;
use crate::error::MountError;
use crate::inode::Table;
use crate::linger::Linger;
use crate::lookers::Lookers;
use crate::node::Node;
use crate::options::MountOptions;
use crate::removals::Removals;
use crate::room::InodeRoom;
use crate::shares::{Shares, UserShare};
use crate::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use crate::workers::Workers;
use crate::{Failure, log};

/// The state of one mount.
#[derive(Debug)]
pub struct Core {
    /// The pool.
    pub store: Arc<Store>,
    /// Other mounts of it.
    pub neighbours: Arc<Neighbours>,
    /// What the kernel believes for long as long as there are none.
    pub believed: Believed,
    /// The kernel can be made to ask for a name anew.
    pub expires_names: AtomicBool,
    /// Datafiles that are to go.
    pub removals: Arc<Removals>,
    /// The inodes the kernel knows.
    pub table: Table,
    /// Opens of regular files.
    pub opened: AtomicUsize,
    /// What users hold of the descriptors for what is open.
    pub opens: Arc<Shares>,
    /// What users hold of the room for inodes that the kernel knows.
    nodes: Arc<Shares>,
    /// The kernel may be asked to serve plain files itself.
    pub passthrough: AtomicBool,
    /// The kernel is to be asked to.
    pub wants_passthrough: bool,
    /// The kernel keeps what programs write; it alone knows sizes and times of what it has not handed on yet.
    pub writeback: bool,
    /// Reads move the time of access, as far as the namespace's file system lets them.
    pub notes_access: bool,
    /// We may give files to others.
    pub is_root: bool,
    /// The namespace's file system has access control lists, and the kernel checks them.
    pub has_acl: AtomicBool,
    notifier: OnceLock<Notifier>,
    travel: OnceLock<Travel>,
    /// Looks for the next request when one is answered.
    pub linger: Linger,
    /// Which requests the metadata tier serves.
    pub charged: Charged,
    /// Whether programs stand in each other's way.
    pub crowd: Crowd,
    /// Which threads wait for requests.
    pub workers: Arc<Workers>,
    /// Which programs look at what they list.
    pub lookers: Lookers,
}

impl Core {
    /// Prepares to serve a pool; with `passthrough` (and as root) the kernel serves itself what it can.
    ///
    /// # Errors
    /// The pool's tree of names cannot be opened, or its namespace not be written; others use it, and this mount needs it alone.
    pub fn new(store: Arc<Store>, options: &MountOptions) -> Result<Core, MountError> {
        let is_root = rustix::process::geteuid().is_root();
        let descriptors = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(u64::MAX);
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let descriptors = usize::try_from(descriptors).unwrap_or(usize::MAX);
        let owner = rustix::process::geteuid().as_raw();
        let (half, most) = (InodeRoom::new(descriptors), InodeRoom::for_opens(descriptors));
        let (opens, nodes) = (Shares::new(most, owner), Shares::new(half.most(), owner));
        let room = match store.plane().is_shared() {
            true => half,
            false => InodeRoom::beside(descriptors, opens.clone(), nodes.clone()),
        };
        let table = Table::new(store.tree(), room).map_err(MountError::system("opening the pool's names"))?;
        let neighbours = Arc::new(Neighbours::join(&store)?);
        if options.writeback_cache {
            neighbours.keep_out().map_err(|error| MountError::WritebackCache { reason: error.to_string() })?;
        }
        // The kernel has passthrough or pages that it writes back; and what it serves itself passes no door.
        let is_watched = store.plane().door().is_watched();
        let wants_passthrough = options.passthrough && is_root && !options.writeback_cache && !is_watched;
        Ok(Core {
            store,
            neighbours,
            believed: Believed::default(),
            expires_names: AtomicBool::new(false),
            removals: Arc::default(),
            table,
            opened: AtomicUsize::new(0),
            opens,
            nodes,
            passthrough: AtomicBool::new(false),
            wants_passthrough,
            writeback: options.writeback_cache,
            notes_access: !options.flags.intersects(MountFlags::RDONLY | MountFlags::NOATIME),
            is_root,
            has_acl: AtomicBool::new(false),
            notifier: OnceLock::new(),
            travel: OnceLock::new(),
            linger: Linger::default(),
            charged: Charged::default(),
            crowd: Crowd::new(processors),
            workers: Arc::new(Workers::new(processors)),
            lookers: Lookers::default(),
        })
    }

    /// How to tell the kernel something on our own account.
    pub fn set_notifier(&self, notifier: Notifier) {
        // Set once, when the mount starts.
        let _ = self.notifier.set(notifier);
    }

    /// How requests travel.
    pub fn set_travel(&self, travel: Travel) {
        // Set once, when the mount starts.
        let _ = self.travel.set(travel);
    }

    /// How requests travel, in words for a person.
    pub fn travel(&self) -> String {
        self.travel.get().map_or_else(String::new, ToString::to_string)
    }

    /// Makes the kernel forget the attributes it has of `node`.
    pub fn forget_attributes(&self, node: &Node) {
        node.untold();
        if let Some(notifier) = self.notifier.get() {
            // A kernel that does not know the node any more has nothing to forget.
            let _ = notifier.forget_inode(node.ino, -1, 0);
        }
    }

    /// Has the kernel hand on what it keeps of open files; of closed ones it keeps nothing. Not by a thread that serves.
    fn write_back(&self) {
        let Some(notifier) = self.notifier.get() else { return };
        let is_open = |node: &Arc<Node>| crate::lock(&node.shared).is_some();
        for node in self.table.all().into_iter().filter(is_open) {
            // After an unmount there is no request to answer, and nothing left to hand on.
            let _ = notifier.forget_inode(node.ino, 0, 0);
        }
    }

    /// Removes from now on, in the background, what removals that were interrupted or refused have left.
    pub fn collect_interrupted(&self) {
        match Journal::begin(&self.store, self.neighbours.clone()) {
            Ok(journal) => self.removals.begin(&self.store, journal),
            Err(error) => log::error(&format!(
                "no journal of removals ({error}): datafiles that cannot be removed at once are left to `stripewise fsck`"
            )),
        }
    }

    /// Opens of regular files.
    pub fn open_files(&self) -> usize {
        self.opened.load(Ordering::Acquire)
    }

    /// Lets `user` look up another name.
    ///
    /// # Errors
    /// `ENFILE`: the inodes that the user has looked up are in use, and more than there is room for.
    pub fn admit(&self, user: u32) -> Result<(), Errno> {
        self.table.room.admit(|| self.nodes.is_fair(user))
    }

    /// How many descriptors a file takes that is open, at most.
    pub fn most_descriptors(&self) -> usize {
        3 + self.store.pool().servers.len()
    }

    /// Lets `user` open another file, or directory, which takes that many descriptors at most. A few atomic operations as long as there is
    /// room.
    ///
    /// # Errors
    /// `ENFILE`: the user has more open than are free.
    pub fn admit_open(&self, user: u32, units: usize) -> Result<UserShare, Errno> {
        let share = self.opens.take(user, 1)?;
        self.table.room.take_back(units);
        Ok(share)
    }

    /// Counts a node for `user`, if it counts for none.
    pub fn count_node(&self, node: &Node, user: u32) {
        node.found_by.get_or_init(|| self.nodes.charge(user, 1));
    }

    /// Leaves everything in order when the mount has ended.
    pub fn finish(&self) {
        self.table.room.end();
        self.neighbours.end();
        if self.writeback {
            self.write_back();
        }
        self.close_all();
        self.removals.finish(&self.store);
    }

    /// Does `call`, which has changed nothing when it fails. If a disk is full it waits until the datafiles of files that were
    /// removed are gone, and does it once more: a removed file's room is there for the next.
    ///
    /// # Errors
    /// Those of `call`.
    pub fn with_room<T>(&self, call: impl Fn() -> Result<T, Failure>) -> Result<T, Failure> {
        match call() {
            Err(failure) if failure.is_full() && self.removals.make_room() => call(),
            done => done,
        }
    }

    /// Says what went wrong when a program gets an error that says nothing (EIO).
    pub fn report(&self, node: &Node, what: &str, failure: &Failure) {
        if let Failure::Store(error) = failure
            && error.errno() == Errno::IO
        {
            log::error(&format!("{} ({what}): {error}", self.table.describe(node)));
        }
    }

    /// Says what went wrong where no program is told.
    pub fn note<T>(&self, node: &Node, what: &str, result: Result<T, stripewise_store::Error>) {
        if let Err(error) = result {
            log::error(&format!("{} ({what}): {error}", self.table.describe(node)));
        }
    }
}
