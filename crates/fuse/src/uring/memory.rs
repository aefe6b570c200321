//! The memory of an entry: what the kernel puts into it as a message, and the reply to it.
//!
//! The kernel wants two places: one for headers (`fuse_uring_req_header`: the request's or reply's header, the fields of its
//! kind, and the entry's own numbers), one for all that follows (names, bytes). They lie one behind the other here, with
//! room before the second in which the headers, at most 168 bytes, are put together with it to the message that the device
//! would have had. Nothing else is copied.

use std::io;
use std::ops::Range;

use memmap2::{Advice, MmapMut};

use crate::replies::header;

/// Where what follows the headers begins: behind these, behind room for them as a part of the message, and aligned.
const PAYLOAD_AT: usize = 4096;
/// The header of a request or a reply.
const HEADER_AT: usize = 0;
/// Bytes of that of a request (`fuse_in_header`).
const REQUEST_HEADER_BYTES: usize = 40;
/// The fields of its kind.
const FIELDS_AT: usize = 128;
/// Bytes of these at most.
const MOST_FIELD_BYTES: usize = 128;
/// The number by which the reply names the request.
const COMMIT_ID: Range<usize> = 264..272;
/// How many bytes follow the headers.
const PAYLOAD_BYTES: Range<usize> = 272..276;
/// Bytes of all headers.
const HEADERS_BYTES: usize = 288;

/// Memory that the kernel and one thread share in turn: the kernel's from the registration or a reply on, until the entry's
/// completion; then the thread's.
#[derive(Debug)]
pub struct EntryMemory {
    map: MmapMut,
    /// The reply to a request that has names or bytes behind its headers: they must stay until it is served.
    aside: Vec<u8>,
}

/// Where the bytes of a reply go.
#[derive(Debug)]
pub enum ReplyRoom<'a> {
    /// Where the kernel takes them from: the request has nothing there.
    Payload(&'a mut [u8]),
    /// To be copied there when the request is served; at most this number of bytes.
    Aside(&'a mut Vec<u8>, usize),
}

impl ReplyRoom<'_> {
    /// Bytes of a reply at most.
    pub fn most(&self) -> usize {
        match self {
            ReplyRoom::Payload(room) => room.len(),
            ReplyRoom::Aside(_, most) => *most,
        }
    }

    /// Room for `bytes`, which are no more than [`ReplyRoom::most`]. No allocation, but where a request has bytes of its own
    /// and its reply more than any before.
    ///
    /// # Panics
    /// They are more.
    pub fn take(&mut self, bytes: usize) -> &mut [u8] {
        match self {
            ReplyRoom::Payload(room) => &mut room[..bytes],
            ReplyRoom::Aside(room, most) => {
                assert!(bytes <= *most, "a reply has room");
                if room.len() < bytes {
                    room.resize(bytes, 0);
                }
                &mut room[..bytes]
            }
        }
    }
}

impl EntryMemory {
    /// Memory for messages with `payload_bytes` behind their headers; only what is used of it takes any.
    ///
    /// # Errors
    /// Those of `mmap`.
    pub fn new(payload_bytes: usize) -> io::Result<EntryMemory> {
        let map = MmapMut::map_anon(PAYLOAD_AT + payload_bytes)?;
        // A program that is run shares none of it, so that no page has to be copied for it.
        map.advise(Advice::DontFork)?;
        Ok(EntryMemory { map, aside: Vec::new() })
    }

    /// The two places as the kernel wants to know them: for headers, and for what follows.
    pub fn places(&mut self) -> [libc::iovec; 2] {
        let (headers, payload) = self.map.split_at_mut(PAYLOAD_AT);
        [
            libc::iovec { iov_base: headers.as_mut_ptr().cast(), iov_len: HEADERS_BYTES },
            libc::iovec { iov_base: payload.as_mut_ptr().cast(), iov_len: payload.len() },
        ]
    }

    /// The number of the request that has come.
    pub fn commit_id(&self) -> u64 {
        u64::from_ne_bytes(self.map[COMMIT_ID].try_into().expect("eight bytes"))
    }

    /// The request that has come, as one message, and where its reply goes; `None` if its lengths fit neither each other nor the
    /// memory.
    pub fn request(&mut self) -> Option<(&[u8], ReplyRoom<'_>)> {
        let number = |range: Range<usize>| u32::from_ne_bytes(self.map[range].try_into().expect("four bytes")) as usize;
        let (length, payload_bytes) = (number(HEADER_AT..HEADER_AT + 4), number(PAYLOAD_BYTES));
        let most = self.map.len() - PAYLOAD_AT;
        let fields_bytes = length.checked_sub(REQUEST_HEADER_BYTES)?.checked_sub(payload_bytes)?;
        if fields_bytes > MOST_FIELD_BYTES || payload_bytes > most {
            return None;
        }
        let fields_at = PAYLOAD_AT - fields_bytes;
        let begin = fields_at - REQUEST_HEADER_BYTES;
        self.map.copy_within(HEADER_AT..HEADER_AT + REQUEST_HEADER_BYTES, begin);
        self.map.copy_within(FIELDS_AT..FIELDS_AT + fields_bytes, fields_at);
        if payload_bytes > 0 {
            return Some((&self.map[begin..PAYLOAD_AT + payload_bytes], ReplyRoom::Aside(&mut self.aside, most)));
        }
        let (headers, payload) = self.map.split_at_mut(PAYLOAD_AT);
        Some((&headers[begin..], ReplyRoom::Payload(payload)))
    }

    /// Writes the reply to the request that has come, of `bytes` bytes that are in its [`ReplyRoom`], or an error.
    pub fn reply(&mut self, error: i32, unique: u64, bytes: usize) {
        let has_payload = self.map[PAYLOAD_BYTES] != [0; 4];
        if has_payload {
            self.map[PAYLOAD_AT..PAYLOAD_AT + bytes].copy_from_slice(&self.aside[..bytes]);
        }
        self.map[HEADER_AT..HEADER_AT + 16].copy_from_slice(&header(bytes, error, unique));
        self.map[PAYLOAD_BYTES].copy_from_slice(&(bytes as u32).to_ne_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What the kernel fills in: a header that says `length`, fields of all ones, and so much behind.
    fn filled(length: u32, payload: &[u8], says: u32) -> EntryMemory {
        let mut memory = EntryMemory::new(8192).unwrap();
        memory.map[..4].copy_from_slice(&length.to_ne_bytes());
        memory.map[8..16].copy_from_slice(&77_u64.to_ne_bytes());
        memory.map[FIELDS_AT..FIELDS_AT + MOST_FIELD_BYTES].fill(1);
        memory.map[PAYLOAD_BYTES].copy_from_slice(&says.to_ne_bytes());
        memory.map[COMMIT_ID].copy_from_slice(&78_u64.to_ne_bytes());
        memory.map[PAYLOAD_AT..PAYLOAD_AT + payload.len()].copy_from_slice(payload);
        memory
    }

    #[test]
    fn a_message_is_header_fields_and_what_follows() {
        let mut memory = filled(40 + 16 + 5, b"name\0", 5);
        assert_eq!(memory.commit_id(), 78);
        let (message, mut room) = memory.request().unwrap();
        assert_eq!(message.len(), 61);
        assert_eq!(
            (&message[8..16], &message[40..56], &message[56..]),
            (&77_u64.to_ne_bytes()[..], &[1; 16][..], &b"name\0"[..])
        );
        room.take(3).copy_from_slice(b"abc");
        assert_eq!(&message[56..], b"name\0", "the name is there until it is served");
        memory.reply(0, 77, 3);
        assert_eq!(&memory.map[PAYLOAD_AT..PAYLOAD_AT + 5], b"abce\0");
        assert_eq!((&memory.map[..4], &memory.map[8..16]), (&19_u32.to_ne_bytes()[..], &77_u64.to_ne_bytes()[..]));
        assert_eq!(&memory.map[PAYLOAD_BYTES], &3_u32.to_ne_bytes());
    }

    #[test]
    fn a_reply_to_a_message_without_bytes_is_where_the_kernel_takes_it() {
        let mut memory = filled(40 + 40, &[], 0);
        let (message, mut room) = memory.request().unwrap();
        assert_eq!((message.len(), room.most()), (80, 8192));
        room.take(8192).fill(9);
        memory.reply(0, 77, 8192);
        assert!(memory.map[PAYLOAD_AT..].iter().all(|byte| *byte == 9));
        assert!(memory.aside.is_empty(), "nothing was copied");
    }

    proptest! {
        /// Lengths that no kernel sends take nothing from outside of the memory.
        #[test]
        fn lengths_are_not_believed(length: u32, says: u32, near in -200_i64..200) {
            for (length, says) in [(length, says), (length % 10_000, says % 10_000), ((8192 + near) as u32, 8192 - 100)] {
                let mut memory = filled(length, &[], says);
                if let Some((message, room)) = memory.request() {
                    prop_assert_eq!(message.len(), length as usize);
                    prop_assert!(says as usize <= room.most());
                }
            }
        }
    }
}
