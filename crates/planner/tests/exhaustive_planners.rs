//! Planners from end to end against every layout of their kind, or against the rule written down a second time, on 200
//! random instances each. The others: `regions` in `src/exhaustive.rs`, `harl` and `harl-paper` in
//! `harl_exhaustive.rs`.

#[path = "common/random.rs"]
mod random;

use random::Random;
use std::collections::BTreeSet;
use stripewise_layout::{Layout, ServerId, Stripe};
use stripewise_model::{Cluster, Op, Request, TierWidths, presets};
use stripewise_planner::planners::by_name;
use stripewise_planner::{FileTrace, Job, PlanOptions};

const INSTANCES: u64 = 200;
const BLOCK: u64 = 4096;

/// Enough processes that only the busiest server counts.
const MANY: f64 = 1e9;

fn cluster(random: &mut Random, servers: u64) -> Cluster {
    let hdds = 1 + random.below(servers);
    let (hdds, ssds) = (hdds as u16, (servers - hdds) as u16);
    match random.below(3) {
        0 => presets::set_b(hdds, ssds),
        1 => presets::set_p(hdds, ssds, true),
        _ => presets::set_p(hdds, ssds, false),
    }
}

fn op(random: &mut Random) -> Op {
    if random.below(2) == 0 { Op::Read } else { Op::Write }
}

/// Up to `most` requests in the first `bytes` of a file, by up to three processes.
fn requests(random: &mut Random, most: u64, bytes: u64) -> Vec<Request> {
    let one = |_| {
        let size = 1 + random.below(bytes / 4);
        let offset = random.below(bytes - size);
        let start_s = random.below(4) as f64;
        let process = random.below(3) as u32;
        Request { offset, size, op: op(random), process, start_s, end_s: start_s + 1.0 }
    };
    (0..1 + most / 2).map(one).collect()
}

fn traces<'a>(files: &'a [Vec<Request>], size_bytes: Option<u64>) -> Vec<FileTrace<'a>> {
    let trace =
        |(index, requests): (usize, &'a Vec<Request>)| FileTrace { name: format!("f{index}"), requests, size_bytes };
    files.iter().enumerate().map(trace).collect()
}

fn servers(cluster: &Cluster) -> Vec<ServerId> {
    cluster.tiers.iter().flat_map(|tier| tier.servers.iter().copied()).collect()
}

fn planned(name: &str, job: &Job) -> Vec<Layout> {
    by_name(name).unwrap().plan(job).unwrap()
}

/// Predicted seconds; infinite beyond the limits.
fn price_s(job: &Job, layouts: &[Layout]) -> f64 {
    let price = job.price(layouts).unwrap();
    if price.excess_bytes == 0 { price.predicted_s } else { f64::INFINITY }
}

/// Every list of `length` numbers below `base`.
fn digits(base: usize, length: usize) -> impl Iterator<Item = Vec<usize>> {
    (0..base.pow(length as u32)).map(move |number| (0..length).map(|at| number / base.pow(at as u32) % base).collect())
}

#[test]
fn chens_planners_put_every_byte_where_the_paper_says() {
    let mut random = Random(0xC4E0);
    let (mut alone, mut between) = (0, 0);
    for instance in 0..INSTANCES {
        let count = 2 + random.below(5);
        let cluster = cluster(&mut random, count);
        let files: Vec<Vec<Request>> = (0..1 + random.below(2)).map(|_| requests(&mut random, 8, 60)).collect();
        let (traces, options) =
            (traces(&files, None), PlanOptions { default_width_bytes: 7, ..PlanOptions::default() });
        let job = Job::new(&traces, &cluster, &options).unwrap();
        let servers = servers(&cluster);
        // The processes that touch each byte, and the processes in order of the first byte that one has alone.
        let touches = |file: &[Request], byte: u64| -> BTreeSet<u32> {
            file.iter().filter(|r| (r.offset..r.offset + r.size).contains(&byte)).map(|r| r.process).collect()
        };
        let mut order: Vec<u32> = Vec::new();
        for file in &files {
            for byte in 0..60 {
                let of = touches(file, byte);
                if of.len() == 1 && !order.contains(of.first().unwrap()) {
                    order.push(*of.first().unwrap());
                }
            }
        }
        let expected =
            |servers: &[ServerId], groups: usize, file: &[Request], byte: u64| -> Option<BTreeSet<ServerId>> {
                let of = touches(file, byte);
                // Untouched bytes may be anywhere.
                let process = *of.first()?;
                let all = of.len() > 1 || groups < 2;
                let place = order.iter().position(|&other| other == process).unwrap_or(0);
                let group = place * groups / order.len().max(groups);
                let inside = |at: usize| all || at % groups == group;
                Some((0..servers.len()).filter(|&at| inside(at)).map(|at| servers[at]).collect())
            };
        let check_on = |servers: &[ServerId], groups: usize, layouts: &[Layout]| {
            layouts.iter().zip(&files).all(|(layout, file)| {
                (0..60).all(|byte| {
                    let region = &layout.regions()[layout.region_at(byte)];
                    let held: BTreeSet<ServerId> = region.stripes().iter().map(|stripe| stripe.server).collect();
                    expected(servers, groups, file, byte).is_none_or(|expected| expected == held)
                })
            })
        };
        let check = |groups: usize, layouts: &[Layout]| check_on(&servers, groups, layouts);
        for name in ["fixed", "1-dh"] {
            assert_eq!(planned(name, &job), job.default_layouts(), "{name}, instance {instance}");
        }
        let (one_dv, two_d) = (planned("1-dv", &job), planned("2-d", &job));
        assert!(check(servers.len(), &one_dv), "1-dv, instance {instance}: {one_dv:?}");
        assert!(check(order.len().clamp(1, servers.len()), &two_d), "2-d, instance {instance}: {two_d:?}");
        // The best number of groups is one of all, of all servers or of one tier's, and no worse than the named ones.
        let best = planned("groups", &job);
        let mut sets: Vec<&[ServerId]> = cluster.tiers.iter().map(|tier| &tier.servers[..]).collect();
        sets.push(&servers);
        let is_one = |of: &[ServerId]| (1..=of.len()).any(|groups| check_on(of, groups, &best));
        assert!(sets.into_iter().any(is_one), "groups, instance {instance}");
        let named = [job.default_layouts(), one_dv.clone(), two_d].map(|layouts| price_s(&job, &layouts));
        let least_s = named.into_iter().fold(f64::INFINITY, f64::min);
        assert!(price_s(&job, &best) <= least_s, "groups, instance {instance}");
        alone += usize::from(one_dv != job.default_layouts());
        between += usize::from(price_s(&job, &best) < least_s);
    }
    assert!(alone > 100 && between > 0, "{alone} {between}");
}

#[test]
fn whole_files_are_dealt_as_well_as_in_any_way() {
    let mut random = Random(0x3F11);
    let mut limited = 0;
    for instance in 0..INSTANCES {
        let count = 1 + random.below(4);
        let mut cluster = cluster(&mut random, count);
        let files: Vec<Vec<Request>> = (0..1 + random.below(5)).map(|_| requests(&mut random, 12, 1 << 20)).collect();
        if random.below(3) == 0 {
            // Room for two files on a server of the first tier.
            cluster.tiers[0].capacity_bytes = Some(2 << 20);
            limited += 1;
        }
        let options = PlanOptions { processes: Some(MANY), max_phases: 1, ..PlanOptions::default() };
        let traces = traces(&files, Some(1 << 20));
        let Ok(job) = Job::new(&traces, &cluster, &options) else { continue };
        let servers = servers(&cluster);
        let on = |&server: &usize| Layout::striped([servers[server]], options.default_width_bytes).unwrap();
        let ways = digits(servers.len(), files.len());
        let least_s =
            ways.map(|way| price_s(&job, &way.iter().map(on).collect::<Vec<_>>())).fold(f64::INFINITY, f64::min);
        let found_s = price_s(&job, &planned("whole-files", &job));
        assert!(found_s <= least_s * (1.0 + 1e-6) || least_s.is_infinite(), "{instance}: {found_s} against {least_s}");
    }
    assert!(limited > 40);
}

/// The requests as blocks of the round: `cost[position]` by the paper, a startup shared by the blocks of a request.
fn paper_costs(requests: &[Request], blocks: u64, startup_s: impl Fn(Op) -> f64, beta: impl Fn(Op) -> f64) -> Vec<f64> {
    let mut costs = vec![0.0; blocks as usize];
    for r in requests {
        let (first, last) = (r.offset / BLOCK, (r.offset + r.size - 1) / BLOCK);
        for block in first..=last {
            let inside = (r.offset + r.size).min((block + 1) * BLOCK) - r.offset.max(block * BLOCK);
            let startup_s = startup_s(r.op) / (last - first + 1) as f64;
            costs[(block % blocks) as usize] += startup_s + inside as f64 * beta(r.op);
        }
    }
    costs
}

#[test]
fn the_papers_equal_depth_has_its_quantiles() {
    let mut random = Random(0x50F6);
    for instance in 0..INSTANCES {
        let count = 1 + random.below(4);
        let cluster = presets::cluster(&[("only", count as u16, presets::set_ab(1, 1).tiers[0].profile)]);
        let files = [requests(&mut random, 12, 1 << 20)];
        let each = 1 + random.below(8);
        let options = PlanOptions { default_width_bytes: each * BLOCK, ..PlanOptions::default() };
        let traces = traces(&files, None);
        let job = Job::new(&traces, &cluster, &options).unwrap();
        let profile = cluster.tiers[0].profile;
        let startup_s = |op: Op| 0.5 * (profile.of(op).startup_min_s + profile.of(op).startup_max_s);
        let beta = |op: Op| profile.of(op).transfer_s_per_byte + profile.network_s_per_byte;
        let costs = paper_costs(&files[0], each * count, startup_s, beta);
        let total: f64 = costs.iter().sum();
        // Where the sum of costs reaches i/n of all, anywhere inside a block.
        let place = |share: f64| {
            let mut before = 0.0;
            for (block, cost) in costs.iter().enumerate() {
                if before + cost >= share * total {
                    return block as f64 + if *cost > 0.0 { (share * total - before) / cost } else { 0.0 };
                }
                before += cost;
            }
            costs.len() as f64
        };
        let layout = planned("equal-depth-paper", &job).remove(0);
        let widths: Vec<u64> = servers(&cluster)
            .iter()
            .map(|&server| {
                let held = layout.regions()[0].stripes().iter().find(|stripe| stripe.server == server);
                held.map_or(0, |stripe| stripe.width_bytes / BLOCK)
            })
            .collect();
        assert_eq!(widths.iter().sum::<u64>(), each * count);
        let mut left = (each * count) as f64;
        for (server, &width) in widths.iter().enumerate() {
            let (from, to) = (place(server as f64 / count as f64), place((server + 1) as f64 / count as f64));
            // The last one takes what is left.
            let wanted = if server + 1 == widths.len() { left } else { (to - from).clamp(0.0, left) };
            left -= width as f64;
            assert!((width as f64 - wanted).abs() <= 0.5 + 1e-6, "{instance}: {widths:?}, {wanted} on {server}");
        }
    }
}

#[test]
fn equal_depth_is_as_good_as_any_way_to_deal_the_blocks_of_the_round() {
    let mut random = Random(0xE9D4);
    let mut better = 0;
    for instance in 0..INSTANCES {
        let count = 1 + random.below(4);
        let cluster = cluster(&mut random, count);
        // Too short a file for a longer round than the default's.
        let each = 1 + random.below(3);
        let round = each * count * BLOCK;
        let files = [requests(&mut random, 16, 16 * round)];
        let default_width_bytes = each * BLOCK;
        let options =
            PlanOptions { default_width_bytes, processes: Some(MANY), max_phases: 1, ..PlanOptions::default() };
        let traces = traces(&files, Some(16 * round));
        let job = Job::new(&traces, &cluster, &options).unwrap();
        let servers = servers(&cluster);
        let blocks = (each * count) as usize;
        let layout = |counts: &Vec<usize>| {
            let stripes = servers.iter().zip(counts).filter(|(_, count)| **count > 0);
            let stripes = stripes.map(|(&server, &count)| Stripe { server, width_bytes: count as u64 * BLOCK });
            Layout::new([(0, stripes.collect())]).unwrap()
        };
        let ways = digits(blocks + 1, servers.len()).filter(|counts| counts.iter().sum::<usize>() == blocks);
        let least_s = ways.map(|counts| price_s(&job, &[layout(&counts)])).fold(f64::INFINITY, f64::min);
        let found_s = price_s(&job, &planned("equal-depth", &job));
        assert!(found_s <= least_s * (1.0 + 1e-6), "instance {instance}: {found_s} against {least_s}");
        better += usize::from(found_s < price_s(&job, &job.default_layouts()) * (1.0 - 1e-6));
    }
    assert!(better > 40, "{better}");
}

#[test]
fn server_widths_of_one_region_are_as_good_as_any_pair_of_widths() {
    let mut random = Random(0x5EB1);
    for instance in 0..INSTANCES {
        let cluster = cluster(&mut random, 2);
        let size = BLOCK << random.below(5);
        let one = |_| {
            let offset = random.below((1 << 20) / size) * size;
            let (op, process) = (op(&mut random), random.below(4) as u32);
            Request { offset, size, op, process, start_s: 0.0, end_s: 1.0 }
        };
        let files = [(0..20).map(one).collect::<Vec<Request>>()];
        // No stripe of a mebibyte is wider than 64 KiB.
        let options = PlanOptions { max_regions: 1, max_chunks: 1, simulations: 0, ..PlanOptions::default() };
        let traces = traces(&files, Some(1 << 20));
        let job = Job::new(&traces, &cluster, &options).unwrap();
        let servers = servers(&cluster);
        let layout = |widths: Vec<usize>| {
            let stripes = servers.iter().zip(widths).filter(|(_, width)| *width > 0);
            let stripes = stripes.map(|(&server, width)| Stripe { server, width_bytes: width as u64 * BLOCK });
            Layout::new([(0, stripes.collect())]).unwrap()
        };
        let ways = digits(17, 2).filter(|widths| widths.iter().any(|&width| width > 0));
        let least_s = ways.map(|widths| price_s(&job, &[layout(widths)])).fold(f64::INFINITY, f64::min);
        let found_s = price_s(&job, &planned("server-widths", &job));
        assert!(found_s <= least_s * (1.0 + 1e-8), "instance {instance}: {found_s} against {least_s}");
        let tiers = TierWidths::uniform(&cluster, 64 << 10);
        assert!(found_s <= price_s(&job, &[TierWidths::layout(&[(0, tiers)], &cluster).unwrap()]));
    }
}
