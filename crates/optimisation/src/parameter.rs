//! A parameter of an optimisation: what values it takes, and how they are written.

use stripewise_layout::units::{UnitError, format_bytes, parse_bytes};

/// What a parameter counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParameterUnit {
    /// Bytes; written as `64KiB`.
    Bytes,
    /// Things; written as a plain number.
    Count,
    /// Milliseconds; written as `500ms` or `2s`.
    Milliseconds,
}

/// One parameter.
#[derive(Debug, PartialEq, Eq)]
pub struct ParameterType {
    /// How the documentation calls it.
    pub name: &'static str,
    /// What it counts.
    pub unit: ParameterUnit,
    /// Its bits in the word.
    pub bits: u32,
    /// Least value.
    pub least: u64,
    /// Greatest value.
    pub most: u64,
    /// It is a multiple of this.
    pub multiple: u64,
    /// The value where it is left out.
    pub default: u64,
}

impl ParameterType {
    /// Whether it can have that value.
    pub fn allows(&self, value: u64) -> bool {
        (self.least..=self.most).contains(&value) && value.is_multiple_of(self.multiple)
    }

    /// A value as people write it.
    pub fn format(&self, value: u64) -> String {
        match self.unit {
            ParameterUnit::Bytes => format_bytes(value),
            ParameterUnit::Count => value.to_string(),
            ParameterUnit::Milliseconds if value.is_multiple_of(1000) => format!("{}s", value / 1000),
            ParameterUnit::Milliseconds => format!("{value}ms"),
        }
    }

    /// Reads what people write; it may be out of its range. The error says what is wrong with it.
    pub(crate) fn parse(&self, text: &str) -> Result<u64, ParameterError> {
        match self.unit {
            ParameterUnit::Bytes => parse_bytes(text).map_err(ParameterError::Bytes),
            ParameterUnit::Count => text.parse().map_err(|_| ParameterError::Count(text.to_owned())),
            ParameterUnit::Milliseconds => {
                parse_milliseconds(text).ok_or_else(|| ParameterError::Time(text.to_owned()))
            }
        }
    }
}

/// `500ms` or `2s`; `None` for anything else.
fn parse_milliseconds(text: &str) -> Option<u64> {
    match text.strip_suffix("ms") {
        Some(number) => number.parse().ok(),
        None => text.strip_suffix('s')?.parse::<u64>().ok()?.checked_mul(1000),
    }
}

/// A parameter that is no number.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParameterError {
    /// No number of bytes.
    #[error(transparent)]
    Bytes(UnitError),
    /// No plain number.
    #[error("'{0}' is not a number such as 2")]
    Count(String),
    /// No time.
    #[error("'{0}' is not a time such as 500ms or 2s")]
    Time(String),
}
