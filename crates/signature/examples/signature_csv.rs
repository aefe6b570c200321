//! Signatures of a log that was turned to lines of `layer,file,rank,R|W,offset,size,start_ns,end_ns`: prints the pattern
//! and one line of words per layer and file, then segments per second, memory and the compression ratio.
//!
//! `cargo run --release -p stripewise-signature --example signature_csv -- LOG.csv`

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Instant;
use stripewise_signature::{Access, AccessOp, Factors, Stream, StreamSignature, Who, file_in_words};

type Segment = (Access, (u64, u64));
/// By layer and file, by rank.
type Files<T> = BTreeMap<(String, String), BTreeMap<u32, T>>;

fn segment(line: &str, files: &mut Files<Vec<Segment>>) -> Option<()> {
    let mut fields = line.split(',');
    let key = (fields.next()?.to_owned(), fields.next()?.to_owned());
    // Darshan's rank -1 is all of them.
    let rank = fields.next()?.parse::<i64>().ok()? as u32;
    let op = if fields.next()? == "R" { AccessOp::Read } else { AccessOp::Write };
    let mut number = || fields.next()?.parse::<u64>().ok();
    let access = Access { op, offset: number()?, size_bytes: number()? };
    files.entry(key).or_default().entry(rank).or_default().push((access, (number()?, number()?)));
    Some(())
}

fn main() -> ExitCode {
    let Some(text) = std::env::args().nth(1).and_then(|path| std::fs::read_to_string(path).ok()) else {
        eprintln!("usage: signature_csv LOG.csv, with lines of layer,file,rank,R|W,offset,size,start_ns,end_ns");
        return ExitCode::from(2);
    };
    let mut files = Files::new();
    for (number, line) in text.lines().enumerate() {
        if segment(line, &mut files).is_none() {
            eprintln!("line {}: '{line}' is not layer,file,rank,R|W,offset,size,start_ns,end_ns", number + 1);
            return ExitCode::FAILURE;
        }
    }
    files.values_mut().flat_map(BTreeMap::values_mut).for_each(|segments| segments.sort_by_key(|segment| segment.1.0));
    let started = Instant::now();
    let signatures: Files<StreamSignature> = files
        .iter()
        .map(|(key, ranks)| {
            let of = |segments: &Vec<Segment>| {
                let mut stream = Stream::new();
                segments.iter().for_each(|&(access, span_ns)| stream.push(access, Some(span_ns)));
                stream.finish()
            };
            (key.clone(), ranks.iter().map(|(&rank, segments)| (rank, of(segments))).collect())
        })
        .collect();
    let seconds = started.elapsed().as_secs_f64();
    let (mut accesses, mut numbers, mut exact) = (0, 0, true);
    for (key, ranks) in &signatures {
        let mut factors = Factors::default();
        for (rank, stream) in ranks {
            factors.merge(&stream.factors);
            accesses += stream.signature.accesses();
            numbers += stream.signature.numbers();
            exact &= stream.signature.expand().eq(files[key][rank].iter().map(|segment| segment.0));
        }
        let list: Vec<(u32, &StreamSignature)> = ranks.iter().map(|(&rank, stream)| (rank, stream)).collect();
        let phases = ranks.values().map(|stream| stream.phases.len()).max().unwrap_or(0);
        let pattern = factors.pattern().map(|pattern| pattern.to_string()).unwrap_or_default();
        println!(
            "{} {}: {pattern}, up to {phases} phases a rank\n    {}",
            key.0,
            key.1,
            file_in_words(&list, Who::Ranks)
        );
    }
    println!(
        "{accesses} segments in {seconds:.3} s, {:.2} million/s, ratio {:.1}, {}",
        accesses as f64 / seconds / 1e6,
        2.0 * accesses as f64 / numbers as f64,
        if exact { "exact" } else { "NOT EXACT" }
    );
    if exact { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
