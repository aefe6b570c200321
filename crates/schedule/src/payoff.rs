//! Whether turns pay: what all programs together get in windows of turns, beside shared ones.
//!
//! The paper's conditions are a forecast from positions and times. Queues of servers can do better than the forecast says (an
//! anticipatory one, or one that gathers what waits), and a program can leave servers idle in its own slice. So what a window
//! of turns really moved is compared with the shared ones before it.

use std::collections::VecDeque;

/// Whole windows of each kind that are remembered.
const REMEMBERED: usize = 4;

/// What was moved in the last windows of each kind, by one set of programs.
#[derive(Debug, Clone, PartialEq)]
pub struct Payoff {
    programs: Vec<u64>,
    /// Shared windows for each whole one.
    parts: usize,
    /// Bytes and nanoseconds of shared windows and of windows of turns.
    windows: [VecDeque<(u64, u64)>; 2],
}

impl Payoff {
    /// Of windows of turns, and of shared ones of which `parts` are as long as one of those.
    pub fn new(parts: u32) -> Self {
        Self { programs: Vec::new(), parts: parts as usize, windows: Default::default() }
    }

    /// A window has ended: `bytes` that servers moved in it for all programs together, in `window_ns`. Where other `programs`
    /// were at work than before, all that was remembered is of no use. O(programs).
    pub fn note(&mut self, programs: &[u64], was_shared: bool, bytes: u64, window_ns: u64) {
        if self.programs != programs {
            programs.clone_into(&mut self.programs);
            self.windows.iter_mut().for_each(VecDeque::clear);
            // The first window has both sets in it.
            return;
        }
        let windows = &mut self.windows[usize::from(!was_shared)];
        if windows.len() == REMEMBERED * if was_shared { self.parts } else { 1 } {
            windows.pop_front();
        }
        windows.push_back((bytes, window_ns));
    }

    /// Forgets the windows of turns: another one is tried.
    pub fn begin_trial(&mut self) {
        self.windows[1].clear();
    }

    /// Forgets the shared windows: others are measured.
    pub fn begin_measurement(&mut self) {
        self.windows[0].clear();
    }

    /// What windows of turns move for each byte of shared ones; `None` before there were `needed` of turns and a shared one. O(1).
    pub fn gain(&self, needed: usize) -> Option<f64> {
        let rate = |windows: &VecDeque<(u64, u64)>| {
            let sum = |of: fn(&(u64, u64)) -> u64| windows.iter().map(|window| of(window) as f64).sum::<f64>();
            sum(|window| window.0) / sum(|window| window.1).max(1.0)
        };
        let [shared, turns] = &self.windows;
        if shared.is_empty() || turns.len() < needed {
            return None;
        }
        let shared = rate(shared);
        (shared > 0.0).then(|| rate(turns) / shared)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_of_turns_are_compared_with_shared_ones_of_the_same_programs() {
        let mut payoff = Payoff::new(1);
        let note = |payoff: &mut Payoff, shared, bytes| payoff.note(&[1, 2], shared, bytes, 10);
        note(&mut payoff, true, 9999);
        for bytes in [100, 120, 100, 80] {
            assert_eq!(payoff.gain(1), None);
            note(&mut payoff, true, bytes);
        }
        note(&mut payoff, false, 300);
        assert_eq!((payoff.gain(1), payoff.gain(2)), (Some(3.0), None));
        note(&mut payoff, false, 100);
        assert_eq!(payoff.gain(2), Some(2.0));
        payoff.begin_measurement();
        assert_eq!(payoff.gain(1), None);
        note(&mut payoff, true, 50);
        assert_eq!(payoff.gain(2), Some(4.0));
        note(&mut payoff, true, 150);
        payoff.begin_trial();
        assert_eq!(payoff.gain(1), None);
        (0..6).for_each(|_| note(&mut payoff, false, 50));
        assert_eq!(payoff.gain(2), Some(0.5));
        payoff.note(&[1], false, 50, 10);
        payoff.note(&[1], false, 50, 10);
        assert_eq!(payoff.gain(1), None, "other programs");
    }

    #[test]
    fn short_windows_count_by_their_length() {
        let mut payoff = Payoff::new(2);
        payoff.note(&[1], true, 0, 5);
        // The last eight of them are four whole ones.
        for bytes in [9999, 60, 40, 60, 40, 60, 40, 60, 40] {
            payoff.note(&[1], true, bytes, 5);
        }
        payoff.note(&[1], true, 150, 15);
        payoff.note(&[1], false, 200, 10);
        assert_eq!(payoff.gain(1), Some(20.0 / 9.8));
    }
}
