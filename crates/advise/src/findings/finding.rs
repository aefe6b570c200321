//! What a finding says.

/// How grave a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Worth knowing.
    Low,
    /// Costs time.
    Medium,
    /// Most of the time is lost to it, or most of the bytes are in it.
    High,
}

impl Severity {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
        }
    }
}

/// Something that costs time and is no matter of layout.
#[derive(Debug, Clone, PartialEq)]
pub struct Finding {
    /// Its name, for programs.
    pub kind: &'static str,
    /// How grave it is.
    pub severity: Severity,
    /// What was found, with its figures.
    pub words: String,
    /// The figures.
    pub numbers: Vec<(&'static str, f64)>,
    /// What to do about it: calls, hints, settings.
    pub mend: Vec<String>,
}

/// What findings on files rest on.
pub(crate) struct FindingContext {
    /// Processes of the job.
    pub processes: usize,
    /// Share of all bytes that these files move.
    pub weight: f64,
    /// Width in bytes of the stripes of their present layout.
    pub width_bytes: u64,
}

/// Fewest requests that a habit is told from.
pub(super) const REQUESTS: u64 = 32;

/// A share in words.
pub(super) fn percent(part: f64) -> String {
    format!("{:.0} %", 100.0 * part)
}
