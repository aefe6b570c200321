//! `stripewise-agent`: the agent of a node, and the orchestrator that agents join.

mod cli;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::Parser;
use stripewise_agent::{
    AgentError, AgentListener, AgentLog, AgentOptions, Hub, HubNodes, NodeAgent, NodeKeys, Result, new_key,
};
use stripewise_orchestrate::{Orchestrator, this_node};
use stripewise_store::Pool;
use tokio::signal::unix::{SignalKind, signal};

use crate::cli::{AgentCli, AgentCommand, Orchestrate};

/// How long an end may be waited for.
const LONGEST_WAIT: Duration = Duration::from_millis(100);

fn main() -> ExitCode {
    let done = match AgentCli::parse().command {
        AgentCommand::Join { pool, orchestrator, keys } => join(pool, orchestrator, keys),
        AgentCommand::NewKey { node } => new_key(&node).map(|line| println!("{line}")),
        AgentCommand::Orchestrate(options) => orchestrate(&options),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&format!("error: {error}"));
            ExitCode::FAILURE
        }
    }
}

/// A line of the log.
fn say(words: &str) {
    let _ = std::io::stderr().write_all(format!("{words}\n").as_bytes());
}

/// The same with the time of day, in UTC.
fn say_when(words: &str) {
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    say(&format!("{:02}:{:02}:{:02}Z {words}", now_s / 3600 % 24, now_s / 60 % 60, now_s % 60));
}

/// Runs `work`, which gets a flag that SIGINT and SIGTERM set, and waits for one of them.
fn until_signal<T: Send>(work: impl FnOnce(&AtomicBool) -> T + Send) -> Result<T> {
    let failed = |error: std::io::Error| AgentError::Invalid(format!("cannot wait for signals: {error}"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (mut interrupt, mut terminate) = {
            let _guard = runtime.enter();
            (signal(SignalKind::interrupt()).map_err(failed)?, signal(SignalKind::terminate()).map_err(failed)?)
        };
        let worker = scope.spawn(|| work(&ended));
        runtime.block_on(async {
            loop {
                tokio::select! {
                    _ = interrupt.recv() => break,
                    _ = terminate.recv() => break,
                    () = tokio::time::sleep(LONGEST_WAIT) => if worker.is_finished() { break },
                }
            }
        });
        ended.store(true, Ordering::Relaxed);
        worker.join().map_err(|_| AgentError::Invalid("the work ended by a fault of its own".to_owned()))
    })
}

fn join(pool_file: PathBuf, orchestrator: String, keys: PathBuf) -> Result<()> {
    let (node, keys) = (this_node(), NodeKeys::load(&keys)?);
    let said = format!("agent of node {node}, orchestrator at {orchestrator}; Ctrl-C ends");
    until_signal(|ended| {
        let options = AgentOptions { pool_file, node, orchestrator, keys, teller: AgentLog::new(say_when) };
        let agent = NodeAgent::start(options)?;
        say(&said);
        while !ended.load(Ordering::Relaxed) {
            std::thread::sleep(LONGEST_WAIT);
        }
        drop(agent);
        say("ended: all programs of this node are served at all times");
        Ok(())
    })?
}

fn orchestrate(options: &Orchestrate) -> Result<()> {
    let pool = Pool::load(&options.pool)?;
    let keys = NodeKeys::load(&options.keys)?;
    let settings = options.options();
    until_signal(|ended| {
        let orchestrator = Orchestrator::start(&pool, &settings)?;
        let hub = Hub::new(&pool, &settings.policy, keys, AgentLog::new(say_when));
        let listener = AgentListener::start(options.listen, hub.clone())?;
        let mut orchestrator = orchestrator.with_nodes(Box::new(HubNodes(hub)));
        say(&format!(
            "orchestrating pool '{}' by {}, window {} ms, agents join at {}; Ctrl-C ends",
            pool.name,
            settings.policy,
            settings.window.as_secs_f64() * 1e3,
            listener.address()
        ));
        while !ended.load(Ordering::Relaxed) {
            for decision in orchestrator.work(LONGEST_WAIT) {
                if decision.is_change || options.verbose {
                    say_when(&decision.to_string());
                }
            }
            orchestrator.take_remarks().iter().for_each(|words| say_when(words));
        }
        drop(orchestrator);
        say("ended: all programs are served at all times");
        Ok(())
    })?
}
