//! Time inside a run: whole nanoseconds, so that equal times are equal on every machine.

/// Later than anything that happens: 292 years. Times stop there, so that a trace that claims more bytes than there are
/// still ends.
pub(crate) const END_NS: u64 = u64::MAX >> 1;

/// Nanoseconds of `seconds`, to the nearest.
#[inline]
pub(crate) fn ns(seconds: f64) -> u64 {
    whole(seconds * 1e9)
}

/// The nearest whole number of nanoseconds, within what time there is.
#[inline]
pub(crate) fn whole(ns: f64) -> u64 {
    // The cast cuts off, and keeps to the bounds of the type, of which `END_NS` is the upper one; `round` would be a call. The
    // processor has this cast, and not that to an unsigned number.
    ((ns + 0.5) as i64).max(0) as u64
}

/// `time_ns` and `more_ns` together, each of which is at most [`END_NS`].
#[inline]
pub(crate) fn after(time_ns: u64, more_ns: u64) -> u64 {
    (time_ns + more_ns).min(END_NS)
}

/// Seconds of `ns`.
#[inline]
pub(crate) fn seconds(ns: u64) -> f64 {
    ns as f64 * 1e-9
}
