//! Whether turns pay: what all programs together get in windows of turns, beside shared ones.
//!
//! The paper's conditions are a forecast from positions and times. Queues of servers can do better than the forecast says (an
//! anticipatory one, or one that gathers what waits), and a program can leave servers idle in its own slice. So what a window
//! of turns really moved is compared with the shared ones before it.

/// Windows of each kind that are remembered.
const REMEMBERED: usize = 4;
/// Windows of turns that a verdict needs, and one shared one.
const NEEDED: usize = 2;

/// Rates of the last windows of each kind, of one set of programs.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Payoff {
    programs: Vec<u64>,
    /// Shared windows and windows of turns.
    rates: [Vec<f64>; 2],
}

impl Payoff {
    /// A window has ended: `bytes` that servers moved in it for all programs together, in `window_ns`. Where other `programs`
    /// were at work than before, all that was remembered is of no use. O(programs).
    pub fn note(&mut self, programs: &[u64], was_shared: bool, bytes: u64, window_ns: u64) {
        if self.programs != programs {
            *self = Self { programs: programs.to_vec(), ..Self::default() };
            // The first window has both sets in it.
            return;
        }
        let rates = &mut self.rates[usize::from(!was_shared)];
        if rates.len() == REMEMBERED {
            rates.remove(0);
        }
        rates.push(bytes as f64 / window_ns.max(1) as f64);
    }

    /// Forgets the windows of turns: another one is tried.
    pub fn begin_trial(&mut self) {
        self.rates[1].clear();
    }

    /// What windows of turns move for each byte of shared ones; `None` before there were two of turns and a shared one. O(1).
    pub fn gain(&self) -> Option<f64> {
        let mean = |rates: &Vec<f64>| rates.iter().sum::<f64>() / rates.len().max(1) as f64;
        let [shared, turns] = &self.rates;
        if shared.is_empty() || turns.len() < NEEDED {
            return None;
        }
        let shared = mean(shared);
        (shared > 0.0).then(|| mean(turns) / shared)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_of_turns_are_compared_with_shared_ones_of_the_same_programs() {
        let mut payoff = Payoff::default();
        let note = |payoff: &mut Payoff, shared, bytes| payoff.note(&[1, 2], shared, bytes, 10);
        note(&mut payoff, true, 9999);
        for bytes in [100, 120, 100, 80] {
            assert_eq!(payoff.gain(), None);
            note(&mut payoff, true, bytes);
        }
        note(&mut payoff, false, 300);
        assert_eq!(payoff.gain(), None);
        note(&mut payoff, false, 100);
        assert_eq!(payoff.gain(), Some(2.0));
        payoff.begin_trial();
        assert_eq!(payoff.gain(), None);
        (0..6).for_each(|_| note(&mut payoff, false, 50));
        assert_eq!(payoff.gain(), Some(0.5));
        payoff.note(&[1], false, 50, 10);
        payoff.note(&[1], false, 50, 10);
        assert_eq!(payoff.gain(), None, "other programs");
    }
}
