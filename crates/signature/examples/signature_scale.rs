//! Signatures at scale: prints requests per second, peak memory and the compression ratio of one generated trace, and
//! checks that the signature expands to it. A process each, since peak memory is the process's:
//!
//! `cargo run --release -p stripewise-signature --example signature_scale -- PATTERN [REQUESTS]`

use std::process::ExitCode;
use std::time::Instant;
use stripewise_signature::{Access, Signature};

/// SplitMix64's output function.
fn mix(mut z: u64) -> u64 {
    z = z.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Request `i` of a pattern; a pure function, so that nothing need be kept.
type Pattern = fn(u64) -> Access;

const PATTERNS: &[(&str, &str, Pattern)] = &[
    ("contiguous", "64 KiB after 64 KiB", |i| Access::read(i * 65_536, 65_536)),
    ("nested", "four dimensions of 100, rows of 4 KiB cells", |i| {
        let (a, b, c, d) = (i / 1_000_000 % 100, i / 10_000 % 100, i / 100 % 100, i % 100);
        Access::write(((i / 100_000_000) << 50) + (a << 38) + (b << 28) + (c << 20) + d * 8192, 4096)
    }),
    ("checkpoints", "again and again: a header, 997 blocks of three sizes in turn, read back", |i| {
        let (turn, step) = (i / 1995, i % 1995);
        let block = |k: u64| (turn << 32) + 4096 + (k / 3) * 28_672 + [0, 4096, 12_288][(k % 3) as usize];
        match step {
            0 => Access::write(turn << 32, 512),
            1..998 => Access::write(block(step - 1), [4096, 8192, 16_384][((step - 1) % 3) as usize]),
            _ => Access::read(block(step - 998), [4096, 8192, 16_384][((step - 998) % 3) as usize]),
        }
    }),
    ("near", "strided, but every thousandth or so is elsewhere", |i| {
        if mix(i).is_multiple_of(1000) { Access::read(mix(i) >> 20, 4096) } else { Access::read(i << 20, 65_536) }
    }),
    ("runs", "rows of 1 to 64 pieces at random places", |i| {
        let row = i / 64;
        let cut = mix(row) % 64;
        let start = mix(row ^ if i % 64 > cut { 1 << 60 } else { 0 }) >> 24 << 12;
        Access::read(start + i % 64 * 4096, 4096)
    }),
    ("unlike", "rows of 8 pieces, all at other strides", |i| {
        let row = mix(i / 8);
        Access::read((row >> 24).wrapping_add(i % 8 * (row & 0xff_ffff)), 4096)
    }),
    ("short", "rows of 4 pieces at random places, at one of 1000 strides", |i| {
        let row = mix(i / 4);
        Access::read((row >> 24).wrapping_add(i % 4 * (4096 + row % 1000)), 4096)
    }),
    ("pairs", "rows of 4 to 11 pieces at random places, each row run twice over, elsewhere", |i| {
        let (row, step) = (mix(i / 32), i % 32);
        let length = 4 + row % 8;
        let turn = step / length;
        let place = |k: u64| if k < 2 { mix(row ^ (k + 1)) >> 30 } else { mix(row ^ i) >> 30 };
        Access::read(place(turn) + if turn < 2 { mix(row ^ (step % length) << 50) >> 44 } else { 0 }, 4096)
    }),
    ("twice", "64 places and sizes, the same again elsewhere, never again", |i| {
        let (row, step) = (i / 128, i % 64);
        let start = mix(2 * row + i / 64 % 2) >> 30;
        Access::write(start + (mix(256 * row + step) >> 44), 512 + mix(512 * row + step) % 4096)
    }),
    ("random", "4 KiB anywhere in 1 TiB: nothing to find", |i| Access::read(mix(i) >> 36 << 12, 4096)),
    ("garbage", "any offset, any size", |i| Access::write(mix(2 * i), mix(2 * i + 1))),
];

/// Most memory that the process ever had, in bytes.
fn peak_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok()).unwrap_or(0) * 1024
}

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let name = arguments.next().unwrap_or_default();
    let requests = arguments.next().map_or(Ok(100_000_000), |text| text.parse::<u64>());
    let (Some((_, what, pattern)), Ok(requests)) = (PATTERNS.iter().find(|p| p.0 == name), requests) else {
        eprintln!("usage: signature_scale PATTERN [REQUESTS], PATTERN one of:");
        PATTERNS.iter().for_each(|(name, what, _)| eprintln!("  {name:12} {what}"));
        return ExitCode::from(2);
    };
    let started = Instant::now();
    let signature = Signature::of((0..requests).map(pattern));
    let seconds = started.elapsed().as_secs_f64();
    let peak_mb = peak_bytes() as f64 / 1e6;
    let started = Instant::now();
    let exact = signature.expand().eq((0..requests).map(pattern));
    let expand_seconds = started.elapsed().as_secs_f64();
    println!(
        "{name} ({what}): {requests} requests in {seconds:.2} s, {:.2} million/s, peak {peak_mb:.0} MB; {} parts, {} shapes, \
         {} bytes packed, ratio {:.1}; expanded in {expand_seconds:.2} s, {}",
        requests as f64 / seconds / 1e6,
        signature.len(),
        signature.distinct_shapes(),
        signature.packed_bytes(),
        signature.compression_ratio(),
        if exact { "exact" } else { "NOT EXACT" },
    );
    if exact { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
