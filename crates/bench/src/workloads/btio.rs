//! BTIO, the I/O of NAS Parallel Benchmark BT ("full" of the Parallel I/O version; HARL, Section IV): all ranks append the
//! solution of a three-dimensional grid to a file in each of 40 steps, five doubles a point, and read all of it back.
//!
//! The grid is cut into q = sqrt(p) cells along each axis. Each rank has q of them, one in each layer, on a diagonal
//! (multi-partitioning), so that its part of the file is a nested strided set of rows of points.

use clap::{Args, ValueEnum};
use serde_json::{Map, Value, json};

use super::sizes::{file_bytes, in_a_row};
use crate::error::BenchError;
use crate::options::{BenchApi, COMMON_HEADING, Common, LARGEST_REQUEST};
use crate::view::{Type, View};
use crate::workload::{BenchRequest, Coverage, Group, PhaseKind, Workload};

/// Bytes of a point: five doubles.
const POINT: u64 = 40;

/// Options of `btio`.
#[derive(Debug, Args)]
pub struct BtioOptions {
    /// Size of the problem: 64 points along each axis in class A (419 MB in 40 steps), 102 in class B (1.70 GB)
    #[arg(long, value_enum, default_value_t = NpbClass::A, ignore_case = true)]
    pub class: NpbClass,

    /// Points along each axis, instead of the class's
    #[arg(long, value_name = "POINTS", value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub grid: Option<u64>,

    /// Steps that are written
    #[arg(long, default_value_t = 40, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub steps: u64,

    #[command(flatten, next_help_heading = COMMON_HEADING)]
    pub common: Common,
}

/// A class of the NAS Parallel Benchmarks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "UPPER")]
pub enum NpbClass {
    /// 12 points
    S,
    /// 24 points
    W,
    /// 64 points
    A,
    /// 102 points
    B,
    /// 162 points
    C,
    /// 408 points
    D,
}

/// The workload.
#[derive(Debug)]
pub struct Btio {
    /// Cells along an axis, and of a rank.
    cells: u64,
    grid: u64,
    steps: u64,
}

impl Btio {
    /// Works out what the options ask for.
    ///
    /// # Errors
    /// [`BenchError::Usage`] for a number of processes that is no square, and for a grid of fewer points than cells.
    pub fn new(options: &BtioOptions) -> Result<Self, BenchError> {
        let usage = |message| Err(BenchError::Usage(message));
        let processes = u64::from(options.common.processes.unwrap_or(4));
        let cells = processes.isqrt();
        if cells * cells != processes {
            return usage(format!(
                "--processes {processes} is no square number, as the cells of BT need; take {} or {}",
                cells * cells,
                (cells + 1) * (cells + 1)
            ));
        }
        let grid = options.grid.unwrap_or(match options.class {
            NpbClass::S => 12,
            NpbClass::W => 24,
            NpbClass::A => 64,
            NpbClass::B => 102,
            NpbClass::C => 162,
            NpbClass::D => 408,
        });
        if grid < cells {
            return usage(format!(
                "a grid of {grid} points has no {cells} cells along an axis for {processes} processes"
            ));
        }
        file_bytes(&[grid, grid, grid, POINT, options.steps])?;
        let workload = Self { cells, grid, steps: options.steps };
        if workload.points(0) * POINT > LARGEST_REQUEST {
            return usage("a process's part of a step would be more than 1GiB: take more processes".into());
        }
        Ok(workload)
    }

    /// First point and number of points of the `number`-th cell along an axis: the first ones have what does not divide.
    fn span(&self, number: u64) -> (u64, u64) {
        let (size, excess) = (self.grid / self.cells, self.grid % self.cells);
        (number * size + number.min(excess), size + u64::from(number < excess))
    }

    /// Where a rank's cells are, layer by layer, as BT's `make_set` places them: x, y, z.
    fn places(&self, rank: u64) -> impl Iterator<Item = [u64; 3]> {
        let q = self.cells;
        (0..q).map(move |layer| [(rank + layer) % q, (rank / q + q - layer) % q, layer])
    }

    /// Points of all cells of a rank.
    fn points(&self, rank: u32) -> u64 {
        self.places(u64::from(rank)).map(|place| place.map(|number| self.span(number).1).iter().product::<u64>()).sum()
    }
}

impl Workload for Btio {
    fn name(&self) -> &'static str {
        "btio"
    }

    fn describe(&self) -> String {
        format!("{0}x{0}x{0} points, {1} steps", self.grid, self.steps)
    }

    fn settings(&self) -> Map<String, Value> {
        Map::from_iter([("grid".into(), json!(self.grid)), ("steps".into(), json!(self.steps))])
    }

    fn usual_calls(&self) -> (BenchApi, bool) {
        (BenchApi::MpiIo, true)
    }

    fn processes(&self) -> u32 {
        (self.cells * self.cells) as u32
    }

    fn requests_per_process(&self) -> u64 {
        self.steps
    }

    fn groups(&self) -> Vec<Group> {
        let equal = self.grid.is_multiple_of(self.cells);
        vec![Group { region: None, request_size: equal.then(|| self.points(0) * POINT) }]
    }

    fn requests(&self, _phase: PhaseKind, _rank: u32, owner: u32) -> Vec<BenchRequest> {
        in_a_row(0, self.points(owner) * POINT, self.steps)
    }

    fn coverage(&self) -> Coverage {
        Coverage::whole(self.grid.pow(3) * POINT * self.steps)
    }

    fn view(&self, owner: u32) -> View {
        let cells = self.places(u64::from(owner)).map(|[x, y, z]| {
            let spans = [z, y, x].map(|number| self.span(number));
            Type::Subarray {
                sizes: vec![self.grid; 3],
                parts: spans.iter().map(|span| span.1).collect(),
                starts: spans.iter().map(|span| span.0).collect(),
                element: POINT,
            }
        });
        View::new(0, Type::Overlay(cells.collect()))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use crate::workload::PhaseKind;
    use crate::workload::tests::{assert_covered, touched};
    use crate::workloads::tests::{refusal, workload};

    #[test]
    fn cells_partition_the_grid() {
        for (processes, grid) in [(1, 5), (4, 12), (9, 12), (16, 13), (25, 7), (64, 10), (64, 8)] {
            let w = workload(&format!("btio f -p {processes} --grid {grid} --steps 2"));
            assert_covered(&*w);
            assert!(!touched(&*w, PhaseKind::Write).1, "{processes} processes: each point is one rank's");
            assert_eq!(w.coverage().end, grid * grid * grid * 40 * 2);
        }
    }

    #[test]
    fn the_sizes_are_those_of_the_benchmark() {
        assert_eq!(workload("btio f").coverage().end, 419_430_400);
        assert_eq!(workload("btio f --class B").coverage().end, 1_697_932_800);
        let w = workload("btio f -p 16");
        assert_eq!(w.requests(PhaseKind::Write, 3, 3)[0].bytes, 64 * 64 * 64 / 16 * 40);
    }

    #[test]
    fn a_rank_has_a_cell_in_each_row_of_each_axis() {
        let btio = super::Btio { cells: 4, grid: 64, steps: 1 };
        for rank in 0..16 {
            for axis in 0..3 {
                let seen: HashSet<u64> = btio.places(rank).map(|place| place[axis]).collect();
                assert_eq!(seen.len(), 4, "rank {rank}, axis {axis}");
            }
        }
        // make_set of BT: rank 6 of 16 begins at (2, 1, 0) and goes up in x and down in y.
        let places: Vec<_> = btio.places(6).collect();
        assert_eq!(places, [[2, 1, 0], [3, 0, 1], [0, 3, 2], [1, 2, 3]]);
    }

    #[test]
    fn rows_are_in_the_order_of_the_file() {
        // MPI demands displacements that do not decrease.
        let w = workload("btio f -p 16 --grid 13 --steps 1");
        let mut pieces = Vec::new();
        for rank in 0..16 {
            w.view(rank).pieces(0, w.requests(PhaseKind::Write, rank, rank)[0].bytes, &mut pieces);
            assert!(pieces.is_sorted_by_key(|piece| piece.offset));
        }
    }

    #[test]
    fn what_bt_cannot_do_is_refused() {
        for (arguments, part) in [("-p 8", "take 4 or 9"), ("-p 16 --grid 3", "no 4 cells")] {
            let message = refusal(&format!("btio f {arguments}")).unwrap_err().to_string();
            assert!(message.contains(part), "{arguments}: {message}");
        }
    }
}
