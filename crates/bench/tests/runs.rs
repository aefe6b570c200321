//! The binary on a temporary directory: what it writes, checks, reports and refuses.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

fn bench(file: &Path, arguments: &str) -> Output {
    workload("ior", file, arguments)
}

fn workload(name: &str, file: &Path, arguments: &str) -> Output {
    let named = if name == "ior" { None } else { Some(name) };
    Command::new(env!("CARGO_BIN_EXE_stripewise-bench"))
        .args(named)
        .arg(file)
        .args(arguments.split_whitespace())
        .output()
        .expect("the binary runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn json(file: &Path, arguments: &str) -> Value {
    let output = bench(file, &format!("{arguments} --json"));
    assert!(output.status.success(), "{arguments}: {}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn every_way_of_working_verifies() {
    for arguments in [
        "-p 4 -r 16KiB -s 1MiB",
        "-p 4 -r 16KiB -s 1MiB --pattern strided --api read --fsync",
        "-p 3 -r 1000 -s 100000 --pattern sequential --spin-barrier",
        "-p 4 -r 16KiB -s 256KiB --file-per-process --read-shift 1",
        "-p 1 -r 4KiB -s 64KiB",
        "-p 4 --region 0:512KiB:4KiB:2.5 --region 1MiB:512KiB:64KiB:0.5 --region-order mixed --read-shift 3",
    ] {
        for verify in ["after", "inline"] {
            let directory = tempfile::tempdir().unwrap();
            let report = json(&directory.path().join("file"), &format!("{arguments} --verify {verify}"));
            assert_eq!(report["phases"].as_array().unwrap().len(), 2, "{arguments}");
            let read = &report["phases"][1];
            assert_eq!(read["op"], "read");
            assert!(report["verified_bytes"].as_u64().unwrap() > 0);
            if verify == "inline" {
                assert_eq!(report["verified_bytes"], read["bytes"], "{arguments}");
            }
            assert!(read["bytes_per_second"].as_f64().unwrap() > 0.0);
            assert!(read["latency_s"]["p50"].as_f64().unwrap() <= read["latency_s"]["max"].as_f64().unwrap());
        }
    }
}

/// Each workload by plain calls, with what a phase of it moves.
const WORKLOADS: [(&str, &str, u64); 9] = [
    ("btio", "-p 9 --grid 13 --steps 2", 13 * 13 * 13 * 40 * 2),
    // 4 tiles of 5 x 4 elements, the shared ones twice.
    ("mpi-tile-io", "--tile 5x4 --overlap 2x1 --element 100 --frames 3", 4 * 20 * 100 * 3),
    ("mpi-io-test", "-s 1MiB --segment 1000", 1_045_000),
    ("noncontig", "-p 3 -s 300000 --width 100 --buffer 30000", 300_000),
    ("hpio", "-p 3 --region-count 32 --region-size 1000", 96_000),
    ("hpio", "-p 3 --region-count 32 --region-size 1000 --memory-regions contiguous", 96_000),
    ("hpio", "-p 3 --region-count 32 --region-size 1000 --file-regions contiguous", 96_000),
    ("song", "-p 4 --loops 3", 4 * 3 * (256 << 10)),
    ("lanl-app1", "-p 5 --loops 3", 5 * 3 * (256 << 10)),
];

#[test]
fn every_workload_verifies() {
    for (name, arguments, moved) in WORKLOADS {
        for more in ["--verify", "--verify inline --read-shift 1 --barrier", "--verify --instances 2 --think 10us"] {
            let directory = tempfile::tempdir().unwrap();
            let file = directory.path().join("file");
            let arguments = format!("{arguments} {more} --api pread --json");
            let output = workload(name, &file, &arguments);
            assert!(output.status.success(), "{name} {arguments}: {}", text(&output.stderr));
            let report: Value = serde_json::from_slice(&output.stdout).unwrap();
            assert_eq!(report["workload"], name);
            let instances = report["instances"].as_u64().unwrap();
            assert!(report["verified_bytes"].as_u64().unwrap() > 0);
            for phase in report["phases"].as_array().unwrap() {
                assert_eq!(phase["bytes"], moved * instances, "{name} {arguments}");
                let sizes = phase["sizes"].as_array().unwrap();
                assert_eq!(sizes.iter().map(|size| size["bytes"].as_u64().unwrap()).sum::<u64>(), moved * instances);
                let each = phase.get("instances").map_or(0, |each| each.as_array().unwrap().len());
                assert_eq!(each, if instances > 1 { 2 } else { 0 });
            }
            assert_eq!(directory.path().join("file.1").exists(), instances > 1);
        }
    }
}

#[test]
fn a_wrong_byte_of_any_workload_is_named() {
    for (name, arguments, _) in WORKLOADS {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("file");
        let arguments = format!("{arguments} --api pread");
        assert!(workload(name, &file, &format!("{arguments} --write --verify")).status.success());
        // No gap of any of them is here.
        let at = 10_101;
        let opened = File::options().read(true).write(true).open(&file).unwrap();
        let mut byte = [0];
        opened.read_exact_at(&mut byte, at).unwrap();
        opened.write_all_at(&[byte[0] ^ 0x40], at).unwrap();
        for verify in ["--verify", "--verify inline"] {
            let output = workload(name, &file, &format!("{arguments} --read {verify}"));
            let message = text(&output.stderr);
            assert_eq!(output.status.code(), Some(1), "{name} {arguments}");
            assert!(output.stdout.is_empty(), "no figures of a run that failed");
            let found = format!("found [{:02x}", byte[0] ^ 0x40);
            for part in ["VERIFICATION FAILED", "offset 10101", &format!("expected [{:02x}", byte[0]), &found] {
                assert!(message.contains(part), "{name}: {part} in {message}");
            }
        }
    }
}

#[test]
fn gaps_stay_empty() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    let arguments = "-p 2 --region-count 8 --region-size 100 --region-spacing 28 --write --api pread --verify";
    assert!(workload("hpio", &file, arguments).status.success());
    let written = std::fs::read(&file).unwrap();
    assert_eq!(written.len(), 16 * 128 - 28);
    for region in written.chunks(128) {
        assert!(region[..100].iter().any(|byte| *byte != 0));
        assert!(region[100..].iter().all(|byte| *byte == 0));
    }
}

#[test]
fn instances_in_one_file_keep_their_distance() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    let arguments = "-p 2 --loops 1 --instances 3 --distance 1MiB --verify --read-shift 1";
    let output = workload("song", &file, arguments);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let table = text(&output.stdout);
    for part in ["song: 3 instances of 2 processes, 1 loops", "instance 2", "1.50 MiB verified"] {
        assert!(table.contains(part), "{part} in\n{table}");
    }
    assert_eq!(file.metadata().unwrap().len(), (2 << 20) + (512 << 10));
    let too_near = workload("song", &file, "-p 2 --loops 1 --instances 3 --distance 1KiB");
    assert_eq!(too_near.status.code(), Some(2));
    assert!(text(&too_near.stderr).contains("overlap"));
}

#[test]
fn what_mpi_needs_is_said() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    for (name, arguments, status, part) in [
        ("ior", "--collective", 2, "--api mpi-io"),
        ("song", "--hint a=b", 2, "--api mpi-io"),
        ("ior", "--api mpi-io --direct", 2, "--direct"),
        ("ior", "--api mpi-io --collective --file-per-process", 2, "shared file"),
        ("btio", "-p 5", 2, "take 4 or 9"),
        ("hpio", "--hint nothing", 2, "KEY=VALUE"),
        ("mpi-io-test", "--mpiexec /no/such/mpiexec", 1, "/no/such/mpiexec"),
        ("mpi-io-test", "--mpiexec /bin/true --mpi-library /no/such/libmpi.so", 1, "/no/such/libmpi.so"),
    ] {
        let output = workload(name, &file, arguments);
        let message = text(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{name} {arguments}: {message}");
        assert!(message.contains(part), "{name} {arguments}: {message}");
        assert!(!file.exists());
    }
}

#[test]
fn a_later_run_checks_what_an_earlier_one_wrote() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    json(&file, "-p 4 -r 8KiB -s 512KiB --write --verify");
    let report = json(&file, "-p 4 -r 8KiB -s 512KiB --read --verify inline");
    assert_eq!(report["phases"].as_array().unwrap().len(), 1);
    assert_eq!(report["verified_bytes"], 512 << 10);
    let other_seed = bench(&file, "-p 4 -r 8KiB -s 512KiB --read --verify inline --seed 2");
    assert_eq!(other_seed.status.code(), Some(1));
}

#[test]
fn one_wrong_byte_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    json(&file, "-p 4 -r 8KiB -s 512KiB --write --verify");
    let opened = File::options().read(true).write(true).open(&file).unwrap();
    let mut byte = [0];
    opened.read_exact_at(&mut byte, 300_001).unwrap();
    opened.write_all_at(&[byte[0] ^ 1], 300_001).unwrap();
    for verify in ["inline", "after"] {
        let output = bench(&file, &format!("-p 4 -r 8KiB -s 512KiB --read --verify {verify}"));
        let message = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1));
        assert!(output.stdout.is_empty(), "no figures of a run that failed");
        let found = format!("found [{:02x}", byte[0] ^ 1);
        let expected = format!("expected [{:02x}", byte[0]);
        for part in ["VERIFICATION FAILED", "offset 300001", &expected, &found] {
            assert!(message.contains(part), "{part} in {message}");
        }
    }
}

#[test]
fn exchanged_blocks_say_where_they_belong() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    json(&file, "-p 2 -r 4KiB -s 64KiB --write --verify");
    let opened = File::options().read(true).write(true).open(&file).unwrap();
    let mut block = [0; 4096];
    opened.read_exact_at(&mut block, 4096).unwrap();
    opened.write_all_at(&block, 40960).unwrap();
    let output = bench(&file, "-p 2 -r 4KiB -s 64KiB --read --verify inline");
    assert_eq!(output.status.code(), Some(1));
    let message = text(&output.stderr);
    assert!(message.contains("offset 40960"), "{message}");
    assert!(message.contains("bytes of offset 4096, write 1"), "{message}");
}

#[test]
fn figures_add_up() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    let report = json(&file, "-p 4 --region 0:1MiB:16KiB:1 --region 1MiB:1MiB:64KiB:2 --remove");
    for phase in report["phases"].as_array().unwrap() {
        assert_eq!(phase["requests"], 64 + 32);
        assert_eq!(phase["bytes"], (1 << 20) + (2 << 20));
        let regions = phase["regions"].as_array().unwrap();
        assert_eq!(regions[0]["requests"], 64);
        assert_eq!(regions[1]["bytes"], 2 << 20);
        let rate = phase["bytes"].as_f64().unwrap() / phase["seconds"].as_f64().unwrap();
        assert!((phase["bytes_per_second"].as_f64().unwrap() / rate - 1.0).abs() < 1e-9);
    }
    assert!(report.get("verified_bytes").is_none());
    assert!(!file.exists(), "--remove");
}

#[test]
fn the_table_names_regions_and_units() {
    let directory = tempfile::tempdir().unwrap();
    let output =
        bench(&directory.path().join("file"), "-p 2 --region 0:1MiB:16KiB:1 --region 1MiB:1MiB:64KiB:1 --verify");
    assert!(output.status.success());
    let table = text(&output.stdout);
    for part in
        ["2 processes, one file, random, seed 1", "per second", "1MiB +1MiB", "64KiB", "all", "2.00 MiB verified"]
    {
        assert!(table.contains(part), "{part} in\n{table}");
    }
}

#[test]
fn what_cannot_be_done_is_said() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    let refused = |arguments: &str, status: i32, part: &str| {
        let output = bench(&file, arguments);
        let message = text(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{arguments}: {message}");
        assert!(message.contains(part), "{arguments}: {message}");
        assert!(output.stdout.is_empty());
    };
    refused("-p 0", 2, "0");
    refused("-r 64KB2", 2, "64KB2");
    refused("--region 0:1MiB:64KiB", 2, "OFFSET:LENGTH:REQUEST_SIZE:HEAT");
    refused("--region 0:1MiB:4KiB:1 --region 512KiB:1MiB:4KiB:1", 2, "overlaps");
    refused("-p 16 -r 1MiB -s 4MiB", 2, "make it at least 16MiB");
    refused("--region 0:2MiB:4KiB:1 -s 1MiB", 2, "raise --file-size");
    refused("--write --verify inline", 2, "--verify inline");
    refused("--read --write", 2, "--read");
    refused("-r 1000 -s 1MiB --direct", 2, "multiples of 512");
    refused("-p 2 -r 4KiB -s 1MiB --read", 1, "open");
    std::fs::write(&file, [0; 5000]).unwrap();
    refused("-p 2 -r 4KiB -s 1MiB --read", 1, "write it first");
    std::fs::write(&file, [0; 8192]).unwrap();
    refused("-p 2 -r 4KiB -s 8KiB --read --verify inline", 1, "zeros: never written");
    let missing = bench(&directory.path().join("no/such/file"), "-p 8 -r 4KiB -s 1MiB");
    assert_eq!(missing.status.code(), Some(1));
    assert!(text(&missing.stderr).contains("No such file"));
}

#[test]
fn a_killed_process_ends_the_run() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    for barrier in ["", "--spin-barrier"] {
        // The file size limit kills the writers at 1 MiB by SIGXFSZ.
        let output = Command::new("sh")
            .args(["-c", "ulimit -f 1024; exec \"$0\" \"$1\" -p 4 -r 64KiB -s 8MiB $2"])
            .args([env!("CARGO_BIN_EXE_stripewise-bench")])
            .arg(&file)
            .arg(barrier)
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(1));
        let message = text(&output.stderr);
        assert!(message.contains("was killed by signal") && message.contains("no result"), "{message}");
    }
}
