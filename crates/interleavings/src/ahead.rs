//! A file that is read ahead while others write it.

use crate::pools::{NAME, TestFile, TestPool, WIDTH, layout, write};
use rustix::io::Errno;
use shuttle::rand::{Rng, thread_rng};
use shuttle::sync::atomic::{AtomicU8, Ordering};
use shuttle::thread;
use std::io::IoSliceMut;
use std::sync::Arc;
use stripewise_control::{Sender, Way};
use stripewise_optimisation::OptimisationSetting;
use stripewise_store::handle::Optimisations;
use stripewise_store::{Error, Inode, OpenInode, Result};
use stripewise_switching::switching;

const STRIPES: usize = 6;
/// Times that the reader goes through the file.
const ROUNDS: usize = 2;

/// The order in which the reader asks for pieces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    OneAfterAnother,
    Random,
}

/// Gives the file an optimisation, or takes it away.
fn give_or_take(file: &Arc<Inode>, gives: bool, (index, parameters): (u32, u64)) -> Result<()> {
    let change = |optimisations: &mut Optimisations| match gives {
        true => optimisations.enable(index, parameters).map(|()| true).map_err(Error::from),
        false => Ok(optimisations.disable(index)),
    };
    file.change_optimisations(NAME, change).map(drop)
}

/// One thread opens the file to read, and reads stripe after stripe, twice, or opens it twice and reads half stripes by both in turn;
/// another, mostly of another process, opens it to write, changes some stripes and closes it, or sets its size, which leaves its
/// bytes; a third may move it, give it the optimisation that it did not have, or take it away. What was written before a read began is read.
///
/// # Panics
/// An older byte is read.
pub fn a_file_is_read_ahead_while_it_is_written(pool: &TestPool) {
    read_while_it_is_written(pool, Order::OneAfterAnother);
}

/// The same, but the reader jumps. On a pool of disks it is served from blocks.
///
/// # Panics
/// An older byte is read.
pub fn readers_jump_in_a_file_while_it_is_written(pool: &TestPool) {
    read_while_it_is_written(pool, Order::Random);
}

/// Reads as many pieces as there are, by `count` new opens in turn: none is older than what `seen` says of its stripe.
fn read(file: &Arc<Inode>, seen: &[AtomicU8], (order, count): (Order, usize), may_pass_by: bool) {
    let opens: Vec<_> = (0..count).map(|_| OpenInode::new(file.clone(), false, false)).collect();
    assert!(may_pass_by || opens[0].has_to_pass_here(), "the file has lost its optimisation");
    let (len, pieces) = (WIDTH as usize / count, STRIPES * count);
    for number in 0..pieces {
        let piece = match order {
            Order::OneAfterAnother => number,
            Order::Random => thread_rng().gen_range(0..pieces),
        };
        let least = seen[piece / count].load(Ordering::SeqCst);
        let mut bytes = vec![0; len];
        let sender = Sender::this_process(Way::Library);
        let done = opens[number % count].read_at(sender, &mut [IoSliceMut::new(&mut bytes)], (piece * len) as u64);
        assert_eq!(done.expect("read"), bytes.len());
        assert!(bytes.iter().all(|byte| *byte >= least), "{bytes:?} after {least} was written");
    }
}

fn read_while_it_is_written(pool: &TestPool, order: Order) {
    let setting = OptimisationSetting::parse("readahead=64K:2").expect("a setting");
    let (index, parameters) = setting.pack();
    let mut hinted = Optimisations::default();
    let is_late = thread_rng().gen_bool(0.3);
    if !is_late {
        hinted.enable(index, parameters).expect("a setting");
    }
    let file = TestFile::make_with(pool, &layout(0, 2), thread_rng().gen_range(1..=2), &hinted);
    file.fill(&[1; STRIPES * WIDTH as usize]);
    let inode = |number: usize| file.inodes[number % file.inodes.len()].clone();
    let (reader, writer, mover) = (inode(0), inode(1), inode(1));
    let written: Arc<Vec<AtomicU8>> = Arc::new((0..STRIPES).map(|_| AtomicU8::new(1)).collect());
    let seen = written.clone();
    let is_taken = !is_late && thread_rng().gen_bool(0.3);
    let moves = is_late || is_taken || thread_rng().gen_bool(0.3);
    let count = thread_rng().gen_range(1..=2);
    switching(|| {
        let threads = [
            thread::spawn(move || {
                (0..ROUNDS).for_each(|_| read(&reader, &seen, (order, count), is_late || is_taken));
            }),
            thread::spawn(move || {
                for value in 2..4 {
                    if thread_rng().gen_bool(0.2) {
                        writer.truncate(STRIPES as u64 * WIDTH).expect("a size");
                    }
                    let stripe = thread_rng().gen_range(0..STRIPES);
                    let open = OpenInode::new(writer.clone(), true, false);
                    open.register().expect("a writer");
                    write(&writer, &[value; WIDTH as usize], stripe as u64 * WIDTH);
                    written[stripe].store(value, Ordering::SeqCst);
                    open.release().expect("released");
                }
            }),
        ];
        let moved = moves.then(|| {
            thread::spawn(move || {
                let moved = if is_late || is_taken {
                    give_or_take(&mover, is_late, (index, parameters))
                } else {
                    mover.move_to(&layout(1, 2), NAME, &mut |_, _| true).map(drop)
                };
                if let Err(error) = moved {
                    assert_eq!(error.errno(), Errno::BUSY, "{error}");
                }
            })
        });
        threads.into_iter().chain(moved).for_each(|thread| thread.join().expect("a thread"));
    });
    file.wait_for_the_last();
    assert_eq!(file.end().len(), STRIPES * WIDTH as usize);
}
