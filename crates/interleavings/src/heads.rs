//! Files whose first bytes are in the inode: writers of the head alone, of the rest, and a move.

use crate::pools::{NAME, TestFile, TestPool, WIDTH, layout, small, write};
use rustix::io::Errno;
use shuttle::rand::{Rng, thread_rng};
use shuttle::thread;
use stripewise_store::OpenInode;
use stripewise_switching::switching;

/// Stripes that are written: two in the head, two behind.
const STRIPES: usize = 4;

/// Two threads open the file, write stripes of their own in a drawn order, in the head or behind it, and close it; a third moves it
/// to the servers meanwhile, if it is let. No byte is lost, whatever the layout is in the end.
///
/// # Panics
/// That is not so.
pub fn a_small_file_is_written_and_moved(pool: &TestPool) {
    let file = TestFile::make(pool, &small(), thread_rng().gen_range(1..=2));
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
        let moved = thread::spawn(move || {
            if let Err(error) = mover.move_to(&layout(0, 2), NAME, &mut |_, _| true) {
                assert_eq!(error.errno(), Errno::BUSY, "{error}");
            }
        });
        threads.into_iter().chain([moved]).for_each(|thread| thread.join().expect("a thread"));
    });
    let expected: Vec<u8> = (0..STRIPES).flat_map(|stripe| [stripe as u8 + 1; WIDTH as usize]).collect();
    assert_eq!(file.end(), expected);
}
