//! Programs that take turns on the servers.

use crate::error::SimulateError;
use stripewise_schedule::{MAX_WINDOW_NS, MIN_WINDOW_NS, POLICY_NAMES, ProgramRules, policies};

/// Which program each process is of, and how programs take turns.
#[derive(Debug, Clone, PartialEq)]
pub struct ProgramTurns {
    /// Name of the policy, one of [`POLICY_NAMES`](stripewise_schedule::POLICY_NAMES).
    pub policy: String,
    /// Length of a window in seconds: 1 ms to 10 s.
    pub window_s: f64,
    /// By process: the number of its program.
    pub program_of: Vec<u32>,
    /// Names of the programs.
    pub names: Vec<String>,
    /// Weights and limits, by name.
    pub rules: ProgramRules,
}

impl ProgramTurns {
    /// # Errors
    /// The policy, the window or a rule is none, or a process is of no program.
    pub(crate) fn check(&self, processes: usize) -> Result<(), SimulateError> {
        if policies::named(&self.policy).is_none() {
            let policies = POLICY_NAMES.join(", ");
            return Err(SimulateError::UnknownPolicy { policy: self.policy.clone(), policies });
        }
        let window_ns = self.window_s * 1e9;
        if !(MIN_WINDOW_NS as f64..=MAX_WINDOW_NS as f64).contains(&window_ns) {
            let what = "the window of turns in seconds (0.001 to 10)";
            return Err(SimulateError::Value { what, value: self.window_s });
        }
        self.rules.check().map_err(SimulateError::Rule)?;
        let is_of_one = |program: &u32| (*program as usize) < self.names.len();
        if self.program_of.len() != processes || !self.program_of.iter().all(is_of_one) {
            return Err(SimulateError::NoProgram { processes, programs: self.names.len() });
        }
        Ok(())
    }
}
