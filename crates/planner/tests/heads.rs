//! Servers with heads: the price of layouts is near what a simulation gives, and plans gain in it.

#[path = "common/planned.rs"]
mod planned;

use planned::plan;
use proptest::prelude::*;
use stripewise_layout::{Layout, ServerId};
use stripewise_model::{Cluster, Op, Request, presets};
use stripewise_planner::{FileTrace, Job, PlanOptions};
use stripewise_simulate::{ClosedLoop, SimulationOptions, simulate};

/// Disks with a head and flash of [`presets`].
fn disks(hdds: u16, ssds: u16) -> Cluster {
    let [disk, flash] = ["hdd-7200-head", "ssd-sata"].map(|name| presets::device(name).unwrap());
    presets::cluster(&[("hdd", hdds, disk), ("ssd", ssds, flash)])
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Order {
    /// Each process from front to back of its own part.
    Sequential,
    /// Each process every p-th block of the file.
    Strided,
    /// Anywhere.
    Random,
}

/// Requests of `processes` closed loops, those of one turn at one time.
fn requests(order: Order, processes: u64, each: u64, size: u64) -> Vec<Request> {
    let request = |i: u64| {
        let (process, turn) = (i % processes, i / processes);
        let block = match order {
            Order::Sequential => process * each + turn,
            Order::Strided => turn * processes + process,
            Order::Random => (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33) % (8 * processes * each),
        };
        let start_s = turn as f64 * 0.01 + process as f64 * 1e-5;
        Request { offset: block * size, size, op: Op::Read, process: process as u32, start_s, end_s: start_s + 0.009 }
    };
    (0..processes * each).map(request).collect()
}

fn simulated_s(layout: &Layout, requests: &[Request], cluster: &Cluster) -> f64 {
    let workload = ClosedLoop::replay(&[requests], &[], false);
    let one = |seed| {
        let options = SimulationOptions { seed, ..SimulationOptions::default() };
        simulate(cluster, std::slice::from_ref(layout), &workload, &options).unwrap().makespan_s
    };
    // Streams meet or pass each other by chance, and take times that are far apart.
    (100..116).map(one).sum::<f64>() / 16.0
}

fn file(requests: &[Request]) -> [FileTrace<'_>; 1] {
    [FileTrace { name: "f".into(), requests, size_bytes: None }]
}

fn price_s(layout: &Layout, requests: &[Request], cluster: &Cluster, processes: u64) -> f64 {
    let options = PlanOptions { processes: Some(processes as f64), max_phases: 1, ..PlanOptions::default() };
    let files = file(requests);
    Job::new(&files, cluster, &options).unwrap().price(std::slice::from_ref(layout)).unwrap().predicted_s
}

fn striped(servers: u16, width_bytes: u64) -> Layout {
    Layout::striped((0..servers).map(ServerId), width_bytes).unwrap()
}

#[test]
fn a_stream_is_priced_as_one_and_not_as_a_seek_per_request() {
    let cluster = disks(4, 0);
    let stream = requests(Order::Sequential, 1, 400, 256 << 10);
    for width in [64 << 10, 256 << 10, 1 << 20] {
        let layout = striped(4, width);
        let (price_s, simulated_s) = (price_s(&layout, &stream, &cluster, 1), simulated_s(&layout, &stream, &cluster));
        assert!((price_s / simulated_s - 1.0).abs() < 0.1, "{width}: {price_s} {simulated_s}");
        let mut without = cluster.clone();
        without.tiers[0].profile = presets::device("hdd-7200").unwrap();
        assert!(self::price_s(&layout, &stream, &without, 1) > 2.0 * price_s);
    }
}

#[test]
fn requests_anywhere_cost_what_they_cost_without_heads() {
    let (cluster, anywhere) = (disks(4, 2), requests(Order::Random, 4, 100, 64 << 10));
    let mut without = cluster.clone();
    without.tiers[0].profile = presets::device("hdd-7200").unwrap();
    let layout = striped(6, 64 << 10);
    let price_s = price_s(&layout, &anywhere, &cluster, 4);
    for cluster in [&cluster, &without] {
        let simulated_s = simulated_s(&layout, &anywhere, cluster);
        assert!((price_s / simulated_s - 1.0).abs() < 0.05, "{price_s} {simulated_s}");
    }
}

#[test]
fn plans_of_streams_gain_in_the_simulation() {
    let cluster = disks(4, 2);
    for (order, processes, size) in
        [(Order::Sequential, 1, 256), (Order::Sequential, 4, 128), (Order::Strided, 4, 128), (Order::Strided, 8, 64)]
    {
        let asked = requests(order, processes, 160, size << 10);
        let options = PlanOptions { processes: Some(processes as f64), simulations: 60, ..PlanOptions::default() };
        let planned = plan(&file(&asked), &cluster, &options).unwrap();
        let planned_s = simulated_s(&planned.files[0].layout, &asked, &cluster);
        let default_s = simulated_s(&striped(6, 64 << 10), &asked, &cluster);
        assert!(planned_s <= 1.02 * default_s, "{order:?} {processes}: {planned_s} {default_s}");
    }
}

#[test]
fn servers_that_are_asked_in_turn_are_priced_as_they_are_simulated() {
    let (together, layout) = (disks(4, 2), striped(6, 64 << 10));
    let mut in_turn = together.clone();
    in_turn.tiers.iter_mut().for_each(|tier| tier.in_turn = true);
    for processes in [1, 4] {
        let asked = requests(Order::Random, processes, 60, 1 << 20);
        let price = |cluster: &Cluster| price_s(&layout, &asked, cluster, processes);
        let simulated_s = simulated_s(&layout, &asked, &in_turn);
        assert!((price(&in_turn) / simulated_s - 1.0).abs() < 0.05, "{processes}: {} {simulated_s}", price(&in_turn));
        assert!(processes > 1 || price(&in_turn) > 1.5 * price(&together));
    }
}

/// More processes than are in flight, as programs think between requests, are not priced as if all of them were.
#[test]
fn a_stream_of_processes_that_take_turns_is_priced_as_one_in_flight() {
    let (cluster, layout) = (disks(4, 0), striped(4, 64 << 10));
    let asked = requests(Order::Random, 8, 60, 64 << 10);
    let (alone_s, together_s) = (price_s(&layout, &asked, &cluster, 1), price_s(&layout, &asked, &cluster, 8));
    let each: f64 = asked.chunks(8).flatten().map(|request| simulated_s(&layout, &[*request], &cluster)).sum();
    assert!((alone_s / each - 1.0).abs() < 0.1, "{alone_s} {each}");
    assert!(together_s < 0.5 * alone_s, "{together_s} {alone_s}");
}

/// Price over simulated time.
fn ratio(order: Order, (hdds, ssds): (u16, u16), processes: u64, size: u64, width: u64) -> f64 {
    let (cluster, layout) = (disks(hdds, ssds), striped(hdds + ssds, width));
    let asked = requests(order, processes, 480 / processes, size);
    price_s(&layout, &asked, &cluster, processes) / simulated_s(&layout, &asked, &cluster)
}

#[test]
fn streams_of_several_processes_are_priced_as_they_are_simulated() {
    for order in [Order::Sequential, Order::Strided] {
        let mut found = Vec::new();
        for servers in [(4, 0), (4, 2)] {
            for (processes, size_kib) in [2, 4, 8, 16].into_iter().flat_map(|p| [(p, 64), (p, 256)]) {
                let widths = [64, 256, 1024].into_iter();
                found.extend(widths.map(|kib| ratio(order, servers, processes, size_kib << 10, kib << 10)));
            }
        }
        found.sort_by(f64::total_cmp);
        let (least, median, most) = (found[0], found[found.len() / 2], found[found.len() - 1]);
        let within = found.iter().filter(|ratio| (0.9..1.1).contains(*ratio)).count();
        let figures = format!("{order:?}: {least} {median} {most}, {within} of {} within a tenth", found.len());
        assert!(
            least > 0.6 && most < 1.6 && (0.97..1.03).contains(&median) && 10 * within >= 8 * found.len(),
            "{figures}"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn no_stream_is_priced_at_a_multiple(
        strided in any::<bool>(), servers in (1_u16..6, 0_u16..3), processes in 1_u64..17, size_kib in 4_u64..65,
        width_kib in 4_u64..257,
    ) {
        let order = if strided { Order::Strided } else { Order::Sequential };
        let ratio = ratio(order, servers, processes, size_kib << 13, width_kib << 13);
        prop_assert!(ratio > 0.4 && ratio < 2.5, "{ratio}");
    }
}
