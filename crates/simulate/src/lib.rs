//! Discrete-event simulation of requests on servers.
//!
//! There are two ways in, for one model: closed-loop processes issue requests; a request is split by the [`Layout`] of
//! its file, its sub-requests are in flight together (one after the other on tiers that are asked in turn), and it ends
//! with the last of them; a sub-request takes its server's startup plus its bytes times beta (HARL Table I).
//!
//! - [`simulate`](simulate()) is the quick one: FIFO servers, startups drawn from the profile, at most a link a server.
//!   Planners try layouts with it.
//! - [`run`](run()) is the whole one: a [`System`] says what stands around the cluster's profiles (elevator and
//!   anticipatory queues, seeks by distance, links of servers and of the nodes that processes run on, a metadata
//!   server), and a [`StepProgram`] what the processes do: a [`ClosedLoop`] as it is, [`Packed`] in a tenth of the memory, or
//!   [`Generated`] by a rule, with barriers and collective calls of communicators. It reports what [`simulate`](simulate())
//!   does ([`SimulationReport::outcome`]), queues, links and a time line. [`repeat`] runs it with several seeds in parallel and
//!   gives means with confidence intervals.
//!
//! Several programs run at once as [`Joined`]; with [`System::turns`] they take turns, decided by what decides in a pool
//! (`stripewise_schedule`).
//!
//! With a plain [`System`] both agree, but for the rounding of [`run`](run()) to nanoseconds and the order in which
//! processes that act at the same instant are served.
//!
//! Everything is deterministic by seed. The n-th startup of a server is the same draw under every layout, so two
//! layouts compared with one seed differ by the layout and not by luck.
//!
//! ```
//! use stripewise_layout::{Layout, ServerId};
//! use stripewise_model::presets;
//! use stripewise_simulate::{FileChoice, FilePart, Generated, Queue, SlotOrder, System, TierDevice, Together, repeat};
//!
//! // 6 HDDs with elevators and 2 SSDs; 16 processes read 512 KiB at random places of a 1 GiB file, 20 times each.
//! let cluster = presets::set_p(6, 2, false);
//! let elevator = TierDevice { queue: Queue::Elevator, ..TierDevice::default() };
//! let system = System { devices: vec![elevator, TierDevice::default()], bins: 64, ..System::default() };
//! let program = Generated {
//!     processes: 16,
//!     parts: vec![FilePart { offset: 0, bytes: 1 << 30, request_bytes: 512 << 10, requests: 20 }],
//!     order: SlotOrder::Random,
//!     files: FileChoice::Shared,
//!     read_share: 1.0,
//!     think_s: 0.0,
//!     together: Together::Free,
//!     opens: false,
//! };
//! let layout = Layout::striped((0..8).map(ServerId), 64 << 10)?;
//! let repeated = repeat(&cluster, &[layout], &program, &system, 1, 5)?;
//! let (mean, half_width) = (repeated.throughput.mean, repeated.throughput.half_width.unwrap());
//! assert!(mean > 1e6 && half_width < mean);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`Layout`]: stripewise_layout::Layout

mod agenda;
mod anticipation;
mod communicator;
mod described;
mod device;
mod draw;
mod engine;
mod error;
mod generate;
mod histogram;
mod joined;
mod link;
mod metadata;
mod outcome;
mod packed;
mod places;
mod program;
mod program_turns;
mod repeat;
mod replay;
mod report;
mod run;
mod side_by_side;
mod slab;
mod sweeps;
mod system;
mod time;
mod timeline;
mod turn_keeper;
mod workload;

pub use described::Described;
pub use engine::{Network, SimulationOptions, simulate, simulate_observed};
pub use error::SimulateError;
pub use generate::{FileChoice, FilePart, Generated, GeneratorCursor, SlotOrder, Together};
pub use joined::{Joined, JoinedPart, JoinedReading};
pub use outcome::{Latency, ServerUse, SimulationOutcome, TakenSubs};
pub use packed::{Packed, Reading};
pub use program::StepProgram;
pub use program_turns::ProgramTurns;
pub use repeat::{Estimate, Repeated, repeat};
pub use replay::{Did, Replayed, What, replay};
pub use report::{MetadataUse, NodeUse, QueueUse, SimulationReport, TurnUse};
pub use run::{run, run_observed};
pub use stripewise_model::{Queue, SeekCurve, SeekShape};
pub use stripewise_schedule::ProgramRules;
pub use system::{ClientLink, Forwarding, Links, Metadata, ServerLink, Service, Startup, System, TierDevice};
pub use timeline::{ServerBin, Timeline};
pub use workload::{ClosedLoop, MetadataOp, SimulatedAccess, SimulatedStep};
