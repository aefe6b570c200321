//! What a read or a write costs through several mounts: all are called in turns, in short blocks, in this one process, so
//! whatever else the machine does meets all of them.
//!
//! `data_cost read|write sequential|random BYTES ROUNDS FILE...`
//!
//! Each FILE is made as long as needed. Each line printed is one round: for each file, in the order given, the median over
//! the round's blocks of the nanoseconds per call.

use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;
use std::error::Error;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::time::Instant;

/// Bytes that requests go over, again and again: more than a processor's caches hold.
const SPAN_BYTES: usize = 64 << 20;
/// Blocks of each file in a round.
const BLOCKS: usize = 60;
/// Bytes of a block, and the least and most calls of one: short beside the slices of a scheduler, so that few blocks have
/// another program's time in them and the median has none.
const BLOCK_BYTES: usize = 2 << 20;
const LEAST_CALLS: usize = 4;
const MOST_CALLS: usize = 64;

/// Where random numbers begin.
const SEED: u64 = 0x9e37_79b9_7f4a_7c15;

/// One file and where its next request goes.
struct Target {
    file: File,
    at: usize,
    random: u64,
}

impl Target {
    fn open(path: &str) -> Result<Target, Box<dyn Error>> {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        Ok(Target { file, at: 0, random: SEED })
    }

    /// Gives its memory back, where a file system can do that: two of the files may be the same one.
    fn empty(&self) -> Result<(), Box<dyn Error>> {
        let holes = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match fallocate(&self.file, holes, 0, SPAN_BYTES as u64) {
            Ok(()) | Err(Errno::OPNOTSUPP) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn fill(&self, buffer: &[u8]) -> Result<(), Box<dyn Error>> {
        for at in (0..SPAN_BYTES).step_by(buffer.len()) {
            self.file.write_all_at(buffer, at as u64)?;
        }
        Ok(())
    }

    /// Offset of the next request: behind the last one, or anywhere.
    fn next(&mut self, bytes: usize, is_random: bool) -> u64 {
        let places = SPAN_BYTES / bytes;
        if is_random {
            return (xorshift(&mut self.random) as usize % places * bytes) as u64;
        }
        self.at = (self.at + 1) % places;
        (self.at * bytes) as u64
    }

    /// Nanoseconds per call of one block.
    fn block(&mut self, writes: bool, is_random: bool, buffer: &mut [u8]) -> Result<f64, Box<dyn Error>> {
        let calls = (BLOCK_BYTES / buffer.len()).clamp(LEAST_CALLS, MOST_CALLS);
        let began = Instant::now();
        for _ in 0..calls {
            let offset = self.next(buffer.len(), is_random);
            if writes {
                self.file.write_all_at(buffer, offset)?;
            } else {
                self.file.read_exact_at(buffer, offset)?;
            }
        }
        Ok(began.elapsed().as_nanos() as f64 / calls as f64)
    }
}

/// Marsaglia's generator: as cheap as counting on.
fn xorshift(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

fn shuffle(order: &mut [usize], random: &mut u64) {
    for last in (1..order.len()).rev() {
        order.swap(last, xorshift(random) as usize % (last + 1));
    }
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [direction, order, bytes, rounds, paths @ ..] = &arguments[..] else {
        return Err("data_cost read|write sequential|random BYTES ROUNDS FILE...".into());
    };
    let (writes, is_random) = (direction == "write", order == "random");
    let mut buffer = vec![0x5a_u8; bytes.parse()?];
    let mut targets = paths.iter().map(|path| Target::open(path)).collect::<Result<Vec<_>, _>>()?;
    let mut turn: Vec<usize> = (0..targets.len()).collect();
    let mut random = SEED;
    let content = vec![0x5a; 1 << 20];
    for _ in 0..rounds.parse()? {
        // Where a file's memory is makes more of a difference than the way to it, so each round has other memory.
        targets.iter().try_for_each(Target::empty)?;
        shuffle(&mut turn, &mut random);
        turn.iter().try_for_each(|&index| targets[index].fill(&content))?;
        let mut costs = vec![Vec::with_capacity(BLOCKS); targets.len()];
        for _ in 0..BLOCKS {
            // In another order each time: what ran before has left the caches and the processors in some state.
            shuffle(&mut turn, &mut random);
            for &index in &turn {
                costs[index].push(targets[index].block(writes, is_random, &mut buffer)?);
            }
        }
        let medians: Vec<String> = costs.iter_mut().map(|of_one| format!("{:.0}", median(of_one))).collect();
        println!("{}", medians.join(" "));
    }
    Ok(())
}
