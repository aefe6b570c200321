//! Datafiles that were cut short, emptied, exchanged or removed behind the pool's back: told by `fsck` without reading
//! data, by name and by the bytes that are lost; an error to readers of those bytes, and to no other. Never is a pool that
//! is well taken for a damaged one.

mod common;

use common::{TestPool, content, create, layout, pattern, write, write_all};
use rustix::fs::FallocateFlags;
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use stripewise_layout::{Layout, Pattern};
use stripewise_store::fsck::{CheckFinding, CheckOptions, CheckReport, DamageKind, FindingOutcome, check};
use stripewise_store::{Error, Inode, Pool, Store};

const SIZE: usize = 100_000;

fn fsck(pool: &Pool, options: &CheckOptions) -> (CheckReport, Vec<CheckFinding>) {
    let told = Mutex::new(Vec::new());
    let report = check(pool, options, &told).unwrap();
    (report, told.into_inner().unwrap())
}

fn dry() -> CheckOptions {
    CheckOptions { dry_run: true, ..CheckOptions::default() }
}

/// Layouts over three servers: plain striping, one server, regions with narrow stripes and bytes in the inode, and a server
/// with two stripes of a round.
fn layouts() -> Vec<Layout> {
    vec![
        layout(&[(0, &[(0, 4096), (1, 4096), (2, 4096)])]),
        layout(&[(0, &[(1, 65536)])]),
        layout(&[(0, &[(u16::MAX, 4096)]), (4096, &[(2, 1000), (0, 3000)]), (50_000, &[(1, 512), (0, 8192)])]),
        layout(&[(0, &[(0, 5000), (1, 100)]), (70_000, &[(2, 4096)])]),
    ]
}

/// A pool with the file `file` of [`SIZE`] bytes, written and closed, and never synced.
fn pool(shape: &Layout) -> TestPool {
    let pool = TestPool::new(3);
    let store = pool.open();
    store.set_rule(&Pattern::new("file").unwrap(), shape).unwrap();
    let (_fd, inode) = create(&store, "file");
    write(&inode, &bytes(), 0);
    pool
}

fn bytes() -> Vec<u8> {
    pattern(SIZE, 3)
}

fn open(pool: &TestPool) -> std::sync::Arc<Inode> {
    pool.open().lookup(Path::new("file")).unwrap().unwrap()
}

/// The file's datafiles: server, and path.
fn datafiles(pool: &TestPool) -> Vec<(usize, PathBuf)> {
    let placement = open(pool).placement().unwrap();
    let table = placement.datafiles().unwrap().table;
    let place = |datafile: &stripewise_store::placement::Datafile| {
        let server = datafile.server.index();
        (server, pool.root(server).join(datafile.path(placement.handle).as_str()))
    };
    table.iter().map(place).collect()
}

/// The file's bytes that stand from `from` on in datafile `index`, each asked of the layout.
fn behind(shape: &Layout, pool: &TestPool, index: usize, from: u64) -> Vec<usize> {
    let table = open(pool).placement().unwrap().datafiles().unwrap().table;
    let is_there = |x: &usize| {
        let at = shape.locate(*x as u64);
        at.server == table[index].server && at.datafile_offset >= from
    };
    (0..SIZE).filter(is_there).collect()
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Damage {
    Emptied,
    Halved,
    OneByte,
    Removed,
    Replaced,
}

const DAMAGES: [Damage; 5] = [Damage::Emptied, Damage::Halved, Damage::OneByte, Damage::Removed, Damage::Replaced];

impl Damage {
    /// How long the datafile is then.
    fn make(self, path: &Path) -> u64 {
        let length = std::fs::metadata(path).unwrap().len();
        let cut = |to| {
            std::fs::OpenOptions::new().write(true).open(path).unwrap().set_len(to).unwrap();
            to
        };
        match self {
            Self::Emptied => cut(0),
            Self::Halved => cut(length / 2),
            Self::OneByte => cut(length - 1),
            Self::Removed | Self::Replaced => {
                std::fs::remove_file(path).unwrap();
                if self == Self::Replaced {
                    std::fs::write(path, b"").unwrap();
                    use std::os::unix::fs::PermissionsExt as _;
                    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
                }
                0
            }
        }
    }
}

fn ranges(all: &[usize]) -> Vec<(u64, u64)> {
    let mut out: Vec<(u64, u64)> = Vec::new();
    for &x in all {
        match out.last_mut() {
            Some(last) if last.1 == x as u64 => last.1 += 1,
            _ => out.push((x as u64, x as u64 + 1)),
        }
    }
    out
}

/// Reads from each of some offsets, as far as there are no errors.
fn assert_exactly_lost(inode: &Inode, lost: &[usize], about: &str) {
    let whole = bytes();
    let is_lost: Vec<bool> = (0..SIZE).map(|x| lost.binary_search(&x).is_ok()).collect();
    let mut at = 0;
    let mut buffer = vec![0xee; 7777];
    while at < SIZE {
        let good = is_lost[at..].iter().take_while(|lost| !**lost).count();
        match inode.read_at(&mut buffer, at as u64) {
            Ok(count) => {
                assert!(count > 0 && count <= good, "{about}: {count} bytes at {at}, of which {good} are there");
                assert_eq!(buffer[..count], whole[at..at + count], "{about}: at {at}");
                at += count;
            }
            Err(error) => {
                assert_eq!(good, 0, "{about}: byte {at} is there, and gives {error}");
                assert_eq!(error.errno(), rustix::io::Errno::IO);
                assert!(error.to_string().contains("server disk."), "{error}");
                at += is_lost[at..].iter().take_while(|lost| **lost).count();
            }
        }
    }
}

#[test]
fn each_damaged_datafile_is_told_and_exactly_its_bytes_are_errors() {
    for (number, shape) in layouts().iter().enumerate() {
        let count = datafiles(&pool(shape)).len();
        for (index, damage) in (0..count).flat_map(|index| DAMAGES.map(|damage| (index, damage))) {
            let about = format!("layout {number}, datafile {index}, {damage:?}");
            let pool = pool(shape);
            assert!(fsck(&pool.pool, &dry()).0.is_clean());
            let (server, path) = datafiles(&pool)[index].clone();
            let recorded = std::fs::metadata(&path).unwrap().len();
            let found = damage.make(&path);
            let lost = behind(shape, &pool, index, found);
            assert!(!lost.is_empty(), "{about}");
            let kind = if damage == Damage::Removed { DamageKind::MissingDatafile } else { DamageKind::ShortDatafile };
            for options in [dry(), CheckOptions::default()] {
                let (report, told) = fsck(&pool.pool, &options);
                assert_eq!(report.exit_code(), 4, "{about}: {told:?}");
                let [finding] = &told[..] else { panic!("{about}: {told:?}") };
                assert_eq!((finding.kind, finding.outcome), (kind, FindingOutcome::Left), "{about}");
                assert_eq!(finding.path.as_deref(), Some(Path::new("file")), "{about}");
                assert_eq!(finding.server, Some(format!("disk.{server}")), "{about}");
                assert!(path.ends_with(finding.object.as_ref().unwrap()), "{about}: {finding:?}");
                assert_eq!(finding.lost, ranges(&lost), "{about}");
                assert!(finding.what.contains(&format!("({} in all)", lost.len())), "{about}: {finding:?}");
                if kind == DamageKind::ShortDatafile {
                    let lengths = format!("ends at byte {found}, {recorded} had been recorded");
                    assert!(finding.what.contains(&lengths), "{about}: {finding:?}");
                }
                assert!(finding.action.contains("from a backup"), "{about}: {finding:?}");
            }
            assert_exactly_lost(&open(&pool), &lost, &about);
            // A writer that comes and goes does not make it forgotten.
            let inode = open(&pool);
            inode.register_writer().unwrap();
            inode.release_writer().unwrap();
            assert_exactly_lost(&open(&pool), &lost, &about);
        }
    }
}

#[test]
fn bytes_that_are_given_up_are_zeros_and_the_pool_is_clean() {
    for shape in &layouts() {
        for damage in DAMAGES {
            let pool = pool(shape);
            let found = damage.make(&datafiles(&pool)[0].1);
            let options = CheckOptions { forget_missing: true, ..CheckOptions::default() };
            let (report, told) = fsck(&pool.pool, &options);
            assert_eq!(report.exit_code(), 1, "{told:?}");
            assert!(fsck(&pool.pool, &CheckOptions::default()).0.is_clean());
            let mut expected = bytes();
            behind(shape, &pool, 0, found).into_iter().for_each(|x| expected[x] = 0);
            assert!(content(&open(&pool)) == expected, "{damage:?}");
        }
    }
}

#[test]
fn bytes_that_are_written_again_are_there_again() {
    for shape in &layouts() {
        let pool = pool(shape);
        Damage::Emptied.make(&datafiles(&pool)[0].1);
        write(&open(&pool), &bytes(), 0);
        assert!(content(&open(&pool)) == bytes());
        assert!(fsck(&pool.pool, &CheckOptions::default()).0.is_clean());
    }
}

#[test]
fn a_file_that_is_cut_and_written_anew_after_a_loss_is_well() {
    for shape in &layouts() {
        let pool = pool(shape);
        Damage::Emptied.make(&datafiles(&pool)[0].1);
        let inode = open(&pool);
        inode.truncate(0).unwrap();
        inode.truncate(50_000).unwrap();
        assert_eq!(content(&inode), vec![0; 50_000]);
        assert!(fsck(&pool.pool, &CheckOptions::default()).0.is_clean());
    }
}

#[test]
fn what_is_lost_is_not_moved_and_not_taken_for_a_hole() {
    for shape in &layouts() {
        let pool = pool(shape);
        let found = Damage::Halved.make(&datafiles(&pool)[0].1);
        let lost = behind(shape, &pool, 0, found);
        let inode = open(&pool);
        for &x in &lost {
            assert_eq!(inode.seek_data(x as u64).unwrap(), x as u64, "byte {x} seems to be in a hole");
        }
        let hole = inode.seek_hole(0).unwrap();
        assert_eq!(hole, SIZE as u64, "there is no hole");
        let to = layout(&[(0, &[(2, 12345)])]);
        let error = inode.move_to(&to, "file", &mut |_, _| true).unwrap_err();
        assert_eq!(error.errno(), rustix::io::Errno::IO, "{error}");
        assert_exactly_lost(&open(&pool), &lost, "after a move that failed");
        if inode.is_whole().unwrap() {
            inode.register_writer().unwrap();
            let error = inode.append(b"x").unwrap_err();
            assert!(matches!(error, Error::ShortDatafile { .. }), "zeros would take their place: {error}");
            assert!(inode.whole_datafile(false).unwrap().is_none(), "the kernel must not serve it");
            inode.release_writer().unwrap();
        }
    }
}

#[test]
fn what_is_recorded_follows_a_move() {
    for shape in &layouts() {
        for to in &layouts() {
            let pool = pool(shape);
            let inode = open(&pool);
            inode.move_to(to, "file", &mut |_, _| true).unwrap();
            let (report, told) = fsck(&pool.pool, &CheckOptions::default());
            assert!(report.is_clean(), "{told:?}");
            for index in 0..datafiles(&pool).len() {
                let path = &datafiles(&pool)[index].1;
                let saved = std::fs::read(path).unwrap();
                let found = Damage::Halved.make(path);
                let lost = behind(to, &pool, index, found);
                if !lost.is_empty() {
                    assert_eq!(fsck(&pool.pool, &dry()).1[0].lost, ranges(&lost));
                }
                std::fs::write(path, saved).unwrap();
            }
        }
    }
}

/// A record holds the lengths of some hundred datafiles: what was lost of one of them is never dropped for those of others.
#[test]
fn what_is_lost_of_a_wide_file_stays_lost_when_it_moves() {
    const SERVERS: u16 = 130;
    let pool = TestPool::new(usize::from(SERVERS));
    let wide: Vec<(u16, u64)> = (0..SERVERS - 20).map(|server| (server, 4096)).collect();
    let store = pool.open();
    store.set_rule(&Pattern::new("file").unwrap(), &layout(&[(0, &wide)])).unwrap();
    let size = 3 * 4096 * wide.len();
    write(&create(&store, "file").1, &pattern(size, 1), 0);
    drop(store);
    let inode = open(&pool);
    let (server, row) = (70_usize, 4096 * wide.len());
    let handle = inode.handle();
    let shelf = pool.root(server).join(format!("{:02x}", handle & 0xff));
    let datafile = std::fs::read_dir(shelf).unwrap().next().unwrap().unwrap().path();
    std::fs::File::options().write(true).open(datafile).unwrap().set_len(4096).unwrap();
    let lost = row + server * 4096;
    let is_lost = |when: &str| {
        let error = open(&pool).read_at(&mut [0; 10], lost as u64).unwrap_err();
        assert!(matches!(error, Error::ShortDatafile { .. }), "{when}: {error}");
    };
    is_lost("at first");
    // The first stripes of it go to others, one by one, and then another process closes it.
    for (number, end) in [4096_u64, 20_000, 100_000].into_iter().enumerate() {
        let to = [(110 + number as u16, 777), (115 + number as u16, 777)];
        inode.move_to(&layout(&[(0, &to), (end, &wide)]), "file", &mut |_, _| true).unwrap();
        is_lost("after a move");
        write(&open(&pool), &pattern(10, 5), 0);
        is_lost("after a writer");
    }
    let error = inode.move_to(&layout(&[(0, &[(0, 4096)])]), "file", &mut |_, _| true).unwrap_err();
    assert_eq!(error.errno(), rustix::io::Errno::IO, "{error}");
}

#[test]
fn an_exchanged_datafile_of_the_same_length_cannot_be_seen() {
    let pool = pool(&layouts()[0]);
    let path = &datafiles(&pool)[1].1;
    let length = std::fs::metadata(path).unwrap().len() as usize;
    std::fs::write(path, pattern(length, 99)).unwrap();
    assert!(fsck(&pool.pool, &dry()).0.is_clean(), "as docs/fsck.md says");
}

#[test]
fn records_that_somebody_wrote_are_no_harm() {
    let pool = pool(&layouts()[0]);
    let path = pool.pool.namespace.join("tree/file");
    let name = "user.stripewise.lengths";
    for value in [&b""[..], b"nonsense", &[0xff; 1024], &[1; 3000]] {
        rustix::fs::setxattr(&path, name, value, rustix::fs::XattrFlags::empty()).unwrap();
        assert!(content(&open(&pool)) == bytes());
        assert!(fsck(&pool.pool, &dry()).0.is_clean());
        let inode = open(&pool);
        inode.truncate(SIZE as u64 - 1).unwrap();
        write(&inode, &bytes(), 0);
    }
    Damage::OneByte.make(&datafiles(&pool)[0].1);
    assert_eq!(fsck(&pool.pool, &dry()).0.exit_code(), 4, "the last writer has recorded it again");
}

/// Numbers at random, the same for the same seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % limit
    }
}

const POOL: &str = "STRIPEWISE_TEST_LENGTHS_POOL";
const SEED: &str = "STRIPEWISE_TEST_LENGTHS_SEED";
const FILES: u64 = 4;

/// One operation on one of the files, as any process may do it.
fn act(store: &std::sync::Arc<Store>, dice: &mut Dice) {
    const MOST: u64 = 60_000;
    let name = format!("f{}", dice.below(FILES));
    let inode = store.lookup(Path::new(&name)).unwrap().unwrap();
    let (offset, len) = (dice.below(MOST), 1 + dice.below(20_000));
    match dice.below(12) {
        0..3 => write(&inode, &pattern(len as usize, offset), offset),
        3 => {
            inode.register_writer().unwrap();
            write_all(&inode, &pattern(len as usize, 5), offset);
            inode.truncate(dice.below(MOST)).unwrap();
            write_all(&inode, &pattern(100, 5), dice.below(MOST));
            inode.sync(dice.below(2) == 0).unwrap();
            inode.release_writer().unwrap();
        }
        4..6 => inode.truncate(dice.below(MOST)).unwrap(),
        6 => inode.truncate(0).unwrap(),
        7 => {
            inode.register_writer().unwrap();
            inode.allocate(FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, offset, len).unwrap();
            inode.release_writer().unwrap();
        }
        8 => {
            inode.register_writer().unwrap();
            inode.append(&pattern(len as usize, 6)).unwrap();
            inode.release_writer().unwrap();
        }
        9 => {
            let to = &layouts()[dice.below(layouts().len() as u64) as usize];
            match inode.move_to(to, &name, &mut |_, _| true) {
                Ok(_) | Err(Error::Busy { .. }) => {}
                Err(error) => panic!("{name}: {error}"),
            }
        }
        10 => _ = inode.seek_data(offset),
        _ => {
            let mut buffer = vec![0; len as usize];
            inode.read_at(&mut buffer, offset).unwrap();
        }
    }
}

/// A process that acts until it is told to end, or is killed; it says so after each operation.
#[test]
fn acts_at_random() {
    let Some(pool) = std::env::var_os(POOL) else { return };
    let store = Store::open(Pool::load(Path::new(&pool)).unwrap()).unwrap();
    let mut dice = Dice(std::env::var(SEED).unwrap().parse().unwrap());
    loop {
        act(&store, &mut dice);
        let mut out = std::io::stderr().lock();
        if writeln!(out, "done").is_err() {
            return;
        }
    }
}

fn spawn(pool: &TestPool, seed: u64) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["acts_at_random", "--exact", "--nocapture", "--test-threads=1"])
        .env(POOL, &pool.pool.file)
        .env(SEED, seed.to_string())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

#[test]
fn a_pool_that_is_well_gives_no_alarm_whoever_is_killed() {
    let rounds = std::env::var("STRIPEWISE_LENGTHS_RUNS").map_or(12, |runs| runs.parse().unwrap());
    for round in 0..rounds {
        let pool = TestPool::new(3);
        {
            let store = pool.open();
            for file in 0..FILES {
                let name = format!("f{file}");
                store.set_rule(&Pattern::new(&name).unwrap(), &layouts()[file as usize]).unwrap();
                create(&store, &name);
            }
        }
        let mut dice = Dice(round + 1);
        let mut children: Vec<_> = (0..3).map(|me| spawn(&pool, 1000 * round + me)).collect();
        // Each is killed when it has done so much, at whatever it is at then.
        for child in &mut children {
            let lines = BufReader::new(child.stderr.take().unwrap()).lines();
            for line in lines.take(5 + dice.below(40) as usize) {
                let line = line.unwrap();
                assert!(line.ends_with("done"), "round {round}: {line}");
            }
            kill_process(Pid::from_child(child), Signal::KILL).unwrap();
        }
        children.iter_mut().for_each(|child| _ = child.wait().unwrap());
        let alarm = |told: &[CheckFinding]| {
            let bad: Vec<_> = told
                .iter()
                .filter(|f| f.outcome == FindingOutcome::Left || f.kind == DamageKind::ShortDatafile)
                .collect();
            assert!(bad.is_empty(), "round {round}: {bad:?}");
        };
        alarm(&fsck(&pool.pool, &dry()).1);
        let store = pool.open();
        for _ in 0..10 {
            act(&store, &mut dice);
        }
        drop(store);
        alarm(&fsck(&pool.pool, &CheckOptions::default()).1);
        let (report, told) = fsck(&pool.pool, &CheckOptions { scrub: true, ..CheckOptions::default() });
        assert!(report.is_clean(), "round {round}: {told:?}");
        let store = pool.open();
        for file in 0..FILES {
            content(&store.lookup(Path::new(&format!("f{file}"))).unwrap().unwrap());
        }
    }
}

#[test]
fn a_scrub_reads_every_byte() {
    let pool = pool(&layouts()[2]);
    std::fs::write(pool.pool.namespace.join("tree/plain"), pattern(10_000, 1)).unwrap();
    let (report, told) = fsck(&pool.pool, &CheckOptions { scrub: true, ..CheckOptions::default() });
    assert!(report.is_clean(), "{told:?}");
    assert!(report.read_bytes >= (SIZE + 10_000) as u64, "{report:?}");
    assert_eq!(fsck(&pool.pool, &CheckOptions::default()).0.read_bytes, 0);
}
