//! Quantities in words.

use stripewise_layout::units::{format_bytes, format_seconds};

/// A time to three decimals of milliseconds, which are enough for people.
pub(crate) fn milliseconds(seconds: f64) -> String {
    format_seconds((seconds * 1e6).round() * 1e-6)
}

/// Bytes to a KiB.
pub(crate) fn about(bytes: f64) -> String {
    format_bytes(((bytes / 1024.0).round() * 1024.0) as u64)
}
