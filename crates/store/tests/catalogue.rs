//! The tests of faults over servers of another kind than directories, and a check of such a pool: what holds for one
//! backend holds for all.
#![cfg(debug_assertions)]

#[path = "faults.rs"]
mod faults;

use faults::common::{TestPool, content, create, pattern, write};
use std::path::Path;
use std::sync::Mutex;
use stripewise_store::fsck::{CheckFinding, CheckOptions, CheckReport, DamageKind, check};

fn fsck(pool: &TestPool) -> (CheckReport, Vec<CheckFinding>) {
    let told = Mutex::new(Vec::new());
    let report = check(&pool.pool, &CheckOptions::default(), &told).unwrap();
    (report, told.into_inner().unwrap())
}

/// Nothing is moved on the servers of this kind: a datafile that no file has is kept, and given back, by a line each.
#[test]
fn a_check_keeps_what_no_file_has_and_gives_it_back() {
    let pool = TestPool::new(2);
    let bytes = pattern(5 * 4096, 1);
    let store = pool.open();
    write(&create(&store, "file").1, &bytes, 0);
    drop(store);
    assert!(fsck(&pool).0.is_clean());

    let (name, away) = (pool.pool.namespace.join("tree/file"), pool.directory.path().join("away"));
    std::fs::rename(&name, &away).unwrap();
    let (report, told) = fsck(&pool);
    assert_eq!((report.datafiles, told.len()), (2, 2), "{told:?}");
    assert!(told.iter().all(|finding| finding.kind == DamageKind::OrphanDatafile), "{told:?}");
    assert!(told[0].action.starts_with("kept as lost+found/orphan-"), "{told:?}");
    assert_eq!(fsck(&pool).0.datafiles, 0, "what is kept is no datafile");

    std::fs::rename(&away, &name).unwrap();
    let (_, told) = fsck(&pool);
    assert!(told.iter().all(|finding| finding.kind == DamageKind::MissingDatafile), "{told:?}");
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(fsck(&pool).0.is_clean());
    let store = pool.open();
    assert!(content(&store.lookup(Path::new("file")).unwrap().unwrap()) == bytes);
}
