//! What the papers print, found again: HARL's optima with set AB, Song's Table II, and what Chen's costs imply.
//!
//! `cargo run --release -p stripewise-planner --example paper_figures`

#[path = "../tests/common/table_ii.rs"]
mod table_ii;

use stripewise_model::{Op, OpProfile, Profile, Request, TierWidths, presets};
use stripewise_planner::chen::{ChenPattern, Rest, best_groups, one_dh_s, one_dv_s, two_d_s};
use stripewise_planner::harl::{HarlOptions, plan};
use stripewise_planner::song::{BlockCosts, Blocks, quantile_widths};
use table_ii::{TABLE_II, song_loop};

const KIB: u64 = 1 << 10;

struct Table {
    rows: u32,
    equal: u32,
}

impl Table {
    fn row(&mut self, what: &str, expected: &str, found: &str) {
        self.rows += 1;
        self.equal += u32::from(expected == found);
        println!(
            "  {what:<58} expected {expected:<20} found {found:<20} {}",
            if expected == found { "=" } else { "!" }
        );
    }

    fn end(self, name: &str) {
        println!("{name}: {} of {} rows", self.equal, self.rows);
    }
}

fn aligned(size: u64, op: Op) -> Vec<Request> {
    let mut state = 0x2545_F491_4F6C_DD1D_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state >> 20
    };
    let mut request = || Request { offset: next() % 32_768 * size, size, op, process: 0, start_s: 0.0, end_s: 0.0 };
    (0..2000).map(|_| request()).collect()
}

/// Math F.2: aligned random offsets, ties to the largest stripes.
fn harl() {
    let mut table = Table { rows: 0, equal: 0 };
    let cases = [
        (6, 2, 512, Op::Read, Some((32, 160))),
        (6, 2, 512, Op::Write, Some((36, 148))),
        (6, 2, 128, Op::Read, Some((0, 64))),
        (6, 2, 128, Op::Write, Some((0, 64))),
        // Of the 2:6 pool the paper says only that the HDDs are left out.
        (2, 6, 512, Op::Read, None),
        (2, 6, 512, Op::Write, None),
    ];
    for (hdds, ssds, size, op, expected) in cases {
        let found = plan(&aligned(size * KIB, op), &presets::set_ab(hdds, ssds), &HarlOptions::default());
        let of = |widths: &TierWidths, tier| widths.width_bytes(tier) / KIB;
        let shown = |widths: &TierWidths| format!("{{{}K, {}K}}", of(widths, 0), of(widths, 1));
        let rows: Vec<String> = match expected {
            Some(_) => found.rows.iter().map(|(_, widths)| shown(widths)).collect(),
            None => found.rows.iter().map(|(_, widths)| format!("h = {}", of(widths, 0))).collect(),
        };
        let expected = expected.map_or("h = 0".to_owned(), |(h, s)| format!("{{{h}K, {s}K}}"));
        table.row(&format!("{hdds}:{ssds}, {size} KiB, {op:?}"), &expected, &rows.join(" "));
    }
    table.end("HARL's optima, set AB");
}

/// Math F.1: alpha = 0.2 ms, 85 KB/ms.
fn song() {
    let mut table = Table { rows: 0, equal: 0 };
    let startup_s = 0.2e-3;
    let transfer_s_per_byte = presets::seconds_per_byte(85.0);
    let op = OpProfile { startup_min_s: startup_s, startup_max_s: startup_s, transfer_s_per_byte, head: None };
    let profile = Profile { read: op, write: op, network_s_per_byte: 0.0 };
    for (round, block, expected) in TABLE_II {
        let mut costs = BlockCosts::new(Blocks { count: (round / block) as usize, bytes: block * KIB });
        song_loop(16 << 18).into_iter().for_each(|(offset, size)| costs.add(Op::Write, offset, size, 1.0));
        let widths = quantile_widths(&costs.costs_s(&profile), 4);
        let found: Vec<u64> = widths.into_iter().map(|width| width as u64 * block).collect();
        table.row(&format!("round {round} KB, blocks of {block} KB"), &format!("{expected:?}"), &format!("{found:?}"));
    }
    table.end("Song's Table II");
}

/// Math B.4, over every n up to 32, p up to 128 and parts from far below to far above a startup.
fn chen() {
    let mut table = Table { rows: 0, equal: 0 };
    let (mut multiple, mut divides, mut other_dv, mut other_2d) = ((0, 0), (0, 0), (0, 0), (0, 0));
    for servers in 1..=32_u64 {
        for processes in 1..=128_u64 {
            for part in [1, 4, 16, 64, 160, 640, 4096, 65_536] {
                let of = ChenPattern { processes, servers, startup_s: 1.0, part_s: part as f64 / 16.0 };
                let (p, n, part_s) = (processes as f64, servers as f64, of.part_s);
                // Sums in another order may differ in the last bits.
                let above = |a: f64, b: f64| a > b * (1.0 + 1e-12);
                let count = |of: &mut (u32, u32), holds: bool| *of = (of.0 + u32::from(holds), of.1 + 1);
                if processes >= servers {
                    let worse = above(one_dv_s(&of), one_dh_s(&of));
                    let rounds = processes.div_ceil(servers) as f64;
                    if processes.is_multiple_of(servers) {
                        count(&mut multiple, !worse);
                    } else {
                        count(&mut other_dv, worse == above((rounds - p / n) * part_s, p - rounds));
                    }
                } else {
                    let worse = above(two_d_s(&of, Rest::Floor), one_dh_s(&of));
                    let group = (servers / processes) as f64;
                    if servers.is_multiple_of(processes) {
                        count(&mut divides, !worse);
                    } else {
                        count(&mut other_2d, worse == above(part_s * (1.0 / group - p / n), p - 1.0));
                    }
                }
            }
        }
    }
    let mut all =
        |what: &str, (holds, of): (u32, u32)| table.row(what, &format!("{of} of {of}"), &format!("{holds} of {of}"));
    all("p >= n, n divides p: 1-DV costs at most 1-DH", multiple);
    all("p < n, p divides n: 2-D costs at most 1-DH", divides);
    all("else, p >= n: 1-DV costs more just where B.4 says", other_dv);
    all("else, p < n: 2-D costs more just where B.4 says", other_2d);
    let best = |processes, part_s| {
        let (groups, cost) = best_groups(&ChenPattern { processes, servers: 8, startup_s: 1.0, part_s }, Rest::Floor);
        format!("g = {groups}, {cost}")
    };
    table.row("p = 5, n = 8, s beta = 10 alpha: between the named", "g = 2, 10.5", &best(5, 10.0));
    table.row("p = 9, n = 8, s beta = 10 alpha: between the named", "g = 2, 17.5", &best(9, 10.0));
    table.end("Chen's implications");
}

fn main() {
    harl();
    song();
    chen();
}
