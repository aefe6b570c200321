//! The order in which a device serves what waits for it.

/// In what order a server's device serves its sub-requests.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Queue {
    /// In order of arrival.
    #[default]
    Fifo,
    /// In sweeps of ascending disk position (C-LOOK). A sub-request joins the present sweep when it begins beyond the
    /// one that was started last, else the next sweep: none starves. Equal positions are served in order of arrival.
    Elevator,
    /// As the elevator, but the device can wait after a sub-request for the next one of its process, whether others are
    /// queued or not (Linux's anticipatory scheduler; IOrchestrator's disks). It waits if
    /// - that process has not ended, and has nothing else here;
    /// - it thinks no longer than the wait on average, as this server has seen it: from the end of one sub-request here
    ///   to the next, 0 with another one here, at most three times the wait; each weighs an eighth, all before it seven;
    /// - what is next in the sweep is not worth more: not close, and farther than the process's own sub-requests are
    ///   from
    ///   each other on average, by the same weights.
    ///
    /// Of a process that has come once, what is known is the same means over the first values of all processes; nothing
    /// known is waited for. The wait ends early with a sub-request of the process, or one that is worth more.
    Anticipatory {
        /// Longest wait in seconds (6.7 ms in Linux).
        wait_s: f64,
        /// A sub-request is close when it begins at most this many bytes before or after the end of the last one.
        near_bytes: u64,
    },
}
