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
    /// Hints of MPI-IO among that, with their values.
    pub hints: Hints,
}

/// Hints of MPI-IO: names and values, as `MPI_Info_set` takes them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Hints(pub Vec<(String, String)>);

impl Hints {
    pub(super) fn add(&mut self, name: &str, value: &str) {
        self.0.push((name.to_owned(), value.to_owned()));
    }

    /// The remedies, with one that names these hints behind them.
    pub(super) fn with(&self, mut mend: Vec<String>) -> Vec<String> {
        if !self.0.is_empty() {
            let hints: Vec<String> = self.0.iter().map(|(name, value)| format!("{name}={value}")).collect();
            mend.push(format!("hints to MPI_File_open: {}", hints.join(", ")));
        }
        mend
    }
}

/// What findings on files rest on.
pub(crate) struct FindingContext {
    /// Processes of the job.
    pub processes: usize,
    /// Share of all bytes that these files move.
    pub weight: f64,
    /// Width in bytes of the stripes of their present layout.
    pub width_bytes: u64,
    /// Servers that one of them is on.
    pub stripes: usize,
    /// The log says what Lustre gave them.
    pub on_lustre: bool,
    /// Nodes of the job, where they are known.
    pub nodes: Option<usize>,
    /// How many servers there are, where that is known.
    pub targets: Option<usize>,
    /// They are HDF5's or netCDF-4's.
    pub is_hdf5: bool,
}

/// Fewest requests that a habit is told from.
pub(super) const REQUESTS: u64 = 32;

/// A share in words.
pub(super) fn percent(part: f64) -> String {
    format!("{:.0} %", 100.0 * part)
}
