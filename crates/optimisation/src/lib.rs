//! The optimisations that a handle can carry (Wei et al.), each named once with its parameters.
//!
//! A handle has a word of 64 bits for each enabled optimisation: 5 bits that name it, 59 bits that are its parameters.
//! [`table::TABLE`] says what they mean. The command line, the documentation and the store read it; a new optimisation is one
//! more line of it.
//!
//! Beside the table stands what decides on the first one, `small`, while a pool is used: [`burst`] predicts the load of the metadata
//! tier, [`threshold`] says how large a small file may be then.

pub mod burst;
pub mod parameter;
pub mod setting;
pub mod table;
pub mod threshold;

pub use burst::{BurstParameters, bls_esm, burst_ratio, esm};
pub use parameter::{ParameterError, ParameterType, ParameterUnit};
pub use setting::{OptimisationError, OptimisationSetting};
pub use table::{CACHED, CLASS, DIRECT, OptimisationType, READAHEAD, SMALL, TABLE, WRITEBEHIND};
pub use threshold::{ThresholdRules, file_threshold};
