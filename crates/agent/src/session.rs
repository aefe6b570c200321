//! An agent's session, as the orchestrator sees it.

use std::sync::Arc;
use std::time::Duration;

use stripewise_store::emulate::now_ns;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout, timeout_at};
use tonic::{Status, Streaming};

use crate::convert::snapshot_of;
use crate::error::{AgentError, Result, ended_by};
use crate::guest_stream::PeerConnection;
use crate::hub::{Hub, ReportTimes};
use crate::seal::{KEY_BYTES, SealedWay, SessionKeys, nonce};
use crate::wire::{Challenge, JoinAnswer, JoinOpening, NONCE_BYTES, Report, SILENT_S, Sealed, Times, WIRE_VERSION};

/// An agent that says nothing for this time, or takes nothing, is gone.
const SILENT: Duration = Duration::from_secs(SILENT_S);
/// One report a millisecond is the most that is taken.
const LEAST_BETWEEN: Duration = Duration::from_millis(1);

/// The answers of a session, as gRPC takes them.
pub(crate) type Answers = mpsc::Sender<std::result::Result<Sealed, Status>>;

/// One session with whatever is at `peer`, until it ends; what is wrong with it is said.
pub(crate) async fn serve(hub: Arc<Hub>, mut incoming: Streaming<Sealed>, answers: Answers, peer: PeerConnection) {
    let number = hub.begin_session();
    let mut session = ServedSession { hub: &hub, number, peer, node: None, key: None, has_joined: false };
    let error = session.run(&mut incoming, &answers).await.err();
    let who = session.node.as_ref().map(|node| format!("node {node} at {}", peer.address));
    let (is_named, has_joined) = (who.is_some(), session.has_joined);
    let who = who.unwrap_or_else(|| peer.address.to_string());
    hub.end_session(number, peer.number);
    match error {
        None if has_joined => hub.teller.say(&format!("{who}: has left; its programs have no part in plans any more")),
        // It has seen the challenge, which is sealed with the key of its node here.
        None | Some(AgentError::Ended(_)) if is_named && !has_joined => hub.teller.refuse(&format!(
            "{who}: ended at the challenge, as an agent does that has another key: compare the lines of this node in both files \
             of keys"
        )),
        None => {}
        Some(error @ (AgentError::Ended(_) | AgentError::Silent(_))) if has_joined => {
            hub.teller.say(&format!("{who}: is gone: {error}; its programs have no part in plans any more"));
        }
        Some(error) => {
            hub.teller.refuse(&format!("{who}: its session is ended: {error}"));
            let _ = answers.try_send(Err(Status::permission_denied(error.to_string())));
        }
    }
}

/// What is known of a session.
struct ServedSession<'a> {
    hub: &'a Hub,
    number: u64,
    peer: PeerConnection,
    /// Which node it says it is of.
    node: Option<String>,
    /// The key that the node had when the session began.
    key: Option<[u8; KEY_BYTES]>,
    /// Whether it has shown that it is.
    has_joined: bool,
}

/// The next message, by `deadline`.
async fn next(incoming: &mut Streaming<Sealed>, deadline: Instant) -> Result<Option<Sealed>> {
    match timeout_at(deadline, incoming.message()).await {
        Err(_) => Err(AgentError::Silent(SILENT_S)),
        Ok(Err(status)) => Err(ended_by(&status)),
        Ok(Ok(message)) => Ok(message),
    }
}

async fn send(answers: &Answers, sealed: Sealed) -> Result<()> {
    match timeout(SILENT, answers.send(Ok(sealed))).await {
        Err(_) => Err(AgentError::Silent(SILENT_S)),
        Ok(sent) => sent.map_err(|_| AgentError::Ended("it does not listen any more".to_owned())),
    }
}

impl ServedSession<'_> {
    async fn run(&mut self, incoming: &mut Streaming<Sealed>, answers: &Answers) -> Result<()> {
        let Some(first) = next(incoming, Instant::now() + SILENT).await? else { return Ok(()) };
        let (node, keys) = self.open(&first)?;
        let mut keys = keys;
        let own = nonce()?;
        let sealed = keys.challenge.seal(&Challenge { nonce: own.clone() });
        send(answers, sealed).await?;
        let (from, to) = keys.directions(&own);
        self.talk(&node, incoming, answers, (from, to)).await
    }

    /// Who says that it is there, and the keys by which it has to show that.
    fn open(&mut self, first: &Sealed) -> Result<(String, SessionKeys)> {
        let opening: JoinOpening =
            prost::Message::decode(first.body.as_slice()).map_err(|error| AgentError::NoMessage(error.to_string()))?;
        if opening.version != WIRE_VERSION {
            let words = format!("its messages are of version {}, these of {WIRE_VERSION}", opening.version);
            return Err(AgentError::Invalid(words));
        }
        let shown: String = opening.node.chars().take(64).flat_map(char::escape_debug).collect();
        self.hub.reload_keys();
        let Some(key) = self.hub.key(&opening.node) else {
            let words = format!("there is no key of a node '{shown}' here: make one by `stripewise agent new-key`");
            return Err(AgentError::Invalid(words));
        };
        (self.node, self.key) = (Some(shown), Some(key));
        if opening.nonce.len() != NONCE_BYTES {
            return Err(AgentError::NoMessage(format!("a random number of {} bytes", opening.nonce.len())));
        }
        if opening.pool != self.hub.pool || opening.servers as usize != self.hub.servers {
            let shown: String = opening.pool.chars().take(64).flat_map(char::escape_debug).collect();
            return Err(AgentError::Invalid(format!(
                "its pool is '{shown}' with {} servers, and not '{}' with {}: give it the same pool file",
                opening.servers, self.hub.pool, self.hub.servers
            )));
        }
        Ok((opening.node, SessionKeys::new(&key, &first.body)))
    }

    async fn talk(
        &mut self,
        node: &str,
        incoming: &mut Streaming<Sealed>,
        answers: &Answers,
        (mut from, mut to): (SealedWay, SealedWay),
    ) -> Result<()> {
        let mut plans = self.hub.plans();
        plans.mark_changed();
        let mut deadline = Instant::now() + SILENT;
        loop {
            tokio::select! {
                message = next(incoming, deadline) => {
                    let Some(sealed) = message? else { return Ok(()) };
                    let times = self.take(node, &mut from, &sealed)?;
                    send(answers, to.seal(&JoinAnswer { times: Some(times), plan: None })).await?;
                    tokio::time::sleep(LEAST_BETWEEN).await;
                    deadline = Instant::now() + SILENT;
                }
                // A stranger gets no plan.
                changed = plans.changed(), if self.has_joined => {
                    if changed.is_err() {
                        return Ok(());
                    }
                    let plan = plans.borrow_and_update().clone();
                    if plan.is_some() {
                        send(answers, to.seal(&JoinAnswer { times: None, plan })).await?;
                    }
                }
            }
        }
    }

    /// Takes a report.
    fn take(&mut self, node: &str, from: &mut SealedWay, sealed: &Sealed) -> Result<Times> {
        let came_ns = now_ns();
        let report: Report = from.open(sealed)?;
        let snapshot = snapshot_of(&report, self.hub.servers, came_ns)?;
        if !self.has_joined {
            let again = if self.hub.join(node, self.number, (self.peer.number, self.peer.address))? {
                ", in place of an agent that was silent"
            } else {
                ""
            };
            self.has_joined = true;
            self.hub.teller.say(&format!("node {node} at {}: has joined{again}", self.peer.address));
        } else if !self.hub.is_of(node, self.number) {
            return Err(AgentError::Invalid("another agent has joined with the key of this node".to_owned()));
        }
        if self.key != self.hub.key(node) {
            let words = "the file of keys has another key of this node by now, or none: give the agent the new one";
            return Err(AgentError::Invalid(words.to_owned()));
        }
        let Report { round_trip_ns, offset_ns, in_turns, .. } = report;
        self.hub.note((node, self.number), snapshot, ReportTimes { came_ns, round_trip_ns, offset_ns, in_turns });
        Ok(Times { sent_ns: report.sent_ns, came_ns, answered_ns: now_ns() })
    }
}
