//! Why one set of layouts is faster than another: the phase that it saves most in, and what that phase waits for.

use crate::job::{Job, Price};
use stripewise_layout::units::format_seconds;
use stripewise_layout::{Layout, META_NAME};

/// What one phase waits for under some layouts. Predicted, in seconds.
#[derive(Debug, Clone, PartialEq)]
pub struct Waiting {
    /// Time of the phase.
    pub time_s: f64,
    /// Name of its busiest server, `tier.index`.
    pub server: String,
    /// Time that this server's device (or its link) is busy.
    pub busy_s: f64,
    /// The busiest is the server's link and not its device.
    pub link: bool,
    /// The part of [`Waiting::busy_s`] that is startups; the rest moves bytes.
    pub startup_s: f64,
    /// Mean latency of a request of the phase on an idle system.
    pub latency_s: f64,
}

/// The phase in which layouts save most beside others, or lose most when they save in none.
#[derive(Debug, Clone, PartialEq)]
pub struct Why {
    /// The planner beside whose layouts these stand.
    pub against: &'static str,
    /// Index of the phase.
    pub phase: usize,
    /// Number of phases.
    pub phases: usize,
    /// Processes with a request in flight in it.
    pub processes: f64,
    /// Under the other layouts.
    pub before: Waiting,
    /// Under these.
    pub after: Waiting,
}

/// Compares two sets of layouts with their prices; `None` without requests. O(entries x sub-requests^2).
pub(crate) fn why(
    job: &Job,
    against: &'static str,
    before: (&[Layout], &Price),
    after: (&[Layout], &Price),
) -> Option<Why> {
    let [earlier, later] = [before.1, after.1].map(|price| (job.pricer_of(price), &price.load));
    let saved_s = |phase: usize| earlier.0.phase_time_s(phase, earlier.1) - later.0.phase_time_s(phase, later.1);
    let busy = (0..job.demand.phases.len()).filter(|&phase| job.demand.phases[phase].requests > 0);
    // Of equal ones the first.
    let phase = busy.reduce(|best, phase| if saved_s(phase) > saved_s(best) { phase } else { best })?;
    Some(Why {
        against,
        phase,
        phases: job.demand.phases.len(),
        processes: job.demand.phases[phase].processes,
        before: waiting(job, phase, before),
        after: waiting(job, phase, after),
    })
}

fn waiting(job: &Job, phase: usize, (layouts, price): (&[Layout], &Price)) -> Waiting {
    let pricer = job.pricer_of(price);
    let servers = pricer.lanes().servers();
    let of_phase = &price.load[phase * pricer.stride()..][..pricer.stride()];
    let busiest = (1..of_phase.len()).fold(1, |best, i| if of_phase[i] > of_phase[best] { i } else { best }) - 1;
    let (slot, link) = (busiest % servers, busiest >= servers);
    let (mut startup_s, mut requests) = (0.0, 0.0);
    for (file, layout) in job.demand.files.iter().zip(layouts) {
        for e in file.entries.iter().filter(|e| usize::from(e.phase) == phase) {
            requests += e.count;
            if !link {
                let model = pricer.model_of(e.phase);
                let visit = |at, _| startup_s += if at == slot { e.count * model.startup_s(slot, e.op) } else { 0.0 };
                model.layout_latency_s(layout, e.op, e.offset, e.size, visit).expect("priced before");
            }
        }
    }
    Waiting {
        time_s: pricer.phase_time_s(phase, &price.load),
        server: server_name(job, slot),
        busy_s: of_phase[1 + busiest],
        link,
        startup_s,
        latency_s: if requests > 0.0 { of_phase[0] / requests } else { 0.0 },
    }
}

/// The tier of a slot, and the server's place in it; `None` of the metadata tier.
fn place(job: &Job, mut slot: usize) -> Option<(usize, usize)> {
    for (tier, of) in job.cluster.tiers.iter().enumerate() {
        if slot < of.servers.len() {
            return Some((tier, slot));
        }
        slot -= of.servers.len();
    }
    None
}

fn server_name(job: &Job, slot: usize) -> String {
    let name = |(tier, index): (usize, usize)| format!("{}.{index}", job.cluster.tiers[tier].name);
    place(job, slot).map_or_else(|| META_NAME.to_owned(), name)
}

impl Waiting {
    fn text(&self) -> String {
        let what = if self.link { "the link of " } else { "" };
        let startups = if self.link || self.busy_s <= 0.0 {
            String::new()
        } else {
            format!(", {:.0} % of it startups", 100.0 * self.startup_s / self.busy_s)
        };
        let (busy, latency) = (format_seconds(digits(self.busy_s)), format_seconds(digits(self.latency_s)));
        format!("{what}{} busy for {busy}{startups}; a request alone takes {latency}", self.server)
    }
}

impl Why {
    /// In words, one line.
    pub fn text(&self) -> String {
        let Self { against, before, after, .. } = self;
        let of = if self.phases > 1 { format!("phase {} of {}", self.phase + 1, self.phases) } else { "in all".into() };
        format!(
            "beside {against}: {of}, {:.1} processes, {} instead of {}: {}, instead of {}",
            self.processes,
            format_seconds(digits(after.time_s)),
            format_seconds(digits(before.time_s)),
            after.text(),
            before.text(),
        )
    }
}

/// Three digits are enough for people.
fn digits(seconds: f64) -> f64 {
    if seconds <= 0.0 {
        return 0.0;
    }
    let unit = 10_f64.powi(2 - seconds.log10().floor() as i32);
    (seconds * unit).round() / unit
}
