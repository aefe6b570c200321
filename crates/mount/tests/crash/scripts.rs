//! The structural operations, each as a script; and scripts by chance.

use std::collections::HashSet;

use crate::disk::Dice;
use crate::script::{How, Op, Script};

const W: usize = 30_000;

/// A file with all of its bytes and its name on the disk.
fn durable(path: &'static str, len: usize) -> Vec<Op> {
    vec![
        Op::Open { slot: 9, path, how: How::Create },
        Op::Write { slot: 9, offset: 0, len },
        Op::Sync { slot: 9 },
        Op::Close { slot: 9 },
        Op::SyncDirectory { path: "" },
        Op::Settle,
    ]
}

fn script(name: &str, setup: Vec<Op>, ops: Vec<Op>) -> Script {
    Script { name: name.to_owned(), setup: setup.len(), ops: [setup, ops].concat() }
}

/// A script for every structural operation.
#[expect(clippy::too_many_lines, reason = "a table of scripts")]
pub fn all() -> Vec<Script> {
    let open = |how| Op::Open { slot: 0, path: "f", how };
    let sync = || Op::Sync { slot: 0 };
    let close = || [Op::Close { slot: 0 }, Op::Settle];
    let names = || Op::SyncDirectory { path: "" };
    let with = |ops: Vec<Op>| [vec![open(How::Existing)], ops, close().to_vec()].concat();
    vec![
        script(
            "create",
            vec![],
            vec![
                Op::MakeDirectory { path: "d" },
                Op::Open { slot: 0, path: "d/f", how: How::Create },
                Op::Write { slot: 0, offset: 0, len: 5000 },
                sync(),
                Op::SyncDirectory { path: "d" },
                names(),
                Op::Write { slot: 0, offset: 5000, len: 9000 },
                Op::DataSync { slot: 0 },
                Op::Write { slot: 0, offset: 2000, len: 9000 },
                Op::Close { slot: 0 },
                Op::Settle,
            ],
        ),
        // Its first 12288 bytes are in the inode: it grows past them and comes back, twice.
        script(
            "small file",
            vec![Op::Rule { pattern: "f", layout: 3 }],
            vec![
                open(How::Create),
                Op::Write { slot: 0, offset: 0, len: 5000 },
                sync(),
                names(),
                Op::Write { slot: 0, offset: 3000, len: 9288 },
                Op::DataSync { slot: 0 },
                Op::Write { slot: 0, offset: 10_000, len: W },
                sync(),
                Op::Truncate { slot: 0, size: 700 },
                Op::Write { slot: 0, offset: 700, len: 600 },
                sync(),
                Op::Close { slot: 0 },
                Op::Settle,
                open(How::Truncating),
                Op::Write { slot: 0, offset: 0, len: 900 },
                Op::DataSync { slot: 0 },
                Op::Write { slot: 0, offset: 900, len: W },
                Op::Close { slot: 0 },
                Op::Settle,
            ],
        ),
        // The threshold falls, and rises again: small files go to the servers and come back, as soon as they have no writer.
        script(
            "threshold",
            [vec![Op::Hint { setting: "small=16K" }], durable("f", 9000), durable("g", 12_000)].concat(),
            [
                vec![threshold(0.25, 2)],
                with(vec![
                    Op::Write { slot: 0, offset: 1000, len: 5000 },
                    sync(),
                    Op::Truncate { slot: 0, size: 700 },
                    Op::Write { slot: 0, offset: 700, len: 600 },
                    sync(),
                ]),
                vec![threshold(1.0, 1)],
                // What has a writer stays.
                with(vec![
                    Op::Write { slot: 0, offset: 1300, len: W },
                    sync(),
                    Op::Threshold { share: 0.25, moves: None },
                    Op::Write { slot: 0, offset: 3000, len: 2000 },
                    Op::DataSync { slot: 0 },
                ]),
                vec![threshold(0.25, 1)],
                with(vec![
                    Op::Truncate { slot: 0, size: 2500 },
                    Op::Threshold { share: 1.0, moves: None },
                    Op::Write { slot: 0, offset: 2500, len: 400 },
                    sync(),
                ]),
                vec![threshold(1.0, 1), open(How::Truncating), Op::Write { slot: 0, offset: 0, len: 15_000 }, sync()],
                vec![Op::Unlink { path: "g" }, Op::Threshold { share: 0.25, moves: None }],
                close().to_vec(),
                // Where the mount is gone, it has moved already.
                vec![Op::Threshold { share: 0.25, moves: None }],
            ]
            .concat(),
        ),
        // The first bytes are more than the head is to hold, which goes; cut short, the file gets it back, and it goes again.
        script(
            "past the head",
            vec![Op::Hint { setting: "small=16K" }],
            vec![
                open(How::Create),
                Op::Write { slot: 0, offset: 0, len: W },
                sync(),
                names(),
                Op::Write { slot: 0, offset: 5000, len: 9288 },
                Op::DataSync { slot: 0 },
                Op::Truncate { slot: 0, size: 700 },
                Op::Write { slot: 0, offset: 700, len: 600 },
                sync(),
                Op::Close { slot: 0 },
                Op::Settle,
                threshold(1.0, 1),
                open(How::Truncating),
                Op::Write { slot: 0, offset: 0, len: W },
                Op::DataSync { slot: 0 },
                Op::Write { slot: 0, offset: W as u64, len: 900 },
                Op::Close { slot: 0 },
                Op::Settle,
            ],
        ),
        // The metadata tier has no room for more of the heads: they leave it in the middle of a write. One file has other opens that write
        // its head, and comes first to where it finds none; one is cut short, and grows again.
        script(
            "full tier",
            [
                vec![Op::Hint { setting: "small=16K" }],
                durable("f", 3000),
                durable("g", 3000),
                vec![Op::FillTier { left_bytes: 8192 }],
            ]
            .concat(),
            vec![
                open(How::Existing),
                Op::Write { slot: 0, offset: 3000, len: 9000 },
                Op::DataSync { slot: 0 },
                Op::Write { slot: 0, offset: 12_000, len: 4300 },
                Op::OffTier { path: "f" },
                Op::Write { slot: 0, offset: 1000, len: 5000 },
                sync(),
                Op::Truncate { slot: 0, size: 700 },
                Op::Write { slot: 0, offset: 700, len: 600 },
                sync(),
                Op::Close { slot: 0 },
                Op::Settle,
                // What it has left behind.
                Op::FillTier { left_bytes: 0 },
                open_as(1, "g"),
                open_as(2, "g"),
                Op::Write { slot: 1, offset: 100, len: 900 },
                Op::Write { slot: 2, offset: 2000, len: 9000 },
                Op::OffTier { path: "g" },
                Op::Write { slot: 1, offset: 5000, len: 900 },
                Op::DataSync { slot: 1 },
                Op::Close { slot: 2 },
                Op::Write { slot: 1, offset: 500, len: 900 },
                Op::Close { slot: 1 },
                Op::Settle,
            ],
        ),
        // What is written is gathered: by the mount, and so lost with it, until it is synced or closed.
        script(
            "write behind",
            vec![Op::Hint { setting: "writebehind=64K:60s" }],
            vec![
                open(How::Create),
                Op::Write { slot: 0, offset: 0, len: 5000 },
                Op::Write { slot: 0, offset: 5000, len: W },
                sync(),
                names(),
                Op::Write { slot: 0, offset: 5000 + W as u64, len: W },
                Op::Write { slot: 0, offset: 5000 + 2 * W as u64, len: W },
                Op::DataSync { slot: 0 },
                Op::Write { slot: 0, offset: 1000, len: 700 },
                Op::Write { slot: 0, offset: 1700, len: 700 },
                Op::Truncate { slot: 0, size: 2000 },
                Op::Write { slot: 0, offset: 2000, len: 600 },
                sync(),
                Op::Write { slot: 0, offset: 2600, len: 600 },
                Op::Close { slot: 0 },
                Op::Settle,
            ],
        ),
        script(
            "rules",
            vec![],
            vec![
                Op::Rule { pattern: "*.a", layout: 1 },
                Op::Open { slot: 0, path: "f.a", how: How::Create },
                Op::Write { slot: 0, offset: 0, len: W },
                sync(),
                names(),
                Op::Rule { pattern: "*.b", layout: 3 },
                Op::Rule { pattern: "*.a", layout: 2 },
                Op::Open { slot: 1, path: "f.b", how: How::Create },
                Op::Write { slot: 1, offset: 0, len: W },
                Op::Sync { slot: 1 },
                names(),
                Op::Close { slot: 1 },
                Op::Close { slot: 0 },
                Op::Settle,
            ],
        ),
        script(
            "reopen",
            vec![],
            [
                vec![open(How::Create), Op::Write { slot: 0, offset: 0, len: W }],
                close().to_vec(),
                with(vec![sync(), names(), Op::Write { slot: 0, offset: 100, len: 50 }, sync()]),
            ]
            .concat(),
        ),
        script(
            "append",
            durable("f", 3000),
            [
                vec![open(How::Appending), Op::Append { slot: 0, len: 700 }, sync(), Op::Append { slot: 0, len: 9000 }],
                vec![Op::Append { slot: 0, len: 3 }, sync(), Op::Append { slot: 0, len: 2000 }],
                close().to_vec(),
            ]
            .concat(),
        ),
        script(
            "truncate",
            durable("f", W),
            with(vec![
                Op::Truncate { slot: 0, size: 9000 },
                Op::Truncate { slot: 0, size: 40_000 },
                sync(),
                Op::Truncate { slot: 0, size: 100 },
                Op::Write { slot: 0, offset: 20_000, len: 3000 },
                sync(),
                Op::Truncate { slot: 0, size: 0 },
            ]),
        ),
        script(
            "rewrite",
            durable("f", W),
            [
                vec![open(How::Truncating), Op::Write { slot: 0, offset: 0, len: 7000 }, sync()],
                close().to_vec(),
                vec![open(How::Truncating), Op::Write { slot: 0, offset: 0, len: 14_000 }],
                close().to_vec(),
            ]
            .concat(),
        ),
        script(
            "replace",
            durable("f", W),
            [
                vec![
                    Op::Open { slot: 0, path: "new", how: How::Create },
                    Op::Write { slot: 0, offset: 0, len: 10_000 },
                    sync(),
                ],
                close().to_vec(),
                vec![Op::Rename { from: "new", to: "f" }, names()],
                vec![Op::MakeDirectory { path: "d" }, names(), Op::Rename { from: "f", to: "d/f" }],
                vec![Op::SyncDirectory { path: "d" }],
            ]
            .concat(),
        ),
        script(
            "unlink",
            [durable("f", W), durable("g", 9000)].concat(),
            vec![
                Op::Link { from: "f", to: "f2" },
                Op::Unlink { path: "f" },
                names(),
                open_as(0, "g"),
                Op::Unlink { path: "g" },
                Op::Write { slot: 0, offset: 1000, len: 9000 },
                Op::Unlink { path: "f2" },
                Op::Close { slot: 0 },
                Op::Settle,
                names(),
            ],
        ),
        script(
            "names in two directories",
            [durable("f", W), vec![Op::MakeDirectory { path: "d" }, Op::Link { from: "f", to: "d/f" }, names()]]
                .concat(),
            vec![Op::SyncDirectory { path: "d" }, Op::Unlink { path: "f" }, Op::Unlink { path: "d/f" }, Op::Settle],
        ),
        script(
            "shorter, into a hole",
            durable("f", 9000),
            with(vec![
                Op::Write { slot: 0, offset: 34_651, len: 2970 },
                Op::Truncate { slot: 0, size: 31_226 },
                sync(),
            ]),
        ),
        script(
            "move",
            [durable("f", W), vec![Op::Rule { pattern: "x", layout: 0 }]].concat(),
            [
                vec![Op::Move { path: "f", layout: 1 }, Op::Move { path: "f", layout: 2 }],
                with(vec![Op::Write { slot: 0, offset: 1000, len: 5000 }, sync()]),
                vec![Op::Move { path: "f", layout: 3 }, Op::Move { path: "f", layout: 0 }],
                // Its first region is cut, and whole again.
                vec![Op::Move { path: "f", layout: 4 }],
                with(vec![Op::Write { slot: 0, offset: 25_000, len: 9000 }, sync()]),
                vec![Op::Move { path: "f", layout: 0 }],
            ]
            .concat(),
        ),
        // New files land on a tier, and leave it: one part by part, the other as it grows and is shortened.
        script(
            "landing",
            [durable("f", W), durable("g", 9000)].concat(),
            [
                vec![Op::ToItsPlace { path: "f", until: 12_288 }],
                with(vec![Op::Write { slot: 0, offset: 10_000, len: 5000 }, sync()]),
                vec![Op::ToItsPlace { path: "f", until: u64::MAX }],
                with(vec![Op::Write { slot: 0, offset: 25_000, len: 9000 }, sync()]),
                vec![
                    Op::Open { slot: 1, path: "g", how: How::Existing },
                    Op::Truncate { slot: 1, size: 5000 },
                    Op::Write { slot: 1, offset: 20_000, len: 3000 },
                    Op::Sync { slot: 1 },
                    Op::Close { slot: 1 },
                    Op::Settle,
                    Op::ToItsPlace { path: "g", until: u64::MAX },
                    Op::Rename { from: "g", to: "f" },
                    names(),
                ],
            ]
            .concat(),
        ),
        script(
            "owner",
            durable("f", W),
            [
                vec![Op::Chown { path: "f", uid: 1234 }],
                with(vec![Op::Write { slot: 0, offset: 40_000, len: 100 }, sync()]),
                vec![Op::Chown { path: "f", uid: 4321 }],
            ]
            .concat(),
        ),
        script(
            "space",
            durable("f", W),
            with(vec![
                Op::Punch { slot: 0, offset: 3000, len: 9000 },
                sync(),
                Op::Allocate { slot: 0, offset: 25_000, len: 30_000 },
                Op::Write { slot: 0, offset: 60_000, len: 100 },
                sync(),
                Op::Punch { slot: 0, offset: 0, len: 100_000 },
            ]),
        ),
        script(
            "synchronous",
            vec![],
            vec![
                open(How::CreateSynchronous),
                Op::Write { slot: 0, offset: 0, len: 6000 },
                names(),
                Op::Write { slot: 0, offset: 3000, len: 9000 },
                Op::Close { slot: 0 },
                Op::Settle,
            ],
        ),
    ]
}

/// A file most of whose operations the preload library does without the mount.
pub fn past_the_mount() -> Script {
    let mut ops = vec![Op::Open { slot: 0, path: "f", how: How::Existing }];
    for round in 0..4 {
        ops.push(Op::Write { slot: 0, offset: round * 11_000, len: 20_000 });
        ops.push(Op::Write { slot: 0, offset: round * 3000, len: 9000 });
        ops.push(Op::Sync { slot: 0 });
    }
    ops.extend([Op::Truncate { slot: 0, size: 25_000 }, Op::Write { slot: 0, offset: 24_000, len: 16_000 }]);
    ops.extend([Op::Open { slot: 1, path: "g", how: How::Create }, Op::Write { slot: 1, offset: 100, len: W }]);
    ops.extend([Op::Write { slot: 1, offset: 0, len: W }, Op::Sync { slot: 1 }, Op::SyncDirectory { path: "" }]);
    ops.extend([Op::Close { slot: 1 }, Op::Close { slot: 0 }, Op::Settle]);
    script("past the mount", durable("f", W), ops)
}

/// A file that is written through two mounts in turn.
pub fn through_two_mounts() -> Script {
    let ops = vec![
        Op::Open { slot: 0, path: "f", how: How::Existing },
        Op::Open { slot: 1, path: "f", how: How::Appending },
        Op::Append { slot: 1, len: 5000 },
        Op::Write { slot: 0, offset: 20_000, len: 9000 },
        Op::Sync { slot: 1 },
        Op::Open { slot: 2, path: "f", how: How::Appending },
        Op::Append { slot: 2, len: 700 },
        Op::Append { slot: 1, len: 700 },
        Op::Truncate { slot: 1, size: 9000 },
        Op::Write { slot: 0, offset: 12_000, len: 3000 },
        Op::Sync { slot: 0 },
        Op::Append { slot: 1, len: 20_000 },
        Op::Close { slot: 0 },
        Op::Append { slot: 2, len: 100 },
        Op::Close { slot: 2 },
        Op::Punch { slot: 1, offset: 3000, len: 9000 },
        Op::Sync { slot: 1 },
        Op::Close { slot: 1 },
        Op::Settle,
    ];
    script("two mounts", durable("f", W), ops)
}

fn threshold(share: f64, moves: usize) -> Op {
    Op::Threshold { share, moves: Some(moves) }
}

fn open_as(slot: usize, path: &'static str) -> Op {
    Op::Open { slot, path, how: How::Existing }
}

const PATHS: [&str; 6] = ["a", "b", "c", "d/a", "d/b", "d/c"];

/// A script by chance in a pool of small files, whose threshold moves every few operations.
pub fn random_small(seed: u64, len: usize) -> Script {
    let mut dice = Dice(!seed);
    let mut ops = vec![Op::Hint { setting: "small=32K" }];
    for op in random(seed, len).ops {
        ops.push(op);
        if dice.roll(4) == 0 {
            ops.push(Op::Threshold { share: [0.125, 0.25, 1.0, 1.0][dice.roll(4) as usize], moves: None });
        }
    }
    Script { name: format!("small-{seed}"), setup: 1, ops }
}

/// A script by chance.
#[expect(clippy::too_many_lines, reason = "a table: an arm for each kind of step")]
pub fn random(seed: u64, len: usize) -> Script {
    let mut dice = Dice(seed);
    let mut ops = vec![Op::MakeDirectory { path: "d" }, Op::SyncDirectory { path: "" }];
    let mut there: Vec<&'static str> = Vec::new();
    // Names that are or were of one file: a rename of one to the other would do nothing.
    let mut linked: HashSet<(&'static str, &'static str)> = HashSet::new();
    // Slot and the path it was opened by, and whether that is still its name.
    let mut open: Vec<(usize, bool)> = Vec::new();
    let mut next_slot = 0;
    let parent = |path: &str| if path.contains('/') { "d" } else { "" };
    while ops.len() < len {
        let offset = dice.roll(40_000);
        let bytes = 1 + dice.roll(12_000) as usize;
        let chance = dice.roll(100);
        if open.is_empty() || chance < 12 {
            let path = PATHS[dice.roll(6) as usize];
            let how = match (there.contains(&path), dice.roll(4)) {
                (false, 0) => How::CreateSynchronous,
                (false, _) => How::Create,
                (true, 0) => How::Truncating,
                (true, 1) => How::Appending,
                (true, _) => How::Existing,
            };
            if !there.contains(&path) {
                there.push(path);
            }
            ops.push(Op::Open { slot: next_slot, path, how });
            open.push((next_slot, how == How::Appending));
            next_slot += 1;
            continue;
        }
        let (slot, appends) = open[dice.roll(open.len() as u64) as usize];
        let path = if there.is_empty() { None } else { Some(there[dice.roll(there.len() as u64) as usize]) };
        match chance {
            12..40 if appends => ops.push(Op::Append { slot, len: bytes }),
            12..40 => ops.push(Op::Write { slot, offset, len: bytes }),
            40..52 => ops.push(Op::Sync { slot }),
            52..56 => ops.push(Op::DataSync { slot }),
            56..63 => ops.push(Op::Truncate { slot, size: offset }),
            63..67 => ops.push(Op::Punch { slot, offset, len: bytes as u64 }),
            67..70 => ops.push(Op::Allocate { slot, offset, len: bytes as u64 }),
            70..78 => {
                open.retain(|(other, _)| *other != slot);
                ops.push(Op::Close { slot });
            }
            78..84 => {
                let Some(from) = path else { continue };
                let to = PATHS[dice.roll(6) as usize];
                if from != to && !linked.contains(&(from, to)) {
                    let others: Vec<_> = linked.iter().filter(|(a, _)| *a == from).map(|(_, b)| *b).collect();
                    linked.extend(others.into_iter().flat_map(|other| [(to, other), (other, to)]));
                    there.retain(|name| *name != from && *name != to);
                    there.push(to);
                    ops.push(Op::Rename { from, to });
                }
            }
            84..88 => {
                let Some(path) = path else { continue };
                there.retain(|name| *name != path);
                ops.push(Op::Unlink { path });
            }
            88..91 => {
                let (Some(from), Some(to)) = (path, PATHS.iter().find(|path| !there.contains(path))) else { continue };
                there.push(to);
                let others: Vec<_> = linked.iter().filter(|(a, _)| *a == from).map(|(_, b)| *b).collect();
                linked.extend(others.into_iter().chain([from]).flat_map(|other| [(*to, other), (other, *to)]));
                ops.push(Op::Link { from, to });
            }
            91..93 => {
                let Some(path) = path else { continue };
                ops.push(Op::Chown { path, uid: 1000 + dice.roll(3) as u32 });
            }
            _ => ops.push(Op::SyncDirectory { path: parent(path.unwrap_or("a")) }),
        }
    }
    Script { name: format!("random-{seed}"), setup: 0, ops }
}
