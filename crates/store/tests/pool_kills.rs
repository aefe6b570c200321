//! A pool whose servers come and go, and whose files move, by processes that are killed at any moment while files are written.

mod common;

use common::life::{On, bytes_of, findings, mend, now};
use common::{TestPool, create, pattern, write, write_all};
use rustix::process::{Pid, Signal, kill_process};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use stripewise_layout::{FileLayout, Layout, Pattern, ServerId};
use stripewise_store::adding::add_server;
use stripewise_store::apply::ApplyWatch;
use stripewise_store::drain::{DrainOptions, Drained, drain, remove, replace};
use stripewise_store::pool::ServerState;
use stripewise_store::rebalance::{Filling, rebalance};
use stripewise_store::small_files::{NewHead, move_small_files};
use stripewise_store::{Pool, Store, Then};

const TEST: &str = "killed_at_any_moment_no_byte_is_lost_and_it_goes_on";
const KILLED: &str = "STRIPEWISE_TEST_KILLED_POOL";
const FILES: usize = 24;
const BYTES: usize = 200_000;
/// Of a file's first bytes, that go into its inode and out of it again.
const HEAD_BYTES: u64 = 64 << 10;
const KINDS: usize = 5;
/// A file that is moved in steps: short pieces far from each other, with holes between.
const LARGE: &str = "large";
const PIECES: usize = 160;
const PIECE_BYTES: usize = 20_000;
const PIECE_EVERY: u64 = 7 << 20;

/// What the process that is killed does, again and again until it is done.
#[derive(Debug, Clone)]
enum Work {
    /// A new server gets its share.
    AddAndRebalance(PathBuf),
    DrainAndRemove(String),
    /// `pool replace`: the new server takes all of the old one, which goes.
    Replace(String, PathBuf),
    /// As `adapt` moves files: to the servers with these numbers.
    Move(u16, u16),
    /// As `adapt` moves small files: this many of their first bytes are in the inode afterwards.
    SmallFiles(u64),
}

impl Work {
    /// The same for a new generation of the pool.
    fn of(generation: usize, pool: &TestPool) -> Self {
        let now = Pool::load(&pool.pool.file).unwrap();
        let used: Vec<_> = now.servers.iter().filter(|server| server.is_used()).collect();
        let root = pool.directory.path().join(format!("n{generation}"));
        match generation % KINDS {
            0 => Self::AddAndRebalance(root),
            1 => Self::Move(used[0].id.0, used[used.len() - 1].id.0),
            2 => Self::SmallFiles(if (generation / KINDS).is_multiple_of(2) { HEAD_BYTES } else { 0 }),
            3 => Self::Replace(used[0].name.clone(), root),
            // The files have moved to it.
            _ => Self::DrainAndRemove(used[used.len() - 1].name.clone()),
        }
    }

    fn to_text(&self) -> String {
        match self {
            Self::AddAndRebalance(root) => format!("add {}", root.display()),
            Self::DrainAndRemove(name) => format!("drain {name}"),
            Self::Replace(name, root) => format!("replace {name} {}", root.display()),
            Self::Move(one, other) => format!("move {one} {other}"),
            Self::SmallFiles(head_bytes) => format!("small {head_bytes}"),
        }
    }

    /// Does what `text` says with the pool in `file`.
    fn run(file: &Path, text: &str) {
        let mut words = text.split(' ');
        let mut word = || words.next().unwrap();
        match word() {
            "add" => {
                add_server(file, "disk", Path::new(word())).unwrap();
                rebalance(file, &Filling::default(), &mut On).unwrap();
            }
            "drain" => {
                let (name, options) = (word(), DrainOptions { wait: true, ..DrainOptions::default() });
                leave(file, name, || drain(file, name, &options, &mut On).unwrap());
            }
            "replace" => {
                let (name, root) = (word(), word());
                leave(file, name, || replace(file, name, Path::new(root), true, &mut On).unwrap().1);
            }
            "small" => {
                let head_bytes = word().parse().unwrap();
                let store = Store::of_file(file).unwrap();
                let head = |number| {
                    let path = format!("f{number}");
                    let handle = store.existing(Path::new(&path)).unwrap().unwrap().handle();
                    NewHead { path, handle, head_bytes }
                };
                let heads: Vec<_> = (0..FILES).map(head).collect();
                move_small_files(file, &heads, &mut On).unwrap();
            }
            _ => {
                let servers = [word(), word()].map(|number| ServerId(number.parse().unwrap()));
                let layout = Layout::striped(servers, 8192).unwrap();
                let moved = |name: &str| FileLayout {
                    path: Pattern::exact(name).unwrap(),
                    layout: layout.clone(),
                    note: None,
                    region_notes: Vec::new(),
                };
                let store = Store::of_file(file).unwrap();
                // Each by itself, as one that is being written stays.
                let names = (0..FILES).map(|number| format!("f{number}")).chain([LARGE.to_owned()]);
                for name in names {
                    let _ = store.apply(&[moved(&name)], false, &mut GivesWay);
                }
            }
        }
    }
}

/// All files leave a server, which is removed then.
fn leave(file: &Path, name: &str, moves: impl FnOnce() -> Drained) {
    let pool = Pool::load(file).unwrap();
    if pool.servers.iter().any(|server| server.name == name && server.state == ServerState::Removed) {
        return;
    }
    let drained = moves();
    assert!(drained.is_done(), "{drained:?}");
    remove(file, name, false, &mut On).unwrap();
}

struct GivesWay;

impl ApplyWatch for GivesWay {
    fn waits(&mut self) -> bool {
        true
    }

    fn progress(&mut self, _: &str, _: u64, _: u64) -> Then {
        Then::On
    }

    fn gives_way(&self) -> bool {
        true
    }
}

fn spawn(pool: &TestPool, work: &Work) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([TEST, "--exact", "--nocapture"]).stdout(Stdio::null());
    command.env(KILLED, format!("{} {}", pool.pool.file.display(), work.to_text())).spawn().unwrap()
}

/// Until it is stopped: opens one of the files for writing, writes, cuts it off at times, and closes it; `known` is what each then has. Every third is open
/// for writing all the time.
fn writes(pool: &TestPool, (known, pieces): (&mut [Vec<u8>], &mut [Vec<u8>]), round: u64, stop: &AtomicBool) {
    let store = now(pool);
    let mut seed = round;
    let open = |number: usize| store.lookup(Path::new(&format!("f{number}"))).unwrap().unwrap();
    let held: Vec<_> = (0..FILES).step_by(3).map(open).collect();
    held.iter().for_each(|inode| inode.register_writer().unwrap());
    let large = store.lookup(Path::new(LARGE)).unwrap().unwrap();
    while !stop.load(Ordering::Acquire) {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let number = (seed >> 33) as usize % FILES;
        let at = (seed >> 40) as usize % BYTES;
        let young = pattern((seed >> 20) as usize % 30_000, seed);
        let inode = open(number);
        inode.register_writer().unwrap();
        write_all(&inode, &young, at as u64);
        let bytes = &mut known[number];
        bytes.resize(bytes.len().max(at + young.len()), 0);
        bytes[at..at + young.len()].copy_from_slice(&young);
        // Some are cut off, and closed before a move has switched.
        if (seed >> 50).is_multiple_of(4) {
            bytes.truncate(at + young.len() / 2);
            inode.truncate(bytes.len() as u64).unwrap();
        }
        inode.release_writer().unwrap();
        let number = (seed >> 35) as usize % PIECES;
        let young = &young[..young.len().min(PIECE_BYTES)];
        write(&large, young, number as u64 * PIECE_EVERY);
        pieces[number][..young.len()].copy_from_slice(young);
        // So that most files are idle most of the time, and can move.
        std::thread::sleep(Duration::from_millis(2));
    }
    held.iter().for_each(|inode| inode.release_writer().unwrap());
}

fn whole(store: &Arc<Store>, (known, pieces): (&[Vec<u8>], &[Vec<u8>]), what: &str) {
    for (number, bytes) in known.iter().enumerate() {
        let found = bytes_of(store, &format!("f{number}"));
        let same = found.iter().zip(bytes).take_while(|(found, put)| found == put).count();
        assert!(
            found == *bytes,
            "f{number} after {what}: {} of {} bytes, from {same} on others",
            found.len(),
            bytes.len()
        );
    }
    let large = store.lookup(Path::new(LARGE)).unwrap().unwrap();
    assert_eq!(large.size_bytes().unwrap(), (PIECES as u64 - 1) * PIECE_EVERY + PIECE_BYTES as u64, "after {what}");
    for (number, bytes) in pieces.iter().enumerate() {
        // With some of the hole behind it.
        let length = if number + 1 < PIECES { 2 * PIECE_BYTES } else { PIECE_BYTES };
        let mut found = vec![0xee; length];
        let mut done = 0;
        while done < length {
            let read = large.read_at(&mut found[done..], number as u64 * PIECE_EVERY + done as u64).unwrap();
            assert!(read > 0, "piece {number} of {LARGE} ends at {done} after {what}");
            done += read;
        }
        assert!(found[..PIECE_BYTES] == bytes[..], "piece {number} of {LARGE} after {what}");
        assert!(found[PIECE_BYTES..].iter().all(|byte| *byte == 0), "behind piece {number} of {LARGE} after {what}");
    }
}

/// From nothing yet done, over the steps of the large file, to the removal of a server at the end of a drain, which takes a second at
/// least, by a sequence that covers the span evenly.
fn delay(round: u64) -> Duration {
    let early = 500 + round * 61_803 % 100_000;
    Duration::from_micros(match round % 8 {
        7 => 1_200_000 + early * 3,
        2 | 5 => early * 6,
        _ => early,
    })
}

/// A new server gets its share, files move as `adapt` moves them, into their inodes and out of them, too, a server is replaced and
/// another drained and removed, over and over, each by a process that is killed four times before it may come to its end, while files
/// are written. One file is so large that it moves in steps.
#[test]
fn killed_at_any_moment_no_byte_is_lost_and_it_goes_on() {
    if let Some(asked) = std::env::var_os(KILLED) {
        let (file, work) = asked.to_str().unwrap().split_once(' ').unwrap();
        return Work::run(Path::new(file), work);
    }
    let kills: u64 = std::env::var("STRIPEWISE_POOL_KILLS").map_or(20, |count| count.parse().unwrap());
    let pool = TestPool::new(3);
    let mut known: Vec<Vec<u8>> = (0..FILES as u64).map(|seed| pattern(BYTES, seed)).collect();
    let store = pool.open();
    for (number, bytes) in known.iter().enumerate() {
        write(&create(&store, &format!("f{number}")).1, bytes, 0);
    }
    let mut pieces: Vec<Vec<u8>> = (0..PIECES as u64).map(|seed| pattern(PIECE_BYTES, !seed)).collect();
    let large = create(&store, LARGE).1;
    for (at, bytes) in (0..).step_by(PIECE_EVERY as usize).zip(&pieces) {
        write(&large, bytes, at);
    }
    drop((large, store));
    let (mut was_killed, mut generation) = (0, 0);
    let mut work = Work::of(generation, &pool);
    for round in 0..kills {
        let what = format!("kill {round}, of {work:?}");
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| writes(&pool, (&mut known, &mut pieces), round, &stop));
            let mut child = spawn(&pool, &work);
            std::thread::sleep(delay(round));
            kill_process(Pid::from_child(&child), Signal::KILL).unwrap();
            was_killed += u64::from(!child.wait().unwrap().success());
            stop.store(true, Ordering::Release);
            writer.join().unwrap();
        });
        whole(&now(&pool), (&known, &pieces), &what);
        if round % 4 == 3 {
            assert!(spawn(&pool, &work).wait().unwrap().success(), "the same command goes on after {what}");
            whole(&now(&pool), (&known, &pieces), &what);
            assert!(mend(&pool).iter().all(|finding| finding.lost.is_empty()), "{what}");
            assert_eq!(findings(&pool), [], "{what}");
            generation += 1;
            work = Work::of(generation, &pool);
        }
    }
    assert!(was_killed > 0);
    whole(&now(&pool), (&known, &pieces), "all");
}
