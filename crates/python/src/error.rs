//! `StripewiseError`: what every function of the module raises, with the message of the crate that found the mistake.

use pyo3::PyErr;
use pyo3::exceptions::PyException;
use std::fmt::Display;

pyo3::create_exception!(
    stripewise._native,
    StripewiseError,
    PyException,
    "Something named in the message is wrong; the message says what to do about it."
);

/// The error as Python sees it: its message, unchanged.
pub(crate) fn raise(error: impl Display) -> PyErr {
    StripewiseError::new_err(error.to_string())
}
