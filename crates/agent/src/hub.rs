//! What an orchestrator knows of the nodes that have joined, and the plan that they get.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use stripewise_orchestrate::{NodeProgram, NodeSnapshot, NodeStatus, OtherNodes, PublishedPlan};
use stripewise_store::Pool;
use stripewise_store::emulate::now_ns;
use tokio::sync::{oneshot, watch};

use crate::connections::Connections;
use crate::convert::wire_plan;
use crate::error::{AgentError, Result};
use crate::node_keys::NodeKeys;
use crate::seal::KEY_BYTES;
use crate::teller::AgentLog;
use crate::wire::WirePlan;

/// A plan is sent the longest round trip and this much ahead: 2 ms, as an agent's timers have 1 ms.
const LEAD_NS: u64 = 2_000_000;
/// No more of a round trip than this counts: 1 s.
const MOST_ROUND_TRIP_NS: u64 = 1_000_000_000;
/// An agent that was heard of within this time keeps its place: 1 s, fifty reports. Two agents of one name would take it from each
/// other for ever.
const KEEPS_PLACE_NS: u64 = 1_000_000_000;
/// What a report says of who is busy holds for this time: 100 ms, a few reports.
const SPEAKS_FOR_NS: u64 = 100_000_000;

/// A node that has joined.
#[derive(Debug)]
struct Joined {
    session: u64,
    connection: u64,
    address: SocketAddr,
    /// What its last report said.
    snapshot: NodeSnapshot,
    report: ReportTimes,
}

/// What a report says beside its programs.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ReportTimes {
    /// When it came.
    pub(crate) came_ns: u64,
    pub(crate) round_trip_ns: u64,
    /// The agent's clock less this one.
    pub(crate) offset_ns: Option<i64>,
    /// Whether the gates of the node keep to slices.
    pub(crate) in_turns: Option<bool>,
}

impl Joined {
    fn status(&self, node: &str, is_joined: bool, now_ns: u64) -> NodeStatus {
        // Whether a program is busy is as of the report: the orchestrator says for how long it has heard nothing.
        let of_report = self.snapshot.programs.iter().map(|program| NodeProgram::of(program, self.report.came_ns));
        NodeStatus {
            name: node.to_owned(),
            address: self.address.to_string(),
            is_joined,
            clock_offset_ns: self.report.offset_ns,
            clock_error_ns: self.report.round_trip_ns / 2,
            heard_ns: now_ns.saturating_sub(self.report.came_ns),
            is_in_turns: self.report.in_turns.filter(|_| is_joined),
            programs: if is_joined { of_report.collect() } else { Vec::new() },
            served: if is_joined { self.snapshot.served.clone() } else { Vec::new() },
        }
    }
}

#[derive(Debug, Default)]
struct Sessions {
    nodes: HashMap<String, Joined>,
    connections: Connections,
    last: u64,
    /// Nodes that have been there; of each key one at most.
    gone: HashMap<String, Joined>,
}

impl Sessions {
    /// Whether a connection is one of a node, or of none any more.
    fn judge(&mut self, connection: u64) {
        let is_of_node = self.nodes.values().any(|joined| joined.connection == connection);
        self.connections.believe(connection, is_of_node, now_ns());
    }
}

/// The nodes of an orchestrator; shared by its sessions.
pub struct Hub {
    /// Name of the pool.
    pub(crate) pool: String,
    /// Its servers.
    pub(crate) servers: usize,
    keys: Mutex<NodeKeys>,
    pub(crate) teller: AgentLog,
    policy: String,
    sessions: Mutex<Sessions>,
    plan: watch::Sender<Option<WirePlan>>,
}

impl Hub {
    /// For agents of `pool` that have one of `keys`, under `policy`.
    pub fn new(pool: &Pool, policy: &str, keys: NodeKeys, teller: AgentLog) -> Arc<Self> {
        Arc::new(Self {
            pool: pool.name.clone(),
            servers: pool.servers.len(),
            keys: Mutex::new(keys),
            teller,
            policy: policy.to_owned(),
            sessions: Mutex::default(),
            plan: watch::Sender::new(None),
        })
    }

    fn sessions(&self) -> MutexGuard<'_, Sessions> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The names of the nodes that have joined.
    pub fn joined(&self) -> Vec<String> {
        let mut names: Vec<String> = self.sessions().nodes.keys().cloned().collect();
        names.sort();
        names
    }

    /// Plans, as they come.
    pub(crate) fn plans(&self) -> watch::Receiver<Option<WirePlan>> {
        self.plan.subscribe()
    }

    /// A connection from `address`: its number, and what says that it has to end. Of too many that have shown no key of a node
    /// the oldest is closed; those of nodes are not.
    pub(crate) fn begin_connection(&self, address: SocketAddr) -> (u64, oneshot::Receiver<()>) {
        let (number, stopped, has_closed) = self.sessions().connections.begin(address.ip(), now_ns());
        if has_closed {
            self.teller.refuse(&format!("{address}: takes the place of a connection that has shown no key of a node"));
        }
        (number, stopped)
    }

    /// Closes connections that have shown no key of a node for too long.
    pub(crate) fn close_old_strangers(&self) {
        self.sessions().connections.close_old(now_ns());
    }

    /// A connection has ended.
    pub(crate) fn end_connection(&self, number: u64) {
        self.sessions().connections.end(number);
    }

    /// A number for a new session.
    pub(crate) fn begin_session(&self) -> u64 {
        let mut sessions = self.sessions();
        sessions.last += 1;
        sessions.last
    }

    /// Ends a session of `connection`, and takes back what its node has said.
    pub(crate) fn end_session(&self, session: u64, connection: u64) {
        let mut sessions = self.sessions();
        let ended = sessions.nodes.extract_if(|_, joined| joined.session == session).next();
        sessions.gone.extend(ended);
        sessions.judge(connection);
    }

    /// Whether `session` is the one that speaks for `node`.
    pub(crate) fn is_of(&self, node: &str, session: u64) -> bool {
        self.sessions().nodes.get(node).is_some_and(|joined| joined.session == session)
    }

    /// `session` of `connection` speaks for `node` from now on; whether another one did, which was silent.
    ///
    /// # Errors
    /// Another agent speaks for the node.
    pub(crate) fn join(&self, node: &str, session: u64, (connection, address): (u64, SocketAddr)) -> Result<bool> {
        let now_ns = now_ns();
        let mut sessions = self.sessions();
        if let Some(before) = sessions.nodes.get(node)
            && now_ns.saturating_sub(before.report.came_ns) <= KEEPS_PLACE_NS
        {
            return Err(AgentError::Invalid(format!(
                "node {node} has an agent already, at {}: end that one, or give this machine a name and a key of its own",
                before.address
            )));
        }
        let (snapshot, report) = (NodeSnapshot::default(), ReportTimes { came_ns: now_ns, ..ReportTimes::default() });
        let joined = Joined { session, connection, address, snapshot, report };
        sessions.gone.remove(node);
        let before = sessions.nodes.insert(node.to_owned(), joined);
        sessions.judge(connection);
        if let Some(before) = &before {
            sessions.judge(before.connection);
        }
        Ok(before.is_some())
    }

    /// The key of `node`, as the file of keys is now.
    pub(crate) fn key(&self, node: &str) -> Option<[u8; KEY_BYTES]> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner).of(node).copied()
    }

    /// Reads the file of keys again if it is another one than before. What is no file of keys is said, and changes nothing.
    pub(crate) fn reload_keys(&self) {
        let reloaded = self.keys.lock().unwrap_or_else(PoisonError::into_inner).reload();
        if let Some(words) = reloaded {
            self.teller.say(&words);
        }
    }

    /// Takes what the agent of `node` has said in `session`.
    pub(crate) fn note(&self, (node, session): (&str, u64), snapshot: NodeSnapshot, report: ReportTimes) {
        if let Some(joined) = self.sessions().nodes.get_mut(node).filter(|joined| joined.session == session) {
            joined.snapshot = snapshot;
            joined.report = ReportTimes { round_trip_ns: report.round_trip_ns.min(MOST_ROUND_TRIP_NS), ..report };
        }
    }
}

/// The nodes of a hub, for the orchestrator.
pub struct HubNodes(pub Arc<Hub>);

impl OtherNodes for HubNodes {
    /// A report speaks for 100 ms. After that its programs age: those of a node that has stopped have sent nothing for long, and
    /// so have no part in a plan.
    fn add_to(&mut self, snapshot: &mut NodeSnapshot, now_ns: u64) {
        let sessions = self.0.sessions();
        for joined in sessions.nodes.values() {
            let shift_ns = now_ns.saturating_sub(joined.report.came_ns).min(SPEAKS_FOR_NS);
            let mut now = joined.snapshot.clone();
            now.programs.iter_mut().for_each(|program| program.last_ns = (program.last_ns + shift_ns).min(now_ns));
            snapshot.join(&now);
        }
    }

    fn send(&mut self, plan: &PublishedPlan) {
        self.0.plan.send_replace(Some(wire_plan(&self.0.policy, plan)));
    }

    fn statuses(&self, now_ns: u64) -> Vec<NodeStatus> {
        let sessions = self.0.sessions();
        let status = |is_joined| move |(node, of): (&String, &Joined)| of.status(node, is_joined, now_ns);
        let there = sessions.nodes.iter().map(status(true));
        let mut nodes: Vec<NodeStatus> = there.chain(sessions.gone.iter().map(status(false))).collect();
        nodes.sort_by(|one, other| one.name.cmp(&other.name));
        nodes
    }

    fn lead_ns(&self) -> u64 {
        let sessions = self.0.sessions();
        sessions.nodes.values().map(|joined| joined.report.round_trip_ns + LEAD_NS).max().unwrap_or(0)
    }
}
