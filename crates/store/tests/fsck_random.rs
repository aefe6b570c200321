//! `fsck` after damage at random: it never panics, never costs a byte of a file that was not damaged, says nothing new the
//! second time, and can be killed at any moment.

mod common;

use common::{TestPool, create, layout, pattern, write};
use proptest::prelude::*;
use rustix::fs::XattrFlags;
use std::collections::{HashMap, HashSet};
use std::io::{Seek as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use stripewise_layout::Pattern;
use stripewise_store::fsck::{CheckFinding, CheckOptions, CheckStep, CheckWatch, check};
use stripewise_store::handle::ATTRIBUTE;

const FILES: usize = 6;

fn name(file: usize) -> String {
    format!("d{}/f{file}", file % 2)
}

fn bytes_of(file: usize) -> Vec<u8> {
    pattern(10_000 + file * 17_001, file as u64)
}

fn pool() -> TestPool {
    let pool = TestPool::new(3);
    let store = pool.open();
    let tree = pool.pool.namespace.join("tree");
    std::fs::create_dir(tree.join("d0")).unwrap();
    std::fs::create_dir(tree.join("d1")).unwrap();
    let other = layout(&[(0, &[(u16::MAX, 4096)]), (4096, &[(2, 1000), (0, 3000)]), (50_000, &[(1, 512)])]);
    store.set_rule(&Pattern::new("d1/*").unwrap(), &other).unwrap();
    for file in 0..FILES {
        let (_fd, inode) = create(&store, &name(file));
        write(&inode, &bytes_of(file), 0);
    }
    pool
}

/// One thing done to the pool's disks.
#[derive(Debug, Clone)]
enum Damage {
    /// Bytes of a file's handle are others.
    Handle(usize, usize, u8, usize),
    RemoveHandle(usize),
    CopyHandle(usize, usize),
    RemoveFile(usize),
    Resize(usize, u64),
    RemoveDatafile(usize),
    /// A datafile gets another name on its server.
    RenameDatafile(usize, u64, u32),
    NewDatafile(usize, u64, u32, usize),
    Lock(u64),
    /// A byte of a layout's file is another.
    Layout(usize, usize, u8),
    RemoveLayout(usize),
    RemoveMarker(usize),
    Temporary(u64),
}

fn damage() -> impl Strategy<Value = Damage> {
    let file = 0..FILES;
    prop_oneof![
        4 => (file.clone(), 0_usize..120, any::<u8>(), 1_usize..4).prop_map(|(f, at, x, n)| Damage::Handle(f, at, x, n)),
        1 => file.clone().prop_map(Damage::RemoveHandle),
        2 => (file.clone(), file.clone()).prop_map(|(a, b)| Damage::CopyHandle(a, b)),
        2 => file.clone().prop_map(Damage::RemoveFile),
        2 => (file.clone(), 0_u64..200_000).prop_map(|(f, size)| Damage::Resize(f, size)),
        2 => any::<usize>().prop_map(Damage::RemoveDatafile),
        2 => (any::<usize>(), any::<u64>(), 0_u32..4).prop_map(|(which, handle, g)| Damage::RenameDatafile(which, handle, g)),
        2 => (0_usize..3, any::<u64>(), 0_u32..4, 0_usize..5000).prop_map(|(s, h, g, n)| Damage::NewDatafile(s, h, g, n)),
        2 => any::<u64>().prop_map(Damage::Lock),
        1 => (0_usize..2, 0_usize..40, any::<u8>()).prop_map(|(which, at, x)| Damage::Layout(which, at, x)),
        1 => (0_usize..2).prop_map(Damage::RemoveLayout),
        1 => (0_usize..4).prop_map(Damage::RemoveMarker),
        1 => any::<u64>().prop_map(Damage::Temporary),
    ]
}

fn sorted(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).map(|entries| entries.map(|entry| entry.unwrap().path()).collect());
    let mut all: Vec<PathBuf> = entries.unwrap_or_default();
    all.sort();
    all
}

fn datafiles(pool: &TestPool) -> Vec<PathBuf> {
    let inner = pool.pool.servers.iter().flat_map(|server| sorted(&server.root)).filter(|path| path.is_dir());
    inner.flat_map(|directory| sorted(&directory)).collect()
}

fn handle_of(path: &Path) -> Option<Vec<u8>> {
    let mut bytes = [0; 4096];
    rustix::fs::getxattr(path, ATTRIBUTE, &mut bytes[..]).ok().map(|len| bytes[..len].to_vec())
}

/// The handle in a datafile's name.
fn logical(path: &Path) -> Option<u64> {
    u64::from_str_radix(path.file_name()?.to_str()?.split('.').next()?, 16).ok()
}

/// Does it, and notes the files whose bytes may suffer.
#[expect(clippy::too_many_lines, reason = "a table: an arm for each kind of damage")]
fn apply(
    pool: &TestPool,
    damage: &Damage,
    handles: &[u64],
    layouts: &HashMap<PathBuf, Vec<u8>>,
    hurt: &mut HashSet<usize>,
) {
    let namespace = &pool.pool.namespace;
    let tree = |file: usize| namespace.join("tree").join(name(file));
    let hurt_by = |path: &Path, hurt: &mut HashSet<usize>| {
        hurt.extend(handles.iter().position(|handle| Some(*handle) == logical(path)));
    };
    match *damage {
        Damage::Handle(file, at, xor, len) => {
            hurt.insert(file);
            let Some(mut bytes) = handle_of(&tree(file)) else { return };
            for byte in bytes.iter_mut().skip(at).take(len) {
                *byte ^= xor;
            }
            rustix::fs::setxattr(tree(file), ATTRIBUTE, &bytes, XattrFlags::empty()).unwrap();
        }
        Damage::RemoveHandle(file) => {
            hurt.insert(file);
            let _ = rustix::fs::removexattr(tree(file), ATTRIBUTE);
        }
        Damage::CopyHandle(from, to) => {
            hurt.extend((from != to).then_some(to));
            let Some(bytes) = handle_of(&tree(from)) else { return };
            if tree(to).exists() {
                rustix::fs::setxattr(tree(to), ATTRIBUTE, &bytes, XattrFlags::empty()).unwrap();
            }
        }
        Damage::RemoveFile(file) => {
            hurt.insert(file);
            let _ = std::fs::remove_file(tree(file));
        }
        Damage::Resize(file, size) => {
            hurt.insert(file);
            if let Ok(file) = std::fs::File::options().write(true).open(tree(file)) {
                file.set_len(size).unwrap();
            }
        }
        Damage::RemoveDatafile(which) => {
            let all = datafiles(pool);
            if !all.is_empty() {
                let path = &all[which % all.len()];
                hurt_by(path, hurt);
                std::fs::remove_file(path).unwrap();
            }
        }
        Damage::RenameDatafile(which, handle, generation) => {
            let all = datafiles(pool);
            if !all.is_empty() {
                let path = &all[which % all.len()];
                hurt_by(path, hurt);
                // Often it takes the place of another file's.
                let handle = if handle % 3 == 0 { handles[handle as usize % handles.len()] } else { handle };
                let to = path.with_file_name(format!("{handle:016x}.{generation:08x}"));
                hurt_by(&to, hurt);
                std::fs::rename(path, to).unwrap();
            }
        }
        Damage::NewDatafile(server, handle, generation, len) => {
            let handle = if handle % 2 == 0 { handles[handle as usize % handles.len()] } else { handle };
            let path = pool.root(server).join(format!("{:02x}/{handle:016x}.{generation:08x}", handle & 0xff));
            if !path.exists() {
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(path, pattern(len, 5)).unwrap();
            }
        }
        Damage::Lock(handle) => {
            let handle = if handle % 2 == 0 { handles[handle as usize % handles.len()] } else { handle };
            std::fs::write(namespace.join(format!("locks/{handle:016x}")), b"").unwrap();
        }
        Damage::Layout(which, at, xor) => {
            if let Some(path) = sorted(&namespace.join("layouts")).get(which) {
                let mut file = std::fs::File::options().read(true).write(true).open(path).unwrap();
                let mut bytes = std::fs::read(path).unwrap();
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= xor;
                    file.seek(std::io::SeekFrom::Start(at as u64)).unwrap();
                    file.write_all(&[*byte]).unwrap();
                }
                // A check finds one wrong byte by the hash. With two the layout is lost.
                let wrong = |was: &Vec<u8>| bytes.iter().zip(was).filter(|(is, was)| is != was).count();
                if layouts.get(path).map_or(0, wrong) > 1 {
                    hurt.extend(0..FILES);
                }
            }
        }
        Damage::RemoveLayout(which) => {
            hurt.extend(0..FILES);
            if let Some(path) = sorted(&namespace.join("layouts")).get(which) {
                std::fs::remove_file(path).unwrap();
            }
        }
        Damage::RemoveMarker(which) => {
            let marked = pool.pool.servers.get(which).map_or(namespace, |server| &server.root);
            let _ = std::fs::remove_file(marked.join(".stripewise"));
        }
        Damage::Temporary(number) => {
            std::fs::write(namespace.join(format!("layouts/.half.{number:016x}")), b"half").unwrap();
        }
    }
}

/// Stops a check after some tellings.
struct Stop {
    left: AtomicU64,
}

impl CheckWatch for Stop {
    fn found(&self, _: &CheckFinding) {
        let _ = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
    }

    fn progress(&self, _: CheckStep, _: u64, _: Option<u64>) -> bool {
        self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok()
    }
}

/// Checks; what was told. `None`: the pool cannot be checked.
fn run(pool: &TestPool) -> Option<(stripewise_store::fsck::CheckReport, Vec<CheckFinding>)> {
    let told = Mutex::new(Vec::new());
    let report = check(&pool.pool, &CheckOptions::default(), &told).ok()?;
    Some((report, told.into_inner().unwrap()))
}

fn assert_whole(pool: &TestPool, hurt: &HashSet<usize>) {
    let Ok(store) = stripewise_store::Store::open(pool.pool.clone()) else { return };
    for file in (0..FILES).filter(|file| !hurt.contains(file)) {
        let inode = store.lookup(Path::new(&name(file))).unwrap().unwrap();
        assert!(common::content(&inode) == bytes_of(file), "{}", name(file));
    }
}

/// Bytes that stand anywhere on the servers.
fn all_bytes(pool: &TestPool) -> u64 {
    datafiles(pool).iter().map(|path| std::fs::metadata(path).unwrap().len()).sum()
}

fn cases() -> u32 {
    std::env::var("STRIPEWISE_FSCK_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(30)
}

fn logical_handles(pool: &TestPool) -> Vec<u64> {
    let handle = |file| handle_of(&pool.pool.namespace.join("tree").join(name(file))).unwrap();
    (0..FILES).map(|file| u64::from_be_bytes(handle(file)[6..14].try_into().unwrap())).collect()
}

#[test]
fn what_else_is_wrong_with_a_file_is_mended_with_its_handle() {
    let pool = pool();
    let handles = logical_handles(&pool);
    for damage in [Damage::Resize(4, 0), Damage::Handle(4, 0, 1, 1)] {
        apply(&pool, &damage, &handles, &HashMap::new(), &mut HashSet::new());
    }
    assert_eq!(run(&pool).unwrap().0.total().mended, 2);
    assert_eq!(run(&pool).unwrap().1, []);
    let inode = pool.open().lookup(Path::new(&name(4))).unwrap().unwrap();
    assert!(common::content(&inode) == bytes_of(4));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(cases()) })]
    #[test]
    fn random_damage(damages in proptest::collection::vec(damage(), 1..6), stop in 0_u64..40) {
        let pool = pool();
        let handles = logical_handles(&pool);
        let markers: Vec<_> = pool.pool.servers.iter().map(|server| server.root.join(".stripewise")).collect();
        let markers: Vec<_> = markers.into_iter().map(|path| (std::fs::read(&path).unwrap(), path)).collect();
        let layouts = sorted(&pool.pool.namespace.join("layouts"));
        let layouts = layouts.into_iter().map(|path| (path.clone(), std::fs::read(path).unwrap())).collect();
        let mut hurt = HashSet::new();
        for damage in &damages {
            apply(&pool, damage, &handles, &layouts, &mut hurt);
        }
        let before = all_bytes(&pool);
        // One that is stopped, as a kill would, and one that is not.
        let _ = check(&pool.pool, &CheckOptions::default(), &Stop { left: AtomicU64::new(stop) });
        if let Some((_, first)) = run(&pool) {
            let (second, told) = run(&pool).unwrap();
            prop_assert!(second.total().mended == 0, "{damages:?}: first {first:?}, then {told:?}");
            let left = |told: &[CheckFinding]| {
                let mut all: Vec<_> = told.iter().map(|f| (f.kind, f.path.clone(), f.object.clone())).collect();
                all.sort();
                all
            };
            prop_assert!(left(&told).iter().all(|finding| left(&first).contains(finding)), "{first:?}, then {told:?}");
        }
        // Two servers without a marker may be each other: that they are told is all that can be done.
        markers.iter().filter(|(_, path)| !path.exists()).for_each(|(text, path)| std::fs::write(path, text).unwrap());
        assert_whole(&pool, &hurt);
        // A leftover of a generation before is a copy, and all that may go.
        let made: u64 = damages
            .iter()
            .map(|damage| match damage {
                Damage::NewDatafile(_, _, _, len) => *len as u64,
                _ => 0,
            })
            .sum();
        let shortened = damages.iter().any(|damage| matches!(damage, Damage::Handle(..) | Damage::CopyHandle(..)));
        let renamed = damages.iter().any(|damage| matches!(damage, Damage::RenameDatafile(..)));
        prop_assert!(shortened || renamed || all_bytes(&pool) + made >= before, "bytes are gone");
    }
}
