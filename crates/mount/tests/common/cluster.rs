//! A pool all of whose servers fail when they are told to, and its mount.

use std::fs;

use super::faulty::Faulty;
use super::{Mounted, TestPool};

/// How many servers it has: `s0` to `s2`, whose bytes are in the directories `below0` to `below2`.
pub const SERVERS: usize = 3;

pub struct Cluster {
    // In the order in which they have to go.
    pub mounted: Mounted,
    /// `None` while a server is gone.
    pub servers: Vec<Option<Faulty>>,
    pub pool: TestPool,
}

impl Cluster {
    pub fn new(options: &str) -> Cluster {
        let pool = TestPool::new();
        let servers = (0..SERVERS).map(|server| {
            fs::rename(pool.path(&format!("s{server}")), pool.path(&format!("below{server}"))).unwrap();
            fs::create_dir(pool.path(&format!("s{server}"))).unwrap();
            Some(serve(&pool, server))
        });
        let servers = servers.collect();
        let mounted = Mounted::new(&pool, "mnt", options);
        Cluster { mounted, servers, pool }
    }

    /// Ends the process behind a server, as a disk that is pulled out.
    pub fn take_away(&mut self, server: usize) {
        self.servers[server].take().unwrap().die();
    }

    /// Ends all faults of a server; one that is gone comes back.
    pub fn heal(&mut self, server: usize) {
        match &self.servers[server] {
            Some(faulty) => faulty.well(),
            None => self.servers[server] = Some(serve(&self.pool, server)),
        }
    }
}

fn serve(pool: &TestPool, server: usize) -> Faulty {
    Faulty::mount(&pool.path(&format!("below{server}")), &pool.path(&format!("s{server}")))
}
