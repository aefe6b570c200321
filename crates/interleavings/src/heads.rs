//! Files whose first bytes are in the inode: writers of the head alone, of the rest, and a move.

use crate::pools::{NAME, TestFile, TestPool, WIDTH, layout, rests, small, write};
use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use shuttle::rand::{Rng, thread_rng};
use shuttle::thread;
use stripewise_store::OpenInode;
use stripewise_switching::switching;

/// Stripes that are written: two in the head, two behind.
const STRIPES: usize = 4;

/// Two threads open the file, write stripes of their own in a drawn order, in the head or behind it, and close it; a third moves it
/// to the servers meanwhile, or back from them, if it is let. No byte is lost, whatever the layout is in the end.
///
/// # Panics
/// That is not so.
pub fn a_small_file_is_written_and_moved(pool: &TestPool) {
    let (mut made, mut moved) = (small(), layout(0, 2));
    if thread_rng().gen_bool(0.5) {
        std::mem::swap(&mut made, &mut moved);
    }
    let file = TestFile::make(pool, &made, thread_rng().gen_range(1..=2));
    file.fill(&[0xee; 9]);
    let inode = |number: usize| file.inodes[number % file.inodes.len()].clone();
    let (writers, mover) = ([inode(0), inode(1)], inode(1));
    let mut stripes: [usize; STRIPES] = [0, 1, 2, 3];
    if thread_rng().gen_bool(0.5) {
        stripes.swap(0, 3);
    }
    switching(|| {
        let threads: Vec<_> = writers
            .into_iter()
            .enumerate()
            .map(|(number, inode)| {
                thread::spawn(move || {
                    let open = OpenInode::new(inode.clone(), true, false);
                    for stripe in stripes.into_iter().filter(|stripe| stripe % 2 == number) {
                        let end = (stripe as u64 + 1) * WIDTH;
                        open.register_up_to(end).expect("a writer");
                        write(&inode, &[stripe as u8 + 1; WIDTH as usize], stripe as u64 * WIDTH);
                    }
                    open.release().expect("released");
                })
            })
            .collect();
        let mover = thread::spawn(move || {
            if let Err(error) = mover.move_watched(&moved, NAME, thread_rng().gen_bool(0.5), &mut |_, _| rests()) {
                assert_eq!(error.errno(), Errno::BUSY, "{error}");
            }
        });
        threads.into_iter().chain([mover]).for_each(|thread| thread.join().expect("a thread"));
    });
    let expected: Vec<u8> = (0..STRIPES).flat_map(|stripe| [stripe as u8 + 1; WIDTH as usize]).collect();
    assert_eq!(file.end(), expected);
}

/// Bytes of a head that a hint gives: the least.
const HEAD: u64 = 4096;

/// Two threads write an empty small file, in the same process or in two, each in a piece of its own and in a drawn order: one of them
/// first behind the head, in one request with the head's bytes or not, so that the head may go; a third moves the file meanwhile, or
/// cuts it to what it is to be. No byte is lost, and the file is one that either layout can have.
///
/// # Panics
/// That is not so.
pub fn a_small_file_is_written_past_its_head_first(pool: &TestPool) {
    let file = TestFile::make_small(pool, HEAD, thread_rng().gen_range(1..=2));
    let inode = |number: usize| file.inodes[number % file.inodes.len()].clone();
    let whole = thread_rng().gen_bool(0.5);
    // What each writes: offset and bytes.
    let long = if whole { (0, HEAD + WIDTH) } else { (HEAD - WIDTH, 2 * WIDTH) };
    let short = if whole { (HEAD + WIDTH, WIDTH) } else { (0, HEAD - WIDTH) };
    let (cuts, size) = (thread_rng().gen_bool(0.3), HEAD + 2 * WIDTH);
    let mover = inode(1);
    switching(|| {
        let write = |number: usize, (offset, len): (u64, u64)| {
            let inode = inode(number);
            thread::spawn(move || {
                let open = OpenInode::new(inode.clone(), true, false);
                open.register_up_to(offset + len).expect("a writer");
                write(&inode, &vec![number as u8 + 1; len as usize], offset);
                open.release().expect("released");
            })
        };
        let threads = [write(0, long), write(1, short)];
        let third = thread::spawn(move || {
            let done = match cuts {
                true => mover.truncate(size),
                false => mover.move_watched(&layout(0, 2), NAME, true, &mut |_, _| rests()).map(drop),
            };
            if let Err(error) = done {
                assert_eq!(error.errno(), Errno::BUSY, "{error}");
            }
        });
        threads.into_iter().chain([third]).for_each(|thread| thread.join().expect("a thread"));
    });
    let mut expected = vec![0; (long.0 + long.1).max(short.0 + short.1) as usize];
    for (number, (offset, len)) in [long, short].into_iter().enumerate() {
        expected[offset as usize..][..len as usize].fill(number as u8 + 1);
    }
    let mut found = file.end();
    // The cut may have made it longer.
    assert!(found.len() == expected.len() || (cuts && found.len() as u64 == size), "{} bytes", found.len());
    found.truncate(expected.len());
    assert!(found == expected, "bytes are lost: whole: {whole}, cuts: {cuts}");
}

/// One thread cuts the file short or gives it space, as often as not within its head, while another writes in the head or behind it,
/// in one process or in two. What was cut off does not come back, and what was written stays.
///
/// # Panics
/// That is not so, or the file is what neither order makes of it.
pub fn a_small_file_changes_its_size_while_it_is_written(pool: &TestPool) {
    let file = TestFile::make(pool, &small(), thread_rng().gen_range(1..=2));
    let before = vec![0xee; [0, 9, 25][thread_rng().gen_range(0..3)]];
    file.fill(&before);
    let (other, writer) = (file.inodes[0].clone(), file.inodes[file.inodes.len() - 1].clone());
    let (cuts, size) = (thread_rng().gen_bool(0.5), thread_rng().gen_range(1..4 * WIDTH));
    let stripe = thread_rng().gen_range(1..3);
    switching(|| {
        let change = thread::spawn(move || {
            if cuts {
                return other.truncate(size).expect("a size");
            }
            other.register_writer().expect("a writer");
            other.allocate(FallocateFlags::empty(), 0, size).expect("space");
            other.release_writer().expect("released");
        });
        let open = OpenInode::new(writer.clone(), true, false);
        open.register_up_to((stripe + 1) * WIDTH).expect("a writer");
        write(&writer, &[7; WIDTH as usize], stripe * WIDTH);
        open.release().expect("released");
        change.join().expect("a thread");
    });
    let written = |mut bytes: Vec<u8>| {
        let (from, to) = ((stripe * WIDTH) as usize, ((stripe + 1) * WIDTH) as usize);
        bytes.resize(bytes.len().max(to), 0);
        bytes[from..to].fill(7);
        bytes
    };
    let changed = |mut bytes: Vec<u8>| {
        bytes.resize(if cuts { size as usize } else { bytes.len().max(size as usize) }, 0);
        bytes
    };
    let found = file.end();
    let either = [changed(written(before.clone())), written(changed(before))];
    assert!(either.contains(&found), "cuts: {cuts}, {size} bytes, stripe {stripe}: {found:?}");
}
