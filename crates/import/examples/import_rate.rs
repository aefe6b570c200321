//! Imports a log and prints rows and stored bytes per second: `cargo run --release --example import_rate -- LOG`.

use std::io;
use std::time::Instant;
use stripewise_import::{Sink, import};
use stripewise_trace::Record;

#[derive(Default)]
struct Count {
    data_bytes: u64,
    counters: u64,
    layouts: u64,
}

impl Sink for Count {
    fn file(&mut self, _id: u32, _path: &[u8]) -> io::Result<()> {
        Ok(())
    }

    fn program(&mut self, _id: u32, _name: &[u8]) -> io::Result<()> {
        Ok(())
    }

    fn rows(&mut self, rows: &[Record]) -> io::Result<()> {
        let data = rows.iter().filter(|row| row.is_data());
        self.data_bytes = data.fold(self.data_bytes, |sum, row| sum.saturating_add(row.size));
        Ok(())
    }

    fn counters(&mut self, _counters: &stripewise_import::FileCounters) -> io::Result<()> {
        self.counters += 1;
        Ok(())
    }

    fn layout(&mut self, _layout: &stripewise_import::LustreLayout) -> io::Result<()> {
        self.layouts += 1;
        Ok(())
    }
}

fn main() {
    for path in std::env::args_os().skip(1) {
        let mut count = Count::default();
        let begin = Instant::now();
        match import(path.as_ref(), &mut count) {
            Ok(summary) => {
                let seconds = begin.elapsed().as_secs_f64();
                println!(
                    "{}: {} rows of {} files in {seconds:.3} s, {:.0} rows/s; {} bytes moved, {} counters, {} layouts",
                    summary.format,
                    summary.rows,
                    summary.files,
                    summary.rows as f64 / seconds,
                    count.data_bytes,
                    count.counters,
                    count.layouts
                );
                summary.lacks.words().for_each(|words| println!("  {words}"));
                summary.notes.iter().for_each(|note| println!("  note: {note}"));
            }
            Err(error) => println!("{error}"),
        }
    }
}
