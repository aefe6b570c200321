//! What is known of a program and of the servers that it uses.

/// A program without requests for this time begins a new burst with the next: 100 ms.
pub const BURST_GAP_NS: u64 = 100_000_000;

/// One server, as all programs together use it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SharedServer {
    /// SL_i: moving average of the gap between consecutive requests of any programs, in bytes.
    pub gap_bytes: f64,
    /// What a seek over that gap takes, in nanoseconds; 0 on a server that does not seek.
    pub seek_ns: f64,
}

/// One program on one server that it uses. Single precision, since a window has millions of them: seven digits of a moving
/// average.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ServerUseBy {
    /// The server's place in the list of [`SharedServer`]s.
    pub server: u32,
    /// SL_ij: moving average of the gap between consecutive requests of this program, in bytes.
    pub gap_bytes: f32,
    /// RD_ij: moving average of the time between consecutive requests of this program, in nanoseconds; not a number where
    /// there was no second request yet.
    pub reuse_ns: f32,
}

/// Mean reuse distance over all servers in nanoseconds, whether they seek or not; `None` where none was measured. O(servers).
pub fn mean_reuse(uses: &[ServerUseBy]) -> Option<f64> {
    let known = || uses.iter().map(|by| f64::from(by.reuse_ns)).filter(|reuse| reuse.is_finite());
    let count = known().count();
    (count > 0).then(|| known().sum::<f64>() / count as f64)
}
