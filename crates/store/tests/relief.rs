//! New files that land on a fast tier, and what leaves a tier.

mod common;

use common::life::{On, bytes_of, findings, mend, now, servers_of as servers};
use common::{TestPool, create, in_own_mounts, layout, mount_tmpfs, pattern, write};
use rustix::fd::AsFd as _;
use rustix::fs::{Mode, OFlags, XattrFlags};
use rustix::process::{Pid, Signal, kill_process};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use stripewise_layout::{Pattern, Region, ServerId};
use stripewise_optimisation::OptimisationSetting;
use stripewise_store::adding::add_server;
use stripewise_store::drain::{DrainOptions, drain, replace};
use stripewise_store::handle::{ATTRIBUTE, Optimisations};
use stripewise_store::rebalance::{Filling, rebalance};
use stripewise_store::relief::{Begun, Leaving, TierPart, relieve};
use stripewise_store::{Error, Files, Pool, Store};

/// Two servers of a tier `disk`, and `fast` of one more, on which new files land.
fn landing(fast: impl FnOnce(&Path) -> PathBuf) -> TestPool {
    let pool = TestPool::new(2);
    let root = fast(pool.directory.path());
    let text = std::fs::read_to_string(&pool.pool.file).unwrap();
    let text = text.replace("[default]\n", "[default]\nland = \"fast\"\n");
    let tier = format!("\n[[tier]]\nname = \"fast\"\nservers = [{root:?}]\n");
    std::fs::write(&pool.pool.file, text + &tier).unwrap();
    Pool::load(&pool.pool.file).unwrap().prepare().unwrap();
    pool
}

fn landed() -> TestPool {
    landing(|base| base.join("fast"))
}

fn part(store: &Arc<Store>, path: &str, stretch: (u64, u64), tier_bytes: u64, has_landed: bool) -> TierPart {
    let handle = store.lookup(Path::new(path)).unwrap().unwrap().handle();
    let by_server = vec![(ServerId(2), tier_bytes)];
    TierPart { path: path.into(), handle, version: 1, stretch, tier_bytes, by_server, has_landed }
}

fn whole(store: &Arc<Store>, path: &str) -> Leaving {
    to_its_place(store, path, 1, (0, u64::MAX))
}

/// Of the file that is at that path now.
fn to_its_place(store: &Arc<Store>, path: &str, version: u32, stretch: (u64, u64)) -> Leaving {
    let handle = store.existing(Path::new(path)).ok().flatten().map_or(0, |inode| inode.handle());
    Leaving { path: path.into(), handle, version, stretches: vec![stretch], to_its_place: true }
}

fn away(store: &Arc<Store>, path: &str, version: u32, stretch: (u64, u64)) -> Leaving {
    Leaving { to_its_place: false, ..to_its_place(store, path, version, stretch) }
}

fn parts_on(store: &Arc<Store>, tier: &str) -> Vec<TierPart> {
    store.parts_on(tier, &HashMap::new()).unwrap().parts
}

#[test]
fn new_files_land_and_go_to_their_place_once() {
    let pool = landed();
    let store = now(&pool);
    store.set_rule(&Pattern::new("ruled").unwrap(), &layout(&[(0, &[(2, 4096)])])).unwrap();
    for (name, seed) in [("young", 1), ("ruled", 2)] {
        write(&create(&store, name).1, &pattern(50_000, seed), 0);
        assert_eq!(servers(&store, name), [2], "{name}");
    }
    create(&store, "empty");
    let open = create(&store, "open").1;
    write(&open, &pattern(20_000, 3), 0);
    // Its own place is what it has: it has not landed.
    let on_disks = layout(&[(0, &[(0, 4096)]), (8192, &[(1, 4096), (2, 4096)])]);
    store.set_rule(&Pattern::new("regions").unwrap(), &on_disks).unwrap();
    write(&create(&store, "regions").1, &pattern(50_000, 4), 0);
    let expected = [
        part(&store, "open", (0, 20_000), 20_000, true),
        part(&store, "regions", (8192, 50_000), 20_480, false),
        part(&store, "ruled", (0, 50_000), 50_000, false),
        part(&store, "young", (0, 50_000), 50_000, true),
    ];
    assert_eq!(parts_on(&store, "fast"), expected);
    let status = |name: &str| store.status(Path::new(name)).unwrap().placed.unwrap().landed_on;
    assert_eq!((status("young").as_deref(), status("ruled"), status("regions")), (Some("fast"), None, None));

    // A file on one server that a program appends to is kept there.
    open.register_writer().unwrap();
    open.append(&pattern(100, 5)).unwrap();
    let file = &pool.pool.file;
    let all = ["young", "open", "gone"].map(|name| whole(&store, name));
    let done = relieve(file, "fast", &all, &mut On).unwrap();
    assert_eq!((done.moved_files, done.copied_bytes, done.staying.len()), (1, 50_000, 1), "{done:?}");
    assert!(done.staying[0].path == "open" && done.staying[0].is_busy);
    open.release_writer().unwrap();
    assert_eq!(relieve(file, "fast", &all, &mut On).unwrap().moved_files, 1);
    let after = now(&pool);
    for name in ["young", "open"] {
        assert_eq!(servers(&after, name), [0, 1, 2], "{name}");
    }
    assert!(bytes_of(&after, "young") == pattern(50_000, 1));
    assert!(bytes_of(&after, "open")[20_000..] == pattern(100, 5));
    assert!(parts_on(&after, "fast").iter().all(|part| !part.has_landed), "each goes to its place once");

    // A region leaves alone, for the other tiers.
    let done = relieve(file, "fast", &[away(&store, "regions", 1, (8192, 50_000))], &mut On).unwrap();
    assert_eq!((done.moved_files, done.copied_bytes), (1, 50_000 - 8192));
    assert_eq!(servers(&now(&pool), "regions"), [0, 1]);
    assert!(bytes_of(&now(&pool), "regions") == pattern(50_000, 4));
    assert_eq!(findings(&pool), []);
    assert!(relieve(file, "tape", &[], &mut On).unwrap_err().to_string().contains("name one of disk, fast"));
}

/// The layout of a file as `(offset, servers)` of each region.
fn shape(store: &Arc<Store>, path: &str) -> Vec<(u64, Vec<u16>)> {
    let layout = store.lookup(Path::new(path)).unwrap().unwrap().layout().unwrap();
    let of = |region: &Region| (region.offset(), region.stripes().iter().map(|stripe| stripe.server.0).collect());
    layout.regions().iter().map(of).collect()
}

#[test]
fn what_leaves_may_leave_in_parts_each_of_which_is_copied_once() {
    let pool = landed();
    let (store, file) = (now(&pool), &pool.pool.file);
    store.set_rule(&Pattern::new("region").unwrap(), &layout(&[(0, &[(0, 4096)]), (8192, &[(2, 4096)])])).unwrap();
    for name in ["young", "region"] {
        write(&create(&store, name).1, &pattern(300_000, 1), 0);
    }
    let mut copied = 0;
    let mut moves = |leaving: Leaving| {
        let done = relieve(file, "fast", &[leaving], &mut On).unwrap();
        copied += done.copied_bytes;
        done.moved_files
    };
    assert_eq!(moves(to_its_place(&store, "young", 1, (0, 100_000))), 1);
    assert_eq!(shape(&now(&pool), "young"), [(0, vec![0, 1, 2]), (100_000, vec![2])]);
    assert_eq!(moves(to_its_place(&store, "young", 1, (100_000, 200_000))), 0, "it was changed since");
    // What comes to the file while it leaves has the place of its end.
    write(&now(&pool).lookup(Path::new("young")).unwrap().unwrap(), &pattern(50_000, 2), 300_000);
    assert_eq!(moves(to_its_place(&store, "young", 2, (100_000, 250_000))), 1);
    assert_eq!(moves(to_its_place(&store, "young", 3, (250_000, 350_000))), 1);
    assert_eq!(shape(&now(&pool), "young"), [(0, vec![0, 1, 2])]);
    assert_eq!(copied, 350_000);
    copied = 0;
    let mut moves = |leaving: Leaving| copied += relieve(file, "fast", &[leaving], &mut On).unwrap().copied_bytes;
    moves(away(&store, "region", 1, (8192, 100_000)));
    assert_eq!(shape(&now(&pool), "region"), [(0, vec![0]), (8192, vec![0, 1]), (100_000, vec![2])]);
    moves(away(&store, "region", 2, (100_000, 300_000)));
    assert_eq!(shape(&now(&pool), "region"), [(0, vec![0]), (8192, vec![0, 1])]);
    assert_eq!(copied, 300_000 - 8192);
    let bytes = bytes_of(&now(&pool), "young");
    assert!(bytes[..300_000] == pattern(300_000, 1) && bytes[300_000..] == pattern(50_000, 2));
    assert!(bytes_of(&now(&pool), "region") == pattern(300_000, 1));
    assert_eq!(findings(&pool), []);
}

/// As programs replace files by `rename`: the new one has the first version, too, and another shape.
#[test]
fn another_file_that_has_come_to_the_path_stays_as_it_is() {
    let pool = landed();
    let store = now(&pool);
    let shape_of = |at: u64| layout(&[(0, &[(0, 4096)]), (at, &[(2, 4096)])]);
    for (name, at) in [("ruled", 8192), ("new", 65_536)] {
        store.set_rule(&Pattern::new(name).unwrap(), &shape_of(at)).unwrap();
        write(&create(&store, name).1, &pattern(300_000, at), 0);
    }
    for (name, seed) in [("young", 1), ("other", 2)] {
        write(&create(&store, name).1, &pattern(300_000, seed), 0);
    }
    let decided = [away(&store, "ruled", 1, (8192, 100_000)), to_its_place(&store, "young", 1, (0, 100_000))];
    let tree = pool.pool.namespace.join("tree");
    for (new, name) in [("new", "ruled"), ("other", "young")] {
        std::fs::rename(tree.join(new), tree.join(name)).unwrap();
    }
    let done = relieve(&pool.pool.file, "fast", &decided, &mut On).unwrap();
    assert_eq!((done.moved_files, done.copied_bytes, done.staying.len()), (0, 0, 0), "{done:?}");
    let after = now(&pool);
    assert_eq!(shape(&after, "ruled"), [(0, vec![0]), (65_536, vec![2])]);
    assert_eq!(shape(&after, "young"), [(0, vec![2])]);
    assert!(bytes_of(&after, "ruled") == pattern(300_000, 65_536) && bytes_of(&after, "young") == pattern(300_000, 2));
}

/// Which of the files that have begun to leave may not be forgotten.
fn begun(pool: &TestPool, of: &[(u64, Begun)]) -> Vec<u64> {
    now(pool).parts_on("fast", &of.iter().copied().collect()).unwrap().begun
}

#[test]
fn a_file_that_has_begun_to_leave_is_forgotten_once_it_is_gone_or_another_one_and_no_sooner() {
    let pool = landed();
    let (store, file) = (now(&pool), &pool.pool.file);
    let mut handles = Vec::new();
    for name in ["cut", "damaged", "deep", "gone", "done"] {
        write(&create(&store, name).1, &pattern(300_000, 1), 0);
        let leaves = to_its_place(&store, name, 1, (0, 100_000));
        handles.push(leaves.handle);
        assert_eq!(relieve(file, "fast", &[leaves], &mut On).unwrap().moved_files, 1);
    }
    let [cut, damaged, deep, gone, done] = handles[..] else { panic!("five files") };
    let known = handles.iter().map(|&handle| (handle, (0, 100_000))).collect::<Vec<_>>();
    let sorted = |mut of: Vec<u64>| {
        of.sort_unstable();
        of
    };
    assert_eq!(begun(&pool, &known), sorted(handles.clone()));
    let tree = pool.pool.namespace.join("tree");
    // Its rest has no byte now, and may get some again.
    now(&pool).lookup(Path::new("cut")).unwrap().unwrap().truncate(50_000).unwrap();
    rustix::fs::setxattr(tree.join("damaged"), ATTRIBUTE, b"SWEH", XattrFlags::REPLACE).unwrap();
    Files::open(Pool::load(file).unwrap()).unwrap().unlink(Path::new("gone")).unwrap();
    relieve(file, "fast", &[to_its_place(&store, "done", 2, (100_000, u64::MAX))], &mut On).unwrap();
    assert_eq!(begun(&pool, &known), sorted(vec![cut, damaged, deep]), "{gone} is gone, {done} has left");
    // Where a tier is away, it is unknown what is there of a file that no walk finds.
    let outside = pool.directory.path().join("outside");
    std::fs::rename(tree.join("deep"), &outside).unwrap();
    let fast = Pool::load(file).unwrap().servers[2].root.clone();
    let away = fast.with_file_name("away");
    std::fs::rename(&fast, &away).unwrap();
    let all = begun(&pool, &known);
    assert!(all.contains(&deep) && all.contains(&gone) && !all.contains(&done));
    std::fs::rename(&away, &fast).unwrap();
    assert_eq!(begun(&pool, &known), sorted(vec![cut, damaged, deep]), "a walk may miss a file that is renamed");
    assert_eq!(begun(&pool, &[(cut, (0, 50_000)), (done, (100_000, 1 << 62))]), [], "another part has begun");
}

/// Its handle cannot be read any more.
#[test]
fn a_damaged_file_keeps_no_other_on_the_tier() {
    let pool = landed();
    let store = now(&pool);
    for name in ["damaged", "whole"] {
        write(&create(&store, name).1, &pattern(20_000, 1), 0);
    }
    let all = ["damaged", "whole"].map(|name| whole(&store, name));
    let damaged = pool.pool.namespace.join("tree/damaged");
    rustix::fs::setxattr(&damaged, ATTRIBUTE, b"SWEH", XattrFlags::REPLACE).unwrap();
    let done = relieve(&pool.pool.file, "fast", &all, &mut On).unwrap();
    assert_eq!((done.moved_files, done.staying.len()), (1, 1), "{done:?}");
    assert!(done.staying[0].path == "damaged" && !done.staying[0].is_busy, "{:?}", done.staying);
    assert_eq!(servers(&now(&pool), "whole"), [0, 1, 2]);
}

#[test]
fn what_a_part_has_on_each_server_of_its_tier_is_told() {
    let pool = TestPool::new(3);
    let store = pool.open();
    let shape = layout(&[(0, &[(0, 4096)]), (8192, &[(2, 4096), (1, 1024)])]);
    store.set_rule(&Pattern::new("f").unwrap(), &shape).unwrap();
    write(&create(&store, "f").1, &pattern(8192 + 2 * 5120 + 4600, 1), 0);
    let by_server: Vec<_> = parts_on(&store, "disk").into_iter().map(|part| part.by_server).collect();
    let on = |server: u16, (from, to): (u64, u64)| {
        let bytes = (from..to).filter(|&at| shape.split(at, 1)[0].server == ServerId(server)).count() as u64;
        (ServerId(server), bytes)
    };
    let second = (8192, 8192 + 2 * 5120 + 4600);
    assert_eq!(by_server, [vec![on(0, (0, 8192))], vec![on(1, second), on(2, second)]]);
}

#[test]
fn a_landed_file_with_its_head_in_the_inode_keeps_it_there() {
    let pool = landed();
    let store = now(&pool);
    let mut hinted = Optimisations::default();
    let (index, parameters) = OptimisationSetting::parse("small=8K").unwrap().pack();
    hinted.enable(index, parameters).unwrap();
    let fd = rustix::fs::openat(store.tree(), "f", OFlags::RDWR | OFlags::CREATE, Mode::from_raw_mode(0o600)).unwrap();
    drop(store.create(fd.as_fd(), &hinted, || Ok("f".into())).unwrap());
    let inode = store.inode(fd.as_fd()).unwrap().unwrap();
    write(&inode, &pattern(50_000, 1), 0);
    assert_eq!(inode.layout().unwrap().head_in_inode_bytes(), 8192);
    assert_eq!(parts_on(&store, "fast"), [part(&store, "f", (0, 50_000), 50_000 - 8192, true)]);
    assert!(relieve(&pool.pool.file, "fast", &[whole(&store, "f")], &mut On).unwrap().is_done());
    let after = now(&pool);
    assert!(bytes_of(&after, "f") == pattern(50_000, 1));
    let layout = after.lookup(Path::new("f")).unwrap().unwrap().layout().unwrap();
    assert_eq!((layout.head_in_inode_bytes(), layout.servers().len()), (8192, 4));
}

/// New files go to their place at once while the tier is full, read-only or away, and land again when it is well.
#[test]
fn a_tier_that_cannot_take_files_is_left_out() {
    if in_own_mounts("a_tier_that_cannot_take_files_is_left_out") {
        return;
    }
    let pool = landing(|base| {
        let fast = base.join("fast");
        std::fs::create_dir(&fast).unwrap();
        mount_tmpfs(&fast, "size=16m");
        fast
    });
    let fast = Pool::load(&pool.pool.file).unwrap().servers[2].root.clone();
    let made = |name: &str| {
        // What a mount does before it makes a file, once a second.
        let store = now(&pool);
        store.due_look().expect("it is time for a look").take();
        write(&create(&store, name).1, &pattern(30_000, 7), 0);
        assert!(bytes_of(&store, name) == pattern(30_000, 7), "{name}");
        servers(&store, name)
    };
    assert_eq!(made("first"), [2]);
    let filler = fast.join(".filler");
    let file = std::fs::File::create(&filler).unwrap();
    let free = rustix::fs::fstatvfs(&file).unwrap();
    rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, (free.f_bavail - 16) * free.f_frsize).unwrap();
    drop(file);
    assert_eq!(made("full"), [0, 1]);
    std::fs::remove_file(&filler).unwrap();
    let remount = |options: &str| {
        let run = Command::new("mount").args(["-o", options]).arg(&fast).status().unwrap();
        assert!(run.success(), "mount -o {options}");
    };
    remount("remount,ro");
    assert_eq!(made("read-only"), [0, 1]);
    remount("remount,rw");
    assert_eq!(made("again"), [2]);
    rustix::mount::unmount(&fast, rustix::mount::UnmountFlags::DETACH).unwrap();
    assert_eq!(made("away"), [0, 1]);
}

/// Whether a file landed is told by its never having moved: so no other move takes it, or it goes to its place.
#[test]
fn files_that_landed_still_go_to_their_place_when_servers_come_and_go() {
    let pool = landed();
    let file = &pool.pool.file;
    let landed_on = |name: &str| now(&pool).status(Path::new(name)).unwrap().placed.unwrap().landed_on;
    for (name, seed) in [("one", 1), ("two", 2), ("three", 3)] {
        write(&create(&now(&pool), name).1, &pattern(60_000, seed), 0);
    }
    assert_eq!(add_server(file, "fast", &pool.directory.path().join("fast.1")).unwrap(), "fast.1");
    rebalance(file, &Filling::default(), &mut On).unwrap();
    for name in ["one", "two", "three"] {
        assert_eq!((servers(&now(&pool), name), landed_on(name).as_deref()), (vec![2], Some("fast")), "{name}");
    }
    let root = pool.directory.path().join("fast.2");
    let (_, done) = replace(file, "fast.0", &root, false, &mut On).unwrap();
    assert_eq!((done.moved_files, done.is_done()), (3, true));
    for (name, seed) in [("one", 1), ("two", 2), ("three", 3)] {
        assert_eq!(servers(&now(&pool), name), [0, 1, 3, 4], "{name} is where files are made that do not land");
        assert!(bytes_of(&now(&pool), name) == pattern(60_000, seed), "{name}");
    }
    assert_eq!(findings(&pool), []);
}

#[test]
fn what_no_other_tier_can_take_stays_and_that_is_told() {
    let pool = landed();
    write(&create(&now(&pool), "f").1, &pattern(30_000, 1), 0);
    let options = DrainOptions { to: Some("disk".into()), ..DrainOptions::default() };
    assert!(drain(&pool.pool.file, "fast.0", &options, &mut On).unwrap().is_done());
    let version = now(&pool).status(Path::new("f")).unwrap().placed.unwrap().placement.version;
    let done = relieve(&pool.pool.file, "disk", &[away(&now(&pool), "f", version, (0, 30_000))], &mut On).unwrap();
    assert_eq!((done.moved_files, done.staying.len(), done.passed_over.len()), (0, 1, 0));
    assert!(done.staying[0].why.contains("no server of another tier takes new files"), "{}", done.staying[0].why);
}

#[test]
fn a_tier_that_is_drained_takes_no_new_files() {
    let pool = landed();
    write(&create(&now(&pool), "young").1, &pattern(30_000, 1), 0);
    let options = DrainOptions { to: Some("disk".into()), ..DrainOptions::default() };
    assert!(drain(&pool.pool.file, "fast.0", &options, &mut On).unwrap().is_done());
    let store = now(&pool);
    write(&create(&store, "later").1, &pattern(30_000, 2), 0);
    assert_eq!(servers(&store, "later"), [0, 1]);
    assert!(!servers(&store, "young").contains(&2));
}

#[test]
fn what_is_wrong_in_the_pool_file_is_named() {
    let pool = landed();
    let text = std::fs::read_to_string(&pool.pool.file).unwrap();
    let refused = |text: String| match Pool::parse(&text, &pool.pool.file) {
        Err(error @ Error::Pool { .. }) => error.to_string(),
        other => panic!("{other:?}"),
    };
    assert!(
        refused(text.replace("\"fast\"\nwidth", "\"tape\"\nwidth"))
            .contains("land: no tier 'tape'; name one of disk, fast")
    );
    for mark in ["0.0", "1.1", "nan"] {
        let wrong = refused(text.replace("\nwidth", &format!("\nland_mark = {mark}\nwidth")));
        assert!(wrong.contains("land_mark must be between 0.01 and 1.0"), "{wrong}");
    }
    let alone = text.replace("land = \"fast\"", "land_mark = 0.5");
    assert!(refused(alone).contains("name a tier with land"));
    // A pool of one tier alone has no other place.
    let alone = text.replace("land = \"fast\"", "land = \"disk\"");
    let alone = Pool::parse(alone.split("\n[[tier]]\nname = \"fast\"").next().unwrap(), &pool.pool.file).unwrap();
    assert_eq!(alone.landing_layout(), Some(alone.default_layout()));
}

const KILLED: &str = "STRIPEWISE_TEST_KILLED_SETTLING";

/// What is to leave next: a file that has landed whole, or of every other one a part that ends at one of `CUTS`.
fn next_leaving(store: &Arc<Store>) -> Option<Leaving> {
    const CUTS: [u64; 4] = [0, 130_000, 260_000, u64::MAX];
    parts_on(store, "fast").into_iter().find_map(|part| {
        let is_whole = part.path.trim_start_matches('f').parse::<u64>().unwrap() % 2 == 0;
        let at = CUTS.iter().position(|&cut| cut == part.stretch.0)?;
        // What has its place has a part on the tier, too.
        (part.has_landed || at > 0).then(|| {
            let until = if is_whole { u64::MAX } else { CUTS[at + 1] };
            let stretches = vec![(part.stretch.0, until)];
            Leaving { path: part.path, handle: part.handle, version: part.version, stretches, to_its_place: true }
        })
    })
}

/// Files that landed go to their place, every other one in parts, by a process that is killed at any moment, while new ones land: no
/// byte is lost.
#[test]
fn killed_while_files_settle_no_byte_is_lost() {
    if let Some(file) = std::env::var_os(KILLED) {
        let file = Path::new(&file);
        while let Some(next) = next_leaving(&Store::of_file(file).unwrap()) {
            // A file that is being made is left for later.
            relieve(file, "fast", &[next], &mut On).unwrap();
        }
        return;
    }
    let kills: u64 = std::env::var("STRIPEWISE_POOL_KILLS").map_or(8, |count| count.parse().unwrap());
    for round in 0..kills.div_ceil(4) {
        let pool = landed();
        let store = now(&pool);
        let spawn = || {
            let mut command = Command::new(std::env::current_exe().unwrap());
            command.args(["killed_while_files_settle_no_byte_is_lost", "--exact", "--nocapture"]);
            command.env(KILLED, &pool.pool.file).stdout(Stdio::null()).spawn().unwrap()
        };
        for number in 0..12_u64 {
            write(&create(&store, &format!("f{number}")).1, &pattern(400_000, number), 0);
            if number % 3 == 2 {
                let mut child = spawn();
                std::thread::sleep(std::time::Duration::from_micros(500 + (round * 4 + number) * 61_803 % 60_000));
                kill_process(Pid::from_child(&child), Signal::KILL).unwrap();
                child.wait().unwrap();
            }
        }
        assert!(spawn().wait().unwrap().success(), "the same command goes on");
        assert!(mend(&pool).iter().all(|finding| finding.lost.is_empty()));
        assert_eq!(findings(&pool), []);
        let after = now(&pool);
        for number in 0..12 {
            let name = format!("f{number}");
            assert!(bytes_of(&after, &name) == pattern(400_000, number), "{name}");
            assert_eq!(shape(&after, &name), [(0, vec![0, 1, 2])], "{name} has its place");
        }
    }
}
