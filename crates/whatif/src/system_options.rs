//! What stands around the servers' profiles in a simulation, as people write it.

use crate::error::WhatifError;
use crate::target::Target;
use std::fmt::Display;
use stripewise_layout::units::{parse_bandwidth, parse_bytes, parse_seconds};
use stripewise_simulate::{
    ClientLink, Forwarding, Links, Metadata, Queue, ServerLink, Service, Startup, System, TierDevice,
};

/// A full stroke of a disk whose tier has no capacity: that of a disk of 1 TB.
const STROKE_BYTES: u64 = 1_000_000_000_000;

/// What stands around the profiles. Text is as on the command line, whose options errors name.
#[derive(Debug, Clone)]
pub struct SystemOptions {
    /// `NAME` for all tiers, `TIER=NAME` for one; the last that fits holds.
    pub queue: Vec<String>,
    /// How long an anticipatory queue waits.
    pub wait: String,
    /// How near the request has to be that it waits for.
    pub near: String,
    /// `TIER`, or `TIER=BYTES` with the size of its disks.
    pub seek: Vec<String>,
    /// A bandwidth, or `profile`.
    pub link: Option<String>,
    /// A bandwidth.
    pub client_link: Option<String>,
    /// Processes of a node; `None`: as many as the trace's hosts have.
    pub processes_per_node: Option<u32>,
    /// Of a message.
    pub latency: String,
    /// Whether a link passes on what has not come whole.
    pub pipelined: bool,
    /// The time of a request to the metadata server, where that is simulated.
    pub metadata: Option<String>,
    /// Whether processes pause between requests as in the trace.
    pub think: bool,
    /// Number of runs, at least one.
    pub repeat: usize,
    /// Seed of the first.
    pub seed: u64,
    /// Bins of the timeline; 0 for none.
    pub bins: usize,
}

impl SystemOptions {
    /// The system of the tiers of `target`, with that many processes on a node and that many files. Where nothing is said of a
    /// tier, its servers are what the pool emulates.
    pub(crate) fn system(&self, target: &Target, per_node: u32, files: usize) -> Result<System, WhatifError> {
        let mut system = self.read(target, per_node).map_err(WhatifError::Asked)?;
        let distance_bytes =
            target.file_distance_bytes.filter(|_| !system.devices.iter().all(|of| *of == TierDevice::default()));
        system.file_starts = distance_bytes.map(|bytes| (0..files as u64).map(|file| file * bytes).collect());
        Ok(system)
    }

    fn read(&self, target: &Target, per_node: u32) -> Result<System, String> {
        let Target { kind, name: of, cluster, .. } = target;
        let mut devices = target.devices.clone();
        devices.resize(cluster.tiers.len(), TierDevice::default());
        let tier_of = |option: &str, name: &str| {
            let known = || cluster.tiers.iter().map(|tier| tier.name.as_str()).collect::<Vec<_>>().join(", ");
            cluster
                .tiers
                .iter()
                .position(|tier| tier.name == name)
                .ok_or_else(|| format!("{option}: {kind} '{of}' has no tier {name}; there is {}", known()))
        };
        let quantity = |option: &str, error: &dyn Display| format!("{option}: {error}");
        for text in &self.queue {
            let (tier, name) = text.split_once('=').map_or((None, text.as_str()), |(tier, name)| (Some(tier), name));
            let queue = match name {
                "fifo" => Queue::Fifo,
                "elevator" => Queue::Elevator,
                "anticipatory" => Queue::Anticipatory {
                    wait_s: parse_seconds(&self.wait).map_err(|error| quantity("--wait", &error))?,
                    near_bytes: parse_bytes(&self.near).map_err(|error| quantity("--near", &error))?,
                },
                _ => return Err(format!("--queue {text}: there is fifo, elevator and anticipatory")),
            };
            match tier {
                Some(tier) => devices[tier_of("--queue", tier)?].queue = queue,
                None => devices.iter_mut().for_each(|device| device.queue = queue),
            }
        }
        for text in &self.seek {
            let (name, size) = text.split_once('=').map_or((text.as_str(), None), |(name, size)| (name, Some(size)));
            let tier = tier_of("--seek", name)?;
            let stroke_bytes = match size {
                Some(size) => parse_bytes(size).map_err(|error| quantity("--seek", &error))?,
                None => cluster.tiers[tier].capacity_bytes.unwrap_or(STROKE_BYTES),
            };
            let profile = &cluster.tiers[tier].profile;
            devices[tier].startup = Startup::seek_within(&profile.read, &profile.write, stroke_bytes);
        }
        let rate = |option: &str, text: &str| {
            parse_bandwidth(text).map(|bytes_per_s| 1.0 / bytes_per_s).map_err(|error| quantity(option, &error))
        };
        let server = match self.link.as_deref() {
            None => ServerLink::InBeta,
            Some("profile") => ServerLink::OfProfile,
            Some(text) => ServerLink::Rate { s_per_byte: rate("--link", text)? },
        };
        let client = self.client_link.as_deref().map(|text| {
            rate("--client-link", text).map(|s_per_byte| ClientLink { s_per_byte, processes_per_node: per_node })
        });
        let metadata = self.metadata.as_deref().map(|text| {
            let time_s = parse_seconds(text).map_err(|error| quantity("--metadata", &error))?;
            let service = Service { min_s: time_s, max_s: time_s };
            Ok::<Metadata, String>(Metadata { threads: 1, open: service, create: service, stat: service })
        });
        Ok(System {
            devices,
            links: Links {
                server,
                client: client.transpose()?,
                latency_s: parse_seconds(&self.latency).map_err(|error| quantity("--latency", &error))?,
                forwarding: if self.pipelined { Forwarding::Pipelined } else { Forwarding::StoreAndForward },
            },
            metadata: metadata.transpose()?,
            names_on_meta: target.name_costs,
            file_starts: None,
            turns: None,
            bins: self.bins,
        })
    }
}
