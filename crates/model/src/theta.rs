//! The throughput objective: `theta = (T + (p - 1) B_max) / p`, mean time per request with `p` closed-loop processes
//! (`beyond.md` 4). `p` = 1 is latency, `p` towards infinity the busiest server.

use crate::cost::{Busy, CostModel, UnknownServer};
use crate::count::Round;
use crate::profile::{Cluster, Request};
use stripewise_layout::Layout;

/// Busy time of every server (slots of [`CostModel`]) and latency, added up over requests.
#[derive(Debug, Clone, PartialEq)]
pub struct BusyTimes {
    servers: Vec<Busy>,
    latency_s: f64,
    requests: f64,
}

impl BusyTimes {
    /// No request yet, on `servers` servers.
    pub fn new(servers: usize) -> Self {
        Self { servers: vec![Busy::default(); servers], latency_s: 0.0, requests: 0.0 }
    }

    /// Adds a request `count` times. O(servers), no allocation.
    #[inline]
    pub fn add(&mut self, model: &CostModel, round: &Round, request: &Request, count: f64) {
        let (op, offset, size) = (request.op, request.offset, request.size);
        self.requests += count;
        self.latency_s += count * model.latency_s(round, op, offset, size);
        model.for_each_busy(round, op, offset, size, |slot, busy| {
            self.servers[slot].device_s += count * busy.device_s;
            self.servers[slot].network_s += count * busy.network_s;
        });
    }

    /// Adds a request under any layout.
    ///
    /// # Errors
    /// [`UnknownServer`] when the layout names a server outside the cluster.
    pub fn add_on_layout(
        &mut self,
        model: &CostModel,
        layout: &Layout,
        request: &Request,
    ) -> Result<(), UnknownServer> {
        let servers = &mut self.servers;
        let latency_s = model.layout_latency_s(layout, request.op, request.offset, request.size, |slot, busy| {
            servers[slot].device_s += busy.device_s;
            servers[slot].network_s += busy.network_s;
        })?;
        self.latency_s += latency_s;
        self.requests += 1.0;
        Ok(())
    }

    /// The requests of files, each under its layout.
    ///
    /// # Errors
    /// [`UnknownServer`] when a layout names a server outside the cluster.
    pub fn of_files<'a>(
        files: impl IntoIterator<Item = (&'a [Request], &'a Layout)>,
        cluster: &Cluster,
    ) -> Result<Self, UnknownServer> {
        let model = CostModel::new(cluster);
        let mut loads = Self::new(model.servers());
        for (requests, layout) in files {
            requests.iter().try_for_each(|request| loads.add_on_layout(&model, layout, request))?;
        }
        Ok(loads)
    }

    /// Busy time of each server in seconds, over all requests.
    pub fn servers(&self) -> &[Busy] {
        &self.servers
    }

    /// Mean latency in seconds; 0 without requests.
    pub fn latency_mean_s(&self) -> f64 {
        if self.requests > 0.0 { self.latency_s / self.requests } else { 0.0 }
    }

    /// Busy time of the busiest device or link, in seconds per request (`B_max`); 0 without requests.
    pub fn bottleneck_s(&self) -> f64 {
        let busiest = self.servers.iter().fold(0.0_f64, |max, busy| max.max(busy.device_s).max(busy.network_s));
        if self.requests > 0.0 { busiest / self.requests } else { 0.0 }
    }

    /// `theta` in seconds per request for `processes` closed-loop processes; 0 without requests.
    pub fn theta_s(&self, processes: f64) -> f64 {
        if self.requests == 0.0 {
            return 0.0;
        }
        (self.latency_s / self.requests + (processes - 1.0) * self.bottleneck_s()) / processes
    }
}
