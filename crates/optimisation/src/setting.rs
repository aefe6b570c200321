//! One enabled optimisation: as a word of a handle, and as people write it.

use crate::parameter::{ParameterError, ParameterType};
use crate::table::{MOST_PARAMETERS, OptimisationType, TABLE};

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
    #[error("{}: {}={}: it must be {} to {}, a multiple of {}", .of.name, .parameter.name, .parameter.format(*.value),
        .parameter.format(.parameter.least), .parameter.format(.parameter.most), .parameter.format(.parameter.multiple))]
    Range {
        /// Which optimisation.
        of: &'static OptimisationType,
        /// Which parameter.
        parameter: &'static ParameterType,
        /// What was asked for.
        value: u64,
    },
    /// A parameter that is no number.
    #[error("{name}: {error}")]
    Parameter {
        /// Name.
        name: &'static str,
        /// What is wrong with it.
        error: ParameterError,
    },
    /// More parameters than it has.
    #[error("{name}={text}: write it as {form}")]
    TooMany {
        /// Name.
        name: &'static str,
        /// All that was written.
        text: String,
        /// How it is written.
        form: String,
    },
}

/// An optimisation with its parameters, within their ranges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OptimisationSetting {
    of: &'static OptimisationType,
    /// In the order of the table; those that it does not have are 0.
    values: [u64; MOST_PARAMETERS],
}

impl OptimisationSetting {
    /// `of` with these values of its parameters; the last can be left out for their defaults.
    ///
    /// # Errors
    /// [`OptimisationError::Range`].
    pub fn new(of: &'static OptimisationType, given: &[u64]) -> Result<Self, OptimisationError> {
        let mut values = [0; MOST_PARAMETERS];
        for (at, parameter) in of.parameters.iter().enumerate() {
            let value = given.get(at).copied().unwrap_or(parameter.default);
            if !parameter.allows(value) {
                return Err(OptimisationError::Range { of, parameter, value });
            }
            values[at] = value;
        }
        Ok(Self { of, values })
    }

    /// Reads what [`OptimisationSetting::pack`] gave: the index and the 59 bits of a handle's word. They may be a user's.
    ///
    /// # Errors
    /// [`OptimisationError`] for anything that this release would not have written.
    pub fn unpack(index: u32, parameters: u64) -> Result<Self, OptimisationError> {
        let of = OptimisationType::of_index(index).ok_or(OptimisationError::Index(index))?;
        let (mut values, mut rest) = ([0; MOST_PARAMETERS], parameters);
        for (at, parameter) in of.parameters.iter().enumerate() {
            values[at] = rest & ((1 << parameter.bits) - 1);
            rest >>= parameter.bits;
        }
        if rest != 0 {
            return Err(OptimisationError::Later { name: of.name, parameters });
        }
        Self::new(of, &values[..of.parameters.len()])
    }

    /// Index and 59 bits of parameters.
    pub fn pack(&self) -> (u32, u64) {
        let with = |word: u64, (at, parameter): (usize, &ParameterType)| word << parameter.bits | self.values[at];
        (self.of.index, self.of.parameters.iter().enumerate().rev().fold(0, with))
    }

    /// Reads `small=64K`, `readahead=8M:2`, `readahead=8M`, or `small` for its defaults.
    ///
    /// # Errors
    /// [`OptimisationError`]; it names what there is.
    pub fn parse(text: &str) -> Result<Self, OptimisationError> {
        let (name, written) = text.split_once('=').map_or((text, None), |(name, written)| (name, Some(written)));
        let of = OptimisationType::of_name(name).ok_or_else(|| {
            let known: Vec<_> = TABLE.iter().map(OptimisationType::form).collect();
            OptimisationError::Name { name: name.to_owned(), known: known.join(", ") }
        })?;
        let Some(written) = written else { return Self::new(of, &[]) };
        let texts: Vec<&str> = written.split(':').collect();
        if texts.len() > of.parameters.len() {
            return Err(OptimisationError::TooMany { name: of.name, text: written.to_owned(), form: of.form() });
        }
        let parse = |(parameter, text): (&ParameterType, &&str)| {
            parameter.parse(text).map_err(|error| OptimisationError::Parameter { name: of.name, error })
        };
        let values: Result<Vec<u64>, _> = of.parameters.iter().zip(&texts).map(parse).collect();
        Self::new(of, &values?)
    }

    /// Which one it is.
    pub fn of(&self) -> &'static OptimisationType {
        self.of
    }

    /// The value of its parameter number `at`, in the order of the table.
    ///
    /// # Panics
    /// It has fewer parameters.
    pub fn value(&self, at: usize) -> u64 {
        self.values[..self.of.parameters.len()][at]
    }
}

impl std::fmt::Display for OptimisationSetting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let values = self.of.parameters.iter().zip(&self.values).map(|(parameter, value)| parameter.format(*value));
        write!(f, "{}={}", self.of.name, values.collect::<Vec<_>>().join(":"))
    }
}
