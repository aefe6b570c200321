//! What gate and observer cost a request: without a page of turns, while nothing is scheduled (goal: under 5 ns), and under an
//! orchestrator that watches (goal of the figures alone: under 50 ns).

use criterion::{Criterion, criterion_group, criterion_main};
use std::hint::black_box;
use stripewise_control::{Action, Door, FileId, Request, Sender, Served, Way};
use stripewise_layout::{ServerId, SubRequest};
use stripewise_orchestrate::{Asker, Identified, Orchestrator, OrchestratorOptions, Turns, make_plan_page};
use stripewise_store::Pool;
use stripewise_store::emulate::now_ns;
use stripewise_store::pool::{PoolSpec, TierSpec};

fn gate(bench: &mut Criterion) {
    let dir = tempfile::tempdir().expect("a directory");
    let disk = dir.path().join("disk");
    std::fs::create_dir(&disk).expect("a directory");
    let tier = TierSpec { name: "hdd".into(), servers: vec![disk], ..TierSpec::default() };
    let (mount, namespace) = (dir.path().join("mount"), dir.path().join("namespace"));
    let spec = PoolSpec { name: "gate".into(), mount, namespace, tiers: vec![tier], ..PoolSpec::default() };
    let pool = Pool::init(&dir.path().join("pool.toml"), &spec).expect("a pool");
    drop(make_plan_page(&pool).expect("a page"));
    let program = Identified::named(rustix::process::geteuid().as_raw(), b"bench");
    let door = Turns::open(&pool, || Asker::Own(program), |_| {}).expect("a gate").install(Door::default());
    let request =
        Request { sender: Sender::this_process(Way::Library), action: Action::Read, offset: 0, len: 4096, rank: 0 };
    let part = SubRequest { region: 0, slot: 0, server: ServerId(0), datafile_offset: 0, len: 4096, from: 0, to: 4096 };
    let pass = |door: &Door| {
        let request = black_box(&request);
        door.enter(FileId(7), request);
        let _in_flight = door.send(request);
        if let Some(begin_ns) = door.begin(|| 0) {
            door.served(FileId(7), request, Served::of(black_box(&part), 4096), (begin_ns, || 0));
        }
    };
    bench.bench_function("gate alone, idle", |bench| {
        bench.iter(|| {
            let (door, request) = (black_box(&door), black_box(&request));
            door.enter(FileId(7), request);
            door.send(request)
        })
    });
    bench.bench_function("gate and observer, no page", |bench| bench.iter(|| pass(black_box(&Door::default()))));
    bench.bench_function("gate and observer, idle", |bench| bench.iter(|| pass(black_box(&door))));
    let options = OrchestratorOptions { policy: "none".into(), ..OrchestratorOptions::default() };
    let mut orchestrator = Orchestrator::start(&pool, &options).expect("an orchestrator");
    orchestrator.work(std::time::Duration::ZERO);
    let is_over = std::sync::atomic::AtomicBool::new(false);
    let over = &is_over;
    std::thread::scope(|scope| {
        scope.spawn(move || {
            while !over.load(std::sync::atomic::Ordering::Relaxed) {
                orchestrator.work(std::time::Duration::from_millis(100));
            }
        });
        bench.bench_function("gate and observer, watched", |bench| bench.iter(|| pass(black_box(&door))));
        // Less one look at the clock this is what the figures of a request cost: those of its program and those of the mix.
        bench.bench_function("observer alone, watched", |bench| {
            bench.iter(|| {
                let (door, request) = (black_box(&door), black_box(&request));
                door.served(FileId(7), request, Served::of(black_box(&part), 4096), (0, || 0));
            })
        });
        bench.bench_function("a look at the clock", |bench| bench.iter(now_ns));
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}

criterion_group!(benches, gate);
criterion_main!(benches);
