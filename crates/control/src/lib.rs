//! The door: every request on the data of a pool's files passes it, and it knows who sent the request.
//!
//! A [`Gate`] can make a request wait before it reaches a server. An [`Observer`] sees each sub-request after its server has
//! served it. A process without either pays three comparisons per request.
//!
//! Two kinds of access never reach the door, because the kernel does not ask: reads and writes of a file that the kernel
//! serves itself (passthrough), and accesses to pages that the kernel keeps. A mount whose door has a gate or an observer
//! therefore refuses passthrough, and lets no program go past it, unless the preload has the same gate and observers. Pages stay: a read of a cached page is no request, and what
//! the kernel writes back on its own comes as a request of [`Program::KERNEL`].

mod door;
mod gate;
mod observer;
mod request;

pub use door::{Door, SentRequest};
pub use gate::Gate;
pub use observer::{Observer, Served};
pub use request::{Action, FileId, Program, Request, Sender, Way};
