//! mpi-tile-io (Argonne's Parallel I/O Benchmarking Consortium; Song et al., IOrchestrator): a dense two-dimensional array
//! in a file, cut into tiles that may overlap, one for each process, as displays of a video wall read it. Frames follow
//! each other in the file.

use clap::Args;
use serde_json::{Map, Value, json};
use stripewise_layout::units::format_bytes;

use super::sizes::{file_bytes, in_a_row};
use crate::error::BenchError;
use crate::options::{COMMON_HEADING, Common, LARGEST_REQUEST, pair, request_bytes};
use crate::view::{Type, View};
use crate::workload::{BenchRequest, Coverage, Group, PhaseKind, Workload};

/// Options of `mpi-tile-io`.
#[derive(Debug, Args)]
pub struct MpiTileIoOptions {
    /// Tiles of the array [default: as near to a square as the processes allow]
    #[arg(long, value_name = "COLUMNSxROWS", value_parser = pair)]
    pub tiles: Option<[u64; 2]>,

    /// Elements of a tile, those that it shares with its neighbours included
    #[arg(long, default_value = "128x64", value_name = "WIDTHxHEIGHT", value_parser = pair)]
    pub tile: [u64; 2],

    /// Bytes of an element
    #[arg(long, default_value = "64", value_name = "SIZE", value_parser = request_bytes)]
    pub element: u64,

    /// Elements that a tile shares with the next one
    #[arg(long, default_value = "1x0", value_name = "WIDTHxHEIGHT", value_parser = pair)]
    pub overlap: [u64; 2],

    /// Frames: such arrays, one after the other in the file; a request is a tile of one
    #[arg(long, default_value_t = 64, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1 << 32))]
    pub frames: u64,

    #[command(flatten, next_help_heading = COMMON_HEADING)]
    pub common: Common,
}

/// The workload.
#[derive(Debug)]
pub struct MpiTileIo {
    processes: u32,
    tiles: [u64; 2],
    tile: [u64; 2],
    overlap: [u64; 2],
    element: u64,
    frames: u64,
}

impl MpiTileIo {
    /// Works out what the options ask for.
    ///
    /// # Errors
    /// [`BenchError::Usage`] for tiles that are not one for each process, that are all overlap, or too large.
    pub fn new(options: &MpiTileIoOptions) -> Result<Self, BenchError> {
        let usage = |message| Err(BenchError::Usage(message));
        let count = |[columns, rows]: [u64; 2]| columns * rows;
        let processes = match (options.common.processes, options.tiles) {
            (Some(processes), _) => u64::from(processes),
            (None, Some(tiles)) => count(tiles),
            (None, None) => 4,
        };
        let tiles = options.tiles.unwrap_or_else(|| {
            let rows = (1..=processes).take_while(|rows| rows * rows <= processes);
            let rows = rows.filter(|rows| processes.is_multiple_of(*rows)).last().unwrap_or(1);
            [processes / rows, rows]
        });
        if count(tiles) != processes || !(1..=4096).contains(&processes) {
            let [columns, rows] = tiles;
            return usage(format!(
                "--tiles {columns}x{rows} are {} tiles for {processes} processes; it takes one for each, at most 4096",
                count(tiles)
            ));
        }
        let (tile, overlap) = (options.tile, options.overlap);
        if (0..2).any(|axis| overlap[axis] >= tile[axis]) {
            let [[width, height], [x, y]] = [tile, overlap];
            return usage(format!("--overlap {x}x{y} must be less than --tile {width}x{height} both ways"));
        }
        let limit = file_bytes(&[tile[0], tile[1], options.element])?;
        if limit > LARGEST_REQUEST {
            return usage(format!("a tile has {} and may have 1GiB", format_bytes(limit)));
        }
        let workload = Self {
            processes: processes as u32,
            tiles,
            tile,
            overlap,
            element: options.element,
            frames: options.frames,
        };
        let [width, height] = workload.array();
        file_bytes(&[width, height, options.element, options.frames])?;
        Ok(workload)
    }

    /// Elements of a frame.
    fn array(&self) -> [u64; 2] {
        [0, 1].map(|axis| self.tiles[axis] * (self.tile[axis] - self.overlap[axis]) + self.overlap[axis])
    }

    fn tile_bytes(&self) -> u64 {
        self.tile[0] * self.tile[1] * self.element
    }
}

impl Workload for MpiTileIo {
    fn name(&self) -> &'static str {
        "mpi-tile-io"
    }

    fn describe(&self) -> String {
        let ([columns, rows], [width, height], [x, y]) = (self.tiles, self.tile, self.overlap);
        format!(
            "{columns}x{rows} tiles of {width}x{height} elements of {}, overlap {x}x{y}",
            format_bytes(self.element)
        )
    }

    fn settings(&self) -> Map<String, Value> {
        Map::from_iter([
            ("tiles".into(), json!(self.tiles)),
            ("tile".into(), json!(self.tile)),
            ("element".into(), json!(self.element)),
            ("overlap".into(), json!(self.overlap)),
            ("frames".into(), json!(self.frames)),
        ])
    }

    fn processes(&self) -> u32 {
        self.processes
    }

    fn requests_per_process(&self) -> u64 {
        self.frames
    }

    fn groups(&self) -> Vec<Group> {
        vec![Group { region: None, request_size: Some(self.tile_bytes()) }]
    }

    fn requests(&self, _phase: PhaseKind, _rank: u32, _owner: u32) -> Vec<BenchRequest> {
        in_a_row(0, self.tile_bytes(), self.frames)
    }

    fn coverage(&self) -> Coverage {
        let [width, height] = self.array();
        Coverage::whole(width * height * self.element * self.frames)
    }

    fn view(&self, owner: u32) -> View {
        let place = [u64::from(owner) % self.tiles[0], u64::from(owner) / self.tiles[0]];
        let start = |axis: usize| place[axis] * (self.tile[axis] - self.overlap[axis]);
        let [width, height] = self.array();
        let part = Type::Subarray {
            sizes: vec![height, width],
            parts: vec![self.tile[1], self.tile[0]],
            starts: vec![start(1), start(0)],
            element: self.element,
        };
        View::new(0, part)
    }
}

#[cfg(test)]
mod tests {
    use crate::view::Piece;
    use crate::workload::PhaseKind;
    use crate::workload::tests::{assert_covered, touched};
    use crate::workloads::tests::{refusal, workload};

    #[test]
    fn tiles_cover_the_array_and_share_their_edges() {
        let w = workload("mpi-tile-io f --tiles 3x2 --tile 5x4 --overlap 2x1 --element 8 --frames 3");
        assert_eq!(w.processes(), 6);
        // 3 * (5 - 2) + 2 elements wide, 2 * (4 - 1) + 1 high.
        assert_eq!(w.coverage().end, 11 * 7 * 8 * 3);
        assert_covered(&*w);
        assert!(touched(&*w, PhaseKind::Read).1, "the overlap belongs to two");
        let mut pieces = Vec::new();
        w.view(4).pieces(0, 5 * 4 * 8, &mut pieces);
        let rows: Vec<Piece> = (3..7).map(|row| Piece { offset: (row * 11 + 3) * 8, bytes: 40 }).collect();
        assert_eq!(pieces, rows);
    }

    #[test]
    fn without_overlap_each_byte_is_one_tile_s() {
        for arguments in ["-p 6", "-p 7", "-p 1", "-p 16"] {
            let w = workload(&format!("mpi-tile-io f --tile 3x3 --overlap 0x0 --frames 2 {arguments}"));
            assert_covered(&*w);
            assert!(!touched(&*w, PhaseKind::Write).1);
        }
    }

    #[test]
    fn tiles_that_cannot_be_are_refused() {
        for (arguments, part) in [
            ("-p 5 --tiles 2x2", "4 tiles for 5 processes"),
            ("--tile 4x4 --overlap 4x0", "must be less than"),
            ("--tile 65536x65536", "may have 1GiB"),
            ("--tiles 0x4", "0 tiles"),
        ] {
            let message = refusal(&format!("mpi-tile-io f {arguments}")).unwrap_err().to_string();
            assert!(message.contains(part), "{arguments}: {message}");
        }
    }
}
