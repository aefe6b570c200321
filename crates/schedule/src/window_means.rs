//! Figures of a window: the mean of what the pages say at the looks of that window.
//!
//! The pages have moving averages in which the newest request weighs 7/8 (the paper's): of two programs that are served in
//! turn each look finds the gap from one to the other, or that within one. What a window was like is their mean.

use std::collections::HashMap;

use crate::locality::ServerUseBy;
use crate::slice_plan::ProgramKey;
use crate::traits::ProgramTraits;

/// A mean under way.
#[derive(Debug, Clone, Copy, Default)]
struct Mean {
    sum: f64,
    count: u32,
}

impl Mean {
    fn add(&mut self, value: f64) {
        if value.is_finite() {
            self.sum += value;
            self.count += 1;
        }
    }

    fn value(self) -> Option<f64> {
        (self.count > 0).then(|| self.sum / f64::from(self.count))
    }
}

/// The looks of one window.
#[derive(Debug, Default)]
pub(crate) struct WindowMeans {
    /// Gap and reuse distance.
    uses: HashMap<(ProgramKey, u32), [Mean; 2]>,
    /// By server: gap of the mix.
    servers: Vec<Mean>,
}

impl WindowMeans {
    /// One look: programs, and the gap of the mix on each server. O(programs times servers).
    pub(crate) fn note(&mut self, programs: &[ProgramTraits], gaps_bytes: impl Iterator<Item = Option<f64>>) {
        for program in programs {
            for by in &program.uses {
                let [gap, reuse] = self.uses.entry((program.key, by.server)).or_default();
                gap.add(f64::from(by.gap_bytes));
                reuse.add(f64::from(by.reuse_ns));
            }
        }
        for (server, gap_bytes) in gaps_bytes.enumerate() {
            if self.servers.len() <= server {
                self.servers.resize(server + 1, Mean::default());
            }
            self.servers[server].add(gap_bytes.unwrap_or(f64::NAN));
        }
    }

    /// What a program did on its servers in the window; as the page has it where there was no look.
    pub(crate) fn uses(&self, program: &ProgramTraits) -> Vec<ServerUseBy> {
        let of = |by: &ServerUseBy| {
            let means = self.uses.get(&(program.key, by.server)).copied().unwrap_or_default();
            let [gap, reuse] = means.map(|mean| mean.value().map(|value| value as f32));
            ServerUseBy {
                server: by.server,
                gap_bytes: gap.unwrap_or(by.gap_bytes),
                reuse_ns: reuse.unwrap_or(by.reuse_ns),
            }
        };
        program.uses.iter().map(of).collect()
    }

    /// The gap of the mix on a server, if there was a look.
    pub(crate) fn gap_bytes(&self, server: usize) -> Option<f64> {
        self.servers.get(server)?.value()
    }

    /// Begins the next window.
    pub(crate) fn clear(&mut self) {
        self.uses.clear();
        self.servers.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_is_the_mean_of_its_looks() {
        let mut program = ProgramTraits::named(ProgramKey(7), "a");
        let mut means = WindowMeans::default();
        for (gap_bytes, reuse_ns) in [(100.0, f32::NAN), (300.0, 8.0)] {
            program.uses = vec![ServerUseBy { server: 1, gap_bytes, reuse_ns }];
            means.note(std::slice::from_ref(&program), [None, Some(f64::from(gap_bytes) * 2.0)].into_iter());
        }
        assert_eq!(means.uses(&program), [ServerUseBy { server: 1, gap_bytes: 200.0, reuse_ns: 8.0 }]);
        assert_eq!((means.gap_bytes(0), means.gap_bytes(1), means.gap_bytes(2)), (None, Some(400.0), None));
        means.clear();
        assert_eq!(means.uses(&program), program.uses, "as the page has it");
        assert_eq!(means.gap_bytes(1), None);
    }
}
