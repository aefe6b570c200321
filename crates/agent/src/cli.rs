//! The command line.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use stripewise_orchestrate::{OrchestratorOptions, ProgramRules};

const EXAMPLES: &str = "Examples:
  stripewise agent new-key node17
  stripewise agent join p/pool.toml --orchestrator head:7077 --keys key";

/// Turns of programs on several nodes: an agent on each, and one orchestrator that they join.
#[derive(Debug, Parser)]
#[command(name = "stripewise agent", version, after_help = EXAMPLES)]
pub(crate) struct AgentCli {
    #[command(subcommand)]
    pub(crate) command: AgentCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum AgentCommand {
    /// Let the programs of this node take turns with those of others: until Ctrl-C or SIGTERM.
    Join {
        /// Pool file, the same as the orchestrator's.
        pool: PathBuf,
        /// Where `stripewise orchestrate --listen` listens.
        #[arg(long, value_name = "HOST:PORT")]
        orchestrator: String,
        /// File with the key of this node, which none but its owner may read.
        #[arg(long, value_name = "FILE")]
        keys: PathBuf,
    },
    /// Print a new line for files of keys, the orchestrator's and the node's.
    NewKey {
        /// Name of the node: what `hostname` says there.
        node: String,
    },
    /// What `stripewise orchestrate --listen` runs.
    #[command(hide = true)]
    Orchestrate(Orchestrate),
}

#[derive(Debug, Args)]
pub(crate) struct Orchestrate {
    pub(crate) pool: PathBuf,
    #[arg(long)]
    policy: String,
    #[arg(long)]
    window_ms: f64,
    #[arg(long, value_parser = rule::<f64>)]
    weight: Vec<(String, f64)>,
    #[arg(long, value_parser = rule::<u64>)]
    limit: Vec<(String, u64)>,
    #[arg(long, value_parser = listen)]
    pub(crate) listen: SocketAddr,
    #[arg(long)]
    pub(crate) keys: PathBuf,
    #[arg(long)]
    pub(crate) verbose: bool,
}

impl Orchestrate {
    pub(crate) fn options(&self) -> OrchestratorOptions {
        let window = Duration::try_from_secs_f64(self.window_ms / 1e3).unwrap_or(Duration::ZERO);
        let weights = self.weight.iter().cloned().collect();
        let limits = self.limit.iter().cloned().collect();
        OrchestratorOptions { policy: self.policy.clone(), window, rules: ProgramRules { weights, limits } }
    }
}

/// `NAME=VALUE`; a name may have `=` in it.
fn rule<T: std::str::FromStr>(text: &str) -> Result<(String, T), String> {
    let (name, value) = text.rsplit_once('=').ok_or("it is not NAME=VALUE")?;
    let value = value.parse().map_err(|_| format!("'{value}' is no number that it can be"))?;
    Ok((name.to_owned(), value))
}

/// `ADDRESS:PORT`, or `PORT` on this machine alone.
fn listen(text: &str) -> Result<SocketAddr, String> {
    if let Ok(port) = text.parse::<u16>() {
        return Ok(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port));
    }
    text.parse().map_err(|_| {
        format!("'{text}' is no address to listen on: give a PORT (of this machine alone), or ADDRESS:PORT with an IP address")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_this_machines_alone() {
        assert_eq!(listen("7077").unwrap().to_string(), "127.0.0.1:7077");
        assert_eq!(listen("0.0.0.0:7").unwrap().to_string(), "0.0.0.0:7");
        assert_eq!(listen("[::1]:7").unwrap().to_string(), "[::1]:7");
        for wrong in ["", "host:7", "65536", "1.2.3.4"] {
            assert!(listen(wrong).unwrap_err().contains("PORT"), "{wrong}");
        }
        assert_eq!(rule::<f64>("a=b=2").unwrap(), ("a=b".to_owned(), 2.0));
        assert!(rule::<u64>("a").is_err() && rule::<u64>("a=x").is_err());
    }
}
