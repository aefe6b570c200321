//! [`Importer`]: what a format has to give.

use crate::error::ImportError;
use crate::log::Log;
use crate::sink::{Sink, Summary};

/// Reads one format.
pub trait Importer: Sync {
    /// Name in messages and options.
    fn name(&self) -> &'static str;

    /// How the names of files end that, all those in one folder together, are one log; most formats have none.
    fn endings(&self) -> &'static [&'static str] {
        &[]
    }

    /// Whether a log that starts with these bytes is of this format.
    fn recognises(&self, start: &[u8]) -> bool;

    /// Reads the log and hands it to the sink.
    ///
    /// # Errors
    /// [`ImportError`] where nothing of the log can be used, or the sink fails.
    fn import(&self, log: &Log, sink: &mut dyn Sink) -> Result<Summary, ImportError>;
}
