//! What stands around the cluster's profiles: queues, seeks, links, the metadata server.

use crate::error::SimulateError;
use crate::program_turns::ProgramTurns;
use stripewise_model::{NameCosts, OpProfile, Queue, SeekCurve};

/// Everything that [`run`](crate::run()) simulates beside the cluster's profiles. The default is the plainest: FIFO
/// servers, startups drawn, the network in beta, no metadata server: what [`simulate`](crate::simulate()) does, and
/// what emulated servers do.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct System {
    /// By tier of the cluster, the metadata tier behind the last; tiers beyond the end are [`TierDevice::default`].
    pub devices: Vec<TierDevice>,
    /// Links of servers and clients.
    pub links: Links,
    /// The server that answers [`SimulatedStep::Metadata`](crate::SimulatedStep::Metadata); without one such steps take
    /// no time, unless the metadata tier has them.
    pub metadata: Option<Metadata>,
    /// Without a server of their own such steps go to the cluster's metadata tier, in one queue with the bytes of inodes, and take
    /// this time there; `None`: no time.
    pub names_on_meta: Option<NameCosts>,
    /// Where the datafiles of each file begin on every disk, in bytes. `None`: one file after the other, each with the
    /// room that its program uses.
    pub file_starts: Option<Vec<u64>>,
    /// Programs that take turns; `None`: all requests go on at once.
    pub turns: Option<ProgramTurns>,
    /// Bins of the time line, at least; 0 makes none.
    pub bins: usize,
}

impl System {
    /// The device of tier `tier`.
    pub fn device(&self, tier: usize) -> TierDevice {
        self.devices.get(tier).copied().unwrap_or_default()
    }

    /// Whether any device asks where bytes are on disk.
    pub(crate) fn has_positions(&self) -> bool {
        self.devices.iter().any(|device| device.queue != Queue::Fifo || device.startup != Startup::Drawn)
    }

    /// # Errors
    /// [`SimulateError::Value`] names the first number that is none a device can have.
    pub(crate) fn check(&self) -> Result<(), SimulateError> {
        let time = |what, value: f64| {
            if value >= 0.0 && value.is_finite() { Ok(()) } else { Err(SimulateError::Value { what, value }) }
        };
        for device in &self.devices {
            if let Queue::Anticipatory { wait_s, .. } = device.queue {
                time("the wait of an anticipatory queue", wait_s)?;
            }
            if let Startup::Seek { read, write } = device.startup {
                for curve in [read, write] {
                    time("the startup of a sequential request", curve.sequential_s)?;
                    time("the shortest seek", curve.settle_s)?;
                    time("the full stroke", curve.full_stroke_s)?;
                    time("the rotation", curve.rotation_s)?;
                    if curve.stroke_bytes == 0 {
                        return Err(SimulateError::Value { what: "the bytes that a full stroke passes", value: 0.0 });
                    }
                }
            }
        }
        if let ServerLink::Rate { s_per_byte } = self.links.server {
            time("the time per byte of a server's link", s_per_byte)?;
        }
        if let Some(client) = self.links.client {
            time("the time per byte of a client's link", client.s_per_byte)?;
            if client.processes_per_node == 0 {
                return Err(SimulateError::Value { what: "the number of processes on a node", value: 0.0 });
            }
        }
        time("the latency of a message", self.links.latency_s)?;
        if let Some(metadata) = &self.metadata {
            if metadata.threads == 0 {
                return Err(SimulateError::Value { what: "the number of threads of the metadata server", value: 0.0 });
            }
            for service in [metadata.open, metadata.create, metadata.stat] {
                time("the least time of a metadata operation", service.min_s)?;
                time("the greatest time of a metadata operation", service.max_s)?;
            }
        }
        Ok(())
    }
}

/// The servers of one tier.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct TierDevice {
    /// Which sub-request is served next.
    pub queue: Queue,
    /// What positioning costs.
    pub startup: Startup,
}

/// What a sub-request costs before its bytes flow.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Startup {
    /// Uniform between the profile's least and greatest startup.
    #[default]
    Drawn,
    /// By distance from the end of the sub-request before it (reads and writes move one head).
    Seek {
        /// Of reads.
        read: SeekCurve,
        /// Of writes.
        write: SeekCurve,
    },
}

impl Startup {
    /// Seeks that stay within the profile's startups ([`SeekCurve::within`]).
    pub fn seek_within(read: &OpProfile, write: &OpProfile, stroke_bytes: u64) -> Self {
        let curve = |op: &OpProfile| SeekCurve::within(op, stroke_bytes);
        Self::Seek { read: curve(read), write: curve(write) }
    }
}

/// The network.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Links {
    /// Of each server.
    pub server: ServerLink,
    /// Of each node that processes run on; without one nodes take and send any number of bytes at once.
    pub client: Option<ClientLink>,
    /// Seconds that a message is under way beside its time on links: every request waits for it twice, before its first
    /// sub-request sets out and after its last has come.
    pub latency_s: f64,
    /// How bytes pass two links.
    pub forwarding: Forwarding,
}

/// The link of a server, the same in both directions, which are independent and FIFO.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum ServerLink {
    /// None: the profile's network time per byte is added to beta, and the device is held while bytes travel.
    #[default]
    InBeta,
    /// The profile's network time per byte: after the device for reads, before it for writes.
    OfProfile,
    /// As [`ServerLink::OfProfile`] with another time.
    Rate {
        /// Seconds per byte.
        s_per_byte: f64,
    },
}

/// The link of a node, the same in both directions, which are independent and FIFO.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ClientLink {
    /// Seconds per byte.
    pub s_per_byte: f64,
    /// Process `i` runs on node `i / processes_per_node`.
    pub processes_per_node: u32,
}

/// How a sub-request passes the client's and the server's link. Between link and device its bytes are always stored
/// first: a device sends what it has read, and writes what it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Forwarding {
    /// All its bytes pass the first link, then all pass the second.
    #[default]
    StoreAndForward,
    /// It queues for the second link as soon as the first begins to send, and holds the second until both are done.
    Pipelined,
}

/// A metadata server: one FIFO queue.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Metadata {
    /// Operations served at a time.
    pub threads: u32,
    /// Opening a file that exists.
    pub open: Service,
    /// Making one.
    pub create: Service,
    /// Asking for its attributes.
    pub stat: Service,
}

/// A time drawn uniformly in `[min_s, max_s]`, in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Service {
    /// Least.
    pub min_s: f64,
    /// Greatest.
    pub max_s: f64,
}
