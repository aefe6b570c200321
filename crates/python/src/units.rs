//! Quantities as people write them.

use crate::error::raise;
use pyo3::prelude::*;

/// Reads a number of bytes such as `4096`, `64KiB` or `1.5GB`.
#[pyfunction]
pub(crate) fn parse_bytes(text: &str) -> PyResult<u64> {
    stripewise_layout::units::parse_bytes(text).map_err(raise)
}
