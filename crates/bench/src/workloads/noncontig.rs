//! noncontig (Argonne's Parallel I/O Benchmarking Consortium, IOrchestrator): a two-dimensional array in a file, of which
//! each process has a column. Its view is a vector; a request is some rows of the column.

use clap::Args;
use serde_json::{Map, Value, json};
use stripewise_layout::units::format_bytes;

use super::sizes::{file_bytes, in_a_row};
use crate::error::BenchError;
use crate::options::{COMMON_HEADING, Common, LARGEST_REQUEST, bytes, request_bytes};
use crate::view::{Type, View};
use crate::workload::{BenchRequest, Coverage, Group, PhaseKind, Workload};

/// Options of `noncontig`.
#[derive(Debug, Args)]
pub struct NoncontigOptions {
    /// Bytes that a row has of each column
    #[arg(long, default_value = "512", value_name = "SIZE", value_parser = request_bytes)]
    pub width: u64,

    /// Bytes that all processes of an instance request at once, each its share of them
    #[arg(long, default_value = "16MiB", value_name = "SIZE", value_parser = bytes)]
    pub buffer: u64,

    /// Bytes of the file
    #[arg(short = 's', long, default_value = "1GiB", value_name = "SIZE", value_parser = bytes)]
    pub file_size: u64,

    #[command(flatten, next_help_heading = COMMON_HEADING)]
    pub common: Common,
}

/// The workload.
#[derive(Debug)]
pub struct Noncontig {
    processes: u32,
    width: u64,
    rows_at_once: u64,
    requests: u64,
}

impl Noncontig {
    /// Works out what the options ask for: whole requests of whole rows, the last of a file that ends inside one left out.
    ///
    /// # Errors
    /// [`BenchError::Usage`] for a file without a row, and for requests that are too large.
    pub fn new(options: &NoncontigOptions) -> Result<Self, BenchError> {
        let processes = options.common.processes.unwrap_or(5);
        let row = file_bytes(&[options.width, u64::from(processes)])?;
        let rows = options.file_size / row;
        if rows == 0 {
            return Err(BenchError::Usage(format!(
                "--file-size {} is less than a row of {processes} columns of {} bytes; make it at least {row}",
                options.file_size, options.width
            )));
        }
        let rows_at_once = (options.buffer / row).clamp(1, rows);
        if rows_at_once.saturating_mul(options.width) > LARGEST_REQUEST {
            return Err(BenchError::Usage("a request would be more than 1GiB: lower --buffer".into()));
        }
        Ok(Self { processes, width: options.width, rows_at_once, requests: rows / rows_at_once })
    }

    fn row(&self) -> u64 {
        self.width * u64::from(self.processes)
    }
}

impl Workload for Noncontig {
    fn name(&self) -> &'static str {
        "noncontig"
    }

    fn describe(&self) -> String {
        format!("a column of {} each", format_bytes(self.width))
    }

    fn settings(&self) -> Map<String, Value> {
        let rows = self.rows_at_once * self.requests;
        Map::from_iter([
            ("width".into(), json!(self.width)),
            ("rows".into(), json!(rows)),
            ("rows_per_request".into(), json!(self.rows_at_once)),
        ])
    }

    fn processes(&self) -> u32 {
        self.processes
    }

    fn requests_per_process(&self) -> u64 {
        self.requests
    }

    fn groups(&self) -> Vec<Group> {
        vec![Group { region: None, request_size: Some(self.rows_at_once * self.width) }]
    }

    fn requests(&self, _phase: PhaseKind, _rank: u32, _owner: u32) -> Vec<BenchRequest> {
        in_a_row(0, self.rows_at_once * self.width, self.requests)
    }

    fn coverage(&self) -> Coverage {
        Coverage::whole(self.row() * self.rows_at_once * self.requests)
    }

    fn view(&self, owner: u32) -> View {
        let column = Type::Vector { count: self.rows_at_once, block: self.width, stride: self.row() };
        View::new(u64::from(owner) * self.width, column)
    }
}

#[cfg(test)]
mod tests {
    use crate::view::Piece;
    use crate::workload::PhaseKind;
    use crate::workload::tests::{assert_covered, touched};
    use crate::workloads::tests::{refusal, workload};

    #[test]
    fn process_i_has_column_i() {
        let w = workload("noncontig f -p 4 --width 100 --buffer 4000 -s 20000");
        assert_eq!(w.requests_per_process(), 5);
        let mut pieces = Vec::new();
        let request = w.requests(PhaseKind::Read, 2, 2)[1];
        w.view(2).pieces(request.offset, request.bytes, &mut pieces);
        let rows: Vec<Piece> = (10..20).map(|row| Piece { offset: row * 400 + 200, bytes: 100 }).collect();
        assert_eq!(pieces, rows);
        assert_covered(&*w);
        assert!(!touched(&*w, PhaseKind::Write).1, "each byte once");
    }

    #[test]
    fn a_buffer_of_less_than_a_row_takes_a_row() {
        let w = workload("noncontig f -p 3 --width 7 --buffer 1 -s 1000");
        assert_eq!(w.requests_per_process(), 1000 / 21);
        assert_covered(&*w);
        let message = refusal("noncontig f -p 3 --width 7 -s 20").unwrap_err().to_string();
        assert!(message.contains("at least 21"), "{message}");
    }
}
