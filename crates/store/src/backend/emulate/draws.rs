//! Numbers that look random and are the same again with the same seed: splitmix64.

/// splitmix64's finaliser: every bit of the input reaches every bit of the output.
pub(super) fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// The number `draw` of a stream, in [0, 1).
pub(super) fn unit(stream: u64, draw: u64) -> f64 {
    // Golden-ratio steps are splitmix64's own sequence; the upper 53 bits are a number in [0, 1).
    let random = mix(stream.wrapping_add(draw.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
    (random >> 11) as f64 * (1.0 / (1_u64 << 53) as f64)
}
