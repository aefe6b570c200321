//! The optimisations that a handle can carry (Wei et al.), each named once with its parameters.
//!
//! A handle has a word of 64 bits for each enabled optimisation: 5 bits that name it, 59 bits that are its parameters.
//! [`table::TABLE`] says what they mean. The command line, the documentation and the store read it; a new optimisation is one
//! more line of it.

pub mod parameter;
pub mod setting;
pub mod table;

pub use parameter::{ParameterError, ParameterType, ParameterUnit};
pub use setting::{OptimisationError, OptimisationSetting};
pub use table::{CACHED, OptimisationType, READAHEAD, SMALL, TABLE, WRITEBEHIND};
