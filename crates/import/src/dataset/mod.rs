//! A data set: a trace with all that is known of it as a directory of Parquet tables, one of requests for each file.

mod manifest;
mod read;
mod write;

pub(crate) use read::{is_dataset, read, read_files, read_index};
pub use write::{write_dataset, write_parquet};

const MANIFEST: &str = "trace.json";
const FILES: &str = "files.parquet";
const PROGRAMS: &str = "programs.parquet";
const PROCESSES: &str = "processes.parquet";
const COUNTERS: &str = "counters.parquet";
const LUSTRE: &str = "lustre.parquet";
const REQUESTS: &str = "requests";

const FILES_SCHEMA: &str = "message files {
    required int32 file (INTEGER(32,false));
    required binary path (STRING);
    optional binary raw_path;
}";

const PROGRAMS_SCHEMA: &str = "message programs {
    required int32 program (INTEGER(32,false));
    required binary name (STRING);
}";

const PROCESSES_SCHEMA: &str = "message processes {
    required int32 program (INTEGER(32,false));
    required int32 rank (INTEGER(32,false));
    required int32 pid (INTEGER(32,false));
    required int32 parent_pid (INTEGER(32,false));
    required binary host (STRING);
    required binary command (STRING);
    required int64 start_ns (INTEGER(64,false));
    required int64 records (INTEGER(64,false));
    required int64 holes (INTEGER(64,false));
    required int64 dropped (INTEGER(64,false));
    required int64 names_dropped (INTEGER(64,false));
}";

const COUNTERS_SCHEMA: &str = "message counters {
    required int32 record (INTEGER(32,false));
    required int32 file (INTEGER(32,false));
    required binary api (STRING);
    optional int32 rank (INTEGER(32,false));
    required int32 has_rows (INTEGER(8,false));
    required binary counter (STRING);
    optional int64 integer (INTEGER(64,true));
    optional double float;
}";

const LUSTRE_SCHEMA: &str = "message lustre {
    required int32 file (INTEGER(32,false));
    required int64 start (INTEGER(64,false));
    optional int64 end (INTEGER(64,false));
    required int64 stripe_bytes (INTEGER(64,false));
    required int64 stripe_count (INTEGER(64,false));
    optional int64 pattern (INTEGER(64,false));
    optional int64 mirror (INTEGER(64,false));
    required binary pool (STRING);
    required group osts (LIST) { repeated group list { required int64 element (INTEGER(64,false)); } }
}";

/// Name of the table of a file's requests, below the data set.
fn partition(file: u32) -> String {
    format!("{REQUESTS}/file-{file}.parquet")
}
