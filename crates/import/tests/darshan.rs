//! Darshan: the same as PyDarshan reads, logs of every version, byte order and compression, damaged copies.

mod common;

use common::{damage, of_bytes, survives, test_data, wheel_logs};
use flate2::Crc;
use std::collections::HashSet;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use stripewise_import::{IMPORTERS, Importer, JobHeader, Lacks, MemorySink, Summary, import};
use stripewise_trace::{Api, Operation, Record, flags};

fn darshan() -> &'static dyn Importer {
    *IMPORTERS.iter().find(|importer| importer.name() == "Darshan").expect("listed")
}

/// The small logs of the wheel that `darshan.golden` has the figures of.
fn small_logs() -> Vec<PathBuf> {
    let logs = wheel_logs();
    [
        "ior_hdf5_example.darshan",
        "noposixopens.darshan",
        "sample-dxt-simple.darshan",
        "sample-goodost.darshan",
        "shane_macsio_id29959_5-22-32552-7035573431850780836_1590156158.darshan",
    ]
    .map(|name| logs[name].clone())
    .to_vec()
}

/// Counters that PyDarshan fills in for records of older versions.
const SINCE: [&str; 10] = [
    "POSIX_FILENOS",
    "POSIX_DUPS",
    "POSIX_RENAME_SOURCES",
    "POSIX_RENAME_TARGETS",
    "POSIX_RENAMED_FROM",
    "POSIX_F_CLOSE_START_TIMESTAMP",
    "POSIX_F_OPEN_END_TIMESTAMP",
    "MPIIO_F_CLOSE_START_TIMESTAMP",
    "MPIIO_F_OPEN_END_TIMESTAMP",
    "STDIO_FDOPENS",
];

/// The lines that `golden.py` prints for a log, from our import.
fn golden(path: &Path) -> String {
    let (all, summary) = common::collected(path).unwrap_or_else(|error| panic!("{error}"));
    let name = |file: u32| all.files[file as usize].as_slice();
    // Rows that were made from counters are not PyDarshan's.
    let counted = all.counters.iter().filter(|counters| !counters.has_rows);
    let counted: HashSet<(u32, u8)> = counted.map(|counters| (counters.file, counters.api as u8)).collect();
    let traced = |row: &Record| !counted.contains(&(row.file, row.api));
    let mut text = String::new();
    let file_name = path.file_name().unwrap().to_str().unwrap();
    let (processes, start_s) = (summary.processes.unwrap(), summary.start_unix_ns.unwrap() / 1_000_000_000);
    writeln!(text, "log {file_name} processes {processes} start {start_s}").unwrap();
    for (module, api) in [("DXT_POSIX", Api::Posix), ("DXT_MPIIO", Api::MpiIo)] {
        let (mut count, mut bytes, mut crc) = (0, 0, Crc::new());
        for row in all.rows.iter().filter(|row| row.api == api as u8 && traced(row)) {
            crc.update(name(row.file));
            crc.update(&[row.op]);
            crc.update(&row.rank.to_le_bytes());
            for word in [row.offset, row.size, row.start_ns, row.end_ns] {
                crc.update(&word.to_le_bytes());
            }
            count += 1;
            bytes += row.size;
        }
        writeln!(text, "{module} segments {count} bytes {bytes} crc {:08x}", crc.sum()).unwrap();
    }
    for (module, api) in [("POSIX", Api::Posix), ("MPI-IO", Api::MpiIo), ("STDIO", Api::Stdio)] {
        let (mut count, mut crc) = (0, Crc::new());
        for counters in all.counters.iter().filter(|counters| counters.api == api) {
            crc.update(name(counters.file));
            crc.update(&counters.rank.map_or(-1, i64::from).to_le_bytes());
            for (key, value) in counters.integers.iter().filter(|(key, _)| !SINCE.contains(key)) {
                crc.update(key.as_bytes());
                crc.update(&value.to_le_bytes());
            }
            for (key, value) in counters.floats.iter().filter(|(key, _)| !SINCE.contains(key)) {
                crc.update(key.as_bytes());
                crc.update(&value.to_le_bytes());
            }
            count += 1;
        }
        writeln!(text, "{module} records {count} crc {:08x}", crc.sum()).unwrap();
    }
    let mut crc = Crc::new();
    for layout in &all.layouts {
        for c in &layout.components {
            let end = c.end.map_or("-1".to_owned(), |end| end.to_string());
            let osts = c.osts.iter().map(u64::to_string).collect::<Vec<_>>().join(" ");
            crc.update(name(layout.file));
            crc.update(format!("{} {end} {} {} {} {osts}", c.start, c.stripe_bytes, c.stripe_count, c.pool).as_bytes());
        }
    }
    writeln!(text, "LUSTRE files {} crc {:08x}", all.layouts.len(), crc.sum()).unwrap();
    text
}

#[test]
fn the_same_as_pydarshan_reads() {
    let ours: String = small_logs().iter().map(|path| golden(path)).collect();
    assert_eq!(ours, include_str!("data/darshan.golden"));
}

#[test]
fn the_large_logs_are_the_same_too() {
    let Some(data) = test_data() else { return };
    let expected = include_str!("data/darshan-large.golden");
    for log in expected.split_inclusive("log ").skip(1).map(|part| part.split(' ').next().expect("a name")) {
        let path = data.join("darshan").join(log);
        let from = expected.find(&format!("log {log} ")).expect("listed");
        let length = expected[from + 1..].find("log ").map_or(expected.len() - from, |next| next + 1);
        assert_eq!(golden(&path), expected[from..from + length]);
        let partial = log.starts_with("partial");
        let (_, summary) = common::collected(&path).unwrap();
        assert_eq!(summary.lacks.contains(Lacks::CUT), partial, "{log}");
        assert!(!summary.lacks.contains(Lacks::DAMAGED), "{log}: {:?}", summary.notes);
    }
}

#[test]
fn cut_copies_say_so() {
    for path in small_logs() {
        let bytes = std::fs::read(&path).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let cut = dir.path().join("cut");
        for part in 1..20 {
            std::fs::write(&cut, &bytes[..bytes.len() * part / 20]).unwrap();
            if let Some(summary) = survives(darshan(), &cut) {
                assert!(summary.lacks.contains(Lacks::DAMAGED) && !summary.notes.is_empty(), "{path:?} {part}/20");
            }
        }
    }
}

/// How a made-up log is stored.
#[derive(Clone, Copy)]
struct Form {
    version: &'static str,
    big_endian: bool,
    compression: u8,
}

impl Form {
    fn word(self, value: u64) -> [u8; 8] {
        if self.big_endian { value.to_be_bytes() } else { value.to_le_bytes() }
    }

    fn half_word(self, value: u32) -> [u8; 4] {
        if self.big_endian { value.to_be_bytes() } else { value.to_le_bytes() }
    }

    fn words(self, values: &[u64]) -> Vec<u8> {
        values.iter().flat_map(|value| self.word(*value)).collect()
    }

    /// Packs in two streams, one behind the other, as two ranks write.
    fn pack(self, bytes: &[u8]) -> Vec<u8> {
        let halves = bytes.split_at(bytes.len() / 2);
        let mut packed = Vec::new();
        for half in [halves.0, halves.1] {
            packed.extend(match self.compression {
                0 => {
                    let mut zlib = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
                    zlib.write_all(half).unwrap();
                    zlib.finish().unwrap()
                }
                1 => {
                    let mut bzip2 = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::fast());
                    bzip2.write_all(half).unwrap();
                    bzip2.finish().unwrap()
                }
                _ => half.to_vec(),
            });
        }
        packed
    }

    /// A log with these regions: module number, version of its records, bytes.
    fn log(self, partial: u64, modules: &[(usize, u32, Vec<u8>)]) -> Vec<u8> {
        let new = self.version == "3.41";
        let count = if new { 64 } else { 16 };
        let mut header = self.version.as_bytes().to_vec();
        header.resize(8, 0);
        header.extend(self.word(6_567_223));
        header.push(self.compression);
        if new {
            header.resize(24, 0);
            header.extend(self.word(partial));
        } else {
            header.resize(20, 0);
            header.extend(self.half_word(partial as u32));
        }
        let length = header.len() + 16 + 16 * count + 4 * count;
        let times: &[u64] = if new { &[7, 100, 5, 102, 6, 3, 9] } else { &[7, 100, 102, 3, 9] };
        let mut job = self.words(times);
        job.resize(job.len() + 1024, 0);
        job.extend_from_slice(b"/usr/bin/app -x 1\nlustre\t/scratch\0");
        let mut body = self.pack(&job);
        let mut names = self.word(77).to_vec();
        if self.version == "3.00" {
            names.extend(self.half_word(10));
            names.extend_from_slice(b"/scratch/a");
        } else {
            names.extend_from_slice(b"/scratch/a\0");
        }
        let mut maps = vec![(0u64, 0u64); count + 1];
        let mut versions = vec![0; count];
        let mut place = |map: &mut (u64, u64), bytes: &[u8]| {
            let packed = self.pack(bytes);
            *map = ((length + body.len()) as u64, packed.len() as u64);
            body.extend(packed);
        };
        place(&mut maps[0], &names);
        for (number, version, bytes) in modules {
            place(&mut maps[1 + number], bytes);
            versions[*number] = *version;
        }
        for (start, length) in maps {
            header.extend(self.word(start));
            header.extend(self.word(length));
        }
        versions.iter().for_each(|version| header.extend(self.half_word(*version)));
        header.extend(body);
        header
    }

    /// A record of DXT: one write, then one read, of rank 2.
    fn trace(self, words: usize) -> Vec<u8> {
        let mut bytes = self.words(&[77, 2, 0]);
        bytes.resize(24 + 64, b'h');
        bytes.extend(self.words(&[1, 1]));
        for (offset, size, start) in [(4096, 100, 0.25), (0, 50, 1.5)] {
            let segment = [offset, size, f64::to_bits(start), f64::to_bits(start + 0.125), 0x7f00_1234_5678];
            bytes.extend(self.words(&segment[..words]));
        }
        bytes
    }
}

fn check_rows(all: &MemorySink, summary: &Summary, api: Api, tid: u32, offsets: bool) {
    assert_eq!((all.files[0].as_slice(), all.programs[0].as_slice()), (&b"/scratch/a"[..], &b"app"[..]));
    let bits = if offsets { 0 } else { flags::OFFSET_UNKNOWN };
    let row = |op, offset, size, start_ns| Record {
        offset: if offsets { offset } else { 0 },
        size,
        start_ns,
        end_ns: start_ns + 125_000_000,
        file: 0,
        program: 0,
        rank: 2,
        pid: 0,
        tid,
        api: api as u8,
        op: op as u8,
        flags: bits,
    };
    let expected = [row(Operation::Write, 4096, 100, 250_000_000), row(Operation::Read, 0, 50, 1_500_000_000)];
    let of = all.rows.iter().filter(|row| row.api == api as u8).copied().collect::<Vec<_>>();
    assert_eq!(of, expected);
    assert_eq!(summary.processes, Some(3));
    assert_eq!((summary.job.command.as_deref(), summary.job.nodes), (Some("/usr/bin/app -x 1"), Some(1)));
    assert_eq!(summary.lacks.contains(Lacks::OFFSETS), !offsets);
    assert!(!summary.lacks.contains(Lacks::DAMAGED), "{:?}", summary.notes);
}

#[test]
fn every_version_byte_order_and_compression() {
    for version in ["3.00", "3.10", "3.20", "3.21", "3.41"] {
        for (big_endian, compression) in [(false, 0), (true, 0), (false, 1), (true, 2)] {
            let form = Form { version, big_endian, compression };
            // Modules moved by one in 3.20 and again in 3.41.
            let moved = usize::from(version >= "3.20") + usize::from(version >= "3.41");
            for (posix, mpi_io) in [(1, 1), (2, 3), (1, 2)] {
                let (posix_words, mpi_words) = (if posix == 2 { 5 } else { 4 }, if mpi_io == 3 { 5 } else { 4 });
                let mut modules = vec![(8 + moved, posix, form.trace(posix_words))];
                let (all, summary) = of_bytes(&form.log(0, &modules)).unwrap();
                check_rows(&all, &summary, Api::Posix, if posix == 2 { 0x1234_5678 } else { 0 }, true);
                let (start, run) = if version == "3.41" { (5, 2_000_000_001) } else { (0, 2_000_000_000) };
                assert_eq!(summary.start_unix_ns, Some(100_000_000_000 + start));
                assert_eq!(summary.run_ns, Some(run));
                let mounts: Vec<_> = summary.mounts.iter().map(|mount| (&*mount.path, &*mount.kind)).collect();
                assert_eq!(mounts, [("/scratch", "lustre")]);
                modules[0] = (9 + moved, mpi_io, form.trace(mpi_words));
                let log = form.log(1 << (9 + moved), &modules);
                let (all, summary) = of_bytes(&log).unwrap();
                check_rows(&all, &summary, Api::MpiIo, if mpi_io == 3 { 0x1234_5678 } else { 0 }, mpi_io > 1);
                assert!(summary.lacks.contains(Lacks::CUT) && summary.notes[0].starts_with("DXT_MPIIO was cut"));
                damage(darshan(), &log, 20, 60);
            }
        }
    }
}

#[test]
fn counters_of_old_records_keep_their_places() {
    let form = Form { version: "3.10", big_endian: false, compression: 0 };
    // Every number is its index in the record, so that a name tells whether it was found in its place.
    let record = |words: u64| form.words(&[&[77, u64::MAX], &(2..words).collect::<Vec<_>>()[..]].concat());
    let value = |number: usize, version, words, name: &str| {
        let (all, summary) = of_bytes(&form.log(0, &[(number, version, record(words))])).unwrap();
        assert!(!summary.lacks.contains(Lacks::DAMAGED) && all.counters.len() == 1, "{:?}", summary.notes);
        assert!(all.counters[0].rank.is_none() && !all.counters[0].has_rows);
        let float = all.counters[0].float(name).map(|float| float.to_bits());
        all.counters[0].integer(name).map(|integer| integer as u64).or(float)
    };
    // POSIX 1 to 4: MMAPS is the sixth counter, four counts of stdio follow in version 1 only.
    assert_eq!(value(1, 1, 85, "POSIX_MMAPS"), Some(7));
    assert_eq!(value(1, 1, 85, "POSIX_FSYNCS"), Some(12));
    assert_eq!(value(1, 2, 81, "POSIX_FSYNCS"), Some(8));
    assert_eq!(value(1, 2, 81, "POSIX_F_READ_END_TIMESTAMP"), Some(2 + 64 + 3));
    assert_eq!(value(1, 3, 83, "POSIX_F_READ_END_TIMESTAMP"), Some(2 + 64 + 5));
    assert_eq!(value(1, 3, 83, "POSIX_FILENOS"), None);
    assert_eq!(value(1, 4, 88, "POSIX_FILENOS"), Some(3));
    assert_eq!(value(1, 4, 88, "POSIX_F_VARIANCE_RANK_BYTES"), Some(87));
    assert_eq!(value(2, 1, 68, "MPIIO_F_VARIANCE_RANK_BYTES"), Some(67));
    assert_eq!(value(2, 3, 70, "MPIIO_F_CLOSE_START_TIMESTAMP"), Some(2 + 51 + 3));
    assert_eq!(value(7, 1, 30, "STDIO_READS"), Some(3));
    assert_eq!(value(7, 2, 31, "STDIO_READS"), Some(4));
}

#[test]
fn progressive_layouts_and_reserved_room() {
    let form = Form { version: "3.41", big_endian: true, compression: 0 };
    let none = u64::MAX;
    let component = |words: [u64; 7], pool: &[u8]| {
        let mut bytes = form.words(&words);
        bytes.extend_from_slice(pool);
        bytes.resize(72, 0);
        bytes
    };
    let mut record = form.words(&[77, 0, 3, 6]);
    record.extend(component([1 << 20, 1, 0, 0, 0, 1 << 26, 0], b"flash"));
    record.extend(component([4 << 20, 3, 0, 0, 1 << 26, none, 0], b""));
    record.extend(component([none, none, none, none, none, none, none], b""));
    record.extend(form.words(&[12, 3, 5, none, none, none]));
    // Each rank has a record; one file has one layout.
    record.extend(record.clone());
    let (all, summary) = of_bytes(&form.log(0, &[(8, 2, record)])).unwrap();
    assert!(!summary.lacks.contains(Lacks::DAMAGED), "{:?}", summary.notes);
    assert_eq!(all.layouts.len(), 1);
    let [first, second] = &all.layouts[0].components[..] else { panic!("{:?}", all.layouts) };
    assert_eq!((first.start, first.end, first.pool.as_str(), &first.osts[..]), (0, Some(1 << 26), "flash", &[12][..]));
    assert_eq!((second.end, second.stripe_bytes, second.stripe_count), (None, 4 << 20, 3));
    assert_eq!(second.osts, [3, 5]);
}

#[test]
fn impossible_numbers_cost_nothing() {
    let form = Form { version: "3.21", big_endian: false, compression: 0 };
    let mut trace = form.trace(4);
    trace[88..96].copy_from_slice(&form.word(1 << 40));
    let (all, summary) = of_bytes(&form.log(0, &[(9, 1, trace)])).unwrap();
    assert!(summary.lacks.contains(Lacks::DAMAGED) && all.rows.is_empty(), "{summary:?}");
    let mut trace = form.trace(4);
    trace[104 + 8..104 + 16].copy_from_slice(&form.word(u64::MAX));
    let (all, summary) = of_bytes(&form.log(0, &[(9, 1, trace)])).unwrap();
    assert!(all.rows.len() == 1 && summary.notes[0].starts_with("1 requests have impossible"), "{summary:?}");
    let layout = form.log(0, &[(7, 2, form.words(&[77, 0, 1 << 40, 1]))]);
    assert!(of_bytes(&layout).unwrap_err().to_string().contains("1099511627776 components"));
    // A version that does not exist yet: the module is left out, the rest is read.
    let (all, summary) = of_bytes(&form.log(0, &[(9, 1, form.trace(4)), (10, 9, form.trace(4))])).unwrap();
    assert!(all.rows.len() == 2 && summary.notes[0].contains("version 9"), "{summary:?}");
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&form.log(0, &[])).unwrap();
    assert!(of_bytes(&gzip.finish().unwrap()).unwrap_err().to_string().contains("gunzip"));
    let mut log = form.log(0, &[]);
    log[..4].copy_from_slice(b"4.00");
    assert!(of_bytes(&log).unwrap_err().to_string().contains("version 4.00, known here are 3.00"));
}

#[test]
fn requests_to_daos_are_rows_and_those_of_its_objects_are_the_same_ones() {
    let form = Form { version: "3.41", big_endian: false, compression: 0 };
    let record = |id: u64, integers: usize, moved: usize, identifiers: usize| {
        let mut words = vec![0; 2 + integers + 15];
        (words[0], words[1]) = (id, 1);
        let integer = |at: usize| 2 + at;
        // Bytes read and written, 8 reads of 100K to 1M.
        (words[integer(moved)], words[integer(moved + 1)]) = (8 << 18, 0);
        words[integer(moved + 5 + 4)] = 8;
        (words[integer(moved + 25)], words[integer(moved + 29)]) = (1 << 18, 8);
        words[2 + integers + 5] = f64::to_bits(2.0);
        let mut bytes = form.words(&words);
        bytes.resize(bytes.len() + identifiers, 7);
        bytes
    };
    let (dfs, daos) = (|id| record(id, 52, 14, 32), |id| record(id, 64, 24, 48));
    // A file of DFS is an object, too; another object is below no file.
    let objects = [daos(77), daos(78)].concat();
    let log = form.log(0, &[(16, 1, dfs(77)), (17, 1, objects)]);
    let (all, summary) = of_bytes(&log).unwrap();
    assert!(!summary.lacks.contains(Lacks::DAMAGED), "{:?}", summary.notes);
    assert_eq!(all.files, [b"/scratch/a".to_vec(), b"darshan-record-78".to_vec()]);
    let reads = |file: u32| all.rows.iter().filter(|row| row.file == file).collect::<Vec<_>>();
    for file in [0, 1] {
        assert_eq!(reads(file).len(), 8);
        assert!(reads(file).iter().all(|row| (row.size, row.rank, row.api) == (1 << 18, 1, Api::Posix as u8)));
    }
    assert_eq!(all.counters[0].integer("POSIX_READS"), Some(8));
    assert_eq!(all.counters[0].float("POSIX_F_READ_END_TIMESTAMP"), Some(2.0));
    damage(darshan(), &log, 20, 60);
}

#[test]
fn libraries_above_mpi_io_are_counted_by_their_file() {
    let form = Form { version: "3.41", big_endian: true, compression: 0 };
    let record = |head: &[u64], integers: u64, floats: u64| {
        form.words(&[head, &(0..integers).collect::<Vec<_>>(), &vec![f64::to_bits(0.5); floats as usize]].concat())
    };
    let log = form.log(
        0,
        &[
            (3, 3, record(&[77, 1], 3, 5)),
            // A dataset that the table of names does not have, of a file that it has.
            (4, 2, record(&[99, 2, 77], 94, 17)),
            (6, 1, record(&[98, u64::MAX, 77], 120, 17)),
            (5, 2, vec![0; 64]),
        ],
    );
    let (all, summary) = of_bytes(&log).unwrap();
    assert!(!summary.lacks.contains(Lacks::DAMAGED) && all.rows.is_empty(), "{:?}", summary.notes);
    assert_eq!(all.files, [b"/scratch/a".to_vec()]);
    let found: Vec<_> = all.counters.iter().map(|of| (of.api, of.rank, of.integers.len())).collect();
    assert_eq!(found, [(Api::Hdf5, Some(1), 3), (Api::Hdf5, Some(2), 15), (Api::PnetCdf, None, 9)]);
    assert_eq!(all.counters[1].integer("H5D_USE_MPIIO_COLLECTIVE"), Some(88));
    assert_eq!(all.counters[2].integer("PNETCDF_VAR_COLL_WRITES"), Some(4));
    assert_eq!(all.counters[2].float("PNETCDF_VAR_F_WRITE_TIME"), Some(0.5));
    damage(darshan(), &log, 20, 60);
}

#[test]
fn the_job_has_the_user_of_the_logs_name_and_the_number_without_one() {
    let form = Form { version: "3.41", big_endian: false, compression: 0 };
    let bytes = form.log(0, &[(10, 2, form.trace(5))]);
    let directory = tempfile::tempdir().unwrap();
    let job = |name: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, &bytes).unwrap();
        import(&path, &mut MemorySink::default()).unwrap().job
    };
    let JobHeader { user, id, .. } = job("plain.darshan");
    assert_eq!((user.as_deref(), id.as_deref()), (Some("uid 7"), Some("9")));
    assert_eq!(job("ann_app_id9-77_1-2-3.darshan").user.as_deref(), Some("ann"));
    assert_eq!(job("ann_app_id9_1-2-3.darshan").user.as_deref(), Some("ann"));
    assert_eq!(job("ann_app_id987-77_1-2-3.darshan").user, user, "of another job");
}
