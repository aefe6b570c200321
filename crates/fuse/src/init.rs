//! What both sides can do: the kernel's first message, and the answer to it.

use crate::replies::Out;

/// The protocol's version.
pub const MAJOR: u32 = 7;
/// That of Linux 6.18.
const MINOR: u32 = 45;
/// That of Linux 5.4: replies of older ones are shorter.
pub const OLDEST_MINOR: u32 = 31;

/// Bytes of a write at most, by the protocol. The kernel asks for less: `fs.fuse.max_pages_limit` pages, 1 MiB.
pub const MAX_WRITE_BYTES: u32 = 16 << 20;
/// Bytes of an answer to the first message (`fuse_init_out`).
pub const INIT_BYTES: usize = 64;

/// Reads of one file side by side.
const ASYNC_READ: u64 = 1 << 0;
/// `O_TRUNC` comes with the open.
pub const ATOMIC_O_TRUNC: u64 = 1 << 3;
/// Writes of more than a page.
const BIG_WRITES: u64 = 1 << 5;
/// The kernel leaves the umask to us.
pub const DONT_MASK: u64 = 1 << 6;
/// Pages go when the time of change has moved.
pub const AUTO_INVAL_DATA: u64 = 1 << 12;
/// Listings with attributes.
pub const DO_READDIRPLUS: u64 = 1 << 13;
/// Those only where a program looks at attributes.
pub const READDIRPLUS_AUTO: u64 = 1 << 14;
/// Direct requests side by side.
pub const ASYNC_DIO: u64 = 1 << 15;
/// The kernel keeps what programs write.
pub const WRITEBACK_CACHE: u64 = 1 << 16;
/// Lookups in one directory side by side.
pub const PARALLEL_DIROPS: u64 = 1 << 18;
/// The kernel checks access control lists.
pub const POSIX_ACL: u64 = 1 << 20;
/// The answer says how many pages a request has.
const MAX_PAGES: u64 = 1 << 22;
/// The kernel keeps where symbolic links point.
pub const CACHE_SYMLINKS: u64 = 1 << 23;
/// A write says that set-user-id bits are to go.
pub const HANDLE_KILLPRIV_V2: u64 = 1 << 28;
/// There are more than 32 flags.
pub const INIT_EXT: u64 = 1 << 30;
/// A name can be made to be asked for again, and stays what it is.
pub const HAS_EXPIRE_ONLY: u64 = 1 << 35;
/// Shared maps of files that are otherwise read past the kernel's pages.
pub const DIRECT_IO_ALLOW_MMAP: u64 = 1 << 36;
/// The kernel reads and writes a file by another.
pub const PASSTHROUGH: u64 = 1 << 37;
/// Requests travel by `io_uring`.
pub const OVER_IO_URING: u64 = 1 << 41;

/// Pages of a request at most, as an administrator has set it (Linux 6.13).
const PAGES_LIMIT: &str = "/proc/sys/fs/fuse/max_pages_limit";
/// What the kernel wants room for at least (`FUSE_MIN_READ_BUFFER`).
const LEAST_ROOM_BYTES: usize = 8192;

/// What the kernel can do, and what is asked of it.
#[derive(Clone, Copy, Debug)]
pub struct Negotiation {
    can: u64,
    asked: u64,
    max_readahead_bytes: u32,
    max_write_bytes: u32,
    max_background: u16,
}

impl Negotiation {
    /// With a kernel that can do `can`. What needs no thought is asked for.
    pub fn new(can: u64, max_readahead_bytes: u32) -> Negotiation {
        let asked = (ASYNC_READ | BIG_WRITES | MAX_PAGES | INIT_EXT) & can;
        Negotiation { can, asked, max_readahead_bytes, max_write_bytes: MAX_WRITE_BYTES, max_background: 16 }
    }

    /// Asks for all of `flags`, or for none if the kernel cannot do them all; whether it can.
    #[must_use]
    pub fn ask(&mut self, flags: u64) -> bool {
        let can = self.can & flags == flags;
        if can {
            self.asked |= flags;
        }
        can
    }

    /// Whether the kernel can do all of `flags`.
    pub fn can(&self, flags: u64) -> bool {
        self.can & flags == flags
    }

    /// Asks for requests no larger than the kernel makes them now, where it says how large: what is kept ready for each then is
    /// no larger either.
    pub fn ask_for_no_more_than_the_limit(&mut self) {
        let limit = std::fs::read_to_string(PAGES_LIMIT).ok().and_then(|text| text.trim().parse::<u32>().ok());
        if let Some(bytes) = limit.and_then(|pages| pages.checked_mul(page_bytes())) {
            self.max_write_bytes = bytes.clamp(4096, MAX_WRITE_BYTES);
        }
    }

    /// Bytes that names and data of a request or its reply take at most.
    pub fn most_payload_bytes(&self) -> usize {
        (self.max_pages() as usize * page_bytes() as usize).max(self.max_write_bytes as usize).max(LEAST_ROOM_BYTES)
    }

    fn max_pages(&self) -> u32 {
        let most_bytes = self.max_write_bytes.max(self.max_readahead_bytes);
        most_bytes.div_ceil(page_bytes()).min(u16::MAX.into())
    }

    /// How many requests for which no program waits there may be at once.
    pub fn set_max_background(&mut self, requests: u16) {
        self.max_background = requests;
    }

    /// The answer, of which the kernel takes as much as it knows.
    pub fn answer(&self) -> [u8; INIT_BYTES] {
        // One level: what the kernel reads and writes by is no stacked file system.
        let max_stack_depth = u32::from(self.asked & PASSTHROUGH != 0);
        let mut out = Out::new();
        out.u32(MAJOR).u32(MINOR).u32(self.max_readahead_bytes).u32(self.asked as u32);
        out.u16(self.max_background).u16((u32::from(self.max_background) * 3 / 4) as u16);
        // Times are those of the namespace, to the nanosecond.
        out.u32(self.max_write_bytes).u32(1).u16(self.max_pages() as u16).u16(0);
        out.u32((self.asked >> 32) as u32).u32(max_stack_depth).zeros(24);
        out.done()
    }

    /// The answer to a kernel of a later major version: the version alone, after which it asks once more.
    pub fn answer_of_version() -> [u8; INIT_BYTES] {
        let mut out = Out::new();
        out.u32(MAJOR).u32(MINOR).zeros(INIT_BYTES - 8);
        out.done()
    }
}

fn page_bytes() -> u32 {
    // SAFETY: it asks for a number.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) as u32 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_kernel_can_do_is_asked_for() {
        let mut with = Negotiation::new(ASYNC_READ | POSIX_ACL | INIT_EXT, 1 << 17);
        assert!(with.ask(POSIX_ACL) && !with.ask(POSIX_ACL | PASSTHROUGH) && !with.ask(WRITEBACK_CACHE));
        let answer = with.answer();
        let number = |at: usize| u32::from_ne_bytes(answer[at..at + 4].try_into().unwrap());
        assert_eq!((number(0), number(4), number(8)), (MAJOR, MINOR, 1 << 17));
        assert_eq!(u64::from(number(12)), ASYNC_READ | POSIX_ACL | INIT_EXT);
        // No high flags, and no stack without passthrough.
        assert_eq!((number(20), number(32), number(36)), (MAX_WRITE_BYTES, 0, 0));
    }

    #[test]
    fn there_is_room_for_the_largest_message_that_the_answer_lets_come() {
        for readahead in [0, 1 << 17, 1 << 25] {
            let mut with = Negotiation::new(u64::MAX, readahead);
            with.ask_for_no_more_than_the_limit();
            let answer = with.answer();
            let max_write = u32::from_ne_bytes(answer[20..24].try_into().unwrap()) as usize;
            let max_pages = u16::from_ne_bytes(answer[28..30].try_into().unwrap()) as usize;
            assert!(max_write <= with.most_payload_bytes() && max_pages * 4096 <= with.most_payload_bytes());
        }
    }

    #[test]
    fn passthrough_comes_with_one_level_of_stack() {
        let mut with = Negotiation::new(u64::MAX, 0);
        assert!(with.ask(PASSTHROUGH));
        let answer = with.answer();
        assert_eq!(u32::from_ne_bytes(answer[32..36].try_into().unwrap()), 1 << (37 - 32));
        assert_eq!(u32::from_ne_bytes(answer[36..40].try_into().unwrap()), 1);
    }
}
