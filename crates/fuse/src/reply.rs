//! The answer to a request, exactly once: a reply that is dropped unsent says EIO, so that no program waits for ever.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use rustix::fs::StatVfs;
use rustix::io::Errno;

use crate::connection::BackingId;
use crate::replies::{
    DirectoryEntries, EntryReply, FileAttr, OpenReply, Out, StatxReply, attr_reply, entry_reply, header, open_reply,
    space_reply, statx_reply,
};
use crate::transport::ReplySink;

/// The answer that is owed to a request.
#[must_use = "a program waits for it"]
pub struct Reply<'a> {
    sink: &'a dyn ReplySink,
    unique: u64,
    owed: bool,
}

impl Drop for Reply<'_> {
    fn drop(&mut self) {
        self.fail(Errno::IO);
    }
}

impl<'a> Reply<'a> {
    /// The answer to the request `unique`, by `sink`.
    pub fn new(sink: &'a dyn ReplySink, unique: u64) -> Reply<'a> {
        Reply { sink, unique, owed: true }
    }

    /// To a request that gets no answer.
    pub fn none(mut self) {
        self.owed = false;
    }

    /// The request failed.
    pub fn error(mut self, errno: Errno) {
        self.fail(errno);
    }

    /// It is done, and there is nothing to tell.
    pub fn ok(self) {
        self.data(&[]);
    }

    /// Bytes: of a file, a link, an attribute.
    pub fn data(mut self, data: &[u8]) {
        self.send(&[data]);
    }

    /// Bytes, `most` of them at most, that `fill` puts into the room that it gets; it says how many. No copy that the transport
    /// does not need.
    ///
    /// # Errors
    /// Those of `fill`, with which the answer is still owed.
    pub fn filled<E>(
        mut self,
        most: usize,
        fill: impl FnOnce(&mut [u8]) -> Result<usize, E>,
    ) -> Result<(), (E, Reply<'a>)> {
        let (mut fill, mut failed) = (Some(fill), None);
        let sent = self.sink.fill(self.unique, most, &mut |room| {
            let fill = fill.take()?;
            fill(room).map_err(|error| failed = Some(error)).ok()
        });
        if let Some(error) = failed {
            return Err((error, self));
        }
        match sent {
            Err(errno) if errno != Errno::NOENT => self.fail(Errno::IO),
            _ => self.owed = false,
        }
        Ok(())
    }

    /// A name looked up.
    pub fn entry(self, entry: &EntryReply) {
        self.data(&entry_reply(entry));
    }

    /// Attributes, and how long they hold.
    pub fn attr(self, attr: &FileAttr, holds: Duration) {
        self.data(&attr_reply(attr, holds));
    }

    /// Attributes with the time of birth.
    pub fn statx(self, found: &StatxReply) {
        self.data(&statx_reply(found));
    }

    /// An open file or directory.
    pub fn opened(self, open: &OpenReply) {
        self.data(&open_reply(open));
    }

    /// A file that was made and opened.
    pub fn created(mut self, entry: &EntryReply, open: &OpenReply) {
        self.send(&[&entry_reply(entry), &open_reply(open)]);
    }

    /// How many bytes were written.
    pub fn written(self, bytes: u32) {
        let mut out = Out::<8>::new();
        out.u32(bytes).u32(0);
        self.data(&out.done());
    }

    /// A number of 64 bits: an offset, or how many bytes were copied.
    pub fn number(self, number: u64) {
        self.data(&number.to_ne_bytes());
    }

    /// The space there is.
    pub fn space(self, space: &StatVfs) {
        self.data(&space_reply(space));
    }

    /// How long an attribute is, or all names of attributes are.
    pub fn xattr_size(self, bytes: u32) {
        self.written(bytes);
    }

    /// Entries of a directory.
    pub fn entries(self, entries: &DirectoryEntries) {
        self.data(entries.bytes());
    }

    /// The bytes with which an ioctl answers.
    pub fn ioctl(mut self, data: &[u8]) {
        let mut out = Out::<16>::new();
        // Result, and fields of a kind of ioctl that regular files do not have.
        out.zeros(16);
        self.send(&[&out.done(), data]);
    }

    /// Gives the kernel the file `fd` to serve by; `None` where it refuses.
    pub fn open_backing(&self, fd: BorrowedFd<'_>) -> Option<BackingId> {
        self.sink.device().open_backing(fd).ok()
    }

    fn send(&mut self, parts: &[&[u8]]) {
        let bytes = parts.iter().map(|part| part.len()).sum();
        match self.sink.send(&header(bytes, 0, self.unique), parts) {
            // The kernel did not take it: it may still wait for this request.
            Err(errno) if errno != Errno::NOENT => self.fail(Errno::IO),
            _ => self.owed = false,
        }
    }

    fn fail(&mut self, errno: Errno) {
        if std::mem::take(&mut self.owed) {
            // The kernel takes only its programs' errors.
            let number = errno.raw_os_error();
            let number = if (1..512).contains(&number) { number } else { libc::EIO };
            // Refused only where the request, or the connection, has gone.
            let _ = self.sink.send(&header(0, -number, self.unique), &[]);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::sync::Arc;

    use super::*;
    use crate::connection::FuseDevice;

    /// Refuses what has bytes behind the header, as a kernel does that has no room for them.
    #[derive(Default)]
    struct Narrow {
        sent: RefCell<Vec<(i32, usize)>>,
        refuses: bool,
    }

    impl ReplySink for Narrow {
        fn send(&self, header: &[u8; 16], parts: &[&[u8]]) -> Result<(), Errno> {
            let error = i32::from_ne_bytes(header[4..8].try_into().unwrap());
            let bytes = parts.iter().map(|part| part.len()).sum();
            self.sent.borrow_mut().push((error, bytes));
            if self.refuses && bytes > 0 { Err(Errno::INVAL) } else { Ok(()) }
        }

        fn fill(
            &self,
            unique: u64,
            most: usize,
            fill: &mut dyn FnMut(&mut [u8]) -> Option<usize>,
        ) -> Result<bool, Errno> {
            let mut room = vec![0; most];
            let Some(bytes) = fill(&mut room) else { return Ok(false) };
            self.send(&header(bytes, 0, unique), &[&room[..bytes]]).map(|()| true)
        }

        fn device(&self) -> &Arc<FuseDevice> {
            unreachable!("no test asks for it")
        }
    }

    #[test]
    fn a_request_gets_one_answer_whatever_happens() {
        let sink = Narrow::default();
        Reply::new(&sink, 1).data(b"abc");
        drop(Reply::new(&sink, 2));
        Reply::new(&sink, 3).error(Errno::from_raw_os_error(512));
        Reply::new(&sink, 4).error(Errno::NOSPC);
        Reply::new(&sink, 5).none();
        assert_eq!(*sink.sent.borrow(), [(0, 3), (-libc::EIO, 0), (-libc::EIO, 0), (-libc::ENOSPC, 0)]);
    }

    #[test]
    fn bytes_that_cannot_be_had_leave_the_answer_owed() {
        let sink = Narrow::default();
        let filled = Reply::new(&sink, 1).filled(8, |room| {
            room[..3].copy_from_slice(b"abc");
            Ok::<_, Errno>(3)
        });
        assert!(filled.is_ok());
        let Err((errno, reply)) = Reply::new(&sink, 2).filled(8, |_| Err(Errno::STALE)) else { panic!("it failed") };
        reply.error(errno);
        let sink_refuses = Narrow { refuses: true, ..Narrow::default() };
        assert!(Reply::new(&sink_refuses, 3).filled(8, |_| Ok::<_, Errno>(1)).is_ok());
        assert_eq!(*sink.sent.borrow(), [(0, 3), (-libc::ESTALE, 0)]);
        assert_eq!(*sink_refuses.sent.borrow(), [(0, 1), (-libc::EIO, 0)]);
    }

    #[test]
    fn a_reply_that_the_kernel_refuses_is_an_error_to_the_program() {
        let sink = Narrow { refuses: true, ..Narrow::default() };
        Reply::new(&sink, 1).data(b"abc");
        assert_eq!(*sink.sent.borrow(), [(0, 3), (-libc::EIO, 0)]);
    }
}
