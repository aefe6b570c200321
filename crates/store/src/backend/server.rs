//! What the store asks of a server, and what a server can do.

use crate::backend::emulate::{Device, EmulateConfig};
use crate::format::placement::DatafileKey;
use crate::os::error::{Error, Result};
use crate::os::room::Room;
use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::fs::{FileType, Stat};
use std::path::PathBuf;
use std::sync::Arc;
use stripewise_layout::{Region, ServerId, Stripe};
use stripewise_model::SeekMap;

/// Whether a server is one to put bytes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerState {
    /// It takes new files.
    Used,
    /// It is to go: it serves what it has, and takes no new file.
    Draining,
    /// It has gone. Its name and id are never given again; what was on it is lost.
    Removed,
}

/// One server.
#[derive(Debug, Clone, PartialEq)]
pub struct Server {
    /// Index in the pool.
    pub id: ServerId,
    /// Name: tier and index in it, as in `hdd.0`.
    pub name: String,
    /// Index of its tier; none of the server of the metadata tier.
    pub tier: usize,
    /// What it is made of: the name of a kind of servers, as `directory`.
    pub kind: &'static str,
    /// Its place: the directory of one that is a directory.
    pub root: PathBuf,
    /// Bytes that it may hold, if limited.
    pub capacity_bytes: Option<u64>,
    /// The device that it stands for, if it is emulated.
    pub emulate: Option<EmulateConfig>,
    /// Whether bytes are put on it.
    pub state: ServerState,
    /// The server that was added in its place, where it leaves for that.
    pub replaced_by: Option<ServerId>,
    /// What a seek takes on it, if that was measured.
    pub seeks: Option<SeekMap>,
}

impl Server {
    /// Whether it takes new files.
    pub fn is_used(&self) -> bool {
        self.state == ServerState::Used
    }
}

/// A kind of servers.
pub(crate) struct Kind {
    /// What the pool file calls it.
    pub(super) name: &'static str,
    pub(super) open: fn(&Server, &Setting) -> Box<dyn Backend>,
    pub(super) site: fn(&Server) -> Box<dyn Site>,
}

/// What backends are told of the process that they are in.
#[derive(Debug, Clone, Default)]
pub(crate) struct Setting {
    /// Uuid of the pool that a server has to be of; `None` takes what stands at its place, whatever its marker says.
    pub(crate) pool_uuid: Option<Arc<str>>,
    /// Descriptors that a backend keeps have this number or a higher one.
    pub(crate) descriptor_floor: i32,
}

/// What a server can do and cannot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ServerLimits {
    /// A stripe's width on it is a multiple of that many bytes.
    pub(crate) width_multiple_bytes: u64,
    /// Stripes that a region with one on it can have.
    pub(crate) most_stripes: usize,
    /// Whether reads may wait for a device that the kernel can be told of before: it pays to tell it of several.
    pub(crate) takes_advice: bool,
    /// Whether a request can be kept from leaving its bytes in the server's page cache.
    pub(crate) passes_cache: bool,
    /// Whether it answers a request when its device has served it, and not before: the sub-requests of a request on several
    /// such servers are then served one after the other.
    pub(crate) in_turn: bool,
    /// Whether the kernel may read and write a datafile by itself: its descriptor is that of a file with just its
    /// bytes, at the server's own speed.
    pub(crate) is_plain: bool,
    /// Whether requests are charged the time of [`Backend::device`].
    pub(crate) is_charged: bool,
}

impl ServerLimits {
    /// Those of a server that has none.
    pub(crate) const NONE: Self = Self {
        width_multiple_bytes: 1,
        most_stripes: usize::MAX,
        takes_advice: true,
        passes_cache: false,
        in_turn: false,
        is_plain: true,
        is_charged: false,
    };

    /// Refuses a stripe of `region` that the server cannot have: says what it must be.
    pub(crate) fn check(&self, region: &Region, stripe: &Stripe) -> Result<(), String> {
        let Self { most_stripes, width_multiple_bytes, .. } = *self;
        match region.stripes().len() {
            1 => {}
            _ if most_stripes == 1 => return Err("must be the only server of its region".into()),
            count if count > most_stripes => {
                return Err(format!("can be in regions of {most_stripes} stripes at most, not of {count}"));
            }
            _ => {}
        }
        if !stripe.width_bytes.is_multiple_of(width_multiple_bytes) {
            let width_bytes = stripe.width_bytes;
            return Err(format!("takes widths that are a multiple of {width_multiple_bytes} bytes, not {width_bytes}"));
        }
        Ok(())
    }
}

/// How a datafile is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DatafileAccess {
    Read,
    ReadWrite,
}

/// One server. Calls that use it fail with ENOTCONN before [`Backend::connect`] has succeeded, and act on what that, or
/// [`Backend::look_again`], found.
pub(crate) trait Backend: std::fmt::Debug + Send + Sync {
    /// What the pool file says of it.
    fn server(&self) -> &Server;

    /// What it can do. Asked once, when it is connected.
    fn limits(&self) -> ServerLimits;

    /// Opens the server where it is not open.
    ///
    /// # Errors
    /// [`Error::MissingServer`]: it is not there, or what is there is another server.
    fn connect(&self) -> Result<()>;

    /// Makes sure that what is open is what stands at the server's place now: a disk that was unmounted, a file server
    /// that died, a directory that was moved away and restored is found again, and nothing is written into what is no
    /// longer the server.
    ///
    /// # Errors
    /// As [`Backend::connect`].
    fn look_again(&self) -> Result<()>;

    /// Whether it was found dead, and not found again yet: all that is open on it is to be let go of.
    fn has_died(&self) -> bool;

    /// How often it was found dead.
    fn deaths(&self) -> u32;

    /// Whether its marker can still be seen.
    fn is_marked(&self) -> rustix::io::Result<()>;

    /// Whether an open datafile is on the server as it stands now.
    fn holds(&self, datafile: BorrowedFd<'_>) -> bool;

    /// Makes an empty datafile that only its maker can open; EEXIST if there is something in its place. A native layout
    /// is set here.
    fn make(&self, key: DatafileKey) -> rustix::io::Result<OwnedFd>;

    /// Opens what stands in a datafile's place, whosever it is, without waiting for it.
    fn open(&self, key: DatafileKey, access: DatafileAccess) -> rustix::io::Result<OwnedFd>;

    /// Attributes of what stands in a datafile's place.
    fn stat(&self, key: DatafileKey) -> rustix::io::Result<Stat>;

    /// Removes what stands in a datafile's place and was found to be `what`.
    fn unlink(&self, key: DatafileKey, what: FileType) -> rustix::io::Result<()>;

    /// Makes the name of a datafile durable, or that it has none.
    fn sync_names(&self, key: DatafileKey) -> rustix::io::Result<()>;

    /// The generations of a handle that have a datafile; `None` where this user may not list them.
    fn generations(&self, handle: u64) -> rustix::io::Result<Option<Vec<u32>>>;

    /// Where a datafile is, for people.
    fn place(&self, key: DatafileKey) -> PathBuf;

    /// The room that is left.
    fn room(&self) -> rustix::io::Result<Room>;

    /// The directory of the server's own small files: its marker, and the queue of an emulated one.
    fn own_directory(&self) -> rustix::io::Result<BorrowedFd<'_>>;

    /// A file without a name to time requests on, for direct I/O if `direct`.
    fn scratch(&self, direct: bool) -> rustix::io::Result<OwnedFd>;

    /// The device that it stands for, if it is emulated.
    fn device(&self) -> Option<&Device> {
        None
    }

    /// What checking a pool asks of it.
    fn upkeep(&self) -> &dyn Upkeep;
}

/// What a server lists one after the other.
pub(crate) type Listing<'a, T> = rustix::io::Result<Box<dyn Iterator<Item = rustix::io::Result<T>> + 'a>>;

/// Something among the datafiles of a server.
#[derive(Debug)]
pub(crate) enum Found {
    /// A datafile in its place.
    Datafile(DatafileKey),
    /// A datafile that is not in its place, and where it is.
    Elsewhere(DatafileKey, String),
    /// Nothing of Stripewise's.
    Unknown(String),
}

/// Where a server keeps datafiles that no file names.
pub(crate) const KEPT: &str = "lost+found";

/// The place of a server, before there is one or whatever it is: what making a pool and taking one over ask.
pub(crate) trait Site {
    /// Makes the place, for the one user of a pool or for several.
    fn make(&self, for_several: bool) -> Result<()>;

    /// Makes what has to be root's in a shared pool.
    fn make_shared(&self) -> Result<()>;

    /// Tries whether datafiles can be bound to inodes there; EOPNOTSUPP if not.
    fn probe_binding(&self) -> rustix::io::Result<()>;

    /// The text of the marker of what stands there; ENOENT or ENOTDIR if there is none.
    fn marker(&self) -> rustix::io::Result<Vec<u8>>;

    /// Puts a marker there.
    fn write_marker(&self, text: &str) -> rustix::io::Result<()>;

    /// Takes away what the store has put there, of a server without datafiles; what is not the store's stays. Nothing is
    /// done where there is no such place.
    fn unmake(&self) -> rustix::io::Result<()>;
}

/// What checking a pool asks of a server.
pub(crate) trait Upkeep: Send + Sync {
    /// Parts in which its datafiles are listed, so that several threads can share the work.
    fn parts(&self) -> u16;

    /// What a part is called.
    fn part_name(&self, part: u16) -> String;

    /// Lists a part.
    fn list(&self, part: u16) -> Listing<'_, Found>;

    /// Names of what stands beside its datafiles and is nothing of its own.
    fn strangers(&self) -> Listing<'_, String>;

    /// Moves the datafile that stands in its place, or at `from`, to `kept`, a name in [`KEPT`]; EEXIST if that is
    /// taken.
    fn keep(&self, key: DatafileKey, from: Option<&str>, kept: &str) -> rustix::io::Result<()>;

    /// Whether there is something of that name in [`KEPT`].
    fn has_kept(&self, kept: &str) -> bool;

    /// Moves what stands at `from` into its place; EEXIST if that is taken.
    fn put_right(&self, key: DatafileKey, from: &str) -> rustix::io::Result<()>;

    /// Whether only the server's owner can have put something into that place.
    fn is_guarded(&self, key: DatafileKey) -> bool;

    /// Makes everything durable.
    fn sync(&self) -> rustix::io::Result<()>;

    /// Bytes that are allocated to all datafiles but those of the handles `except`. O(datafiles).
    fn allocated_bytes(&self, except: &[u64]) -> u64;
}

/// That a server is not there.
pub(crate) fn missing(server: &Server, reason: impl Into<String>) -> Error {
    Error::MissingServer { server: server.name.clone(), root: server.root.clone(), reason: reason.into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::meta;
    use stripewise_layout::Layout;

    #[test]
    fn stripes_keep_to_the_limits_of_their_servers() {
        let checked = |limits: ServerLimits, widths: &[u64]| {
            let stripe = |(id, &width_bytes): (usize, &u64)| Stripe { server: ServerId(id as u16), width_bytes };
            let layout = Layout::new([(0, widths.iter().enumerate().map(stripe).collect())]).unwrap();
            let region = &layout.regions()[0];
            limits.check(region, &region.stripes()[0])
        };
        let of_64_kib = ServerLimits { width_multiple_bytes: 65536, most_stripes: 2, ..ServerLimits::NONE };
        assert_eq!(checked(of_64_kib, &[131_072, 7]), Ok(()));
        assert!(checked(of_64_kib, &[65_537]).unwrap_err().contains("a multiple of 65536 bytes, not 65537"));
        assert!(checked(of_64_kib, &[65_536, 1, 1]).unwrap_err().contains("2 stripes at most, not of 3"));
        assert_eq!(checked(meta::LIMITS, &[1]), Ok(()));
        assert_eq!(checked(meta::LIMITS, &[1, 1]).unwrap_err(), "must be the only server of its region");
    }
}
