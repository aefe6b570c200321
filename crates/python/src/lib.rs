//! `stripewise._native`: what the Python package calls. One file an area, each a thin layer over one crate.

mod convert;
mod error;
mod trace;
mod units;

use pyo3::prelude::*;

/// The compiled part of the package.
#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("StripewiseError", module.py().get_type::<error::StripewiseError>())?;
    module.add_function(wrap_pyfunction!(units::parse_bytes, module)?)?;
    module.add_function(wrap_pyfunction!(trace::trace_merge, module)?)?;
    module.add_class::<trace::Trace>()?;
    Ok(())
}
