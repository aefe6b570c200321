//! What is surveyed: files, and their requests as a stream.

use stripewise_model::Request;

/// Requests that can be read again and again.
pub trait RequestSource {
    /// Calls `visit` with the index of the file and the request, for every request, in the same order each time.
    fn visit(&self, visit: &mut dyn FnMut(usize, &Request));
}

/// A file of a [`RequestSource`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SurveyedFile {
    /// Its name, for messages and results.
    pub name: String,
    /// As in [`FileTrace::size_bytes`](crate::FileTrace::size_bytes).
    pub size_bytes: Option<u64>,
}
