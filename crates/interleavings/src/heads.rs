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
