//! What puts pools in order, and what makes them (`fsck`, `pool init`), killed before each of its system calls in turn,
//! and run again.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use rustix::fs::XattrFlags;
use stripewise_store::fsck::{self, CheckFinding, CheckOptions, CheckReport, DamageKind};
use stripewise_store::handle::{ATTRIBUTE, Handle, Optimisations};
use stripewise_store::pool::{PoolSpec, TierSpec};
use stripewise_store::{Inode, Pool, Store};

use crate::disk::{Dice, Disk, Loss};
use crate::run::{self, Bench, directory};
use crate::script::{bytes, layout};
use crate::trace::{FORKING, MARKS, Role, Run, Step, Tracer};

/// What a process is to do, and the directory of its pool.
pub const AGENT: &str = "STRIPEWISE_CRASH_AGENT";
pub const BASE: &str = "STRIPEWISE_CRASH_BASE";

/// The other side: does it, in a process of its own.
pub fn perform(agent: &str, base: &Path) {
    // SAFETY: the parent of this process has put a descriptor there for it.
    let mut marks = File::from(unsafe { OwnedFd::from_raw_fd(MARKS) });
    marks.write_all(b"B0").expect("a mark");
    match agent {
        "fsck" => drop(check(base, false)),
        "rebind" => drop(check(base, true)),
        "init" => drop(init(base, false).expect("the pool is made")),
        "init-shared" => drop(init(base, true).expect("the pool is made")),
        other => panic!("no agent {other}"),
    }
    marks.write_all(b"E0").expect("a mark");
}

fn check(base: &Path, rebind: bool) -> (CheckReport, Vec<CheckFinding>) {
    let pool = Pool::load(&base.join("pool.toml")).expect("the pool file is right");
    let told: Mutex<Vec<CheckFinding>> = Mutex::default();
    let options = CheckOptions { rebind, threads: 2, ..CheckOptions::default() };
    let report = fsck::check(&pool, &options, &told).expect("the pool can be checked");
    (report, told.into_inner().expect("nothing has panicked"))
}

fn init(base: &Path, shared: bool) -> Result<Pool, stripewise_store::Error> {
    let spec = PoolSpec {
        name: "scratch".into(),
        mount: base.join("mnt"),
        namespace: base.join("fast/ns"),
        default_width_bytes: Some(4096),
        tiers: vec![TierSpec {
            name: "hdd".into(),
            servers: ["s0", "s1"].map(|name| base.join(name)).to_vec(),
            ..TierSpec::default()
        }],
    };
    let path = base.join("pool.toml");
    if shared { Pool::init_shared(&path, &spec) } else { Pool::init(&path, &spec) }
}

/// Runs an agent under watch. The disks as they were before.
fn watch(base: &Path, agent: &str, kill_at: Option<usize>) -> (Disk, Run) {
    let mut tracer = Tracer::new(base, 0, kill_at);
    let disk = Disk::at(base, tracer.objects());
    let mut program = run::this_program();
    program.env(AGENT, agent).env(BASE, base);
    let program = tracer.start(program, Role::Script);
    tracer.until_end_of(program);
    let run = tracer.finish();
    assert!(matches!(run.script_code, Some(0 | -9)), "{agent} failed: {:?} with {:?}", run.script_code, run.killed);
    (disk, run)
}

/// Bytes that files must have, by their names in the tree.
type Contents = BTreeMap<String, Vec<u8>>;

/// A pool with files that were synced, to be damaged.
struct Patient {
    bench: Bench,
    contents: Contents,
}

impl Patient {
    fn new(names: &[&str]) -> Patient {
        let _no_forks = FORKING.read().unwrap_or_else(PoisonError::into_inner);
        let patient = Patient { bench: Bench::new(), contents: Contents::new() };
        let store = patient.store();
        let mut contents = Contents::new();
        for (index, name) in names.iter().enumerate() {
            if *name == "mixed" {
                let pattern = stripewise_layout::Pattern::new(name).expect("a pattern");
                store.set_rule(&pattern, &layout(3)).expect("a rule");
            }
            let file = File::options().read(true).write(true).create_new(true).open(patient.tree(name));
            let file = file.expect("a new file");
            drop(store.create(file.as_fd(), &Optimisations::default(), || Ok(name.into())).expect("a placed file"));
            let inode = store.inode(file.as_fd()).expect("a placed file").expect("a placed file");
            let data = bytes(index, 0, 30_000);
            inode.register_writer().expect("a writer");
            let mut done = 0;
            while done < data.len() {
                done += inode.write_at(&data[done..], done as u64).expect("bytes are written");
            }
            inode.sync(false).expect("it is synced");
            inode.release_writer().expect("a writer leaves");
            contents.insert((*name).to_owned(), data);
        }
        Patient { contents, ..patient }
    }

    fn store(&self) -> std::sync::Arc<Store> {
        Store::open(Pool::load(&self.bench.pool()).expect("the pool file is right")).expect("the pool opens")
    }

    fn path(&self, name: &str) -> PathBuf {
        self.bench.base().join(name)
    }

    fn tree(&self, name: &str) -> PathBuf {
        self.path("ns/tree").join(name)
    }

    fn attribute(&self, name: &str) -> Vec<u8> {
        let mut value = vec![0; 4096];
        let len = rustix::fs::getxattr(self.tree(name), ATTRIBUTE, &mut value[..]).expect("a handle");
        value.truncate(len);
        value
    }

    fn set_attribute(&self, name: &str, value: &[u8]) {
        rustix::fs::setxattr(self.tree(name), ATTRIBUTE, value, XattrFlags::empty()).expect("a handle");
    }

    fn handle(&self, name: &str) -> Handle {
        Handle::decode(&self.attribute(name)).expect("a handle")
    }

    fn change_handle(&self, name: &str, change: impl FnOnce(&mut Handle)) {
        let mut handle = self.handle(name);
        change(&mut handle);
        self.set_attribute(name, &handle.encode().expect("a handle"));
    }

    fn datafile(&self, server: usize, handle: u64, generation: u32) -> PathBuf {
        self.path(&format!("s{server}/{:02x}/{handle:016x}.{generation:08x}", handle & 0xff))
    }

    /// `cp -a` of a file of the namespace: another inode with its size, time and handle.
    fn copy_inode(&self, from: &str, to: &str) {
        fs::copy(self.tree(from), self.tree(to)).expect("a copy");
        self.set_attribute(to, &self.attribute(from));
        let time = fs::metadata(self.tree(from)).and_then(|meta| meta.modified()).expect("a time");
        File::options().write(true).open(self.tree(to)).and_then(|file| file.set_modified(time)).expect("a time");
    }
}

/// Damage to files, of every kind that a check mends. With `copies` also what a copy of the disks would not reproduce:
/// handles of other inodes, and damaged ones.
fn damaged_files(copies: bool) -> (Patient, Vec<DamageKind>) {
    let names = ["cut", "short", "moved", "wrong", "owned", "whole", "misplaced", "away", "unlisted", "mixed"];
    let mut patient = Patient::new(&names);
    let mut kinds = vec![
        DamageKind::HalfChange,
        DamageKind::Size,
        DamageKind::StaleLock,
        DamageKind::LeftoverDatafile,
        DamageKind::MisplacedDatafile,
        DamageKind::MissingDatafile,
        DamageKind::OrphanDatafile,
        DamageKind::UnlistedDatafile,
        DamageKind::MissingLayout,
        DamageKind::HalfWritten,
        DamageKind::DatafileOwner,
    ];
    patient.change_handle("cut", |handle| handle.truncating_to = Some(20_000));
    patient.contents.get_mut("cut").expect("a file").truncate(20_000);
    let short = File::options().write(true).open(patient.tree("short")).expect("a file");
    short.set_len(11_000).expect("a size");
    let moved = patient.handle("moved");
    fs::write(patient.datafile(1, moved.logical, moved.version + 1), bytes(77, 0, 5000)).expect("a leftover");
    fs::write(patient.path(&format!("ns/locks/{:016x}", moved.logical)), b"").expect("a lock file");
    chown(patient.datafile(1, patient.handle("owned").logical, 1), Some(1234), Some(1234)).expect("run this as root");
    let misplaced = patient.handle("misplaced").logical;
    let wrong = patient.path(&format!("s0/{:02x}", (misplaced as u8).wrapping_add(1)));
    fs::create_dir_all(&wrong).expect("a directory");
    fs::rename(patient.datafile(0, misplaced, 1), wrong.join(format!("{misplaced:016x}.00000001"))).expect("a name");
    let away = patient.handle("away").logical;
    fs::create_dir(patient.path("s2/lost+found")).expect("a directory");
    let kept = patient.path(&format!("s2/lost+found/orphan-{away:016x}.00000001"));
    fs::rename(patient.datafile(2, away, 1), kept).expect("a name");
    // Bytes behind the end alone, of a datafile whose bit a crash has lost.
    patient.change_handle("unlisted", |handle| handle.present.remove(2));
    let whole = fs::metadata(patient.tree("whole")).expect("a file");
    let orphans = patient.path("s1/0f");
    fs::create_dir_all(&orphans).expect("a directory");
    fs::write(orphans.join("000000000000000f.00000001"), b"whose?").expect("an orphan");
    chown(orphans.join("000000000000000f.00000001"), Some(whole.uid()), Some(whole.gid())).expect("its owner");
    fs::write(orphans.join("00000000000a000f.00000001"), b"").expect("an orphan");
    let hash: String = patient.handle("mixed").layout.iter().map(|byte| format!("{byte:02x}")).collect();
    let layouts = patient.path("ns/layouts");
    fs::rename(layouts.join(&hash), layouts.join(format!(".{hash}.0123456789abcdef"))).expect("a layout");
    fs::write(patient.path("s0/..stripewise.0123456789abcdef"), b"half").expect("a half-written file");
    if copies {
        kinds.extend([DamageKind::DamagedHandle, DamageKind::DuplicateHandle]);
        let mut attribute = patient.attribute("wrong");
        attribute[20] ^= 0x10;
        patient.set_attribute("wrong", &attribute);
        patient.copy_inode("whole", "copy");
        patient.contents.insert("copy".into(), patient.contents["whole"].clone());
    }
    // The datafile that its handle does not list goes: its bytes were never the file's.
    patient.contents.remove("unlisted");
    (patient, kinds)
}

/// A pool that has lost what its directories are known by.
fn damaged_ground() -> (Patient, Vec<DamageKind>) {
    let patient = Patient::new(&["a", "b"]);
    fs::remove_file(patient.path("ns/.stripewise")).expect("a marker");
    fs::write(patient.path("s1/.stripewise"), b"uuid = nonsense").expect("a marker");
    fs::remove_dir(patient.path("ns/locks")).expect("a directory");
    // A dry run does not get to the marker of the server: it cannot go on without the directory.
    (patient, vec![DamageKind::NamespaceMarker, DamageKind::NamespaceDirectory])
}

/// A pool whose namespace comes from a backup: all of its inodes are others.
fn restored() -> (Patient, Vec<DamageKind>) {
    let patient = Patient::new(&["a", "b", "c"]);
    for name in ["a", "b", "c"] {
        patient.copy_inode(name, "restored");
        fs::rename(patient.tree("restored"), patient.tree(name)).expect("a name");
    }
    (patient, vec![DamageKind::UnboundHandle])
}

/// All bytes of a placed file.
fn content(inode: &Inode) -> Result<Vec<u8>, String> {
    let mut out = vec![0xee; inode.size_bytes().map_err(|error| error.to_string())? as usize];
    let mut done = 0;
    while done < out.len() {
        match inode.read_at(&mut out[done..], done as u64).map_err(|error| error.to_string())? {
            0 => return Err(format!("it ends at {done} of {} bytes", out.len())),
            count => done += count,
        }
    }
    Ok(out)
}

/// Runs a check again, and once more: the pool is in order, no byte of a file is wrong, and nothing that might be
/// wanted is gone. How many bytes were looked at.
fn in_order(base: &Path, contents: &Contents, rebind: bool) -> Result<u64, String> {
    let _no_forks = FORKING.read().unwrap_or_else(PoisonError::into_inner);
    let (report, told) = check(base, rebind);
    if report.total().left + report.total().in_use > 0 {
        return Err(format!("run again, it leaves {told:?}"));
    }
    let (report, told) = check(base, false);
    if !report.is_clean() {
        return Err(format!("after it was run again, there still is {told:?}"));
    }
    let store = Store::open(Pool::load(&base.join("pool.toml")).expect("a pool file")).map_err(|e| e.to_string())?;
    let mut seen = 0;
    for (name, expected) in contents {
        let inode = store.lookup(Path::new(name)).map_err(|error| format!("{name}: {error}"))?;
        let inode = inode.ok_or_else(|| format!("{name} is not placed"))?;
        let found = content(&inode).map_err(|error| format!("{name}: {error}"))?;
        if found != *expected {
            return Err(format!("{name} has other bytes than it had: {} of {}", found.len(), expected.len()));
        }
        seen += found.len() as u64;
    }
    Ok(seen)
}

/// What no file names is kept somewhere on its server, as often as it was there.
fn orphan_is_kept(base: &Path) -> Result<(), String> {
    let path = |name: &str| base.join("s1").join(name).join(if name == "0f" { "" } else { "orphan-" });
    let kept = [path("0f"), path("lost+found")].iter().any(|prefix| {
        let prefix = prefix.to_string_lossy();
        fs::read(format!("{prefix}000000000000000f.00000001")).is_ok_and(|bytes| bytes == b"whose?")
    });
    if kept { Ok(()) } else { Err("the orphan is gone".into()) }
}

/// Damage to a pool: it, and the kinds that a check finds.
type Damage = fn() -> (Patient, Vec<DamageKind>);

const DAMAGES: [(&str, &str, Damage); 3] =
    [("files", "fsck", || damaged_files(true)), ("ground", "fsck", damaged_ground), ("restored", "rebind", restored)];

/// Kills a check at every `stride`th of its fault points in turn, from one that `stride` chooses; what was found wrong.
pub fn checks_killed_at_points(stride: usize) -> Vec<String> {
    let mut problems = Vec::new();
    for (name, agent, damage) in DAMAGES {
        let (mut kills, mut seen, mut point) = (0, 0, stride / 2);
        loop {
            let (patient, kinds) = damage();
            let rebind = agent == "rebind";
            if kills == 0 {
                finds_all(&patient, &kinds, rebind);
            }
            let (_, run) = watch(patient.bench.base(), agent, Some(point));
            let Some((_, killed)) = run.killed else { break };
            kills += 1;
            let about = |reason| format!("fsck of damaged {name}, killed at point {point}, before {killed}: {reason}");
            match in_order(patient.bench.base(), &patient.contents, rebind) {
                Ok(bytes) => seen += bytes,
                Err(reason) => problems.push(about(reason)),
            }
            if name == "files" {
                problems.extend(orphan_is_kept(patient.bench.base()).err().map(about));
            }
            point += stride;
        }
        println!("fsck of damaged {name}: {point} points, {kills} kills, {seen} bytes");
        assert!(kills > 3, "fsck of damaged {name}: {kills} kills came in the middle of it: nothing was tested");
        assert!(seen > 0 || !problems.is_empty(), "fsck of damaged {name}: no byte was looked at");
    }
    problems
}

/// The damage is what it is meant to be.
fn finds_all(patient: &Patient, kinds: &[DamageKind], rebind: bool) {
    let _no_forks = FORKING.read().unwrap_or_else(PoisonError::into_inner);
    let pool = Pool::load(&patient.bench.pool()).expect("the pool file is right");
    let told: Mutex<Vec<CheckFinding>> = Mutex::default();
    let options = CheckOptions { dry_run: true, rebind, ..CheckOptions::default() };
    let report = fsck::check(&pool, &options, &told).expect("the pool can be checked");
    let missing: Vec<_> =
        kinds.iter().filter(|kind| report.of(**kind).would_mend + report.of(**kind).left == 0).collect();
    assert!(missing.is_empty(), "a check does not find {missing:?} in {told:?}");
}

/// Cuts the power while a check mends files, in at most `states` states of the disks; what was found wrong.
pub fn checks_cut_off(states: usize) -> Vec<String> {
    let (patient, _) = damaged_files(false);
    let (mut disk, run) = watch(patient.bench.base(), "fsck", None);
    let mut cuts = Vec::new();
    for step in &run.steps {
        if let Step::Effect(effect) = step {
            disk.happen(effect);
            let pending = disk.pending();
            let some = pending.iter().flat_map(|&id| [Loss::Only(id), Loss::AllBut(id)]);
            let chance = [Loss::All, Loss::None, Loss::Random(cuts.len() as u64), Loss::Random(!(cuts.len() as u64))];
            cuts.extend(some.chain(chance).map(|loss| (disk.clone(), loss)));
        }
    }
    let mut dice = Dice(1);
    for last in (1..cuts.len()).rev() {
        cuts.swap(last, dice.roll(last as u64 + 1) as usize);
    }
    let (mut seen, mut problems) = (0, Vec::new());
    for (disk, loss) in cuts.iter().take(states) {
        let copy = directory();
        disk.crash(*loss, copy.path());
        let checked = in_order(copy.path(), &patient.contents, false);
        match checked.and_then(|bytes| orphan_is_kept(copy.path()).map(|()| bytes)) {
            Ok(bytes) => seen += bytes,
            Err(reason) => problems.push(format!("fsck, cut off ({loss:?}): {reason}")),
        }
    }
    println!("fsck cut off: {} states of {}, {seen} bytes", cuts.len().min(states), cuts.len());
    assert!(cuts.len() > 50, "{} states: nothing was tested", cuts.len());
    assert!(seen > 0 || !problems.is_empty(), "no byte was looked at");
    problems
}

/// Kills the making of a pool at every `stride`th fault point in turn: made again, it is a pool, and works.
pub fn inits_killed_at_points(shared: bool, stride: usize) -> Vec<String> {
    let agent = if shared { "init-shared" } else { "init" };
    let (mut problems, mut kills, mut point) = (Vec::new(), 0, 0);
    loop {
        let base = directory();
        let (_, run) = watch(base.path(), agent, Some(point));
        let Some((_, killed)) = run.killed else { break };
        kills += 1;
        if let Err(reason) = made_again(base.path(), shared) {
            problems.push(format!("{agent}, killed at point {point}, before {killed}: {reason}"));
        }
        point += stride;
    }
    println!("{agent}: {point} points, {kills} kills");
    assert!(kills > 3, "{agent}: {kills} kills came in the middle of it: nothing was tested");
    problems
}

fn made_again(base: &Path, shared: bool) -> Result<(), String> {
    let _no_forks = FORKING.read().unwrap_or_else(PoisonError::into_inner);
    // A pool file is there when all of the pool is.
    if !base.join("pool.toml").exists() {
        init(base, shared).map_err(|error| format!("made again: {error}"))?;
    }
    let failed = |error: stripewise_store::Error| error.to_string();
    let pool = Pool::load(&base.join("pool.toml")).map_err(failed)?;
    let told: Mutex<Vec<CheckFinding>> = Mutex::default();
    let report = fsck::check(&pool, &CheckOptions::default(), &told).map_err(failed)?;
    let told = told.into_inner().expect("nothing has panicked");
    if told.iter().any(|finding| finding.kind != DamageKind::HalfWritten) || report.total().left > 0 {
        return Err(format!("a pool that was just made has {told:?}"));
    }
    if shared {
        for (name, mode) in [("tree", 0o1777), ("layouts", 0o1777), ("locks", 0o1733), ("epochs", 0o1777), ("", 0o755)]
        {
            let path = pool.namespace.join(name);
            let found = fs::metadata(&path).map_err(|error| format!("{}: {error}", path.display()))?;
            if found.permissions().mode() & 0o7777 != mode {
                return Err(format!("{} has mode {:o}", path.display(), found.permissions().mode()));
            }
        }
        for server in &pool.servers {
            let directory = server.root.join("a7");
            let found = fs::metadata(&directory).map_err(|error| format!("{}: {error}", directory.display()))?;
            if found.permissions().mode() & 0o7777 != 0o1733 {
                return Err(format!("{} has mode {:o}", directory.display(), found.permissions().mode()));
            }
        }
    }
    let store = Store::open(pool.clone()).map_err(failed)?;
    let file = File::options().read(true).write(true).create_new(true).open(pool.namespace.join("tree/f"));
    let file = file.map_err(|error| error.to_string())?;
    drop(store.create(file.as_fd(), &Optimisations::default(), || Ok("f".into())).map_err(failed)?);
    let inode = store.inode(file.as_fd()).map_err(failed)?.ok_or("the file is not placed")?;
    inode.register_writer().map_err(failed)?;
    let put = inode.write_at(&bytes(1, 0, 20_000), 0).map_err(failed)?;
    inode.release_writer().map_err(failed)?;
    if content(&inode)? == bytes(1, 0, put) { Ok(()) } else { Err("a file has other bytes than were written".into()) }
}
