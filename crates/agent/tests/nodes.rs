//! An orchestrator and agents of several nodes over TCP: plans, delays, losses, cuts, ends, hostile messages.

mod slow_wire;

use std::io::Read;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use slow_wire::{Network, Wire};
use stripewise_agent::seal::{KEY_BYTES, SealedWay, SessionKeys};
use stripewise_agent::wire::{
    Challenge, JOIN_PATH, JoinAnswer, JoinOpening, MESSAGE_BYTES, Report, Sealed, WIRE_VERSION, WireProgram,
};
use stripewise_agent::{AgentListener, AgentLog, AgentOptions, Hub, HubNodes, NodeAgent, NodeKeys, new_key};
use stripewise_control::{Action, Door, FileId, Request, Sender, Served, Way};
use stripewise_layout::{ServerId, SubRequest};
use stripewise_orchestrate::{
    Asker, Identified, NodeStatus, Orchestrator, OrchestratorOptions, ProgramRules, Turns, orchestration_status,
    this_node,
};
use stripewise_store::Pool;
use stripewise_store::emulate::now_ns;
use stripewise_store::pool::{PoolSpec, TierSpec};
use tokio_stream::wrappers::ReceiverStream;

const PATIENCE: Duration = Duration::from_secs(120);

/// Waits until `done` gives something.
fn wait_for<T>(what: &str, mut done: impl FnMut() -> Option<T>) -> T {
    let begin = Instant::now();
    loop {
        if let Some(found) = done() {
            return found;
        }
        assert!(begin.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A log.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    fn teller(&self) -> AgentLog {
        let lines = self.0.clone();
        AgentLog::new(move |words| lines.lock().unwrap().push(words.to_owned()))
    }

    fn count(&self, words: &str) -> usize {
        self.0.lock().unwrap().iter().filter(|line| line.contains(words)).count()
    }

    fn wait(&self, words: &str) {
        wait_for(&format!("'{words}' in {:?}", self.0.lock().unwrap().clone()), || {
            (self.count(words) > 0).then_some(())
        });
    }
}

/// A pool that all nodes have, and keys of `hub`, `n1` and `n2`.
struct Cluster {
    dir: tempfile::TempDir,
    pool: Pool,
    keys: PathBuf,
}

fn cluster() -> Cluster {
    let dir = tempfile::tempdir().unwrap();
    let disk = dir.path().join("disk");
    std::fs::create_dir(&disk).unwrap();
    let tier = TierSpec { name: "hdd".into(), servers: vec![disk], ..TierSpec::default() };
    let (mount, namespace) = (dir.path().join("mount"), dir.path().join("namespace"));
    let spec = PoolSpec { name: "turns".into(), mount, namespace, tiers: vec![tier], ..PoolSpec::default() };
    let pool = Pool::init(&dir.path().join("pool.toml"), &spec).unwrap();
    let keys = dir.path().join("keys");
    std::fs::write(&keys, format!("{}\n{}\n", new_key("n1").unwrap(), new_key("n2").unwrap())).unwrap();
    std::fs::set_permissions(&keys, PermissionsExt::from_mode(0o600)).unwrap();
    Cluster { dir, pool, keys }
}

impl Cluster {
    fn keys(&self) -> NodeKeys {
        NodeKeys::load(&self.keys).unwrap()
    }

    /// At the first port that is free, or the one that an orchestrator had before.
    fn orchestrator(&self, port: u16, log: &Log) -> Orchestrating {
        self.orchestrator_at(SocketAddr::from(([127, 0, 0, 1], port)), Duration::from_millis(40), log)
    }

    fn orchestrator_at(&self, address: SocketAddr, window: Duration, log: &Log) -> Orchestrating {
        let options = OrchestratorOptions { policy: "even".to_owned(), window, rules: ProgramRules::default() };
        let hub = Hub::new(&self.pool, "even", self.keys(), log.teller());
        // The one before may not have gone yet.
        let orchestrator = wait_for("an orchestrator", || Orchestrator::start(&self.pool, &options).ok());
        let listener = wait_for("the port", || AgentListener::start(address, hub.clone()).ok());
        let mut orchestrator = orchestrator.with_nodes(Box::new(HubNodes(hub.clone())));
        let is_over = Arc::new(AtomicBool::new(false));
        let over = is_over.clone();
        let thread = std::thread::spawn(move || {
            while !over.load(Ordering::Relaxed) {
                orchestrator.work(Duration::from_millis(20));
            }
            orchestrator
        });
        Orchestrating { hub, listener: Some(listener), is_over, thread: Some(thread) }
    }

    fn agent(&self, node: &str, address: SocketAddr, log: &Log) -> NodeAgent {
        let (orchestrator, teller) = (address.to_string(), log.teller());
        let pool_file = self.dir.path().join("pool.toml");
        NodeAgent::start(AgentOptions { pool_file, node: node.to_owned(), orchestrator, keys: self.keys(), teller })
            .unwrap()
    }

    /// The gate of a program of `node`.
    fn door(&self, node: &str, name: &str) -> Option<Door> {
        let program = Identified::named(rustix::process::geteuid().as_raw(), name.as_bytes());
        let turns = Turns::of_node(&self.pool, node, || Asker::Own(program), |_| {})?;
        Some(turns.install(Door::default()))
    }
}

struct Orchestrating {
    hub: Arc<Hub>,
    listener: Option<AgentListener>,
    is_over: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<Orchestrator>>,
}

impl Orchestrating {
    fn address(&self) -> SocketAddr {
        self.listener.as_ref().unwrap().address()
    }

    fn wait_joined(&self, nodes: &[&str]) {
        wait_for(&format!("{nodes:?} to join"), || (self.hub.joined() == nodes).then_some(()));
    }

    /// Ends without a word to agents, as one does that is killed.
    fn die(mut self) {
        drop(self.listener.take());
        self.is_over.store(true, Ordering::Relaxed);
        drop(self.thread.take().unwrap().join().unwrap());
    }
}

impl Drop for Orchestrating {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

/// A program that sends requests until it is dropped, and what its gate did.
struct Running {
    is_over: Arc<AtomicBool>,
    /// Requests, those that waited, and how long these did in nanoseconds: all together, and the longest.
    figures: Arc<[AtomicU64; 4]>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Running {
    fn start(door: Door, file: u64) -> Self {
        let (is_over, figures) = (Arc::new(AtomicBool::new(false)), Arc::new([const { AtomicU64::new(0) }; 4]));
        let (over, seen) = (is_over.clone(), figures.clone());
        let thread = std::thread::spawn(move || {
            let mut offset = 0;
            while !over.load(Ordering::Relaxed) {
                let request = Request {
                    sender: Sender::this_process(Way::Library),
                    action: Action::Read,
                    offset,
                    len: 4096,
                    rank: 0,
                };
                let begin = Instant::now();
                door.enter(FileId(file), &request);
                let waited_ns = begin.elapsed().as_nanos() as u64;
                seen[0].fetch_add(1, Ordering::Relaxed);
                if waited_ns > 5_000_000 {
                    seen[1].fetch_add(1, Ordering::Relaxed);
                    seen[2].fetch_add(waited_ns, Ordering::Relaxed);
                    seen[3].fetch_max(waited_ns, Ordering::Relaxed);
                }
                let (server, datafile_offset) = (ServerId(0), offset);
                let part = SubRequest { region: 0, slot: 0, server, datafile_offset, len: 4096, from: 0, to: 4096 };
                door.served(FileId(file), &request, Served::of(&part, 4096), (0, || 0));
                offset += 4096;
                std::thread::sleep(Duration::from_micros(200));
            }
        });
        Self { is_over, figures, thread: Some(thread) }
    }

    fn requests(&self) -> u64 {
        self.figures[0].load(Ordering::Relaxed)
    }

    fn held(&self) -> u64 {
        self.figures[1].load(Ordering::Relaxed)
    }

    /// No request has waited longer than two windows and what a busy machine adds: the mean of those that waited is below, and
    /// each is over.
    fn assert_bounded(&self, window: Duration) {
        let [_, held, waited_ns, longest_ns] = [0, 1, 2, 3].map(|at| self.figures[at].load(Ordering::Relaxed));
        println!(
            "{held} requests waited, {} ms on average, {} ms at most",
            waited_ns / held.max(1) / 1_000_000,
            longest_ns / 1_000_000
        );
        assert!(waited_ns <= held * 2 * window.as_nanos() as u64, "{waited_ns} ns of {held} requests");
        assert!(longest_ns < PATIENCE.as_nanos() as u64, "{longest_ns} ns");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Waits until each of the programs was held a few times more.
fn wait_turns(programs: &[&Running]) {
    let before: Vec<u64> = programs.iter().map(|one| one.held()).collect();
    wait_for("turns", || programs.iter().zip(&before).all(|(one, held)| one.held() > held + 5).then_some(()));
}

/// Waits until each has sent `count` requests in a row without being held: the gates are open.
fn wait_open(programs: &[&Running], count: u64) {
    for one in programs {
        let mut begin = (one.requests(), one.held());
        wait_for("open gates", || {
            let now = (one.requests(), one.held());
            if now.1 != begin.1 {
                begin = now;
            }
            (now.0 > begin.0 + count).then_some(())
        });
    }
}

/// Whether a node runs the program that it is to run, and that has been served.
fn runs_its_program(of: &NodeStatus) -> bool {
    let program = if of.name == "n1" { "first" } else { "second" };
    let [found] = &of.programs[..] else { return false };
    found.name == program && of.served[0].requests > 0
}

/// Waits until the orchestrator says so of both nodes with agents. Their clocks are this one: what is measured is 0, but for the
/// error that is stated with it.
fn wait_nodes(cluster: &Cluster, is_so: impl Fn(&NodeStatus) -> bool) {
    wait_for("nodes in the status", || {
        let watched = orchestration_status(&cluster.pool).unwrap().nodes;
        let nodes: Vec<NodeStatus> = watched.into_iter().map(|of| of.status).collect();
        let [here, agents @ ..] = &nodes[..] else { return None };
        assert_eq!((here.name.as_str(), here.address.as_str()), (this_node().as_str(), ""));
        for of in agents {
            assert!(of.address.starts_with("127.0.0.1:") || of.address.starts_with("10.98."), "{of:?}");
            assert!(of.clock_offset_ns.is_none_or(|offset_ns| offset_ns.unsigned_abs() <= of.clock_error_ns), "{of:?}");
        }
        (agents.len() == 2 && agents.iter().all(&is_so)).then_some(())
    });
}

#[test]
fn programs_of_two_nodes_take_turns_and_go_on_when_the_orchestrator_dies() {
    let cluster = cluster();
    let (log, [log_of_1, log_of_2]) = (Log::default(), [Log::default(), Log::default()]);
    let orchestrator = cluster.orchestrator(0, &log);
    let address = orchestrator.address();
    let _one = cluster.agent("n1", address, &log_of_1);
    let _two = cluster.agent("n2", address, &log_of_2);
    orchestrator.wait_joined(&["n1", "n2"]);
    log_of_2.wait("joined the orchestrator");
    let first = Running::start(cluster.door("n1", "first").unwrap(), 1);
    let second = Running::start(cluster.door("n2", "second").unwrap(), 2);
    wait_turns(&[&first, &second]);
    wait_nodes(&cluster, |of| of.is_joined && of.is_in_turns == Some(true) && runs_its_program(of));

    // The orchestrator dies in the middle of a window, and comes back at the same place.
    orchestrator.die();
    wait_open(&[&first, &second], 300);
    log_of_1.wait("the gates of this node open");
    let orchestrator = cluster.orchestrator(address.port(), &log);
    orchestrator.wait_joined(&["n1", "n2"]);
    wait_turns(&[&first, &second]);
    for log in [&log_of_1, &log_of_2] {
        assert!(log.count("joined the orchestrator") >= 2);
    }
}

/// Networks of an orchestrator and two nodes, and the wires to these; `None`: the machine or this user has none.
fn networks() -> Option<([Network; 3], [Wire; 2])> {
    let made = (|| {
        let networks = [Network::new()?, Network::new()?, Network::new()?];
        let wires = [Wire::new([&networks[0], &networks[1]], 1)?, Wire::new([&networks[0], &networks[2]], 2)?];
        Ok::<_, std::io::Error>((networks, wires))
    })();
    made.inspect_err(|error| {
        eprintln!("NOT RUN: delay, loss and cuts need root, network namespaces and /dev/net/tun: {error}")
    })
    .ok()
}

#[test]
fn turns_over_slow_wires_that_lose_packets_and_are_cut() {
    let Some((networks, wires)) = networks() else { return };
    let [hub, node_1, node_2] = &networks;
    let (window, delays) = (Duration::from_millis(200), [20, 5].map(Duration::from_millis));
    wires.iter().for_each(|wire| wire.delay(delays));
    let cluster = cluster();
    let (log, [log_of_1, log_of_2]) = (Log::default(), [Log::default(), Log::default()]);
    let any = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 7077));
    let orchestrator = hub.run(|| cluster.orchestrator_at(any, window, &log));
    let at = |number| SocketAddr::from(([10, 98, number, 1], 7077));
    let _one = node_1.run(|| cluster.agent("n1", at(1), &log_of_1));
    orchestrator.wait_joined(&["n1"]);

    // Plans come before their time. The orchestrator knows how long they are on their way by what the other node has measured.
    let listening = node_2.run(|| {
        let mut listening = Hostile::call(at(2), opening("n2", "turns"));
        let (mut from, mut to) = listening.join(&key_of(&cluster, "n2"), &opening("n2", "turns"));
        listening.send(from.seal(&Report::default()));
        wait_for("a plan before its time", || {
            let answer: JoinAnswer = to.open(&listening.next().unwrap()).unwrap();
            answer.plan.filter(|plan| plan.begin_ns > now_ns()).map(|_| ())
        });
        listening
    });
    drop(listening);

    let _two = node_2.run(|| cluster.agent("n2", at(2), &log_of_2));
    orchestrator.wait_joined(&["n1", "n2"]);
    let first = Running::start(cluster.door("n1", "first").unwrap(), 1);
    let second = Running::start(cluster.door("n2", "second").unwrap(), 2);
    wait_turns(&[&first, &second]);
    let way_ns = delays.iter().sum::<Duration>().as_nanos() as u64;
    wait_nodes(&cluster, |of| of.clock_error_ns >= way_ns / 2 && runs_its_program(of));

    // One of ten packets is lost: turns go on. Clocks are as near as they are said to be.
    wires.iter().for_each(|wire| wire.lose(10));
    wait_for("losses", || wires.iter().all(|wire| wire.lost() > 10).then_some(()));
    wait_turns(&[&first, &second]);
    wait_nodes(&cluster, |of| of.is_joined && of.clock_error_ns >= way_ns / 2);
    [&first, &second].iter().for_each(|program| program.assert_bounded(window));
    wires.iter().for_each(|wire| wire.lose(0));

    // A wire is cut, and neither end is told. The gates of that node open, as its plan is too old; its program has no part in plans
    // any more, so that the other one is not held.
    wires[0].cut(true);
    wait_open(&[&first, &second], 500);
    wires[0].cut(false);
    wait_turns(&[&first, &second]);

    // Plans that come later than they hold are left out: the gates are open.
    wires[0].delay([4 * window, Duration::ZERO]);
    log_of_1.wait("a plan came after its time and is left out");
    wait_open(&[&first], 500);
    wires[0].delay(delays);
    wait_turns(&[&first, &second]);
    [&first, &second].iter().for_each(|program| program.assert_bounded(window));
}

#[test]
fn an_agent_that_ends_opens_its_gates_and_a_second_one_is_refused() {
    let cluster = cluster();
    let log = Log::default();
    let orchestrator = cluster.orchestrator(0, &log);
    let agent = cluster.agent("n1", orchestrator.address(), &log);
    orchestrator.wait_joined(&["n1"]);
    let options = |node: &str, orchestrator: &str| AgentOptions {
        pool_file: cluster.dir.path().join("pool.toml"),
        node: node.to_owned(),
        orchestrator: orchestrator.to_owned(),
        keys: cluster.keys(),
        teller: log.teller(),
    };
    let refused = |node: &str, at: &str| NodeAgent::start(options(node, at)).err().unwrap().to_string();
    assert!(refused("n1", "127.0.0.1:1").contains("orchestrated already"));
    assert!(refused("n3", "127.0.0.1:1").contains("none of node 'n3'"));
    assert!(refused("n2", "there").contains("'there' is no address"));
    assert!(refused("n2", ":7").contains("HOST:PORT"));
    let program = Running::start(cluster.door("n1", "one").unwrap(), 1);
    wait_for("requests", || (program.requests() > 100).then_some(()));
    drop(agent);
    log.wait("has left; its programs have no part in plans any more");
    assert_eq!(log.count("is gone"), 0, "its end is no fault");
    orchestrator.wait_joined(&[]);
    wait_for("a node that is gone in the status", || {
        let nodes = orchestration_status(&cluster.pool).unwrap().nodes;
        nodes.iter().any(|of| of.status.name == "n1" && !of.status.is_joined && of.programs.is_empty()).then_some(())
    });
    // No gate is closed behind the agent.
    wait_open(&[&program], 200);
}

/// A client that says what it likes.
struct Hostile {
    runtime: tokio::runtime::Runtime,
    reports: tokio::sync::mpsc::Sender<Sealed>,
    incoming: tonic::Streaming<Sealed>,
}

impl Hostile {
    fn call(address: SocketAddr, first: Sealed) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (reports, taken) = tokio::sync::mpsc::channel(8);
        let incoming = runtime.block_on(async {
            let channel =
                tonic::transport::Endpoint::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap();
            let mut grpc = tonic::client::Grpc::new(channel);
            grpc.ready().await.unwrap();
            reports.send(first).await.unwrap();
            let codec = tonic_prost::ProstCodec::<Sealed, Sealed>::default();
            let path = http::uri::PathAndQuery::from_static(JOIN_PATH);
            let call = grpc.streaming(tonic::Request::new(ReceiverStream::new(taken)), path, codec);
            call.await.unwrap().into_inner()
        });
        Self { runtime, reports, incoming }
    }

    /// The next message, or what the session was ended with.
    fn next(&mut self) -> Result<Sealed, String> {
        let message = self.runtime.block_on(async { tokio::time::timeout(PATIENCE, self.incoming.message()).await });
        match message.expect("an answer in time") {
            Ok(Some(sealed)) => Ok(sealed),
            Ok(None) => Err(String::new()),
            Err(status) => Err(status.message().to_owned()),
        }
    }

    /// Takes the challenge: the keys of both directions.
    fn join(&mut self, key: &[u8; KEY_BYTES], first: &Sealed) -> (SealedWay, SealedWay) {
        let mut keys = SessionKeys::new(key, &first.body);
        let nonce = keys.challenge.open::<Challenge>(&self.next().unwrap()).unwrap().nonce;
        keys.directions(&nonce)
    }

    fn send(&mut self, sealed: Sealed) {
        let _ = self.runtime.block_on(self.reports.send(sealed));
    }

    /// Reads until the session is ended: by what.
    fn end(&mut self) -> String {
        loop {
            if let Err(why) = self.next() {
                return why;
            }
        }
    }
}

fn opening(node: &str, pool: &str) -> Sealed {
    opening_of(WIRE_VERSION, node, pool)
}

fn opening_of(version: u32, node: &str, pool: &str) -> Sealed {
    let opening = JoinOpening { version, node: node.to_owned(), pool: pool.to_owned(), servers: 1, nonce: vec![5; 16] };
    Sealed { number: 0, body: prost::Message::encode_to_vec(&opening), seal: Vec::new() }
}

fn key_of(cluster: &Cluster, node: &str) -> [u8; KEY_BYTES] {
    *cluster.keys().of(node).unwrap()
}

#[test]
fn what_a_hostile_agent_sends_is_refused_and_named() {
    let cluster = cluster();
    let log = Log::default();
    let orchestrator = cluster.orchestrator(0, &log);
    let address = orchestrator.address();
    // Unknown, of another pool, no message at all.
    let mut unknown = Hostile::call(address, opening("n9\n", "turns"));
    assert!(unknown.end().contains("no key of a node 'n9\\n'"));
    let mut other = Hostile::call(address, opening("n1", "elsewhere"));
    assert!(other.end().contains("its pool is 'elsewhere' with 1 servers"));
    let mut garbage = Hostile::call(address, Sealed { number: 0, body: vec![0xff; 100], seal: Vec::new() });
    assert!(garbage.end().contains("cannot be read"));
    let mut cut = opening("n1", "turns");
    cut.body.truncate(cut.body.len() - 9);
    assert!(Hostile::call(address, cut).end().contains("cannot be read"));
    // No older protocol is spoken, nor a newer one.
    for version in [0, WIRE_VERSION + 1] {
        let words = format!("its messages are of version {version}, these of {WIRE_VERSION}");
        assert!(Hostile::call(address, opening_of(version, "n1", "turns")).end().contains(&words));
        assert!(log.count(&words) > 0);
    }

    // One that has the key of another node: its seal is not that of the node that it says it is of.
    let first = opening("n1", "turns");
    let mut wrong = Hostile::call(address, first.clone());
    let challenge = wrong.next().unwrap();
    let mut keys = SessionKeys::new(&key_of(&cluster, "n1"), &first.body);
    let nonce = keys.challenge.open::<Challenge>(&challenge).unwrap().nonce;
    let (mut stolen, _) = SessionKeys::new(&key_of(&cluster, "n2"), &first.body).directions(&nonce);
    wrong.send(stolen.seal(&Report::default()));
    assert!(wrong.end().contains("not of the key"));

    // One that sends a report again, and the same in a new session.
    let mut replayed = Hostile::call(address, first.clone());
    let (mut from, _) = replayed.join(&key_of(&cluster, "n1"), &first);
    let report = from.seal(&Report::default());
    replayed.send(report.clone());
    replayed.next().unwrap();
    replayed.send(report.clone());
    assert!(replayed.end().contains("repeated"));
    let mut again = Hostile::call(address, first.clone());
    again.next().unwrap();
    again.send(report.clone());
    assert!(again.end().contains("not of the key"));

    // Without a seal, and cut short behind it.
    let mut cut = report.clone();
    cut.body.truncate(cut.body.len().saturating_sub(1));
    cut.number += u64::from(cut.body == report.body);
    for sealed in [Sealed { seal: Vec::new(), ..report.clone() }, cut] {
        let mut changed = Hostile::call(address, first.clone());
        changed.next().unwrap();
        changed.send(sealed);
        assert!(changed.end().contains("not of the key"));
    }

    // Too large, and what no report may say.
    let mut large = Hostile::call(address, first.clone());
    large.next().unwrap();
    large.send(Sealed { number: 0, body: vec![0; MESSAGE_BYTES + 1], seal: vec![0; 32] });
    assert!(large.end().contains("length too large"));
    let mut false_report = Hostile::call(address, first.clone());
    let (mut from, _) = false_report.join(&key_of(&cluster, "n1"), &first);
    let programs = vec![WireProgram { key: 1, ..WireProgram::default() }; 1000];
    false_report.send(from.seal(&Report { programs, ..Report::default() }));
    assert!(false_report.end().contains("1000 programs"));

    // Each has its line, and none was believed.
    for words in [
        "no key of a node 'n9\\n'",
        "node n1 at 127.0.0.1",
        "'elsewhere'",
        "not of the key",
        "repeated",
        "1000 programs",
        "length too large",
    ] {
        assert!(log.count(words) > 0, "{words}: {:?}", log.0.lock().unwrap());
    }
    orchestrator.wait_joined(&[]);
    // One that is what it says is taken all the same.
    let _agent = cluster.agent("n1", address, &log);
    orchestrator.wait_joined(&["n1"]);
}

#[test]
fn of_two_agents_of_one_name_the_first_stays_while_it_speaks() {
    let cluster = cluster();
    let (log, log_of_agent) = (Log::default(), Log::default());
    let orchestrator = cluster.orchestrator(0, &log);
    let address = orchestrator.address();
    let first = opening("n1", "turns");
    let joins = || {
        let mut other = Hostile::call(address, first.clone());
        let (mut from, _) = other.join(&key_of(&cluster, "n1"), &first);
        other.send(from.seal(&Report::default()));
        other
    };
    // One that is silent gives its place to the next.
    let mut silent = joins();
    silent.next().unwrap();
    orchestrator.wait_joined(&["n1"]);
    let _agent = cluster.agent("n1", address, &log_of_agent);
    log.wait("has joined, in place of an agent that was silent");
    log_of_agent.wait("joined the orchestrator");
    let why = joins().end();
    assert!(why.contains("node n1 has an agent already, at 127.0.0.1:") && why.contains("a key of its own"), "{why}");
    log.wait("its session is ended: node n1 has an agent already");
    orchestrator.wait_joined(&["n1"]);
    assert_eq!(log_of_agent.count("joined the orchestrator"), 1, "it has kept its place");
}

#[test]
fn keys_that_are_replaced_hold_from_then_on() {
    let cluster = cluster();
    let (log, log_of_agent) = (Log::default(), Log::default());
    let orchestrator = cluster.orchestrator(0, &log);
    let _agent = cluster.agent("n1", orchestrator.address(), &log_of_agent);
    log_of_agent.wait("joined the orchestrator");
    let before = key_of(&cluster, "n1");
    let replace = |text: &str| {
        let new = cluster.dir.path().join("new");
        std::fs::write(&new, text).unwrap();
        std::fs::set_permissions(&new, PermissionsExt::from_mode(0o600)).unwrap();
        std::fs::rename(&new, &cluster.keys).unwrap();
    };
    // What is no file of keys changes nothing, and is said.
    replace("n1 key");
    log.wait("line 1 is not `NODE KEY`");
    log.wait("the keys that it had before hold on");
    orchestrator.wait_joined(&["n1"]);
    // The agent that is there has to show the new key, and has it.
    replace(&new_key("n1").unwrap());
    log.wait("its 1 keys hold from now on");
    log.wait("the file of keys has another key of this node by now, or none");
    wait_for("the agent to join again", || (log_of_agent.count("joined the orchestrator") > 1).then_some(()));
    orchestrator.wait_joined(&["n1"]);
    // The old one is of no use.
    let first = opening("n1", "turns");
    let mut old = Hostile::call(orchestrator.address(), first.clone());
    let challenge = old.next().unwrap();
    assert!(SessionKeys::new(&before, &first.body).challenge.open::<Challenge>(&challenge).is_err());
    let (mut from, _) = SessionKeys::new(&before, &first.body).directions(&[5; 16]);
    old.send(from.seal(&Report::default()));
    assert!(old.end().contains("not of the key"));
}

#[test]
fn strangers_keep_no_agent_out() {
    let cluster = cluster();
    let log = Log::default();
    let orchestrator = cluster.orchestrator(0, &log);
    let _one = cluster.agent("n1", orchestrator.address(), &log);
    orchestrator.wait_joined(&["n1"]);
    // More than there are places for connections without a key, and they stay.
    let mut strangers: Vec<TcpStream> = (0..300).map(|_| TcpStream::connect(orchestrator.address()).unwrap()).collect();
    let _two = cluster.agent("n2", orchestrator.address(), &log);
    orchestrator.wait_joined(&["n1", "n2"]);
    // The oldest of them was closed for another one.
    let first = &mut strangers[0];
    first.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut bytes = Vec::new();
    let ended = first.read_to_end(&mut bytes);
    let is_open = |error: &std::io::Error| matches!(error.kind(), std::io::ErrorKind::WouldBlock);
    assert!(!ended.as_ref().is_err_and(is_open), "{ended:?}");
    log.wait("takes the place of a connection that has shown no key");
    assert_eq!(log.count("no orchestrator at"), 0, "{:?}", log.0.lock().unwrap());
}

#[test]
fn an_agent_believes_no_other_orchestrator() {
    let cluster = cluster();
    let (log, log_of_agent) = (Log::default(), Log::default());
    let orchestrator = cluster.orchestrator(0, &log);
    // The agent's key is one that the orchestrator does not have: neither believes the other.
    let own = cluster.dir.path().join("own");
    std::fs::write(&own, new_key("n1").unwrap()).unwrap();
    std::fs::set_permissions(&own, PermissionsExt::from_mode(0o600)).unwrap();
    let _agent = NodeAgent::start(AgentOptions {
        pool_file: cluster.dir.path().join("pool.toml"),
        node: "n1".to_owned(),
        orchestrator: orchestrator.address().to_string(),
        keys: NodeKeys::load(&own).unwrap(),
        teller: log_of_agent.teller(),
    })
    .unwrap();
    log_of_agent.wait("not of the key");
    log.wait("node n1 at 127.0.0.1");
    log.wait("compare the lines of this node in both files of keys");
    assert!(orchestrator.hub.joined().is_empty());
    let program = Running::start(cluster.door("n1", "one").unwrap(), 1);
    wait_open(&[&program], 50);
}
