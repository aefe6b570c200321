//! Small files whole, and the first bytes of larger ones, on the metadata tier.
//!
//! They are one request to one server that the file is opened on anyway. Which files pay is a matter of the space and of
//! the load of that one server, so they are taken one after the other, those of most requests a byte first, each as long
//! as the time of the whole run goes down by it.

use crate::job::Job;
use crate::job::demand::FileDemand;
use crate::objective::pricing::{Pricer, ServerLoad, add};
use crate::regions::candidates::STEP;
use crate::regions::rehearse::Stage;
use stripewise_layout::{Layout, LayoutError, ServerId, Stripe};

/// At most this many bytes of a file go there: beyond that a stripe is more than a small file.
const LONGEST_BYTES: u64 = 16 << 20;

/// Draws of startup times that decide.
const DRAWS: u64 = 3;

/// `layouts` of the job's units with the first bytes on the metadata tier where the time of the run goes down by that, by at
/// least `region_s` seconds a unit; predicted, and simulated where simulations are allowed. O(units x lengths x requests of a
/// unit).
pub(crate) fn with_meta_tier(job: &Job, layouts: Vec<Layout>, region_s: f64) -> Vec<Layout> {
    let room_bytes = job.cluster.meta.as_ref().map_or(0, |meta| meta.capacity_bytes.unwrap_or(u64::MAX));
    if room_bytes == 0 {
        return layouts;
    }
    let taken = MetaTier::new(job, &layouts, room_bytes).taken(region_s);
    let is_simulated = job.options.simulations > 0 && taken != layouts;
    if is_simulated {
        let stage = Stage::new(&job.unit_traces(), job.unit_demand(), &job.priced_as, job.options, 0.0);
        let time_s = |layouts: &[Layout]| stage.mean_makespan_s(layouts, 0, DRAWS);
        if time_s(&taken) >= time_s(&layouts) {
            return layouts;
        }
    }
    taken
}

/// The layouts of all units with what they ask of the servers.
struct MetaTier<'a> {
    pricer: Pricer<'a>,
    units: &'a [FileDemand],
    layouts: Vec<Layout>,
    loads: Vec<ServerLoad>,
    /// Sum of `loads`, and what operations on names ask of the tier.
    all: ServerLoad,
    /// Bytes that the metadata tier has room for.
    room_bytes: u64,
    most_regions: usize,
}

impl<'a> MetaTier<'a> {
    fn new(job: &'a Job, layouts: &[Layout], room_bytes: u64) -> Self {
        let demand = job.unit_demand();
        let pricer = job.pricer_for(demand, &job.spread(layouts));
        let load = |(unit, layout): (&FileDemand, &Layout)| pricer.layout_load(&unit.entries, layout);
        let loads = demand.files.iter().zip(layouts).map(|of| load(of).expect("layouts are of the job's cluster"));
        let loads: Vec<ServerLoad> = loads.collect();
        let mut all = pricer.no_load();
        loads.iter().for_each(|load| add(&mut all, load));
        pricer.add_names(&mut all, job.options.names_s);
        let most_regions = job.options.max_regions.max(1);
        Self { pricer, units: &demand.files, layouts: layouts.to_vec(), loads, all, room_bytes, most_regions }
    }

    fn taken(mut self, region_s: f64) -> Vec<Layout> {
        let density = |unit: &FileDemand| {
            let requests: f64 = unit.entries.iter().map(|entry| entry.count).sum();
            requests / unit.present_bytes(0, u64::MAX).max(1) as f64
        };
        let mut order: Vec<usize> = (0..self.units.len()).collect();
        order.sort_by(|&a, &b| density(&self.units[b]).total_cmp(&density(&self.units[a])).then(a.cmp(&b)));
        for unit in order {
            self.take(unit, region_s);
        }
        self.layouts
    }

    /// Gives the metadata tier the first bytes of a unit that lower the time of the run most, if any do.
    fn take(&mut self, unit: usize, region_s: f64) {
        let of = &self.units[unit];
        let now_s = self.pricer.time_s(&self.all);
        let mut best = (now_s - region_s, None);
        for bytes in lengths(of.extent) {
            let Ok(layout) = with_first_bytes(&self.layouts[unit], bytes) else { continue };
            if of.present_bytes(0, bytes) > self.room_bytes || layout.regions().len() > self.most_regions {
                continue;
            }
            let load = self.pricer.layout_load(&of.entries, &layout).expect("the job has a metadata tier");
            let others = self.all.iter().zip(&self.loads[unit]).map(|(all, own)| all - own);
            let all: ServerLoad = others.zip(&load).map(|(others, own)| others + own).collect();
            let time_s = self.pricer.time_s(&all);
            if time_s < best.0 {
                best = (time_s, Some((bytes, layout, load, all)));
            }
        }
        if let (_, Some((bytes, layout, load, all))) = best {
            self.room_bytes -= of.present_bytes(0, bytes);
            (self.layouts[unit], self.loads[unit], self.all) = (layout, load, all);
        }
    }
}

/// Numbers of first bytes that are tried for a file of `extent` bytes, ascending: powers of four from [`STEP`] on that are
/// shorter than the file, and all of it.
fn lengths(extent: u64) -> impl Iterator<Item = u64> {
    let whole = extent.next_multiple_of(STEP);
    let shorter = (0..).map(|power| STEP << (2 * power)).take_while(move |&bytes| bytes < whole.min(LONGEST_BYTES));
    shorter.chain((whole > 0 && whole <= LONGEST_BYTES).then_some(whole))
}

/// `layout` with its first `bytes` on the metadata tier; what lies behind stays where it is.
fn with_first_bytes(layout: &Layout, bytes: u64) -> Result<Layout, LayoutError> {
    let first = vec![Stripe { server: ServerId::META, width_bytes: bytes }];
    let regions = layout.regions().iter().enumerate();
    let behind = regions.filter(|&(index, _)| layout.region_end(index) > bytes);
    let behind = behind.map(|(_, region)| (region.offset().max(bytes), region.stripes().to_vec()));
    Layout::new(std::iter::once((0, first)).chain(behind))
}
