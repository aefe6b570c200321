//! Table II of Song et al. and the program that it is of.

/// Round and block in KB, and the widths in KB on the four servers.
pub const TABLE_II: [(u64, u64, [u64; 4]); 8] = [
    (256, 1, [49, 49, 49, 109]),
    (256, 2, [50, 50, 50, 106]),
    (256, 4, [48, 48, 48, 112]),
    (256, 8, [48, 48, 48, 112]),
    (512, 1, [98, 158, 98, 158]),
    (512, 2, [98, 158, 98, 158]),
    (512, 4, [100, 156, 100, 156]),
    (512, 8, [96, 160, 96, 160]),
];

/// Requests of the paper's loop, 192 of 1 KB and one of 64 KB, over `bytes` of a file: offset and size in bytes.
pub fn song_loop(bytes: u64) -> Vec<(u64, u64)> {
    let one = |start: u64| (0..192).map(move |i| (start + (i << 10), 1 << 10)).chain([(start + (192 << 10), 64 << 10)]);
    (0..bytes >> 18).flat_map(|i| one(i << 18)).collect()
}
