//! [`Stream`]: all that is learnt of one process's accesses to one file, in one pass.

use crate::access::Access;
use crate::classify::Classes;
use crate::compress::Compressor;
use crate::factors::{Factors, PatternSignature, Spatial};
use crate::phases::{Pauses, Phase};
use crate::signature::Signature;

/// Takes the accesses of one rank to one file in order of start.
#[derive(Default)]
pub struct Stream {
    compressor: Compressor,
    factors: Factors,
    pauses: Pauses,
    last: Option<Access>,
    last_start_ns: Option<u64>,
    contiguous: u64,
}

impl Stream {
    /// An empty one.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the next access with its start and end in nanoseconds, where the trace has them. O(1) amortised inside
    /// loops.
    pub fn push(&mut self, access: Access, span_ns: Option<(u64, u64)>) {
        self.compressor.push(access);
        self.factors.count(access);
        if let Some((start_ns, end_ns)) = span_ns {
            self.pauses.push_access(access, start_ns, end_ns);
            if let Some(last_ns) = self.last_start_ns {
                self.factors.interval(start_ns.saturating_sub(last_ns) as f64);
            }
        }
        self.last_start_ns = span_ns.map(|span| span.0);
        let follows = self.last.is_some_and(|last| last.offset.wrapping_add(last.size_bytes) == access.offset);
        self.contiguous += u64::from(follows);
        self.last = Some(access);
    }

    /// What was learnt.
    pub fn finish(self) -> StreamSignature {
        let signature = self.compressor.finish();
        let mut factors = self.factors;
        let accesses = factors.accesses();
        let mut classes = Classes::of(&signature, signature.items());
        // Sizes that vary leave no loop to see, but the place is plain; and three accesses are too few for a loop.
        let one = if accesses > 0 && self.contiguous as f64 >= 0.9 * (accesses - 1) as f64 {
            Some(Spatial::Contiguous)
        } else if (2..4).contains(&accesses) {
            let offsets: Vec<u64> = signature.expand().map(|access| access.offset).collect();
            let deltas: Vec<i64> = offsets.windows(2).map(|pair| pair[1].wrapping_sub(pair[0]) as i64).collect();
            let even = deltas.iter().all(|delta| *delta == deltas[0]);
            even.then_some(if deltas[0] < 0 { Spatial::NegativeStrided } else { Spatial::FixedStrided })
        } else {
            None
        };
        if let Some(spatial) = one {
            classes.spatial = [(0, 0); 7];
            classes.spatial[spatial as usize] = (accesses, 1);
        } else {
            // One class for the trace, so that ranks that each combine do not look like ranks that differ.
            let (spatial, dimension) = crate::factors::majority(&classes.spatial);
            classes.spatial = [(0, 0); 7];
            classes.spatial[spatial as usize] = (accesses, dimension);
        }
        factors.spatial = classes.spatial;
        factors.repeating = classes.repeating;
        StreamSignature { signature, factors, phases: self.pauses.phases() }
    }
}

/// Of one rank's accesses to one file.
#[derive(Debug, Clone)]
pub struct StreamSignature {
    /// The trace signature.
    pub signature: Signature,
    /// What the pattern signature is decided from.
    pub factors: Factors,
    /// Stretches of activity; empty when the trace has no times.
    pub phases: Vec<Phase>,
}

impl StreamSignature {
    /// The pattern signature; `None` without accesses.
    pub fn pattern(&self) -> Option<PatternSignature> {
        self.factors.pattern()
    }
}
