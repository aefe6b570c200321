//! What a read or a write costs through several mounts: all are called in turns, in short blocks, in this one process, so
//! whatever else the machine does meets all of them.
//!
//! `data_cost read|write sequential|random BYTES ROUNDS FILE...`
//!
//! Each FILE is made as long as needed. Each line printed is one round: for each file, in the order given, the median over
//! the round's blocks of the nanoseconds per call.

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

/// One file and where its next request goes.
struct Target {
    file: File,
    at: usize,
    random: u64,
}

impl Target {
    fn open(path: &str, buffer: &[u8]) -> Result<Target, Box<dyn Error>> {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        for at in (0..SPAN_BYTES).step_by(buffer.len()) {
            file.write_all_at(buffer, at as u64)?;
        }
        Ok(Target { file, at: 0, random: 0x9e37_79b9_7f4a_7c15 })
    }

    /// Offset of the next request: behind the last one, or anywhere.
    fn next(&mut self, bytes: usize, is_random: bool) -> u64 {
        let places = SPAN_BYTES / bytes;
        if is_random {
            // Marsaglia's xorshift: as cheap as counting on.
            self.random ^= self.random << 13;
            self.random ^= self.random >> 7;
            self.random ^= self.random << 17;
            return (self.random as usize % places * bytes) as u64;
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
    let mut targets =
        paths.iter().map(|path| Target::open(path, &vec![0x5a; 1 << 20])).collect::<Result<Vec<_>, _>>()?;
    for _ in 0..rounds.parse()? {
        let mut costs = vec![Vec::with_capacity(BLOCKS); targets.len()];
        for block in 0..BLOCKS {
            for step in 0..targets.len() {
                // Each begins a turn as often as the others.
                let index = (block + step) % targets.len();
                costs[index].push(targets[index].block(writes, is_random, &mut buffer)?);
            }
        }
        let medians: Vec<String> = costs.iter_mut().map(|of_one| format!("{:.0}", median(of_one))).collect();
        println!("{}", medians.join(" "));
    }
    Ok(())
}
