//! No message that can be made harms the reader: every call of the protocol is read as it was written, and any other bytes
//! are refused.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use proptest::prelude::*;
use stripewise_fuse::{AttrChange, Call, CopyRange, Malformed, RequestHeader, SetTime, Time, write_flags};

/// A message of this kind about inode 5, by user 10, group 20, process 30.
fn message(opcode: u32, body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for number in [40 + body.len() as u32, opcode] {
        bytes.extend(number.to_ne_bytes());
    }
    for number in [77_u64, 5] {
        bytes.extend(number.to_ne_bytes());
    }
    for number in [10_u32, 20, 30, 0] {
        bytes.extend(number.to_ne_bytes());
    }
    bytes.extend(body);
    bytes
}

fn u32s(numbers: &[u32]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_ne_bytes()).collect()
}

fn u64s(numbers: &[u64]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_ne_bytes()).collect()
}

/// What the message asks; the header has to be the one that was written.
fn read(message: &[u8]) -> Result<Call<'_>, Malformed> {
    let (header, body) = RequestHeader::parse(message)?;
    assert_eq!((header.unique, header.ino, header.uid, header.gid, header.pid), (77, 5, 10, 20, 30));
    Call::parse(&header, body)
}

fn name(text: &str) -> &OsStr {
    OsStr::new(text)
}

/// Every kind of message with fields, and what it asks.
fn samples() -> Vec<Sample> {
    [samples_of_names(), samples_of_attributes(), samples_of_files()].concat()
}

type Sample = (u32, Vec<u8>, Call<'static>);

fn samples_of_names() -> Vec<Sample> {
    vec![
        (1, b"file\0".to_vec(), Call::Lookup { name: name("file") }),
        (2, u64s(&[4]), Call::Forget { lookups: 4 }),
        (6, b"new\0../to\0".to_vec(), Call::SymLink { name: name("new"), target: name("../to") }),
        (
            8,
            [u32s(&[0o100644, 9, 0o22, 0]), b"n\0".to_vec()].concat(),
            Call::MkNod { name: name("n"), mode: 0o100644, umask: 0o22, rdev: 9 },
        ),
        (
            9,
            [u32s(&[0o755, 0o22]), b"d\0".to_vec()].concat(),
            Call::MkDir { name: name("d"), mode: 0o755, umask: 0o22 },
        ),
        (10, b"f\0".to_vec(), Call::Unlink { name: name("f") }),
        (11, b"d\0".to_vec(), Call::RmDir { name: name("d") }),
        (
            12,
            [u64s(&[6]), b"a\0b\0".to_vec()].concat(),
            Call::Rename { name: name("a"), to_parent: 6, to_name: name("b"), flags: 0 },
        ),
        (
            45,
            [u64s(&[6]), u32s(&[2, 0]), b"a\0b\0".to_vec()].concat(),
            Call::Rename { name: name("a"), to_parent: 6, to_name: name("b"), flags: 2 },
        ),
        (13, [u64s(&[9]), b"l\0".to_vec()].concat(), Call::Link { ino: 9, name: name("l") }),
    ]
}

fn samples_of_attributes() -> Vec<Sample> {
    let size = 3;
    vec![
        (
            21,
            [u32s(&[size, 1]), b"user.a\0".to_vec(), b"a\0b".to_vec()].concat(),
            Call::SetXattr { name: name("user.a"), value: b"a\0b", flags: 1 },
        ),
        (22, [u32s(&[7, 0]), b"user.a\0".to_vec()].concat(), Call::GetXattr { name: name("user.a"), size: 7 }),
        (23, u32s(&[7, 0]), Call::ListXattr { size: 7 }),
        (24, b"user.a\0".to_vec(), Call::RemoveXattr { name: name("user.a") }),
    ]
}

fn samples_of_files() -> Vec<Sample> {
    let size = 3;
    vec![
        (14, u32s(&[libc::O_RDWR as u32, 0]), Call::Open { flags: libc::O_RDWR }),
        (
            15,
            [u64s(&[1, 4096]), u32s(&[512, 2]), u64s(&[0]), u32s(&[0, 0])].concat(),
            Call::Read { handle: 1, offset: 4096, size: 512, by_syscall: true },
        ),
        (
            16,
            [u64s(&[1, 4096]), u32s(&[size, write_flags::CACHE]), u64s(&[0]), u32s(&[1, 0]), b"abc".to_vec()].concat(),
            Call::Write { handle: 1, offset: 4096, write_flags: write_flags::CACHE, flags: 1, data: b"abc" },
        ),
        (18, [u64s(&[1]), u32s(&[0, 0]), u64s(&[0])].concat(), Call::Release { handle: 1 }),
        (20, [u64s(&[1]), u32s(&[1, 0])].concat(), Call::FSync { handle: 1, data_only: true }),
        (25, [u64s(&[1]), u32s(&[0, 0]), u64s(&[0])].concat(), Call::Flush { handle: 1 }),
        (
            26,
            u32s(&[7, 45, 1 << 17, 1 << 30, 1 << 5]),
            Call::Init { major: 7, minor: 45, max_readahead: 1 << 17, flags: (1 << 30) | (1 << 37) },
        ),
        (28, [u64s(&[1, 2]), u32s(&[4096, 0])].concat(), Call::ReadDir { handle: 1, offset: 2, size: 4096 }),
        (44, [u64s(&[1, 2]), u32s(&[4096, 0])].concat(), Call::ReadDirPlus { handle: 1, offset: 2, size: 4096 }),
        (29, [u64s(&[1]), u32s(&[0, 0]), u64s(&[0])].concat(), Call::ReleaseDir { handle: 1 }),
        (30, [u64s(&[1]), u32s(&[0, 0])].concat(), Call::FSyncDir { handle: 1, data_only: false }),
        (
            35,
            [u32s(&[libc::O_RDWR as u32, 0o644, 0o22, 0]), b"c\0".to_vec()].concat(),
            Call::Create { name: name("c"), flags: libc::O_RDWR, mode: 0o644, umask: 0o22 },
        ),
        (
            39,
            [u64s(&[1]), u32s(&[0, 9]), u64s(&[0]), u32s(&[size, 64]), b"abc".to_vec()].concat(),
            Call::Ioctl { handle: 1, on_directory: false, command: 9, data: b"abc" },
        ),
        (43, [u64s(&[1, 2, 3]), u32s(&[1, 0])].concat(), Call::FAllocate { handle: 1, offset: 2, length: 3, mode: 1 }),
        (46, [u64s(&[1, u64::MAX]), u32s(&[3, 0])].concat(), Call::LSeek { handle: 1, offset: -1, whence: 3 }),
        (
            47,
            u64s(&[1, 2, 5, 3, 4, 1 << 40, 0]),
            Call::CopyFileRange(CopyRange {
                handle: 1,
                offset: 2,
                to_handle: 3,
                to_offset: 4,
                length: 1 << 40,
                counts_in_64_bits: false,
            }),
        ),
        (
            51,
            [u32s(&[libc::O_RDWR as u32, 0o600, 0o22, 0]), b"/\0".to_vec()].concat(),
            Call::TmpFile { flags: libc::O_RDWR, mode: 0o600, umask: 0o22 },
        ),
    ]
}

#[test]
fn each_call_is_read_as_the_kernel_writes_it() {
    for (opcode, body, call) in samples() {
        assert_eq!(read(&message(opcode, &body)), Ok(call), "kind {opcode}");
    }
    for (opcode, call) in [(3, Call::GetAttr), (5, Call::ReadLink), (17, Call::StatFs), (38, Call::Destroy)] {
        assert_eq!(read(&message(opcode, &[])), Ok(call));
    }
    assert_eq!(read(&message(4096, b"anything")), Ok(Call::Other { opcode: 4096 }));
}

#[test]
fn no_call_is_read_from_a_part_of_it() {
    for (opcode, body, call) in samples() {
        for cut in 1..=body.len() {
            let message = message(opcode, &body[..body.len() - cut]);
            let read = read(&message);
            // Some end in fields that are not used.
            assert!(read == Err(Malformed) || read == Ok(call), "kind {opcode} without its last {cut} bytes: {read:?}");
            assert!(cut < body.len() || read == Err(Malformed), "kind {opcode} without its body: {read:?}");
        }
    }
}

#[test]
fn a_name_leads_to_no_other_directory() {
    for body in ["\0", "../x\0", "/\0", "a/b\0", "no end"] {
        assert_eq!(read(&message(1, body.as_bytes())), Err(Malformed), "{body}");
    }
}

#[test]
fn lengths_that_are_not_there_are_not_believed() {
    let write = |size, data: &[u8]| {
        message(16, &[u64s(&[1, 0]), u32s(&[size, 0]), u64s(&[0]), u32s(&[0, 0]), data.to_vec()].concat())
    };
    assert!(read(&write(3, b"abc")).is_ok());
    for size in [0, 2, 4, u32::MAX] {
        assert_eq!(read(&write(size, b"abc")), Err(Malformed), "a write of {size} bytes");
    }
    // An offset beyond what files have.
    let far = [u64s(&[1, 1 << 63]), u32s(&[0, 0]), u64s(&[0]), u32s(&[0, 0])].concat();
    assert_eq!(read(&message(16, &far)), Err(Malformed));
    let batch = |count| message(42, &[u32s(&[count, 0]), u64s(&[5, 1, 6, 2])].concat());
    for count in [3, u32::MAX] {
        assert_eq!(read(&batch(count)), Err(Malformed), "{count} forgets");
    }
    let message = batch(2);
    let Ok(Call::ForgetMany(forgets)) = read(&message) else { panic!("two forgets") };
    assert_eq!(Call::forgets(forgets).collect::<Vec<_>>(), [(5, 1), (6, 2)]);
    let mut long = self::message(3, &[]);
    long[0] += 1;
    assert_eq!(RequestHeader::parse(&long), Err(Malformed));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn any_bytes_are_a_call_or_refused(opcode in 0_u32..60, body in prop::collection::vec(any::<u8>(), 0..200)) {
        let message = message(opcode, &body);
        if let Ok(Call::Write { data, .. }) = read(&message) {
            prop_assert_eq!(data, &body[40..]);
        }
    }

    #[test]
    fn any_bytes_have_a_header_or_none(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
        if let Ok((_, body)) = RequestHeader::parse(&bytes) {
            prop_assert_eq!(body.len() + 40, bytes.len());
        }
    }

    #[test]
    fn a_change_of_attributes_changes_what_it_names(valid in 0_u32..512, mode: u32, ids: (u32, u32), size: u64,
                                                     seconds: (i64, i64), nanoseconds: (u32, u32)) {
        let body = [
            u32s(&[valid, 0]), u64s(&[8, size, 0]), u64s(&[seconds.0 as u64, seconds.1 as u64, 0]),
            u32s(&[nanoseconds.0, nanoseconds.1, 0, mode, 0, ids.0, ids.1, 0]),
        ].concat();
        let named = |bit: u32| valid & bit != 0;
        let time = |bit, now, seconds, nanoseconds| named(bit).then(|| match named(now) {
            true => SetTime::Now,
            false => SetTime::At(Time { seconds, nanoseconds }),
        });
        let change = AttrChange {
            mode: named(1).then_some(mode),
            uid: named(2).then_some(ids.0),
            gid: named(4).then_some(ids.1),
            size_bytes: named(8).then_some(size),
            atime: time(16, 128, seconds.0, nanoseconds.0),
            mtime: time(32, 256, seconds.1, nanoseconds.1),
            handle: named(64).then_some(8),
        };
        let message = message(4, &body);
        prop_assert_eq!(read(&message), Ok(Call::SetAttr(change)));
    }

    #[test]
    fn names_are_kept_byte_by_byte(bytes in prop::collection::vec((1_u8..).prop_filter("a name", |byte| *byte != b'/'), 1..255)) {
        let message = message(1, &[&bytes[..], b"\0"].concat());
        prop_assert_eq!(read(&message), Ok(Call::Lookup { name: OsStr::from_bytes(&bytes) }));
    }
}
