//! What an orchestrator knows of the nodes that have joined, and the plan that they get.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use stripewise_orchestrate::{NodeSnapshot, OtherNodes, PublishedPlan};
use stripewise_store::Pool;
use tokio::sync::watch;

use crate::convert::wire_plan;
use crate::node_keys::NodeKeys;
use crate::teller::AgentLog;
use crate::wire::WirePlan;

/// A plan is sent the longest round trip and this much ahead: 2 ms, as an agent's timers have 1 ms.
const LEAD_NS: u64 = 2_000_000;
/// No more of a round trip than this counts: 1 s.
const MOST_ROUND_TRIP_NS: u64 = 1_000_000_000;
/// What a report says of who is busy holds for this time: 100 ms, a few reports.
const SPEAKS_FOR_NS: u64 = 100_000_000;
/// Agents and strangers at a time.
pub(crate) const MOST_SESSIONS: usize = 1024;

/// A node that has joined.
#[derive(Debug)]
struct Joined {
    session: u64,
    round_trip_ns: u64,
    /// What its last report said, and when that came.
    snapshot: NodeSnapshot,
    came_ns: u64,
}

#[derive(Debug, Default)]
struct Sessions {
    nodes: HashMap<String, Joined>,
    /// Of all that are open, whether they have joined or not.
    open: usize,
    last: u64,
}

/// The nodes of an orchestrator; shared by its sessions.
pub struct Hub {
    /// Name of the pool.
    pub(crate) pool: String,
    /// Its servers.
    pub(crate) servers: usize,
    pub(crate) keys: NodeKeys,
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
            keys,
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

    /// A number for a new session; `None`: there are too many.
    pub(crate) fn begin_session(&self) -> Option<u64> {
        let mut sessions = self.sessions();
        if sessions.open >= MOST_SESSIONS {
            return None;
        }
        sessions.open += 1;
        sessions.last += 1;
        Some(sessions.last)
    }

    /// Ends a session, and takes back what its node has said.
    pub(crate) fn end_session(&self, session: u64) {
        let mut sessions = self.sessions();
        sessions.open -= 1;
        sessions.nodes.retain(|_, joined| joined.session != session);
    }

    /// Whether `session` is the one that speaks for `node`.
    pub(crate) fn is_of(&self, node: &str, session: u64) -> bool {
        self.sessions().nodes.get(node).is_some_and(|joined| joined.session == session)
    }

    /// `session` speaks for `node` from now on; whether another one did.
    pub(crate) fn join(&self, node: &str, session: u64) -> bool {
        let joined = Joined { session, round_trip_ns: 0, snapshot: NodeSnapshot::default(), came_ns: 0 };
        self.sessions().nodes.insert(node.to_owned(), joined).is_some()
    }

    /// Takes what the agent of `node` has said in `session`.
    pub(crate) fn note(
        &self,
        (node, session): (&str, u64),
        snapshot: NodeSnapshot,
        (round_trip_ns, came_ns): (u64, u64),
    ) {
        if let Some(joined) = self.sessions().nodes.get_mut(node).filter(|joined| joined.session == session) {
            (joined.snapshot, joined.came_ns) = (snapshot, came_ns);
            joined.round_trip_ns = round_trip_ns.min(MOST_ROUND_TRIP_NS);
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
            let shift_ns = now_ns.saturating_sub(joined.came_ns).min(SPEAKS_FOR_NS);
            let mut now = joined.snapshot.clone();
            now.programs.iter_mut().for_each(|program| program.last_ns = (program.last_ns + shift_ns).min(now_ns));
            snapshot.join(&now);
        }
    }

    fn send(&mut self, plan: &PublishedPlan) {
        self.0.plan.send_replace(Some(wire_plan(&self.0.policy, plan)));
    }

    fn lead_ns(&self) -> u64 {
        let sessions = self.0.sessions();
        sessions.nodes.values().map(|joined| joined.round_trip_ns + LEAD_NS).max().unwrap_or(0)
    }
}
