//! How evenly many threads are served: each reads 4 KiB of a file again and again.
//!
//! `many_threads FILE THREADS CALLS`
//!
//! Prints the median and the 99th percentile of the time of all calls of all threads, in nanoseconds. The file is made.

use std::error::Error;
use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::sync::Barrier;
use std::time::Instant;

const BYTES: usize = 4096;
/// Places in the file.
const PLACES: usize = 256;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [path, threads, calls] = &arguments[..] else {
        return Err("many_threads FILE THREADS CALLS".into());
    };
    let (threads, calls): (usize, usize) = (threads.parse()?, calls.parse()?);
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(path)?;
    file.write_all_at(&vec![0x5a; BYTES * PLACES], 0)?;
    let (file, begin) = (&file, &Barrier::new(threads));
    let read_all = move |thread: usize| {
        let (mut took_ns, mut buffer) = (Vec::with_capacity(calls), [0; BYTES]);
        begin.wait();
        for call in 0..calls {
            let began = Instant::now();
            file.read_exact_at(&mut buffer, ((thread * 7 + call) % PLACES * BYTES) as u64)?;
            took_ns.push(began.elapsed().as_nanos() as u64);
        }
        Ok::<_, std::io::Error>(took_ns)
    };
    let mut all_ns = Vec::with_capacity(threads * calls);
    std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|thread| scope.spawn(move || read_all(thread))).collect();
        for thread in running {
            all_ns.extend(thread.join().expect("a thread that reads does not panic")?);
        }
        Ok::<_, std::io::Error>(())
    })?;
    all_ns.sort_unstable();
    println!("{} {}", all_ns[all_ns.len() / 2], all_ns[all_ns.len() * 99 / 100]);
    Ok(())
}
