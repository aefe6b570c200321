//! Cases drawn at random.

use crate::case::{Case, CaseStep, SLOTS};
use crate::operation::CaseOperation;
use crate::world::LayoutRows;
use crate::world::SERVERS;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

/// Most files stay below this size; widths and regions are small enough that each request meets many borders.
const NEAR_BYTES: i64 = 60_000;
const MAX_LEN: usize = 20_000;

/// What is drawn from.
#[derive(Debug, Clone, Copy)]
pub struct Scope {
    /// Agents that take part.
    pub agents: usize,
    /// Operations of a case, at most.
    pub steps: usize,
}

fn rows() -> impl Strategy<Value = LayoutRows> {
    let width = prop_oneof![1_u64..64, 500_u64..600, Just(4096_u64), 1_u64..20_000];
    let round = vec((0..SERVERS, width), 1..=usize::from(SERVERS)).prop_map(|round| {
        let mut once: Vec<(u16, u64)> = Vec::new();
        for stripe in round {
            if once.iter().all(|(server, _)| *server != stripe.0) {
                once.push(stripe);
            }
        }
        once
    });
    let region = (1_u64..20_000, round, prop::bool::weighted(0.2));
    let regions = vec(region, 1..6).prop_map(|regions| {
        let mut offset = 0;
        let row = |(len, round, meta)| {
            let row = (offset, if meta { vec![(u16::MAX, 4096)] } else { round });
            offset += len;
            row
        };
        regions.into_iter().map(row).collect()
    });
    prop_oneof![
        6 => regions,
        // Whole on one server: the kernel may serve it itself.
        2 => (0..SERVERS).prop_map(|server| vec![(0, vec![(server, 4096)])]),
        // A small file on the metadata tier.
        1 => Just(vec![(0, vec![(u16::MAX, 4096)]), (8192, vec![(0, 4096), (1, 4096)])]),
    ]
}

fn file() -> impl Strategy<Value = String> {
    select(&["a", "a", "a", "b", "b", "c", "d/a", "d/b", "e/a", "l"][..]).prop_map(str::to_owned)
}

fn any_name() -> impl Strategy<Value = String> {
    select(&["a", "b", "c", "d", "d/a", "d/b", "d/e", "d/e/a", "e", "e/a", "l", "d/l"][..]).prop_map(str::to_owned)
}

fn directory() -> impl Strategy<Value = String> {
    select(&["d", "d", "e", "d/e", "a", "l"][..]).prop_map(str::to_owned)
}

fn slot() -> impl Strategy<Value = u8> {
    prop_oneof![4 => 0..2_u8, 1 => 0..SLOTS]
}

/// An offset: near the beginning, behind 4 GiB, or before 2^63-1.
fn offset() -> impl Strategy<Value = i64> {
    prop_oneof![
        60 => 0..NEAR_BYTES,
        4 => Just(0),
        4 => select(&[4095_i64, 4096, 8192, 12_288][..]),
        2 => (0..NEAR_BYTES).prop_map(|at| (5 << 30) + at),
        1 => (0..NEAR_BYTES).prop_map(|at| i64::MAX - at),
    ]
}

fn len() -> impl Strategy<Value = usize> {
    prop_oneof![6 => 1..MAX_LEN, 2 => 0_usize..64, 1 => select(&[4096_usize, 8192][..])]
}

fn lens() -> impl Strategy<Value = Vec<usize>> {
    vec(prop_oneof![3 => 0..5000_usize, 1 => Just(0)], 1..5)
}

fn seed() -> impl Strategy<Value = u64> {
    (1_u64..1 << 32).no_shrink()
}

fn flags() -> impl Strategy<Value = i32> {
    let access = prop_oneof![
        8 => Just(libc::O_RDWR),
        2 => Just(libc::O_WRONLY),
        2 => Just(libc::O_RDONLY),
    ];
    let flag = |weight: f64, flag: i32| prop::bool::weighted(weight).prop_map(move |set| if set { flag } else { 0 });
    (access, flag(0.8, libc::O_CREAT), flag(0.05, libc::O_EXCL), flag(0.1, libc::O_TRUNC), flag(0.2, libc::O_APPEND))
        .prop_map(|(access, creat, excl, trunc, append)| {
            // Alone it means nothing.
            let excl = if creat == 0 { 0 } else { excl };
            access | creat | excl | trunc | append
        })
}

fn mode() -> impl Strategy<Value = u32> {
    select(&[0o600_u32, 0o640, 0o644, 0o666, 0o755, 0o700][..])
}

fn time() -> impl Strategy<Value = Option<i64>> {
    // From 1970 to 2020, to the nanosecond.
    option::weighted(0.8, 0..1_600_000_000_000_000_000_i64)
}

fn xattr() -> impl Strategy<Value = String> {
    select(&["user.one", "user.two"][..]).prop_map(str::to_owned)
}

fn transfers() -> BoxedStrategy<CaseOperation> {
    use CaseOperation as O;
    prop_oneof![
        6 => (slot(), offset(), len(), seed()).prop_map(|(slot, at, len, seed)| O::Pwrite { slot, at, len, seed }),
        6 => (slot(), offset(), len()).prop_map(|(slot, at, len)| O::Pread { slot, at, len }),
        3 => (slot(), len(), seed()).prop_map(|(slot, len, seed)| O::Write { slot, len, seed }),
        3 => (slot(), len()).prop_map(|(slot, len)| O::Read { slot, len }),
        2 => (slot(), option::of(offset()), lens()).prop_map(|(slot, at, lens)| O::Readv { slot, at, lens }),
        2 => (slot(), option::of(offset()), lens(), seed())
            .prop_map(|(slot, at, lens, seed)| O::Writev { slot, at, lens, seed }),
        1 => (slot(), option::of(0..NEAR_BYTES), slot(), option::of(0..NEAR_BYTES), len())
            .prop_map(|(from, from_at, to, to_at, len)| O::CopyRange { from, from_at, to, to_at, len }),
    ]
    .boxed()
}

fn on_descriptors() -> BoxedStrategy<CaseOperation> {
    use CaseOperation as O;
    let whence = select(&[libc::SEEK_SET, libc::SEEK_CUR, libc::SEEK_END, libc::SEEK_DATA, libc::SEEK_HOLE][..]);
    let modes = select(
        &[
            0,
            libc::FALLOC_FL_KEEP_SIZE,
            libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE,
            libc::FALLOC_FL_ZERO_RANGE,
            libc::FALLOC_FL_ZERO_RANGE | libc::FALLOC_FL_KEEP_SIZE,
        ][..],
    );
    let distance = prop_oneof![3 => offset(), 1 => -NEAR_BYTES..0];
    let space = prop_oneof![8 => 1..MAX_LEN as i64, 1 => Just(0_i64)];
    prop_oneof![
        4 => (slot(), file(), flags(), mode()).prop_map(|(slot, path, flags, mode)| O::Open { slot, path, flags, mode }),
        2 => slot().prop_map(|slot| O::Close { slot }),
        1 => (slot(), slot()).prop_map(|(from, to)| O::Dup { from, to }),
        2 => (slot(), distance, whence).prop_map(|(slot, at, whence)| O::Seek { slot, at, whence }),
        2 => (slot(), offset()).prop_map(|(slot, size)| O::Ftruncate { slot, size }),
        1 => (file(), offset()).prop_map(|(path, size)| O::Truncate { path, size }),
        2 => (slot(), modes, offset(), space).prop_map(|(slot, mode, at, len)| O::Fallocate { slot, mode, at, len }),
        1 => (slot(), any::<bool>()).prop_map(|(slot, data_only)| O::Fsync { slot, data_only }),
        2 => slot().prop_map(|slot| O::Fstat { slot }),
        2 => (file(), 0..6_usize).prop_map(|(path, layout)| O::Move { path, layout }),
    ]
    .boxed()
}

fn on_names() -> BoxedStrategy<CaseOperation> {
    use CaseOperation as O;
    let renames = select(&[0, 0, 0, libc::RENAME_NOREPLACE, libc::RENAME_EXCHANGE][..]);
    let replaces = select(&[0, libc::XATTR_CREATE, libc::XATTR_REPLACE][..]);
    prop_oneof![
        3 => (any_name(), any::<bool>()).prop_map(|(path, follow)| O::Stat { path, follow }),
        2 => (any_name(), any_name(), renames).prop_map(|(from, to, flags)| O::Rename { from, to, flags }),
        1 => (any_name(), any_name()).prop_map(|(from, to)| O::Link { from, to }),
        2 => any_name().prop_map(|path| O::Unlink { path }),
        3 => directory().prop_map(|path| O::Mkdir { path }),
        1 => directory().prop_map(|path| O::Rmdir { path }),
        1 => directory().prop_map(|path| O::List { path }),
        1 => (any_name(), select(&["l", "d/l"][..]))
            .prop_map(|(target, path)| O::Symlink { target, path: path.to_owned() }),
        1 => any_name().prop_map(|path| O::Readlink { path }),
        1 => (any_name(), mode()).prop_map(|(path, mode)| O::Chmod { path, mode: mode | 0o700 }),
        2 => (file(), time(), time()).prop_map(|(path, atime_ns, mtime_ns)| {
            // To set nothing is not to look for the file either.
            let atime_ns = if mtime_ns.is_none() { atime_ns.or(Some(0)) } else { atime_ns };
            O::SetTimes { path, atime_ns, mtime_ns }
        }),
        1 => (any_name(), xattr(), 0..200_usize, seed(), replaces)
            .prop_map(|(path, name, len, seed, flags)| O::SetXattr { path, name, len, seed, flags }),
        1 => (any_name(), xattr()).prop_map(|(path, name)| O::GetXattr { path, name }),
        1 => any_name().prop_map(|path| O::ListXattr { path }),
        1 => (any_name(), xattr()).prop_map(|(path, name)| O::RemoveXattr { path, name }),
    ]
    .boxed()
}

fn on_maps() -> BoxedStrategy<CaseOperation> {
    use CaseOperation as O;
    let at = 0..NEAR_BYTES as usize;
    let len = 1..6000_usize;
    prop_oneof![
        2 => (slot(), 1..NEAR_BYTES as usize).prop_map(|(slot, len)| O::Map { slot, len }),
        3 => (slot(), at.clone(), len.clone()).prop_map(|(slot, at, len)| O::MapRead { slot, at, len }),
        3 => (slot(), at, len, seed()).prop_map(|(slot, at, len, seed)| O::MapWrite { slot, at, len, seed }),
        1 => slot().prop_map(|slot| O::Msync { slot }),
        1 => slot().prop_map(|slot| O::Unmap { slot }),
    ]
    .boxed()
}

/// Cases that begin with every agent's opening the same file, so that most operations find one.
pub fn cases(scope: Scope) -> impl Strategy<Value = Case> {
    let operation = prop_oneof![8 => transfers(), 6 => on_descriptors(), 4 => on_names(), 2 => on_maps()];
    let step = (0..scope.agents, operation).prop_map(|(who, operation)| CaseStep { who, operation });
    let first = (0..scope.agents).map(|who| {
        let open = (file(), flags(), mode()).prop_map(|(path, flags, mode)| CaseOperation::Open {
            slot: 0,
            path,
            flags,
            mode,
        });
        open.prop_map(move |operation| CaseStep { who, operation }).boxed()
    });
    let first: Vec<_> = first.collect();
    (vec(rows(), 3..6).prop_map(with_one_cut), first, vec(step, 1..scope.steps))
        .prop_map(|(layouts, first, steps)| Case { layouts, steps: first.into_iter().chain(steps).collect() })
}

/// One more layout: the first one with another round in the middle of its first region, so that a move cuts it.
fn with_one_cut(mut layouts: Vec<LayoutRows>) -> Vec<LayoutRows> {
    let first = &layouts[0];
    let end = first.get(1).map_or(NEAR_BYTES as u64, |next| next.0);
    if end >= 3 {
        let round = first[0].1.clone();
        let mut cut = vec![(0, round.clone()), (end / 3, layouts[1][0].1.clone()), (2 * end / 3, round)];
        cut.extend_from_slice(&first[1..]);
        layouts.push(cut);
    }
    layouts
}
