//! One enabled optimisation: as a word of a handle, and as people write it.

use crate::table::{OptimisationType, TABLE};
use stripewise_layout::units::{UnitError, format_bytes, parse_bytes};

/// An optimisation that cannot be enabled or understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OptimisationError {
    /// A name that stands in no table.
    #[error("there is no optimisation '{name}': write one of {known}")]
    Name {
        /// What was written.
        name: String,
        /// The names that there are.
        known: String,
    },
    /// An index that stands in no table.
    #[error("optimisation {0} is not known to this release of Stripewise: update it, or remove the hint")]
    Index(u32),
    /// Bits of the word that are not used.
    #[error(
        "the parameters {parameters:#x} of optimisation '{name}' are those of a later release of Stripewise: update it, or \
         remove the hint"
    )]
    Later {
        /// Name.
        name: &'static str,
        /// All 59 bits.
        parameters: u64,
    },
    /// A parameter out of its range.
    #[error("{name}={}: it must be {} to {}, a multiple of {}",
        format_bytes(*.bytes), format_bytes(*.least_bytes), format_bytes(*.most_bytes), format_bytes(*.multiple_bytes))]
    Range {
        /// Name.
        name: &'static str,
        /// What was asked for, in bytes.
        bytes: u64,
        /// Least parameter.
        least_bytes: u64,
        /// Greatest parameter.
        most_bytes: u64,
        /// What it is a multiple of.
        multiple_bytes: u64,
    },
    /// A parameter that is no number of bytes.
    #[error("{name}: {error}")]
    Parameter {
        /// Name.
        name: &'static str,
        /// What is wrong with it.
        error: UnitError,
    },
}

/// An optimisation with its parameter, within its range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OptimisationSetting {
    of: &'static OptimisationType,
    bytes: u64,
}

impl OptimisationSetting {
    /// `of` with the parameter `bytes`.
    ///
    /// # Errors
    /// [`OptimisationError::Range`].
    pub fn new(of: &'static OptimisationType, bytes: u64) -> Result<Self, OptimisationError> {
        let OptimisationType { name, least_bytes, most_bytes, multiple_bytes, .. } = *of;
        if bytes < least_bytes || bytes > most_bytes || !bytes.is_multiple_of(multiple_bytes) {
            return Err(OptimisationError::Range { name, bytes, least_bytes, most_bytes, multiple_bytes });
        }
        Ok(Self { of, bytes })
    }

    /// Reads what [`OptimisationSetting::pack`] gave: the index and the 59 bits of a handle's word. They may be a user's.
    ///
    /// # Errors
    /// [`OptimisationError`] for anything that this release would not have written.
    pub fn unpack(index: u32, parameters: u64) -> Result<Self, OptimisationError> {
        let of = OptimisationType::of_index(index).ok_or(OptimisationError::Index(index))?;
        if parameters >> of.parameter_bits != 0 {
            return Err(OptimisationError::Later { name: of.name, parameters });
        }
        Self::new(of, parameters)
    }

    /// Index and 59 bits of parameters.
    pub fn pack(&self) -> (u32, u64) {
        (self.of.index, self.bytes)
    }

    /// Reads `small=64K`, or `small` for its default.
    ///
    /// # Errors
    /// [`OptimisationError`]; it names what there is.
    pub fn parse(text: &str) -> Result<Self, OptimisationError> {
        let (name, parameter) = text.split_once('=').map_or((text, None), |(name, parameter)| (name, Some(parameter)));
        let of = OptimisationType::of_name(name).ok_or_else(|| {
            let known: Vec<_> = TABLE.iter().map(|each| format!("{}=SIZE", each.name)).collect();
            OptimisationError::Name { name: name.to_owned(), known: known.join(", ") }
        })?;
        let parse = |text| parse_bytes(text).map_err(|error| OptimisationError::Parameter { name: of.name, error });
        Self::new(of, parameter.map_or(Ok(of.default_bytes), parse)?)
    }

    /// Which one it is.
    pub fn of(&self) -> &'static OptimisationType {
        self.of
    }

    /// The parameter in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl std::fmt::Display for OptimisationSetting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}={}", self.of.name, format_bytes(self.bytes))
    }
}
