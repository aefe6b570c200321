//! Windows one after the other: when the plan of a window is made, and when a slice is given up. The clock is its owner's, real
//! or simulated.

use crate::conductor::{Conductor, NextWindow};
use crate::mixing::UserTraffic;
use crate::slice_plan::{ProgramKey, SlicePlan};
use crate::traits::ProgramTraits;
use crate::turn::{HELD_LOOK_NS, Turn, turn_of};

/// Looks at programs in a window.
const LOOKS: u64 = 50;
/// Shortest and longest time between two looks: 2 ms and 20 ms.
const LEAST_LOOK_NS: u64 = 2_000_000;
const MOST_LOOK_NS: u64 = 20_000_000;
/// Glances between two looks: each finds a slice that is idle.
const GLANCES: u64 = 5;
/// Shortest time between two glances: 2 ms.
const LEAST_GLANCE_NS: u64 = 2_000_000;
/// A program is idle without any request for this time at least: 12 ms. One that is held says that it is there each
/// [`HELD_LOOK_NS`], a little later on a busy machine.
const IDLE_NS: u64 = 12_000_000;
const _: () = assert!(IDLE_NS > 2 * HELD_LOOK_NS);

/// What a look at the programs has changed.
#[derive(Debug)]
pub enum Looked {
    /// Nothing.
    Same,
    /// The slice that was served is over before its time.
    GivenUp,
    /// The window is over: this is the next.
    Window(NextWindow),
}

/// The plan that holds, and since when.
pub struct TurnClock {
    conductor: Conductor,
    window_ns: u64,
    /// How long before a window's beginning its plan is made.
    lead_ns: u64,
    begin_ns: u64,
    /// When the last window ended: later than planned, or sooner where slices were given up.
    ended_ns: u64,
    plan: SlicePlan,
}

impl TurnClock {
    /// Windows of `window_ns` from `now_ns` on; in the first all programs are served.
    pub fn new(conductor: Conductor, window_ns: u64, now_ns: u64) -> Self {
        Self { conductor, window_ns, lead_ns: 0, begin_ns: now_ns, ended_ns: now_ns, plan: SlicePlan::open() }
    }

    /// Makes plans `lead_ns` before they begin, at most a quarter of a window: the time that they are on their way to other nodes.
    pub fn set_lead(&mut self, lead_ns: u64) {
        self.lead_ns = lead_ns.min(self.window_ns / 4);
    }

    /// What decides.
    pub fn conductor(&self) -> &Conductor {
        &self.conductor
    }

    /// The plan that holds.
    pub fn plan(&self) -> &SlicePlan {
        &self.plan
    }

    /// When the window that the plan is of began, or begins, in nanoseconds.
    pub fn begin_ns(&self) -> u64 {
        self.begin_ns
    }

    /// Length of a window in nanoseconds.
    pub fn window_ns(&self) -> u64 {
        self.window_ns
    }

    /// Nanoseconds from one look to the next.
    pub fn look_ns(&self) -> u64 {
        (self.window_ns / LOOKS).clamp(LEAST_LOOK_NS, MOST_LOOK_NS)
    }

    /// Nanoseconds from one glance to the next.
    pub fn glance_ns(&self) -> u64 {
        (self.look_ns() / GLANCES).max(LEAST_GLANCE_NS)
    }

    /// Whether the next look ends a window.
    pub fn is_over(&self, now_ns: u64) -> bool {
        now_ns >= self.end_ns().saturating_sub(self.lead_ns)
    }

    /// When the window ends.
    fn end_ns(&self) -> u64 {
        self.begin_ns.saturating_add(self.conductor.length_ns(self.plan.is_open()))
    }

    /// When `program` is served. O(slices).
    pub fn turn(&self, program: ProgramKey, now_ns: u64) -> Turn {
        let since_ns = now_ns.saturating_sub(self.begin_ns);
        if self.plan.is_open() {
            Turn::Now
        } else {
            turn_of(self.plan.slices.iter().copied(), self.window_ns, since_ns, program)
        }
    }

    /// Takes what programs do into the means of the window. O(programs times servers).
    pub fn note(&mut self, programs: &[ProgramTraits], traffic: &[Vec<UserTraffic>]) {
        self.conductor.look(programs, traffic);
    }

    /// Looks at what programs do: ends the window if that is over, or the slice of a program that has no request any more.
    pub fn look(&mut self, programs: &[ProgramTraits], traffic: &[Vec<UserTraffic>], now_ns: u64) -> Looked {
        if !self.is_over(now_ns) {
            return if self.glance(programs, now_ns) { Looked::GivenUp } else { Looked::Same };
        }
        let (was_shared, end_ns) = (self.plan.is_open(), self.end_ns());
        let took_ns = now_ns.saturating_sub(self.ended_ns);
        self.ended_ns = now_ns;
        let next = self.conductor.next(programs, traffic, was_shared, (took_ns, now_ns));
        // Windows follow each other without a gap, but for an owner that was stopped meanwhile.
        self.begin_ns = if now_ns.saturating_sub(end_ns) < self.window_ns / 2 { end_ns } else { now_ns };
        self.plan.clone_from(&next.plan);
        Looked::Window(next)
    }

    /// Ends the slices of programs that have no request any more, up to that of one that has; whether there were any. O(programs)
    /// for each of them.
    pub fn glance(&mut self, programs: &[ProgramTraits], now_ns: u64) -> bool {
        let slices = if now_ns < self.begin_ns { 0 } else { self.plan.slices.len() };
        let given_up = (0..slices).take_while(|_| !self.is_over(now_ns) && self.gives_up(programs, now_ns)).count();
        given_up > 0
    }

    /// Ends the slice of a program that has no request any more, and begins the next; whether there was one.
    fn gives_up(&mut self, programs: &[ProgramTraits], now_ns: u64) -> bool {
        let glance_ns = self.glance_ns();
        let at_ns = (now_ns - self.begin_ns) % self.window_ns;
        let Some(slice) = self.plan.slices.iter().find(|slice| at_ns < slice.end_ns).copied() else { return false };
        let left_ns = slice.end_ns - at_ns;
        if left_ns <= glance_ns {
            return false;
        }
        let is_wasted =
            self.conductor.is_wasted(slice.program, &self.plan, programs, IDLE_NS.max(2 * glance_ns), now_ns);
        if is_wasted {
            self.begin_ns = self.begin_ns.saturating_sub(left_ns);
        }
        is_wasted
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policies;
    use crate::program_rules::ProgramRules;

    const MS: u64 = 1_000_000;

    #[test]
    fn a_glance_goes_on_to_the_program_that_has_requests() {
        let policy = policies::named("opportunity").unwrap();
        let mut clock =
            TurnClock::new(Conductor::new(policy, 500 * MS, ProgramRules::default(), Vec::new()), 500 * MS, 0);
        let mut programs: Vec<_> = (1..=3).map(|key| ProgramTraits::named(ProgramKey(key), "one")).collect();
        let mut now_ns = 0;
        while clock.plan().is_open() {
            now_ns += 125 * MS;
            assert!(now_ns < 5000 * MS, "turns begin");
            programs.iter_mut().for_each(|one| one.last_ns = now_ns);
            clock.look(&programs, &[], now_ns);
        }
        let turns = |clock: &TurnClock, now_ns| [1, 2, 3].map(|key| clock.turn(ProgramKey(key), now_ns) == Turn::Now);
        assert!(!clock.glance(&programs, now_ns + IDLE_NS), "not long enough");
        assert_eq!(turns(&clock, now_ns + IDLE_NS), [true, false, false]);
        // The first and the second have nothing to do; that the third waits says so itself.
        now_ns += IDLE_NS + 1;
        programs[2].last_ns = now_ns;
        assert!(clock.glance(&programs, now_ns));
        assert_eq!(turns(&clock, now_ns), [false, false, true]);
        assert!(!clock.glance(&programs, now_ns));
    }
}
