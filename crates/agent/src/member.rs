//! The agent of a node: reads what the node's programs do, says that to the orchestrator, and puts its plans in force.

use std::path::PathBuf;
use std::thread::JoinHandle;
use std::time::Duration;

use stripewise_orchestrate::NodePages;
use stripewise_store::Pool;
use stripewise_store::emulate::now_ns;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{MissedTickBehavior, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::client::Grpc;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Streaming};
use tonic_prost::ProstCodec;

use crate::clock_offset::ClockOffset;
use crate::convert::{plan_of, report_of};
use crate::error::{AgentError, Result, ended, ended_by};
use crate::node_keys::NodeKeys;
use crate::seal::{KEY_BYTES, SealedWay, SessionKeys, nonce};
use crate::teller::AgentLog;
use crate::wire::{
    Challenge, JOIN_PATH, JoinAnswer, JoinOpening, MESSAGE_BYTES, NONCE_BYTES, SILENT_S, Sealed, Times, WIRE_VERSION,
    WirePlan,
};

/// An agent reports this often: the time in which an idle slice is found is at least this.
const REPORT_EVERY: Duration = Duration::from_millis(20);
/// Until an agent that was cut off tries again: from the first to the second, doubled each time.
const AGAIN: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));
/// How long the orchestrator has to answer the end of a session: 1 s.
const LEAVING: Duration = Duration::from_secs(1);
/// Reports that wait until the orchestrator takes them.
const REPORTS: usize = 4;

/// What an agent needs to know.
#[derive(Clone)]
pub struct AgentOptions {
    /// The pool file.
    pub pool_file: PathBuf,
    /// The node's name.
    pub node: String,
    /// Where the orchestrator listens, as `HOST:PORT`.
    pub orchestrator: String,
    /// Keys, the node's among them.
    pub keys: NodeKeys,
    /// The log.
    pub teller: AgentLog,
}

/// An agent at work, until it is dropped: then its node's gates are open.
pub struct NodeAgent {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl NodeAgent {
    /// Makes the pages of the node and begins to join.
    ///
    /// # Errors
    /// There is no key of the node; the orchestrator's address is none; another agent is at work on the node.
    pub fn start(options: AgentOptions) -> Result<Self> {
        let pool = Pool::load(&options.pool_file)?;
        let Some(key) = options.keys.of(&options.node).copied() else {
            let words = "`stripewise agent new-key` makes one, which the orchestrator's file needs, too";
            return Err(AgentError::Invalid(format!("the file of keys has none of node '{}': {words}", options.node)));
        };
        let endpoint = endpoint_of(&options.orchestrator)?;
        let pages = NodePages::open(&pool, &options.node)?;
        let servers = pool.servers.len() as u32;
        let mut member = Member {
            options,
            pool: pool.name,
            servers,
            key,
            endpoint,
            pages,
            clock: ClockOffset::default(),
            is_late: false,
            has_joined: false,
        };
        let failed = |error: std::io::Error| AgentError::Invalid(format!("cannot start the agent: {error}"));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::Builder::new().name("agent".to_owned()).spawn(move || {
            runtime.block_on(async move {
                let mut session = None;
                tokio::select! {
                    () = member.work(&mut session) => {}
                    _ = stopped => {}
                }
                // The gates open first, whether the orchestrator answers or not.
                drop(member);
                if let Some(session) = session {
                    leave(session).await;
                }
            });
        });
        Ok(Self { stop: Some(stop), thread: Some(thread.map_err(failed)?) })
    }
}

impl Drop for NodeAgent {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn endpoint_of(orchestrator: &str) -> Result<Endpoint> {
    let refused = || AgentError::Invalid(format!("'{orchestrator}' is no address of an orchestrator: give HOST:PORT"));
    let (host, port) = orchestrator.rsplit_once(':').ok_or_else(refused)?;
    if host.is_empty() || port.parse::<u16>().is_err() {
        return Err(refused());
    }
    let endpoint = Endpoint::from_shared(format!("http://{orchestrator}")).map_err(|_| refused())?;
    Ok(endpoint.connect_timeout(Duration::from_secs(SILENT_S)).tcp_nodelay(true))
}

struct Member {
    options: AgentOptions,
    pool: String,
    servers: u32,
    key: [u8; KEY_BYTES],
    endpoint: Endpoint,
    pages: NodePages,
    clock: ClockOffset,
    /// Whether the last plan came too late.
    is_late: bool,
    /// Whether the orchestrator has answered in this session.
    has_joined: bool,
}

/// A session: what comes, where reports go, and the keys of both directions.
struct JoinedSession {
    incoming: Streaming<Sealed>,
    reports: mpsc::Sender<Sealed>,
    from: SealedWay,
    to: SealedWay,
}

impl Member {
    /// Joins, again and again; `place` has the session that is open.
    async fn work(&mut self, place: &mut Option<JoinedSession>) {
        let at = self.options.orchestrator.clone();
        let mut wait = AGAIN.0;
        let mut said = String::new();
        loop {
            self.reload_key();
            let ended = match self.join().await {
                Ok(session) => {
                    let ended = self.talk(place.insert(session)).await;
                    *place = None;
                    ended
                }
                Err(error) => Err(error),
            };
            let has_joined = std::mem::take(&mut self.has_joined);
            if has_joined {
                wait = AGAIN.0;
            }
            let why = ended.err().map_or_else(|| "it has ended".to_owned(), |error| error.to_string());
            // The same again is no news.
            if has_joined || why != said {
                let words = "the gates of this node open when the last plan is too old; trying again";
                self.options.teller.say(&format!("no orchestrator at {at}: {why}; {words}"));
                said = why;
            }
            self.clock = ClockOffset::default();
            self.wait(wait).await;
            wait = (2 * wait).min(AGAIN.1);
        }
    }

    /// Takes the node's key from the file of keys if that was changed; one without it leaves the key as it was.
    fn reload_key(&mut self) {
        if let Some(words) = self.options.keys.reload() {
            self.options.teller.say(&words);
        }
        if let Some(key) = self.options.keys.of(&self.options.node) {
            self.key = *key;
        }
    }

    /// Waits; a plan that begins meanwhile is put in force.
    async fn wait(&mut self, time: Duration) {
        let until_ns = now_ns().saturating_add(time.as_nanos() as u64);
        while now_ns() < until_ns {
            sleep_until(self.pages.due_ns().map_or(until_ns, |due_ns| due_ns.min(until_ns))).await;
            self.pages.tick();
        }
    }

    async fn join(&mut self) -> Result<JoinedSession> {
        let channel: Channel = self.endpoint.connect().await.map_err(|error| ended(&error))?;
        let (reports, taken) = mpsc::channel(REPORTS);
        let mut grpc = Grpc::new(channel).max_decoding_message_size(MESSAGE_BYTES);
        grpc.ready().await.map_err(|error| ended(&error))?;
        let opening = JoinOpening {
            version: WIRE_VERSION,
            node: self.options.node.clone(),
            pool: self.pool.clone(),
            servers: self.servers,
            nonce: nonce()?,
        };
        let body = prost::Message::encode_to_vec(&opening);
        let mut keys = SessionKeys::new(&self.key, &body);
        let gone = |_| AgentError::Ended("the connection was cut".to_owned());
        reports.send(Sealed { number: 0, body, seal: Vec::new() }).await.map_err(gone)?;
        let path = http::uri::PathAndQuery::from_static(JOIN_PATH);
        let codec = ProstCodec::<Sealed, Sealed>::default();
        let call = grpc.streaming(Request::new(ReceiverStream::new(taken)), path, codec);
        let answered = timeout(Duration::from_secs(SILENT_S), call).await.map_err(|_| AgentError::Silent(SILENT_S))?;
        let mut incoming = answered.map_err(|status| ended_by(&status))?.into_inner();
        let challenge: Challenge = keys.challenge.open(&next(&mut incoming).await?)?;
        if challenge.nonce.len() != NONCE_BYTES {
            return Err(AgentError::NoMessage(format!("a random number of {} bytes", challenge.nonce.len())));
        }
        let (to, from) = keys.directions(&challenge.nonce);
        Ok(JoinedSession { incoming, reports, from, to })
    }

    async fn talk(&mut self, session: &mut JoinedSession) -> Result<()> {
        let JoinedSession { incoming, reports, from, to } = session;
        let mut ticks = tokio::time::interval(REPORT_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut heard_ns = now_ns();
        loop {
            let due_ns = self.pages.due_ns();
            tokio::select! {
                message = incoming.message() => {
                    let received_ns = now_ns();
                    let sealed = message.map_err(|status| ended_by(&status))?;
                    let Some(sealed) = sealed else { return Ok(()) };
                    let answer: JoinAnswer = from.open(&sealed)?;
                    heard_ns = received_ns;
                    // It answers those alone that it believes.
                    if !std::mem::replace(&mut self.has_joined, true) {
                        let at = &self.options.orchestrator;
                        self.options.teller.say(&format!("joined the orchestrator at {at}"));
                    }
                    self.take(&answer, received_ns)?;
                }
                _ = ticks.tick() => {
                    if now_ns().saturating_sub(heard_ns) > SILENT_S * 1_000_000_000 {
                        return Err(AgentError::Silent(SILENT_S));
                    }
                    // One that cannot be sent at once would be old when it comes.
                    match reports.try_reserve() {
                        Ok(place) => {
                            let snapshot = self.pages.snapshot();
                            self.pages.take_remarks().iter().for_each(|words| self.options.teller.refuse(words));
                            let mut report = report_of(&snapshot, now_ns());
                            report.round_trip_ns = self.clock.round_trip_ns().unwrap_or(0);
                            report.offset_ns = self.clock.own_less_other_ns();
                            report.in_turns = Some(self.pages.is_in_turns());
                            place.send(to.seal(&report));
                        }
                        Err(mpsc::error::TrySendError::Full(())) => {}
                        Err(mpsc::error::TrySendError::Closed(())) => {
                            // What the other side said last is in what still comes.
                        }
                    }
                }
                () = sleep_until(due_ns.unwrap_or(u64::MAX)), if due_ns.is_some() => {}
            }
            self.pages.tick();
        }
    }

    fn take(&mut self, answer: &JoinAnswer, received_ns: u64) -> Result<()> {
        if let Some(Times { sent_ns, came_ns, answered_ns }) = answer.times
            && self.clock.note(sent_ns, came_ns, answered_ns, received_ns)
        {
            self.options.teller.say("the clocks of this node and the orchestrator's have moved: measured anew");
        }
        match &answer.plan {
            Some(plan) => self.put(plan),
            None => Ok(()),
        }
    }

    /// Puts a plan in force when it begins by this node's clock. Without a measured clock there is none yet.
    fn put(&mut self, wire: &WirePlan) -> Result<()> {
        let Some(begin_ns) = self.clock.to_own(wire.begin_ns) else { return Ok(()) };
        let plan = plan_of(wire, begin_ns)?;
        let is_late = !self.pages.put(&wire.policy, plan);
        if is_late && !self.is_late {
            self.options
                .teller
                .say("a plan came after its time and is left out: this node was stopped, or its way is slow");
        }
        self.is_late = is_late;
        Ok(())
    }
}

async fn next(incoming: &mut Streaming<Sealed>) -> Result<Sealed> {
    let message = timeout(Duration::from_secs(SILENT_S), incoming.message());
    let message = message.await.map_err(|_| AgentError::Silent(SILENT_S))?;
    let message = message.map_err(|status| ended_by(&status))?;
    message.ok_or_else(|| AgentError::Ended("it has ended the session".to_owned()))
}

/// Ends a session so that the orchestrator sees the end of it, and no connection that is cut.
async fn leave(session: JoinedSession) {
    let JoinedSession { mut incoming, reports, .. } = session;
    drop(reports);
    let ended = async { while let Ok(Some(_)) = incoming.message().await {} };
    let _ = timeout(LEAVING, ended).await;
}

async fn sleep_until(due_ns: u64) {
    tokio::time::sleep(Duration::from_nanos(due_ns.saturating_sub(now_ns()))).await;
}
