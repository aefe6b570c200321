//! [`ProgramRules`]: weights and limits that were ordered for programs.

use std::collections::HashMap;

use crate::traits::PROGRAM_NAME_BYTES;

/// Weights that a program can have: from a thousandth of the usual 1 to a thousand times it.
const WEIGHTS: std::ops::RangeInclusive<f64> = 0.001..=1000.0;

/// What was ordered for programs, by name; a name without a rule has weight 1 and no limit.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ProgramRules {
    /// Weights.
    pub weights: HashMap<String, f64>,
    /// Bytes in a second.
    pub limits: HashMap<String, u64>,
}

impl ProgramRules {
    /// The rule of a program: names are compared as far as a page has them.
    fn of<T: Copy>(rules: &HashMap<String, T>, name: &str) -> Option<T> {
        let is_short = |rule: &str| rule == name || (name.len() >= PROGRAM_NAME_BYTES && rule.starts_with(name));
        rules.get(name).copied().or_else(|| rules.iter().find(|(rule, _)| is_short(rule)).map(|(_, value)| *value))
    }

    /// The weight of the program `name`.
    pub fn weight(&self, name: &str) -> f64 {
        Self::of(&self.weights, name).unwrap_or(1.0)
    }

    /// The limit of the program `name` in bytes per second; 0 is none.
    pub fn limit(&self, name: &str) -> u64 {
        Self::of(&self.limits, name).unwrap_or(0)
    }

    /// What is wrong with the rules: the program, the value and what can stand there.
    ///
    /// # Errors
    /// A weight is out of its range or not a number; a limit is 0.
    pub fn check(&self) -> Result<(), String> {
        if let Some((name, weight)) = self.weights.iter().find(|(_, weight)| !WEIGHTS.contains(*weight)) {
            return Err(format!("the weight {weight} of '{name}': take {} to {}", WEIGHTS.start(), WEIGHTS.end()));
        }
        if let Some((name, _)) = self.limits.iter().find(|(_, limit)| **limit == 0) {
            return Err(format!("a limit of 0 bytes per second for '{name}' would stop it: take more"));
        }
        Ok(())
    }
}

/// When a request of a program with a limit begins, and until when the limit is used up then.
///
/// The limit is used up until `paced_ns` by the requests before it: it begins then, or at `now_ns` if that is later. What lies
/// beyond `deadline_ns` is not the doing of this program's own requests and holds nothing back; the time given is at most that. O(1).
#[inline]
pub fn paced(paced_ns: u64, bytes: u64, limit: u64, now_ns: u64, deadline_ns: u64) -> (u64, u64) {
    let takes_ns = u128::from(bytes) * 1_000_000_000 / u128::from(limit.max(1));
    let begin_ns = if paced_ns > deadline_ns { now_ns } else { paced_ns.max(now_ns) };
    let takes_ns = u64::try_from(takes_ns).unwrap_or(u64::MAX);
    (begin_ns, begin_ns.saturating_add(takes_ns).min(deadline_ns))
}
