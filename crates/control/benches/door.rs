//! What the door costs a request: with nothing installed, with a gate and an observer that do nothing, and with an observer
//! that wants to know how long servers take.

use criterion::{Criterion, criterion_group, criterion_main};
use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;
use stripewise_control::{Action, Door, FileId, Gate, Observer, Request, Sender, Served, Way};
use stripewise_layout::{ServerId, SubRequest};

struct Nothing {
    wants_times: bool,
}

impl Gate for Nothing {
    fn enter(&self, _: FileId, request: &Request) {
        black_box(request);
    }
}

impl Observer for Nothing {
    fn served(&self, _: FileId, _: &Request, served: &Served<'_>) {
        black_box(served);
    }

    fn wants_times(&self) -> bool {
        self.wants_times
    }
}

fn door(bench: &mut Criterion) {
    let request =
        Request { sender: Sender::this_process(Way::Library), action: Action::Read, offset: 0, len: 4096, rank: 0 };
    let part = SubRequest { region: 0, slot: 0, server: ServerId(0), datafile_offset: 0, len: 4096, from: 0, to: 4096 };
    let of = |wants_times| {
        let nothing = Arc::new(Nothing { wants_times });
        Some(Door::default().with_gate(nothing.clone()).with_observer(nothing))
    };
    let doors = [
        ("no door", None),
        ("nothing installed", Some(Door::default())),
        ("gate and observer", of(false)),
        ("gate and observer, timed", of(true)),
    ];
    let begin = Instant::now();
    let clock = || begin.elapsed().as_nanos() as u64;
    for (name, door) in doors {
        bench.bench_function(name, |bench| {
            bench.iter(|| {
                let request = black_box(&request);
                if let Some(door) = black_box(&door) {
                    door.enter(FileId(7), request);
                    if let Some(begin_ns) = door.begin(clock) {
                        door.served(FileId(7), request, Served::of(black_box(&part), 4096), (begin_ns, clock));
                    }
                }
            });
        });
    }
}

criterion_group!(benches, door);
criterion_main!(benches);
