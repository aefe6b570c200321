//! [`Imported`]: a log as a trace.

use crate::about::About;
use std::ops::ControlFlow;
use stripewise_trace::Trace;

/// Told how many of how many bytes of the log are read, about once a megabyte; breaking off ends the import with
/// [`ImportError::Stopped`](crate::ImportError::Stopped).
pub type Progress<'a> = dyn FnMut(u64, u64) -> ControlFlow<()> + 'a;

/// A log as a trace.
#[derive(Debug)]
pub struct Imported {
    /// Its rows.
    pub trace: Trace,
    /// What is known beside them.
    pub about: About,
}
