//! [`RowBuilder`]: tables with the columns of our schema, or some of them, as rows.

use crate::error::ImportError;
use crate::lacks::Lacks;
use crate::out::Out;
use crate::schema::COLUMNS;
use stripewise_trace::{Api, Operation, Record, flags};

/// Columns that a table must have.
const NEEDED: [&str; 4] = ["file", "op", "offset", "size"];

/// What a table has in one row of one column.
pub(crate) enum TableCell<'a> {
    /// Nothing: an empty cell, or a column that the table does not have.
    Nothing,
    Text(&'a [u8]),
    Number(u64),
    /// Something that is no whole number of 64 bits and no text.
    Other,
}

/// Turns cells into rows; what the table does not have is stated at the end.
pub(crate) struct RowBuilder {
    /// Place of each of [`COLUMNS`] in the table.
    places: [Option<usize>; COLUMNS.len()],
    program: u32,
    lacks: Lacks,
    rows: u64,
    bad: u64,
    first_bad: String,
    has_metadata: bool,
}

/// Why a row cannot be used, as a clause.
type Bad = String;

impl RowBuilder {
    /// For a table with columns of these names; others than ours are passed over.
    ///
    /// # Errors
    /// [`ImportError::Columns`] where one that is needed is missing, or one is there twice.
    pub fn new<'n>(
        out: &mut Out<'_>,
        log: &crate::Log,
        format: &'static str,
        names: impl Iterator<Item = &'n [u8]>,
    ) -> Result<Self, ImportError> {
        let refused = |why: String| ImportError::Columns { path: log.path().to_owned(), format, why };
        let mut places = [None; COLUMNS.len()];
        for (place, name) in names.enumerate() {
            let known = COLUMNS.iter().position(|column| column.as_bytes() == name.trim_ascii());
            if let Some(column) = known.filter(|&column| places[column].replace(place).is_some()) {
                return Err(refused(format!("it has two columns `{}`", COLUMNS[column])));
            }
        }
        let has = |name: &str| COLUMNS.iter().zip(places).any(|(column, place)| *column == name && place.is_some());
        if let Some(missing) = NEEDED.into_iter().find(|name| !has(name)) {
            return Err(refused(format!("it has no column `{missing}`; {} are needed", NEEDED.join(", "))));
        }
        // Rows of a table that names no program are the log's own.
        let stem = log.path().file_stem().unwrap_or_default();
        let program = if has("program") { 0 } else { out.program(stem.as_encoded_bytes())? };
        Ok(Self {
            places,
            program,
            lacks: Lacks::NOTHING,
            rows: 0,
            bad: 0,
            first_bad: String::new(),
            has_metadata: false,
        })
    }

    /// The places of the columns that are used, by their number in [`COLUMNS`].
    pub fn places(&self) -> &[Option<usize>; COLUMNS.len()] {
        &self.places
    }

    /// Hands a row on, or counts it as bad. `cell` gives what stands in a column, by its number in [`COLUMNS`]; `place`
    /// names the row in messages.
    pub fn row<'c>(
        &mut self,
        out: &mut Out<'_>,
        cell: &dyn Fn(usize) -> TableCell<'c>,
        place: &dyn Fn() -> String,
    ) -> Result<(), ImportError> {
        match self.record(out, cell)? {
            Ok(record) => {
                self.rows += 1;
                self.has_metadata |= !matches!(record.operation(), Some(Operation::Read | Operation::Write));
                out.row(record)
            }
            Err(why) => {
                self.bad(&format!("{}: {why}", place()));
                Ok(())
            }
        }
    }

    /// Counts a row that cannot be used; `why` names it.
    pub fn bad(&mut self, why: &str) {
        self.bad += 1;
        if self.bad == 1 {
            self.first_bad = why.to_owned();
        }
    }

    fn record<'c>(
        &mut self,
        out: &mut Out<'_>,
        cell: &dyn Fn(usize) -> TableCell<'c>,
    ) -> Result<Result<Record, Bad>, ImportError> {
        let [program, rank, pid, tid, file, api, op, offset, size, start, end, flag_bits] = std::array::from_fn(cell);
        let numbers = (|| -> Result<Record, Bad> {
            Ok(Record {
                offset: number("offset", offset)?.ok_or("it has no offset")?,
                size: number("size", size)?.ok_or("it has no size")?,
                start_ns: 0,
                end_ns: 0,
                file: 0,
                program: self.program,
                rank: self.word("rank", rank, Lacks::RANKS)?,
                pid: self.word("pid", pid, Lacks::PIDS)?,
                tid: self.word("tid", tid, Lacks::NOTHING)?,
                api: api_of(api)? as u8,
                op: operation_of(op)? as u8,
                flags: small("flags", number("flags", flag_bits)?.unwrap_or(0))?,
            })
        })();
        let mut record = match numbers {
            Ok(record) => record,
            Err(why) => return Ok(Err(why)),
        };
        let times = (number("start_ns", start), number("end_ns", end));
        let (start, end) = match times {
            (Ok(start), Ok(end)) => (start, end),
            (Err(why), _) | (_, Err(why)) => return Ok(Err(why)),
        };
        // Without times, rows are one nanosecond apart.
        record.start_ns = start.unwrap_or(self.rows + 1);
        record.end_ns = end.filter(|_| start.is_some()).unwrap_or(record.start_ns);
        if start.is_none() {
            self.lacks |= Lacks::TIMES | Lacks::DURATIONS;
        } else if end.is_none() {
            self.lacks |= Lacks::DURATIONS;
        }
        if record.flags & flags::OFFSET_UNKNOWN != 0 {
            self.lacks |= Lacks::OFFSETS;
        }
        if let Err(why) = record.check() {
            return Ok(Err(why));
        }
        let TableCell::Text(path) = file else { return Ok(Err("it has no file".to_owned())) };
        if path.is_empty() {
            return Ok(Err("it has no file".to_owned()));
        }
        record.file = out.file(path)?;
        if let TableCell::Text(name) = program {
            record.program = out.program(name)?;
        } else if self.places[0].is_some() {
            record.program = out.program(b"unknown")?;
        }
        Ok(Ok(record))
    }

    /// A number of 32 bits, or 0 where there is none and that is a lack.
    fn word(&mut self, name: &str, cell: TableCell<'_>, lack: Lacks) -> Result<u32, Bad> {
        match number(name, cell)? {
            Some(value) => small(name, value),
            None => {
                self.lacks |= lack;
                Ok(0)
            }
        }
    }

    /// States what the table lacks.
    ///
    /// # Errors
    /// [`ImportError::Columns`] where none of its rows can be used.
    pub fn finish(mut self, out: &mut Out<'_>, log: &crate::Log, format: &'static str) -> Result<(), ImportError> {
        if self.bad > 0 {
            if self.rows == 0 {
                let why = format!("none of its {} rows can be used; {}", self.bad, self.first_bad);
                return Err(ImportError::Columns { path: log.path().to_owned(), format, why });
            }
            self.lacks |= Lacks::DAMAGED;
            out.summary.note(format!("{} rows were not understood, the first is {}", self.bad, self.first_bad));
        }
        if !self.has_metadata {
            self.lacks |= Lacks::METADATA;
        }
        out.summary.lacks |= self.lacks;
        Ok(())
    }
}

/// The number in a cell; `None` where it is empty.
fn number(name: &str, cell: TableCell<'_>) -> Result<Option<u64>, Bad> {
    match cell {
        TableCell::Nothing => Ok(None),
        TableCell::Number(value) => Ok(Some(value)),
        TableCell::Text(text) => {
            let text = text.trim_ascii();
            if text.is_empty() {
                return Ok(None);
            }
            let digits = text.iter().all(u8::is_ascii_digit).then(|| std::str::from_utf8(text).ok()?.parse().ok());
            digits.flatten().map(Some).ok_or_else(|| format!("`{name}` is {:?}, not a number", shown(text)))
        }
        TableCell::Other => Err(format!("`{name}` is not a whole number")),
    }
}

fn small<T: TryFrom<u64>>(name: &str, value: u64) -> Result<T, Bad> {
    T::try_from(value).map_err(|_| format!("`{name}` is {value}, which is too large"))
}

/// POSIX where nothing is said.
fn api_of(cell: TableCell<'_>) -> Result<Api, Bad> {
    let TableCell::Text(name) = cell else { return Ok(Api::Posix) };
    let name = name.trim_ascii();
    let known = Api::ALL.into_iter().find(|api| api.name().as_bytes().eq_ignore_ascii_case(name));
    let known = if name.is_empty() { Some(Api::Posix) } else { known };
    known.ok_or_else(|| format!("`api` is {:?}, known are {}", shown(name), Api::ALL.map(Api::name).join(", ")))
}

fn operation_of(cell: TableCell<'_>) -> Result<Operation, Bad> {
    let TableCell::Text(name) = cell else { return Err("it has no op".to_owned()) };
    let name = name.trim_ascii();
    let known = Operation::ALL.into_iter().find(|op| op.name().as_bytes().eq_ignore_ascii_case(name));
    known.ok_or_else(|| {
        format!("`op` is {:?}, known are {}", shown(name), Operation::ALL.map(Operation::name).join(", "))
    })
}

/// The start of a text from outside.
fn shown(text: &[u8]) -> String {
    String::from_utf8_lossy(&text[..text.len().min(24)]).into_owned()
}
