//! Cost of recording one request: two clock reads and one record.

use criterion::{Criterion, criterion_group, criterion_main};
use std::hint::black_box;
use stripewise_trace::{Api, Operation, ProcessInfo, Recorder, WrappedCall, now_ns};

fn record(criterion: &mut Criterion) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let info = ProcessInfo { program: b"bench", rank: 0, command: b"bench" };
    let recorder = Recorder::create(dir.path(), &info).expect("a recorder");
    let file = recorder.file_id(b"/data/file");
    criterion.bench_function("record a request", |bench| {
        let mut offset = 0;
        bench.iter(|| {
            let start_ns = now_ns();
            let end_ns = now_ns();
            recorder.record(black_box(&WrappedCall {
                file,
                api: Api::Posix,
                op: Operation::Read,
                offset,
                size: 4096,
                start_ns,
                end_ns,
                flags: 0,
            }));
            offset += 4096;
        });
    });
    criterion.bench_function("look a file's name up", |bench| {
        bench.iter(|| recorder.file_id(black_box(b"/data/some/directory/of/the/program/output.0001.dat")));
    });
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(20)
        .warm_up_time(std::time::Duration::from_millis(200))
        .measurement_time(std::time::Duration::from_secs(2));
    targets = record
}
criterion_main!(benches);
