//! The kernel's FUSE protocol, versions 7.31 (Linux 5.4) to 7.45 (Linux 6.18), and nothing of what is served by it.
//!
//! ```text
//! messages.rs    what the kernel asks: bytes to a `Call`, each length checked against what there is
//! replies.rs     what it is told: the bytes of each kind of reply
//! init.rs        what both sides can do: the first message and its answer
//! connection.rs  /dev/fuse and its ioctls
//! transport.rs   how messages travel: the trait
//! device.rs      by reads and writes of /dev/fuse: the transport that every kernel has
//! uring/         by io_uring, from Linux 6.14 on: half the system calls, on the processor that asks
//! reply.rs       the answer that each request gets, exactly once
//! notify.rs      what the kernel is told without having asked
//! niceness.rs    how soon threads that serve get a processor
//! session.rs     from the first message to the last: threads, each with a transport
//! helper.rs      mounts for users without privilege, by fusermount3
//! ```
//!
//! The protocol is that of `include/uapi/linux/fuse.h` of Linux 6.18. All numbers are in the machine's byte order.

mod connection;
mod device;
mod helper;
pub mod init;
mod messages;
mod niceness;
mod notify;
mod replies;
mod reply;
mod session;
mod transport;
mod uring;

pub use connection::{BackingId, FuseDevice};
pub use device::DeviceTransport;
pub use helper::{escaped, mount_by_helper};
pub use messages::{AttrChange, Call, CopyRange, Malformed, RequestHeader, SetTime, write_flags};
pub use niceness::{go_before_programs, go_beside_programs};
pub use notify::Notifier;
pub use replies::{DirectoryEntries, EntryReply, FileAttr, OpenReply, StatxReply, Time, open_flags};
pub use reply::Reply;
pub use session::{FuseServer, Session, SessionOptions, Travel};
pub use transport::{ReplySink, Transport};
