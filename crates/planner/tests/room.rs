//! Plans for servers whose disks are not empty: nothing is put where it does not fit.

#[path = "common/planned.rs"]
mod planned;

use planned::plan;
use proptest::prelude::*;
use stripewise_layout::{Layout, ServerId};
use stripewise_model::{Cluster, MAX_TIERS, Op, Request, presets};
use stripewise_planner::{FileTrace, PlanOptions, within_room};

const MIB: u64 = 1 << 20;

fn cluster(hdds: u16, ssds: u16) -> Cluster {
    presets::set_p(hdds, ssds, false)
}

/// Bytes that the first `bytes` of a file have on each server.
fn on_servers(layout: &Layout, bytes: u64, servers: usize) -> Vec<u64> {
    let mut held = vec![0; servers];
    for (index, region) in layout.regions().iter().enumerate() {
        let (from, to) = (region.offset().min(bytes), layout.region_end(index).min(bytes));
        for (slot, stripe) in region.stripes().iter().enumerate() {
            held[stripe.server.index()] += region.bytes_before(slot, to) - region.bytes_before(slot, from);
        }
    }
    held
}

fn requests(bytes: u64, size: u64) -> Vec<Request> {
    let request = |number: u64| {
        let start_s = number as f64 * 1e-3;
        let op = if number.is_multiple_of(3) { Op::Write } else { Op::Read };
        Request { offset: number * size, size, op, process: (number % 4) as u32, start_s, end_s: start_s + 1e-3 }
    };
    (0..bytes / size).map(request).collect()
}

fn options() -> PlanOptions {
    PlanOptions { simulations: 0, max_chunks: 64, ..PlanOptions::default() }
}

#[test]
fn a_tier_is_parted_by_room_and_left_alone_where_there_is_enough() {
    let cluster = cluster(4, 2);
    assert_eq!(within_room(&cluster, |_| 100 * MIB, 100 * MIB), None);
    // hdd.1 is nearly full.
    let found = within_room(&cluster, |id| if id.0 == 1 { 3 * MIB } else { 1000 * MIB }, 100 * MIB).unwrap();
    let tiers: Vec<_> = found.tiers.iter().map(|tier| (tier.servers.len(), tier.capacity_bytes)).collect();
    assert_eq!(tiers, vec![(3, None), (1, Some(3 * MIB)), (2, None)]);
    assert!(found.tiers[0].name.ends_with(".0,2,3") && found.tiers[1].name.ends_with(".1"), "{found:?}");
}

#[test]
fn a_small_fast_disk_gets_what_it_has_room_for() {
    // 500 MiB of files that the fast server would serve best, which has 272.
    let cluster = cluster(2, 1);
    let of = requests(500 * MIB, MIB);
    let files = [FileTrace { name: "f".into(), requests: &of, size_bytes: None }];
    let free = plan(&files, &cluster, &options()).unwrap();
    assert!(on_servers(&free.files[0].layout, 500 * MIB, 3)[2] > 272 * MIB, "{:?}", free.files[0].layout);
    let room = |id: ServerId| if id.0 == 2 { 272 * MIB } else { u64::MAX };
    let limited = within_room(&cluster, room, 500 * MIB).unwrap();
    let made = plan(&files, &limited, &options()).unwrap();
    assert!(on_servers(&made.files[0].layout, 500 * MIB, 3)[2] <= 272 * MIB);
    assert!(made.total.planned_s >= free.total.planned_s * 0.999);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn no_server_gets_more_than_it_has_room_for(
        (hdds, ssds) in (1_u16..5, 1_u16..4),
        // Full ones are common.
        rooms in prop::collection::vec(prop_oneof![1 => Just(0), 4 => 0_u64..80 * MIB], 8),
        sizes in prop::collection::vec((1_u64..40, 0_usize..3), 1..4),
    ) {
        let cluster = cluster(hdds, ssds);
        let servers = usize::from(hdds + ssds);
        let traces: Vec<_> = sizes.iter().map(|&(mib, kind)| requests(mib * MIB, [64 << 10, MIB, 300_000][kind])).collect();
        let files: Vec<_> = traces.iter().zip(&sizes).enumerate().map(|(number, (requests, &(mib, _)))| FileTrace {
            name: number.to_string(), requests, size_bytes: Some(mib * MIB),
        }).collect();
        let needed: u64 = sizes.iter().map(|(mib, _)| mib * MIB).sum();
        let room = |id: ServerId| rooms[id.index()];
        let limited = within_room(&cluster, room, needed);
        let within = limited.as_ref().unwrap_or(&cluster);
        prop_assert!(within.tiers.len() <= MAX_TIERS);
        let mut all: Vec<_> = within.tiers.iter().flat_map(|tier| tier.servers.clone()).collect();
        all.sort();
        prop_assert_eq!(all, (0..servers as u16).map(ServerId).collect::<Vec<_>>());
        for tier in &within.tiers {
            for &id in &tier.servers {
                prop_assert!(tier.capacity_bytes.unwrap_or(needed) <= room(id), "{tier:?}");
            }
        }
        // What cannot be placed is an error; what is placed fits.
        if let Ok(mut made) = plan(&files, within, &options()) {
            made.in_pool_order();
            let mut held = vec![0; servers];
            for (file, &(mib, _)) in made.files.iter().zip(&sizes) {
                held.iter_mut().zip(on_servers(&file.layout, mib * MIB, servers)).for_each(|(sum, b)| *sum += b);
            }
            // In the pool's order the last round of a file may begin with another server: a stripe more or less.
            let slack = |file: &stripewise_planner::FilePlan| {
                file.layout.regions().iter().flat_map(|region| region.stripes()).map(|stripe| stripe.width_bytes).max()
            };
            let slack: u64 = made.files.iter().filter_map(slack).sum();
            for (held, room) in held.iter().zip(&rooms) {
                prop_assert!(*held <= room + slack, "{held} {room}");
            }
        } else {
            // Not even the least of what fits everywhere would have held it.
            let least = rooms[..servers].iter().min().unwrap_or(&0) * servers as u64;
            prop_assert!(least < needed + servers as u64 * MIB, "{least} {needed}");
        }
    }
}
