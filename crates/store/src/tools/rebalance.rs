//! Fills the servers of each tier alike: an added server gets its share of what is there.
//!
//! A server's fill is what the pool's datafiles take of it over that and the room that is left. Servers above the mean of their tier
//! give, those below it take, no server more than brings it to the mean. A region with equal stripes on several servers of the tier
//! gets one more stripe, so that it is also served by one more disk; in another one a server takes the place of another. The
//! largest files come first, and of a file its largest regions; each moves at most once, and as `apply` moves it. What cannot be
//! read stays out of the plan.

use crate::file::room_ahead::RoomAhead;
use crate::file::steps::Then;
use crate::os::error::{Error, Result};
use crate::os::sync::{Mutex, guard};
use crate::pool::pool_file::PoolTier;
use crate::pool::store::Store;
use crate::tools::drain::{DrainWatch, StayingFile};
use crate::tools::in_steps::{Unreadable, move_in_steps, steps};
use crate::tools::walk::{WalkedFile, walk};
use rustix::fd::AsFd as _;
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use stripewise_layout::{Layout, ServerId, Stripe};

/// How full a server is.
#[derive(Debug, Clone, PartialEq)]
pub struct ServerFill {
    /// Its name.
    pub server: String,
    /// Bytes that the pool's datafiles take.
    pub before_bytes: u64,
    /// The same after the moves, by the plan.
    pub after_bytes: u64,
    /// What it could hold in all: that, and the room that is left.
    pub size_bytes: u64,
}

/// What a rebalancing did, or would do.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Rebalanced {
    /// Files that moved.
    pub moved_files: u64,
    /// Bytes of them that were copied.
    pub copied_bytes: u64,
    /// Files that were to move, and could not.
    pub staying: Vec<StayingFile>,
    /// The servers of tiers with several.
    pub fills: Vec<ServerFill>,
}

/// What moves, and where to.
#[derive(Debug, Clone, Default)]
pub struct Filling {
    /// Names of the only servers that take something; all where there are none.
    pub takers: Vec<String>,
    /// Files, relative to the tree, that stay as they are.
    pub except: HashSet<PathBuf>,
    /// Only plan it.
    pub dry_run: bool,
}

/// A server while it is planned what it gives and takes, in bytes.
#[derive(Clone)]
struct Fill {
    id: ServerId,
    before: f64,
    now: f64,
    size: f64,
    /// What it should hold, for the tier to be filled alike.
    aim: f64,
    takes: bool,
}

/// A file that is to move.
struct Planned {
    path: PathBuf,
    layout: Layout,
    moved_bytes: u64,
}

/// Fills the servers of each tier of the pool in `file` alike, as far as `filling` lets it. `None`: `watch` stopped it.
///
/// # Errors
/// Another process changes layouts of the pool.
pub fn rebalance(file: &Path, filling: &Filling, watch: &mut dyn DrainWatch) -> Result<Option<Rebalanced>> {
    let store = Store::of_file(file)?;
    let _alone = store.begin_apply()?;
    let used = store.pool().allocated_by_others(&[]);
    let of_tier = |tier| fills(&store, tier, &used, &filling.takers);
    let mut tiers: Vec<Vec<Fill>> = store.pool().tiers.iter().map(of_tier).collect();
    let mut done = Rebalanced::default();
    let planned = plan(&store, &mut tiers, &filling.except, &mut done.staying)?;
    done.fills = told(&store, &tiers);
    let total_bytes = planned.iter().map(|file| file.moved_bytes * 2).sum();
    if filling.dry_run {
        done.moved_files = planned.len() as u64;
        done.copied_bytes = total_bytes / 2;
        return Ok(Some(done));
    }
    let mut before_bytes = 0;
    for file in planned {
        let name = file.path.to_string_lossy().into_owned();
        // One that has gone, or cannot be read since.
        let Ok(Some(inode)) = store.existing_to_move(&file.path) else { continue };
        let mut stopped = false;
        let mut progress = |done: u64, _| {
            let then = watch.progress(&name, (before_bytes + done).min(total_bytes), total_bytes);
            stopped = then == Then::Stop;
            then
        };
        let (copied_bytes, moved) = move_in_steps(&inode, &file.layout, (&name, Unreadable::KeepsAll), &mut progress);
        done.copied_bytes += copied_bytes;
        match moved {
            Ok(()) => done.moved_files += 1,
            Err(_) if stopped => return Ok(None),
            Err(Error::Nameless { .. }) => {}
            Err(error) => done.staying.push(StayingFile::of(name, &error)),
        }
        before_bytes += file.moved_bytes * 2;
    }
    Ok(Some(done))
}

/// The servers of a tier in use and there, if they are several.
fn fills(store: &Store, tier: &PoolTier, used: &HashMap<ServerId, u64>, takers: &[String]) -> Vec<Fill> {
    let fill = |server: &crate::backend::Server| {
        let room = store.room(server.id).ok().filter(|room| !room.is_read_only)?;
        let now = used.get(&server.id).copied().unwrap_or(0);
        let limit = server.capacity_bytes.map_or(u64::MAX, |limit| limit.saturating_sub(now));
        let size = now.saturating_add(room.available_bytes.min(limit)) as f64;
        let takes = takers.is_empty() || takers.contains(&server.name);
        Some(Fill { id: server.id, before: now as f64, now: now as f64, size, aim: 0.0, takes })
    };
    let mut fills: Vec<Fill> = store.pool().used(tier).filter_map(fill).collect();
    let (held, size) = fills.iter().fold((0.0, 0.0), |(held, size), of| (held + of.now, size + of.size));
    for of in &mut fills {
        of.aim = if size > 0.0 { of.size * held / size } else { 0.0 };
    }
    if fills.len() > 1 { fills } else { Vec::new() }
}

fn told(store: &Store, tiers: &[Vec<Fill>]) -> Vec<ServerFill> {
    let told = |of: &Fill| ServerFill {
        server: store.pool().server_name(of.id),
        before_bytes: of.before as u64,
        after_bytes: of.now.max(0.0) as u64,
        size_bytes: of.size as u64,
    };
    tiers.iter().flatten().map(told).collect()
}

/// Which files move where, the largest first; `tiers` then has what the servers hold after that. Files that do not fit beside what they
/// take now are added to `staying`.
fn plan(
    store: &Arc<Store>,
    tiers: &mut Vec<Vec<Fill>>,
    except: &HashSet<PathBuf>,
    staying: &mut Vec<StayingFile>,
) -> Result<Vec<Planned>> {
    let mut ahead = RoomAhead::new(store, HashMap::new());
    let mut planned = Vec::new();
    for (_, path, bytes) in held(store)? {
        if except.contains(&path) {
            continue;
        }
        let Ok(Some(inode)) = store.existing_to_move(&path) else { continue };
        let (Ok(placement), Ok(attributes)) = (inode.placement(), inode.attributes()) else { continue };
        // It goes to its place, and is told from files that have it by never having moved.
        if store.landed_on(&placement, &path)?.is_some() {
            continue;
        }
        let kept = tiers.clone();
        let Some(layout) = other_layout(store, &placement.layout, (attributes.size_bytes, &bytes), tiers) else {
            continue;
        };
        let name = path.to_string_lossy().into_owned();
        let change = inode.change_of_space(&layout).and_then(|mut change| {
            change.unreadable.take().map_or(Ok(()), Err)?;
            let moved_bytes = change.moved_bytes;
            ahead.add(&name, &change.in_steps(steps(&placement.layout, &layout, attributes.size_bytes)))?;
            Ok(moved_bytes)
        });
        match change {
            Ok(moved_bytes) => planned.push(Planned { path, layout, moved_bytes }),
            Err(error) => {
                *tiers = kept;
                if matches!(error, Error::NoRoom { .. }) {
                    staying.push(StayingFile::of(name, &error));
                }
            }
        }
    }
    Ok(planned)
}

/// A file with the sum of its bytes in front, and its bytes by server; a server can stand twice.
type HeldFile = (u64, PathBuf, Vec<(ServerId, u64)>);

/// What each file of the pool has on servers, with the sum in front, the largest first; each file once, whatever names it has.
fn held(store: &Arc<Store>) -> Result<Vec<HeldFile>> {
    let tree = rustix::io::fcntl_dupfd_cloexec(store.tree(), 0).map_err(Error::io("open", "tree"))?;
    let (files, seen) = (Mutex::new(Vec::new()), Mutex::new(HashSet::new()));
    let visit = |entry: &WalkedFile<'_>| {
        if let Ok(fd) = entry.open()
            && let Ok(Some(inode)) = store.inode(fd.as_fd())
            // Another file may have a copy of its handle.
            && guard(&seen).insert(inode.key())
            && let Ok(bytes) = inode.allocated()
        {
            guard(&files).push((bytes.iter().map(|(_, bytes)| bytes).sum::<u64>(), entry.path(), bytes));
        }
        Ok(true)
    };
    walk(&tree, 2, &visit, &|_, _| ())?;
    let mut files = files.into_inner().unwrap_or_default();
    files.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
    Ok(files)
}

/// The layout of a file of `size_bytes`, of which servers hold `bytes`, that brings the servers nearer to their aims, region by
/// region; `None`: there is none. O(regions x servers of the tiers).
fn other_layout(
    store: &Store,
    layout: &Layout,
    (size_bytes, bytes): (u64, &[(ServerId, u64)]),
    tiers: &mut [Vec<Fill>],
) -> Option<Layout> {
    let of_region = |index: usize| {
        let region = &layout.regions()[index];
        let (from, to) = (region.offset().min(size_bytes), layout.region_end(index).min(size_bytes));
        let on = |(slot, stripe): (usize, &Stripe)| {
            (stripe.server, (region.bytes_before(slot, to) - region.bytes_before(slot, from)) as f64)
        };
        region.stripes().iter().enumerate().map(on).collect::<Vec<_>>()
    };
    let regions: Vec<Vec<(ServerId, f64)>> = (0..layout.regions().len()).map(of_region).collect();
    // A file with holes has fewer bytes than its layout says: each region of a server its share of them.
    let sum = |of: &mut dyn Iterator<Item = (ServerId, f64)>| {
        let mut sums: HashMap<ServerId, f64> = HashMap::new();
        of.for_each(|(server, bytes)| *sums.entry(server).or_default() += bytes);
        sums
    };
    let by_layout = sum(&mut regions.iter().flatten().copied());
    let held = sum(&mut bytes.iter().map(|(server, bytes)| (*server, *bytes as f64)));
    let density = |server: &ServerId| {
        held.get(server).copied().unwrap_or(0.0) / by_layout.get(server).copied().unwrap_or(0.0).max(1.0)
    };
    let mut largest_first: Vec<usize> = (0..regions.len()).collect();
    let total = |index: &usize| regions[*index].iter().map(|(_, bytes)| bytes).sum::<f64>();
    largest_first.sort_by(|a, b| total(b).total_cmp(&total(a)));
    let mut rounds: Vec<Vec<Stripe>> = layout.regions().iter().map(|region| region.stripes().to_vec()).collect();
    let mut is_other = false;
    for index in largest_first {
        let here = |id: ServerId| {
            regions[index].iter().filter(|(server, _)| *server == id).map(|(_, bytes)| bytes).sum::<f64>()
                * density(&id)
        };
        for tier in tiers.iter_mut() {
            if let Some(round) = other_round(store, &rounds[index], tier, &here) {
                rounds[index] = round;
                is_other = true;
            }
        }
    }
    let offsets = layout.regions().iter().map(|region| region.offset());
    let other = is_other.then(|| Layout::new(offsets.zip(rounds)).ok()).flatten();
    other.filter(|other| store.check_layout(other).is_ok())
}

/// The round of a region that brings the servers of `tier` nearer to their aims, if there is one.
fn other_round(
    store: &Store,
    stripes: &[Stripe],
    tier: &mut [Fill],
    here: &dyn Fn(ServerId) -> f64,
) -> Option<Vec<Stripe>> {
    let has = |id: ServerId| stripes.iter().any(|stripe| stripe.server == id);
    let lack = |of: &Fill| of.aim - of.now;
    let lacking = tier.iter().enumerate().filter(|(_, of)| of.takes && !has(of.id));
    let (taker, _) = lacking.max_by(|a, b| lack(a.1).total_cmp(&lack(b.1)))?;
    let own: Vec<&Stripe> = stripes.iter().filter(|stripe| tier.iter().any(|of| of.id == stripe.server)).collect();
    let (first, total) = (*own.first()?, own.iter().map(|stripe| here(stripe.server)).sum::<f64>());
    let (id, room) = (tier[taker].id, lack(&tier[taker]));
    let width_bytes = first.width_bytes;
    let count = own.len() as f64;
    let share = total / (count + 1.0);
    let is_wide = own.len() > 1 && own.iter().all(|stripe| stripe.width_bytes == width_bytes);
    let checked = |round: Vec<Stripe>| {
        let alone = Layout::new([(0, round.clone())]).ok().filter(|alone| store.check_layout(alone).is_ok());
        alone.map(|_| round)
    };
    // A share that is a little more than the aim is as near as one that is a little less.
    if is_wide && total > 0.0 && share <= room * 1.05 {
        let at = stripes.iter().rposition(|stripe| own.iter().any(|of| of.server == stripe.server))?;
        let mut round = stripes.to_vec();
        round.insert(at + 1, Stripe { server: id, width_bytes });
        let round = checked(round)?;
        for of in tier.iter_mut().filter(|of| has(of.id)) {
            of.now -= here(of.id) / (count + 1.0);
        }
        tier[taker].now += share;
        return Some(round);
    }
    let givers = (0..tier.len()).filter(|&giver| has(tier[giver].id));
    let giver = givers.max_by(|&a, &b| lack(&tier[b]).total_cmp(&lack(&tier[a])))?;
    let bytes = here(tier[giver].id);
    if bytes == 0.0 || bytes > room || bytes > -lack(&tier[giver]) {
        return None;
    }
    let from = tier[giver].id;
    let to = |stripe: &Stripe| if stripe.server == from { Stripe { server: id, ..*stripe } } else { *stripe };
    let round = checked(stripes.iter().map(to).collect())?;
    tier[giver].now -= bytes;
    tier[taker].now += bytes;
    Some(round)
}
