//! What can go wrong between nodes.

/// An error.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// What was asked for cannot be.
    #[error("{0}")]
    Invalid(String),
    /// The pool.
    #[error("{0}")]
    Store(#[from] stripewise_store::Error),
    /// A seal that is not made with the key.
    #[error("its seal is not of the key that the node has here: it is of another node, or changed on its way")]
    WrongSeal,
    /// A message that comes again, or one before it did not come.
    #[error("its message {found} is not the next one, {expected}: it is repeated, or one was left out")]
    WrongNumber {
        /// Its number.
        found: u64,
        /// The one that had to come.
        expected: u64,
    },
    /// Bytes that are no message.
    #[error("its message cannot be read: {0}")]
    NoMessage(String),
    /// The other side does not answer in time.
    #[error("it is silent for {0} s")]
    Silent(u64),
    /// The connection ended.
    #[error("{0}")]
    Ended(String),
}

/// A result.
pub type Result<T> = std::result::Result<T, AgentError>;

/// What gRPC says, and what is under it.
pub(crate) fn ended(error: &dyn std::error::Error) -> AgentError {
    let mut text = error.to_string();
    let mut below = error.source();
    while let Some(cause) = below {
        let more = cause.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        below = cause.source();
    }
    AgentError::Ended(text)
}

/// What a gRPC call ended with: its message is the other side's, cut and without what a terminal would take for an order. One
/// that is too large is found on this side.
pub(crate) fn ended_by(status: &tonic::Status) -> AgentError {
    let words: String = status.message().chars().take(300).map(|c| if c.is_control() { '?' } else { c }).collect();
    if status.code() == tonic::Code::OutOfRange {
        return AgentError::NoMessage(words);
    }
    AgentError::Ended(format!("{} ({})", words, status.code()))
}
