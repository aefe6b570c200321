//! Messages by `io_uring` (Linux 6.14): one system call for a reply and the next request, on the processor that asked.
//!
//! ```text
//! memory.rs   the memory of an entry: what the kernel puts into it as a message, and the reply to it
//! entry.rs    the transport: an entry of a queue, its ring and its thread
//! offer.rs    whether it can be had, how many threads, and why not
//! late.rs     what comes while a queue has some of its entries
//! ```
//!
//! The kernel has a queue for each processor that there can be. A request goes to the queue of the processor on which its
//! program runs, to an entry of the queue that is free, or waits in that queue until one is. An entry is free from the
//! registration, or from the reply to its last request, until it gets the next. FORGET and INTERRUPT come by the device
//! as ever, and so does all that the kernel is told unasked.
//!
//! # Why no request waits for one that waits
//!
//! The kernel fills an entry by the thread that has last submitted it, and only while that thread waits in its ring
//! (`IORING_SETUP_DEFER_TASKRUN`). A thread that had several entries would keep requests from being served while it waits, in an
//! earlier one, for a lock, for its turn or for a slow server; and if what it waits for is one of them, for ever. So:
//!
//! 1. An entry has a thread of its own, and a ring of its own. The thread submits nothing but its entry, and only when it has
//!    served: reply and the wait for the next request are one system call. So an entry is free only while its thread waits
//!    in that call, where nothing else can keep it. A request that has got an entry is therefore served at once, whatever other
//!    requests do.
//! 2. A request that gets no entry waits until one of all those of its queue has been answered. A queue has as many entries as the
//!    mount by the device has threads in all (fewer only on machines with very many processors, [`offer`]). So requests
//!    that wait for each other can fill a queue only where they would have taken all threads of the device.
//! 3. An entry that is registered late does not get what waits in the queue already. Until each queue has one, no request comes
//!    but by the device, which has threads, too. So the queues get all their entries before the last gets its first, and that
//!    one's threads serve when it has all; for what comes to that one meanwhile the mount makes requests of its own ([`late`]).
//! 4. A thread that ends takes a free entry with it, and what it has got in that moment. So it ends only with the
//!    connection: what panics is caught, and is one program's error.
//!
//! The kernel takes the entry that became free last, whose memory is in the caches; the others sleep. So threads that are
//! not needed cost memory alone, and are not parked as those of the device are.
//!
//! # The end
//!
//! An unmount, an abort and the end of the process take all entries back, in use or not, and end their requests; threads
//! find that by the error of their next call. The kernel needs threads for that which are in no uninterruptible wait
//! while their entry is free: by 1 they are in none.

mod entry;
mod late;
mod memory;
mod offer;

pub use entry::UringTransport;
pub use late::{Registrations, put_one_queue_last};
pub use offer::{Asked, prepare};
