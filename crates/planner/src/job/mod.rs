//! [`Job`]: what is to be planned, with everything that all planners need of it computed once; and [`Price`], what any
//! layouts cost in the one model that all planners are compared by.

pub(crate) mod alike;
mod concurrency;
pub(crate) mod demand;
mod evenness;
pub(crate) mod input;
pub(crate) mod phases;
pub(crate) mod survey;

use crate::error::PlanError;
use crate::job::alike::Alike;
use crate::job::demand::Demand;
use crate::job::evenness::is_even;
use crate::job::input::{FileTrace, PlanOptions, as_priced, check, for_pool};
use crate::job::survey::Survey;
use crate::objective::capacity::Limits;
use crate::objective::priced::{FileRegions, RegionPlans};
use crate::objective::pricing::{Pricer, ServerLoad, add};
use crate::objective::seeks::{Arrivals, SimulatedHeads};
use rayon::prelude::*;
use std::borrow::Cow;
use std::sync::OnceLock;
use stripewise_layout::{Layout, MAX_OFFSET, ServerId};
use stripewise_model::{Cluster, TierWidths};

/// Files whose loads are added up by one thread.
const PRICED_TOGETHER: usize = 1024;

/// Files to be planned on a cluster. Planners only read it; one job serves them all.
pub struct Job<'a> {
    /// What the files were asked for; a planner gives one layout for each, in this order.
    pub files: &'a [FileTrace<'a>],
    /// The servers. Checked: at least one of them, at most [`MAX_TIERS`](stripewise_model::MAX_TIERS) tiers, profiles
    /// finite and not negative.
    pub cluster: &'a Cluster,
    /// How to plan. Checked.
    pub options: &'a PlanOptions,
    /// The requests grouped, cut into chunks and phases, sampled when too many.
    pub(crate) demand: Demand,
    /// Bytes that each server may hold.
    pub(crate) limits: Limits,
    /// The cluster as the frame prices it: its network time is in beta unless links are apart.
    pub(crate) priced_as: Cluster,
    /// Slot (place among all servers, tiers in order) by server index.
    slots: Vec<Option<usize>>,
    /// Groups of files that are alike, where files are many.
    alike: OnceLock<Option<Alike>>,
    /// The requests in their order, where servers have heads and all requests are held: made at the first use.
    arrivals: OnceLock<Option<Arrivals>>,
    /// The paper's HARL, which knows no limits, for each unit: worked out by its planner at the first use.
    pub(crate) harl: OnceLock<FileRegions>,
    /// The plans of the `regions` planner before any is simulated, likewise.
    pub(crate) regions: OnceLock<Result<RegionPlans, PlanError>>,
}

/// What layouts cost, by the model that all planners are compared by.
#[derive(Debug, Clone, PartialEq)]
pub struct Price {
    /// Predicted time of the whole run in seconds: phases one after the other, each as long as its processes need.
    pub predicted_s: f64,
    /// Bytes beyond the servers' limits, added up; 0 when the layouts fit.
    pub excess_bytes: u64,
    /// Bytes on each server, tiers in order, and on the metadata tier if it has a profile.
    pub server_bytes: Vec<u64>,
    /// What every phase asks of every server.
    pub(crate) load: ServerLoad,
    /// What the simulated processes did, where servers have heads and all requests are held.
    heads: Option<SimulatedHeads>,
}

impl<'a> Job<'a> {
    /// Checks and groups the requests. O(requests x log).
    ///
    /// # Errors
    /// [`PlanError`] for a cluster, options or requests that nothing can be planned for, [`PlanError::TooLarge`]
    /// included.
    pub fn new(files: &'a [FileTrace<'a>], cluster: &'a Cluster, options: &'a PlanOptions) -> Result<Self, PlanError> {
        check(cluster, options)?;
        Self::with(files, Demand::new(files, &for_pool(cluster, options))?, cluster, options)
    }

    /// A job of requests that are too many to be held: `files` are [those of the survey](Survey::traces), priced is
    /// what it counted.
    ///
    /// # Errors
    /// As [`Job::new`].
    pub fn surveyed(
        survey: &Survey,
        files: &'a [FileTrace<'a>],
        cluster: &'a Cluster,
        options: &'a PlanOptions,
    ) -> Result<Self, PlanError> {
        check(cluster, options)?;
        Self::with(files, survey.demand(&for_pool(cluster, options)), cluster, options)
    }

    fn with(
        files: &'a [FileTrace<'a>],
        mut demand: Demand,
        cluster: &'a Cluster,
        options: &'a PlanOptions,
    ) -> Result<Self, PlanError> {
        let limits = Limits::new(cluster, demand.bytes())?;
        // Where a server has not room for everything, regions may be what fills it best.
        if limits.hold_anywhere(demand.bytes()) {
            let is_sample = demand.sample.is_some();
            let files = demand.files.par_iter_mut().zip(files);
            files.filter(|(of, file)| is_even(of, file.requests, is_sample)).for_each(|(of, _)| of.make_even());
        }
        let servers = || cluster.tiers.iter().flat_map(|tier| &tier.servers);
        let mut slots = vec![None; servers().map(|server| server.index() + 1).max().unwrap_or(0)];
        servers().enumerate().for_each(|(slot, server)| slots[server.index()] = Some(slot));
        let priced_as = as_priced(cluster, options.network);
        let (alike, arrivals) = (OnceLock::new(), OnceLock::new());
        let (harl, regions) = (OnceLock::new(), OnceLock::new());
        Ok(Self { files, cluster, options, demand, limits, priced_as, slots, alike, arrivals, harl, regions })
    }

    /// Groups of files that are alike; `None` where files are few.
    fn alike(&self) -> Option<&Alike> {
        let new = || Alike::new(self.files, &self.demand, &for_pool(self.cluster, self.options));
        self.alike.get_or_init(new).as_ref()
    }

    /// What is planned as one: the files, or groups of them that are alike where they are many.
    pub(crate) fn unit_demand(&self) -> &Demand {
        self.alike().map_or(&self.demand, |alike| &alike.demand)
    }

    /// The requests of the units, of groups a sample.
    pub(crate) fn unit_traces(&self) -> Cow<'_, [FileTrace<'_>]> {
        self.alike().map_or(Cow::Borrowed(self.files), |alike| Cow::Owned(alike.traces()))
    }

    /// What is given for each unit, for each file.
    pub(crate) fn spread<T: Clone>(&self, of_units: &[T]) -> Vec<T> {
        match self.alike() {
            Some(alike) => alike.of.iter().map(|&unit| of_units[unit].clone()).collect(),
            None => of_units.to_vec(),
        }
    }

    /// Prices any layouts, with every server for itself and each sub-request a move of the head. O(servers) to make.
    pub(crate) fn pricer(&self) -> Pricer<'_> {
        Pricer::by_server(&self.priced_as, &self.demand)
    }

    /// Prices the layouts that have this price, and parts of what they are asked for, with every server for itself. O(servers).
    pub(crate) fn pricer_of(&self, price: &Price) -> Pricer<'_> {
        match &price.heads {
            Some(heads) => self.pricer_with(&self.demand, Some(heads)).with_simulated(heads.phases(), &price.load),
            None => self.pricer(),
        }
    }

    /// Prices these layouts, one for each file, for a demand with the job's phases, such as that of its units. O(servers), and a
    /// replay of some requests where servers have heads.
    pub(crate) fn pricer_for<'b>(&'b self, demand: &'b Demand, layouts: &[Layout]) -> Pricer<'b> {
        self.pricer_with(demand, self.heads(layouts).as_ref())
    }

    fn pricer_with<'b>(&'b self, demand: &'b Demand, heads: Option<&SimulatedHeads>) -> Pricer<'b> {
        let models = heads.map(|heads| heads.by_server(&self.priced_as));
        Pricer::by_server(&self.priced_as, demand).with_models(models.unwrap_or_default())
    }

    /// Prices rounds of tiers for the units of the job. The heads of servers move as often as under the default layout: how
    /// often they do under another one only a whole plan can tell.
    pub(crate) fn tier_pricer<'b>(&'b self, demand: &'b Demand) -> Pricer<'b> {
        let models = self.heads(&self.default_layouts()).map(|heads| heads.by_tier(&self.priced_as));
        Pricer::new(&self.priced_as, demand).with_models(models.unwrap_or_default())
    }

    /// What the heads of servers do under these layouts; `None` where no server has one, or requests are too many to be held:
    /// then each moves it.
    fn heads(&self, layouts: &[Layout]) -> Option<SimulatedHeads> {
        let arrivals = self.arrivals.get_or_init(|| {
            let held: usize = self.files.iter().map(|file| file.requests.len()).sum();
            let is_whole = self.demand.phases.iter().map(|phase| phase.requests).sum::<u64>() <= held as u64;
            let new = || Arrivals::new(self.files, self.options.max_phases);
            (self.cluster.has_heads() && is_whole).then(new)
        });
        let (phases, network) = (self.demand.phases.len(), self.options.network);
        arrivals.as_ref().map(|arrivals| arrivals.simulated(layouts, &self.priced_as, phases, network))
    }

    /// Widths of the default layout.
    pub(crate) fn default_widths(&self) -> TierWidths {
        TierWidths::uniform(self.cluster, self.options.default_width_bytes)
    }

    /// The default: one region over all servers with equal widths.
    pub(crate) fn default_layout(&self) -> Layout {
        let layout = TierWidths::layout(&[(0, self.default_widths())], self.cluster);
        layout.expect("a checked cluster has servers, and the default width is in bounds")
    }

    /// The default for every file.
    pub fn default_layouts(&self) -> Vec<Layout> {
        vec![self.default_layout(); self.files.len()]
    }

    /// Bytes that file `index` has, which its layout must find room for: its size, or the end of its last write (or
    /// request, when the size is unknown).
    pub fn extent_bytes(&self, index: usize) -> u64 {
        self.demand.files[index].extent
    }

    /// Mean number of processes with a request in flight (`p`), over the requests of all phases.
    pub fn processes(&self) -> f64 {
        let (busy, requests) = self.demand.phases.iter().fold((0.0, 0.0), |(busy, requests), phase| {
            (busy + phase.processes * phase.requests as f64, requests + phase.requests as f64)
        });
        if requests > 0.0 { (busy / requests).max(1.0) } else { 1.0 }
    }

    /// Times at which a phase of the program ends and another one begins, ascending, in seconds on the trace's clock.
    pub fn cuts_s(&self) -> &[f64] {
        &self.demand.cuts_s
    }

    /// Prices any layouts, one per file. O(entries x sub-requests^2), and a simulation of at most 32,768 requests where servers
    /// have heads: there the time is the simulated one, for as many processes as are in flight.
    ///
    /// # Errors
    /// [`PlanError::UnknownServer`] when a layout names a server outside the cluster, or a metadata tier without a profile.
    ///
    /// # Panics
    /// When there are not as many layouts as files.
    pub fn price(&self, layouts: &[Layout]) -> Result<Price, PlanError> {
        assert_eq!(self.files.len(), layouts.len(), "one layout per file");
        let heads = self.heads(layouts);
        let pricer = self.pricer_with(&self.demand, heads.as_ref());
        // Runs of files in order: the sums do not depend on the number of threads.
        let runs = self.demand.files.par_chunks(PRICED_TOGETHER).zip(layouts.par_chunks(PRICED_TOGETHER)).enumerate();
        let runs = runs.map(|(run, (files, layouts))| {
            let mut load = pricer.no_load();
            let mut server_bytes = vec![0_u64; pricer.lanes().servers()];
            for (number, (file, layout)) in (run * PRICED_TOGETHER..).zip(files.iter().zip(layouts)) {
                self.add_bytes(&mut server_bytes, number, file.extent, layout)?;
                let added = pricer.add_layout_load(&mut load, &file.entries, layout);
                added.expect("every server of the layout has a slot");
            }
            Ok((load, server_bytes))
        });
        let mut load = pricer.no_load();
        let mut server_bytes = vec![0_u64; pricer.lanes().servers()];
        for of_run in runs.collect::<Vec<Result<(ServerLoad, Vec<u64>), PlanError>>>() {
            let (of_run, bytes) = of_run?;
            add(&mut load, &of_run);
            server_bytes.iter_mut().zip(&bytes).for_each(|(sum, b)| *sum = sum.saturating_add(*b));
        }
        let excess_bytes = self.limits.excess(&server_bytes);
        let mut price = Price { predicted_s: 0.0, excess_bytes, server_bytes, load, heads };
        price.predicted_s = self.pricer_of(&price).time_s(&price.load);
        Ok(price)
    }

    /// Adds the bytes that file `number` has on every server under a layout. O(stripes).
    fn add_bytes(
        &self,
        server_bytes: &mut [u64],
        number: usize,
        extent: u64,
        layout: &Layout,
    ) -> Result<(), PlanError> {
        for (index, region) in layout.regions().iter().enumerate() {
            let (from, to) = (region.offset().min(extent), layout.region_end(index).min(extent));
            for (stripe, held) in region.stripes().iter().enumerate() {
                let slot = self.slot(number, held.server)?;
                let bytes = region.bytes_before(stripe, to) - region.bytes_before(stripe, from);
                server_bytes[slot] = server_bytes[slot].saturating_add(bytes);
            }
        }
        Ok(())
    }

    /// The place among all servers, tiers in order and the metadata tier last, of a server that the layout of file `index`
    /// names. O(1), of the metadata tier O(tiers).
    pub(crate) fn slot(&self, index: usize, server: ServerId) -> Result<usize, PlanError> {
        let unknown = || PlanError::UnknownServer { file: self.files[index].name.clone(), server };
        if server == ServerId::META {
            let last = || self.cluster.tiers.iter().map(|tier| tier.servers.len()).sum();
            return self.cluster.meta.as_ref().map(|_| last()).ok_or_else(unknown);
        }
        self.slots.get(server.index()).copied().flatten().ok_or_else(unknown)
    }

    /// Largest width that a round of all servers may have, so that it stays a valid layout.
    pub fn max_width_bytes(&self) -> u64 {
        let servers = self.cluster.tiers.iter().map(|tier| tier.servers.len() as u64).sum::<u64>();
        MAX_OFFSET / servers.max(1)
    }
}
