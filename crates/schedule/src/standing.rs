//! The eligibility of a program over time: it must not swing with what it causes.
//!
//! Under dedicated service the mix of requests that a server sees *is* the program's own, so that condition 2 would fail
//! because it held. So SL_i is measured in shared windows only, and a program that is dedicated keeps the figure of the last
//! one. Each condition has a wider bound to leave by than to enter by.

use crate::eligibility::Eligibility;

/// Consecutive reports in which conditions 1 and 2 hold before a program is tried.
const REPORTS_TO_PROBE: u32 = 3;
/// Dedicated windows after which the reuse distance is judged.
const PROBE_WINDOWS: u32 = 2;
/// Dedicated windows after which a program without any measured reuse distance is let go.
const PATIENCE_WINDOWS: u32 = 8;
/// Condition 3 to leave by.
const LEAVE_REUSE: f64 = 1.25;
/// Consecutive windows in which that fails.
const LEAVE_WINDOWS: u32 = 2;
/// First cooldown in windows; doubled each time up to the last.
const FIRST_COOLDOWN: u32 = 2;
const LAST_COOLDOWN: u32 = 64;
/// Cooldown in windows of a program for which turns were tried and did not pay, at least: each trial costs.
const UNPAID_COOLDOWN: u32 = 32;
/// What turns must move for each byte of shared windows, to stay after the probe, and to stay at all.
const LEAST_GAIN: f64 = 1.05;
const LEAVE_GAIN: f64 = 0.97;
/// Turns that move less than this in the first window of a probe end with it.
const CLEAR_LOSS: f64 = 0.75;
/// Times are counted in quarters of a window: shared ones may be as short as that.
pub(crate) const QUARTERS: u32 = 4;
/// Dedicated windows after which a cooldown begins small again.
const FORGET_AFTER: u32 = 16;

/// Where a program stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Standing {
    /// Served together with all others.
    Shared,
    /// Gets slices so that its reuse distance can be measured.
    Probe,
    /// Gets slices.
    Dedicated,
    /// Served with all others, and not tried again for a while.
    Cooldown,
}

impl Standing {
    /// Whether it gets slices of its own.
    pub fn is_dedicated(self) -> bool {
        matches!(self, Self::Probe | Self::Dedicated)
    }

    /// One word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Shared => "shared",
            Self::Probe => "probe",
            Self::Dedicated => "dedicated",
            Self::Cooldown => "cooldown",
        }
    }
}

/// What a window has shown of a program.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WindowReport {
    /// Its figures.
    pub figures: Eligibility,
    /// Whether SL_i was measured in this window: no program had slices.
    pub was_shared: bool,
    /// Whether the program had a request in it. A window without one says nothing.
    pub was_active: bool,
    /// What windows of turns move for each byte of shared ones ([`Payoff`](crate::Payoff)), from the first one on.
    pub gain: Option<f64>,
    /// How long it was, in quarters of a whole window.
    pub quarters: u32,
}

/// The state machine of one program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StandingTracker {
    standing: Standing,
    /// Shared: consecutive good reports. Probe and dedicated: windows. Cooldown: quarters of a window that are left.
    count: u32,
    /// Dedicated: consecutive windows in which condition 3 failed.
    failures: u32,
    next_cooldown: u32,
}

impl Default for StandingTracker {
    fn default() -> Self {
        Self { standing: Standing::Shared, count: 0, failures: 0, next_cooldown: FIRST_COOLDOWN }
    }
}

impl StandingTracker {
    /// Where the program stands.
    pub fn standing(&self) -> Standing {
        self.standing
    }

    /// Takes the report of one window; the standing for the next. O(1).
    pub fn step(&mut self, report: &WindowReport) -> Standing {
        let figures = &report.figures;
        match self.standing {
            Standing::Cooldown => {
                self.count = self.count.saturating_sub(report.quarters);
                if self.count == 0 {
                    self.enter(Standing::Shared);
                }
            }
            _ if !report.was_active => {}
            Standing::Shared => {
                if report.was_shared {
                    self.count = if figures.may_gain() { self.count + 1 } else { 0 };
                }
                if self.count >= REPORTS_TO_PROBE {
                    self.enter(Standing::Probe);
                }
            }
            Standing::Probe => {
                self.count += u32::from(!report.was_shared);
                self.judge(report);
            }
            Standing::Dedicated => self.review(report),
        }
        self.standing
    }

    /// Ends a probe, if its windows say enough. What all programs together lost by it counts first: to try that again soon would
    /// cost the same, whatever the reuse distance is.
    fn judge(&mut self, report: &WindowReport) {
        let has_lost = |least: f64| report.gain.is_some_and(|gain| gain < least);
        let is_over = self.count >= PROBE_WINDOWS;
        match report.figures.is_reused_within(1.0) {
            _ if self.count > 0 && has_lost(if is_over { LEAST_GAIN } else { CLEAR_LOSS }) => self.cool_down_unpaid(),
            Some(true) if is_over => self.enter(Standing::Dedicated),
            Some(false) if is_over => self.cool_down(),
            None if self.count >= PATIENCE_WINDOWS => self.cool_down(),
            _ => {}
        }
    }

    fn review(&mut self, report: &WindowReport) {
        if report.was_shared {
            // Its reuse distance is that of the mix now.
            if !report.figures.still_gains() {
                self.enter(Standing::Shared);
            }
            return;
        }
        self.count = self.count.saturating_add(1);
        if self.count >= FORGET_AFTER {
            self.next_cooldown = FIRST_COOLDOWN;
        }
        let is_too_late = report.figures.is_reused_within(LEAVE_REUSE) == Some(false);
        let is_unpaid = report.gain.is_some_and(|gain| gain < LEAVE_GAIN);
        self.failures = if is_too_late || is_unpaid { self.failures + 1 } else { 0 };
        if self.failures >= LEAVE_WINDOWS && is_unpaid {
            self.cool_down_unpaid();
        } else if self.failures >= LEAVE_WINDOWS {
            self.cool_down();
        }
    }

    fn cool_down_unpaid(&mut self) {
        self.next_cooldown = self.next_cooldown.max(UNPAID_COOLDOWN);
        self.cool_down();
    }

    fn cool_down(&mut self) {
        self.enter(Standing::Cooldown);
        self.count = self.next_cooldown * QUARTERS;
        self.next_cooldown = (self.next_cooldown * 2).min(LAST_COOLDOWN);
    }

    fn enter(&mut self, standing: Standing) {
        (self.standing, self.count, self.failures) = (standing, 0, 0);
    }
}
