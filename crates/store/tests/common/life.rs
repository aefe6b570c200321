//! What tests of servers that come and go look at.

use super::{TestPool, content};
use std::path::Path;
use std::sync::Arc;
use stripewise_store::drain::DrainWatch;
use stripewise_store::fsck::{CheckFinding, CheckOptions, check};
use stripewise_store::{Pool, Store, Then};

/// Goes on.
pub struct On;

impl DrainWatch for On {
    fn progress(&mut self, _: &str, done: u64, total: u64) -> Then {
        assert!(done <= total, "{done} of {total}");
        Then::On
    }
}

pub fn now(pool: &TestPool) -> Arc<Store> {
    Store::of_file(&pool.pool.file).unwrap()
}

/// What a check of the pool finds, without changing anything.
pub fn findings(pool: &TestPool) -> Vec<CheckFinding> {
    checked(pool, CheckOptions { dry_run: true, ..CheckOptions::default() })
}

/// Has a check mend what it finds.
pub fn mend(pool: &TestPool) -> Vec<CheckFinding> {
    checked(pool, CheckOptions::default())
}

fn checked(pool: &TestPool, options: CheckOptions) -> Vec<CheckFinding> {
    let found = std::sync::Mutex::new(Vec::new());
    struct Keep<'a>(&'a std::sync::Mutex<Vec<CheckFinding>>);
    impl stripewise_store::fsck::CheckWatch for Keep<'_> {
        fn found(&self, finding: &CheckFinding) {
            self.0.lock().unwrap().push(finding.clone());
        }
    }
    check(&Pool::load(&pool.pool.file).unwrap(), &options, &Keep(&found)).unwrap();
    found.into_inner().unwrap()
}

pub fn servers_of(store: &Arc<Store>, name: &str) -> Vec<u16> {
    let layout = store.lookup(Path::new(name)).unwrap().unwrap().layout().unwrap();
    let mut servers: Vec<u16> = layout.servers().iter().map(|id| id.0).collect();
    servers.sort_unstable();
    servers
}

pub fn bytes_of(store: &Arc<Store>, name: &str) -> Vec<u8> {
    content(&store.lookup(Path::new(name)).unwrap().unwrap())
}
