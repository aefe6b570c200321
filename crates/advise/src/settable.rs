//! [`Settable`]: layouts as an administrator of Lustre sets them, in the place of planned ones.
//!
//! A plan may put any widths on any servers. A command of Lustre sets one stripe size, a power of two from 1 MiB up, and as
//! many stripes as the file's size and its writers are worth. What is simulated, and what is printed, is that.

use crate::job_ranks::JobRanks;
use crate::stripes::{LEAST_STRIPE_BYTES, stripe_count};
use crate::usage::Use;
use stripewise_layout::{Layout, ServerId, Stripe};
use stripewise_model::{Cluster, Op};

/// Seconds that an open takes longer for each object of the file: a round trip, as the client asks each of their servers
/// for the size. A judgement, not a measurement.
pub(crate) const OBJECT_S: f64 = 2e-4;

/// Seconds that a process takes for the first lock on each object that it moves bytes of: a round trip, too.
pub(crate) const LOCK_S: f64 = 2e-4;

/// Widest stripe that is set: the most that clients send without a pause at their defaults (16 requests of 1 MiB).
const MOST_STRIPE_BYTES: u64 = 16 << 20;

/// Narrowest stripe that Lustre takes.
const LUSTRE_STRIPE_BYTES: u64 = 64 << 10;

/// A narrower stripe than [`LEAST_STRIPE_BYTES`] has to be this many times as fast.
pub(crate) const FINER_GAIN: f64 = 1.1;

/// Servers and processes that layouts are for.
pub(crate) struct Settable<'a> {
    /// The servers.
    pub cluster: &'a Cluster,
    /// Ranks of the job.
    pub ranks: JobRanks,
}

impl Settable<'_> {
    /// What is set in the place of `planned`, for file number `number`, which is used as `used` tells and has the
    /// layout `present`. O(stripes).
    pub(crate) fn layout(&self, planned: &Layout, present: &Layout, used: &Use, number: usize) -> Layout {
        let servers = self.servers(planned);
        let stripes = present.regions().iter().map(|region| region.stripes().len()).max().unwrap_or(1);
        let count = self.count(servers, stripes, used);
        let width_bytes = width(planned, present);
        if is_set(present, servers, count, width_bytes) {
            return present.clone();
        }
        striped(servers, count, number, width_bytes).unwrap_or_else(|| present.clone())
    }

    /// The servers of the tier that holds most of a file as planned; its last region has most of a long one.
    fn servers(&self, planned: &Layout) -> &[ServerId] {
        let last = planned.regions().last().map_or(&[][..], |region| region.stripes());
        let held = |servers: &[ServerId]| {
            let own = last.iter().filter(|stripe| servers.contains(&stripe.server));
            own.map(|stripe| stripe.width_bytes).fold(0, u64::saturating_add)
        };
        let tiers = self.cluster.tiers.iter().map(|tier| tier.servers.as_slice()).filter(|servers| !servers.is_empty());
        tiers.max_by_key(|servers| held(servers)).unwrap_or(&[])
    }

    /// How many stripes cost least of those that the file's size and its writers allow: more move bytes faster, and each
    /// costs when the file is opened and when its bytes are locked.
    fn count(&self, servers: &[ServerId], stripes: usize, used: &Use) -> usize {
        let movers = used.movers.0.max(used.movers.1);
        // Where ranks call together, as many of them move bytes as there are stripes, or as may.
        let ranks = match used.is_collective() {
            (_, true) if used.movers.1 > 0 => self.ranks.allowed(used, stripes),
            (false, false) if movers > 0 => movers,
            _ => used.sharers,
        };
        let writers = if used.ranks.is_empty() { ranks.max(used.processes) } else { ranks };
        let most = stripe_count(used.end, writers, Some(servers.len()));
        let opens_of_each = used.opens as f64 / self.ranks.processes.max(1) as f64;
        let moved_by_one_s = self.transfer_s(servers, used);
        let price_s = |count: usize| moved_by_one_s / count as f64 + count as f64 * (opens_of_each * OBJECT_S + LOCK_S);
        let counts = std::iter::successors(Some(1), |count| Some(count * 2)).take_while(|count| *count < most);
        let cheapest = counts.chain([most]).min_by(|a, b| price_s(*a).total_cmp(&price_s(*b)));
        cheapest.unwrap_or(1)
    }

    /// Seconds that one of the servers takes for all bytes.
    fn transfer_s(&self, servers: &[ServerId], used: &Use) -> f64 {
        let tier = self.cluster.tiers.iter().find(|tier| tier.servers == servers);
        let of = |op| tier.map_or(0.0, |tier| tier.profile.of(op).transfer_s_per_byte);
        used.reads.bytes as f64 * of(Op::Read) + used.writes.bytes as f64 * of(Op::Write)
    }
}

/// The power of two next to the planned width, from 1 MiB to 16 MiB; the present one where no plan has a wish for more.
fn width(planned: &Layout, present: &Layout) -> u64 {
    let wanted = mean_width(planned);
    let now = mean_width(present);
    let is_kept = wanted < LEAST_STRIPE_BYTES && now >= LEAST_STRIPE_BYTES && now.is_power_of_two();
    if is_kept { now } else { nearest_power(wanted).clamp(LEAST_STRIPE_BYTES, MOST_STRIPE_BYTES) }
}

/// Of the last region.
fn mean_width(layout: &Layout) -> u64 {
    let stripes = layout.regions().last().map_or(&[][..], |region| region.stripes());
    let sum = stripes.iter().map(|stripe| u128::from(stripe.width_bytes)).sum::<u128>();
    (sum / stripes.len().max(1) as u128) as u64
}

fn nearest_power(bytes: u64) -> u64 {
    let below = 1 << bytes.max(1).ilog2().min(62);
    if bytes - below.min(bytes) > below / 2 { below * 2 } else { below }
}

/// Whether a layout is what would be set already: as many stripes, on some of these servers, as wide.
fn is_set(layout: &Layout, servers: &[ServerId], count: usize, width_bytes: u64) -> bool {
    let [region] = layout.regions() else { return false };
    region.stripes().len() == count
        && region.stripes().iter().all(|stripe| stripe.width_bytes == width_bytes && servers.contains(&stripe.server))
}

/// On `count` of the servers, each file on the next ones.
fn striped(servers: &[ServerId], count: usize, number: usize, width_bytes: u64) -> Option<Layout> {
    let first = number.wrapping_mul(count);
    let of = (0..count).map(|nth| servers.get(first.wrapping_add(nth).checked_rem(servers.len())?).copied());
    Layout::striped(of.collect::<Option<Vec<_>>>()?, width_bytes).ok()
}

/// The narrower stripes that were planned in the place of a `settable` layout, on its servers, as Lustre can take them;
/// `None` where none narrower than 1 MiB were. O(stripes).
pub(crate) fn finer(planned: &Layout, settable: &Layout) -> Option<Layout> {
    let wanted = mean_width(planned);
    let [region] = settable.regions() else { return None };
    if wanted >= LEAST_STRIPE_BYTES || region.stripes().len() < 2 {
        return None;
    }
    let width_bytes = nearest_power(wanted).clamp(LUSTRE_STRIPE_BYTES, LEAST_STRIPE_BYTES / 2);
    let stripes = region.stripes().iter().map(|stripe| Stripe { width_bytes, ..*stripe });
    Layout::new([(0, stripes.collect())]).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::usage::RequestCounts;
    use stripewise_model::{Tier, presets};

    fn cluster(servers: u16) -> Cluster {
        let profile = presets::device("hdd-7200").expect("a preset");
        let tier = |name: &str, servers: std::ops::Range<u16>| Tier {
            name: name.into(),
            servers: servers.map(ServerId).collect(),
            profile,
            capacity_bytes: None,
            in_turn: false,
            at_once: 1,
        };
        Cluster { tiers: vec![tier("hdd", 0..servers), tier("ssd", servers..servers + 2)], meta: None }
    }

    fn on(servers: std::ops::Range<u16>, width_bytes: u64) -> Layout {
        Layout::striped(servers.map(ServerId), width_bytes).expect("a layout")
    }

    /// `writers` write a file of `gib`.
    fn written(gib: u64, writers: usize) -> Use {
        let bytes = gib << 30;
        let mut used = Use::default();
        (used.end, used.sharers, used.movers) = (bytes, writers, (0, writers));
        used.writes = RequestCounts { count: bytes >> 20, bytes, ..RequestCounts::default() };
        used
    }

    fn set(planned: &Layout, present: &Layout, used: &Use) -> Layout {
        Settable { cluster: &cluster(40), ranks: JobRanks { processes: 64, nodes: None } }
            .layout(planned, present, used, 0)
    }

    #[test]
    fn stripes_are_powers_of_two_from_a_mebibyte_as_many_as_size_and_writers_are_worth() {
        let planned = on(0..40, 4 << 10);
        let present = on(3..4, 1 << 20);
        assert_eq!(set(&planned, &present, &written(50, 64)), on(0..24, 1 << 20));
        assert_eq!(set(&planned, &present, &written(50, 4)), on(0..4, 1 << 20));
        assert_eq!(set(&planned, &present, &written(5, 64)), on(0..8, 1 << 20));
        assert_eq!(set(&on(0..40, 27_752 << 10), &present, &written(50, 64)), on(0..24, 16 << 20));
        assert_eq!(set(&on(0..40, 3 << 20), &present, &written(50, 64)), on(0..24, 2 << 20));
    }

    #[test]
    fn a_small_file_stays_on_its_stripe() {
        let present = on(3..4, 1 << 20);
        let mut small = written(1, 1);
        small.end = 500 << 20;
        assert_eq!(set(&on(0..40, 32 << 10), &present, &small), present);
        // Another tier is a change all the same.
        assert_eq!(set(&on(40..42, 1 << 20), &present, &small), on(40..41, 1 << 20));
    }

    #[test]
    fn objects_and_locks_have_a_price() {
        let mut used = written(2, 64);
        let (planned, present) = (on(0..40, 1 << 20), on(3..4, 1 << 20));
        assert_eq!(set(&planned, &present, &used).servers().len(), 8);
        // Opened again and again by each process.
        used.opens = 64 * 100_000;
        assert!(set(&planned, &present, &used).servers().len() <= 2);
    }

    #[test]
    fn narrower_stripes_are_those_that_lustre_takes() {
        assert_eq!(finer(&on(0..40, 4 << 10), &on(0..24, 1 << 20)), Some(on(0..24, 64 << 10)));
        assert_eq!(finer(&on(0..40, 200 << 10), &on(0..24, 1 << 20)), Some(on(0..24, 256 << 10)));
        assert_eq!(finer(&on(0..40, 2 << 20), &on(0..24, 1 << 20)), None);
        assert_eq!(finer(&on(0..40, 4 << 10), &on(0..1, 1 << 20)), None, "one stripe is as good as another");
    }

    #[test]
    fn processes_without_ranks_are_writers_too() {
        let mut used = written(50, 1);
        used.processes = 4;
        assert_eq!(set(&on(0..40, 1 << 20), &on(3..4, 1 << 20), &used).servers().len(), 4);
    }

    #[test]
    fn who_calls_together_has_a_writer_a_stripe() {
        let mut used = written(50, 1);
        used.sharers = 64;
        used.asked.writes.collective = 6400;
        assert_eq!(set(&on(0..40, 1 << 20), &on(3..4, 1 << 20), &used).servers().len(), 24);
    }
}
