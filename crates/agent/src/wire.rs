//! The messages of agents and orchestrator: Protocol Buffers in gRPC, one stream both ways for each agent.
//!
//! ```text
//! agent                                    orchestrator
//!   Sealed{JoinOpening}      ------------>
//!                            <------------   Sealed{Challenge}     by the node's key and the agent's number
//!   Sealed{Report}           ------------>                         by both numbers
//!                            <------------   Sealed{JoinAnswer}    times of a report, or a plan
//! ```

/// The method that an agent calls.
pub const JOIN_PATH: &str = "/stripewise.turns.v1.Turns/Join";
/// The version of these messages.
pub const WIRE_VERSION: u32 = 1;
/// Bytes of a message: 1 MiB.
pub const MESSAGE_BYTES: usize = 1 << 20;
/// One that says nothing for this time has gone: 10 s.
pub const SILENT_S: u64 = 10;
/// Bytes of the random number that each side puts into a session.
pub const NONCE_BYTES: usize = 16;

/// What is sent: the encoded message, its number in its direction, and the seal over both (BLAKE3 with a key).
#[derive(Clone, PartialEq, prost::Message)]
pub struct Sealed {
    /// 0, 1, 2 and so on.
    #[prost(fixed64, tag = "1")]
    pub number: u64,
    /// A message of those below.
    #[prost(bytes = "vec", tag = "2")]
    pub body: Vec<u8>,
    /// 32 bytes; none of an opening.
    #[prost(bytes = "vec", tag = "3")]
    pub seal: Vec<u8>,
}

/// An agent's first message. Nothing in it is believed.
#[derive(Clone, PartialEq, prost::Message)]
pub struct JoinOpening {
    /// [`WIRE_VERSION`].
    #[prost(uint32, tag = "1")]
    pub version: u32,
    /// The agent's node.
    #[prost(string, tag = "2")]
    pub node: String,
    /// The name of its pool.
    #[prost(string, tag = "3")]
    pub pool: String,
    /// Servers of its pool.
    #[prost(uint32, tag = "4")]
    pub servers: u32,
    /// Random.
    #[prost(bytes = "vec", tag = "5")]
    pub nonce: Vec<u8>,
}

/// The orchestrator's first message.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Challenge {
    /// Random.
    #[prost(bytes = "vec", tag = "1")]
    pub nonce: Vec<u8>,
}

/// A program on a server.
#[derive(Clone, PartialEq, prost::Message)]
pub struct WireUse {
    /// Place of the server in the pool.
    #[prost(uint32, tag = "1")]
    pub server: u32,
    /// Bytes.
    #[prost(float, tag = "2")]
    pub gap_bytes: f32,
    /// Nanoseconds; not a number where it is not known.
    #[prost(float, tag = "3")]
    pub reuse_ns: f32,
}

/// A program. Times are ages at the time of sending.
#[derive(Clone, PartialEq, prost::Message)]
pub struct WireProgram {
    /// Key.
    #[prost(fixed64, tag = "1")]
    pub key: u64,
    /// Name.
    #[prost(string, tag = "2")]
    pub name: String,
    /// Processes.
    #[prost(uint32, tag = "3")]
    pub processes: u32,
    /// Files.
    #[prost(uint32, tag = "4")]
    pub files: u32,
    /// How long ago it was first seen.
    #[prost(uint64, tag = "5")]
    pub first_age_ns: u64,
    /// How long ago it was last seen.
    #[prost(uint64, tag = "6")]
    pub last_age_ns: u64,
    /// Requests.
    #[prost(uint64, tag = "7")]
    pub requests: u64,
    /// Bytes.
    #[prost(uint64, tag = "8")]
    pub bytes: u64,
    /// Requests that waited.
    #[prost(uint64, tag = "9")]
    pub held: u64,
    /// How long.
    #[prost(uint64, tag = "10")]
    pub waited_ns: u64,
    /// Requests in a turn.
    #[prost(uint64, tag = "11")]
    pub in_turn: u64,
    /// Requests that no orchestrator answered.
    #[prost(uint64, tag = "12")]
    pub unanswered: u64,
    /// Requests that passed after two windows.
    #[prost(uint64, tag = "13")]
    pub overdue: u64,
    /// Mean time between bursts.
    #[prost(double, optional, tag = "14")]
    pub period_ns: Option<f64>,
    /// How long ago its last burst of requests began.
    #[prost(uint64, tag = "16")]
    pub burst_age_ns: u64,
    /// On each server.
    #[prost(message, repeated, tag = "15")]
    pub uses: Vec<WireUse>,
}

/// What a user's programs do on a server, all together.
#[derive(Clone, PartialEq, prost::Message)]
pub struct WireTraffic {
    /// Place of the server in the pool.
    #[prost(uint32, tag = "1")]
    pub server: u32,
    /// Requests.
    #[prost(double, tag = "2")]
    pub requests: f64,
    /// Bytes.
    #[prost(double, tag = "3")]
    pub gap_bytes: f64,
}

/// What programs of a node have done on a server.
#[derive(Clone, PartialEq, prost::Message)]
pub struct WireServed {
    /// Place of the server in the pool.
    #[prost(uint32, tag = "1")]
    pub server: u32,
    /// Requests.
    #[prost(uint64, tag = "2")]
    pub requests: u64,
    /// Bytes.
    #[prost(uint64, tag = "3")]
    pub bytes: u64,
}

/// What an agent says, again and again.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Report {
    /// The agent's clock when it sent this.
    #[prost(fixed64, tag = "1")]
    pub sent_ns: u64,
    /// The shortest round trip that it knows of; 0: none yet.
    #[prost(uint64, tag = "2")]
    pub round_trip_ns: u64,
    /// Programs of its node.
    #[prost(message, repeated, tag = "3")]
    pub programs: Vec<WireProgram>,
    /// Traffic of its users.
    #[prost(message, repeated, tag = "4")]
    pub traffic: Vec<WireTraffic>,
    /// Requests of programs without a place.
    #[prost(uint64, tag = "5")]
    pub unplaced: u64,
    /// Whether gates of its node keep to slices.
    #[prost(bool, optional, tag = "6")]
    pub in_turns: Option<bool>,
    /// The agent's clock less the orchestrator's, as measured with the shortest round trip.
    #[prost(sint64, optional, tag = "7")]
    pub offset_ns: Option<i64>,
    /// What its programs have done on each server, where that is anything.
    #[prost(message, repeated, tag = "8")]
    pub served: Vec<WireServed>,
}

/// The times of one report: the agent measures how far the orchestrator's clock is from its own.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Times {
    /// The agent's clock when it sent the report.
    #[prost(fixed64, tag = "1")]
    pub sent_ns: u64,
    /// The orchestrator's clock when that came.
    #[prost(fixed64, tag = "2")]
    pub came_ns: u64,
    /// The orchestrator's clock when it answered.
    #[prost(fixed64, tag = "3")]
    pub answered_ns: u64,
}

/// A slice.
#[derive(Clone, PartialEq, prost::Message)]
pub struct WireSlice {
    /// Key of the program; 0: all others.
    #[prost(fixed64, tag = "1")]
    pub program: u64,
    /// Its end in the window.
    #[prost(uint64, tag = "2")]
    pub end_ns: u64,
}

/// A program of a plan.
#[derive(Clone, PartialEq, prost::Message)]
pub struct WireListed {
    /// Key.
    #[prost(fixed64, tag = "1")]
    pub program: u64,
    /// Name of its standing.
    #[prost(string, tag = "2")]
    pub standing: String,
    /// Weight.
    #[prost(double, tag = "3")]
    pub weight: f64,
    /// Bytes in a second; 0 is none.
    #[prost(uint64, tag = "4")]
    pub limit: u64,
    /// Reuse distance.
    #[prost(double, optional, tag = "5")]
    pub reuse_ns: Option<f64>,
}

/// A plan, ahead of its beginning.
#[derive(Clone, PartialEq, prost::Message)]
pub struct WirePlan {
    /// Name of the policy.
    #[prost(string, tag = "1")]
    pub policy: String,
    /// The orchestrator's clock when its first window begins.
    #[prost(fixed64, tag = "2")]
    pub begin_ns: u64,
    /// Window.
    #[prost(uint64, tag = "3")]
    pub window_ns: u64,
    /// Slices; none: all are served at all times.
    #[prost(message, repeated, tag = "4")]
    pub slices: Vec<WireSlice>,
    /// Programs with a weight, a limit or a standing.
    #[prost(message, repeated, tag = "5")]
    pub listed: Vec<WireListed>,
}

/// What an orchestrator says.
#[derive(Clone, PartialEq, prost::Message)]
pub struct JoinAnswer {
    /// To a report.
    #[prost(message, optional, tag = "1")]
    pub times: Option<Times>,
    /// A new plan.
    #[prost(message, optional, tag = "2")]
    pub plan: Option<WirePlan>,
}
