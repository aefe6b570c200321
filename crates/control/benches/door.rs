//! What the door costs a request: with nothing installed, and with a gate and an observer that do nothing.

use criterion::{Criterion, criterion_group, criterion_main};
use std::hint::black_box;
use std::sync::Arc;
use stripewise_control::{Action, Door, FileId, Gate, Observer, Request, Sender, Way};
use stripewise_layout::{ServerId, SubRequest};

struct Nothing;

impl Gate for Nothing {
    fn enter(&self, _: FileId, request: &Request) {
        black_box(request);
    }
}

impl Observer for Nothing {
    fn served(&self, _: FileId, part: &SubRequest, _: &Request, _: u64, _: u64) {
        black_box(part);
    }
}

fn door(bench: &mut Criterion) {
    let request = Request { sender: Sender::this_process(Way::Library), action: Action::Read, offset: 0, len: 4096 };
    let part = SubRequest { region: 0, slot: 0, server: ServerId(0), datafile_offset: 0, len: 4096, from: 0, to: 4096 };
    let doors = [
        ("no door", None),
        ("nothing installed", Some(Door::default())),
        ("gate and observer", Some(Door::default().with_gate(Arc::new(Nothing)).with_observer(Arc::new(Nothing)))),
    ];
    for (name, door) in doors {
        bench.bench_function(name, |bench| {
            bench.iter(|| {
                let request = black_box(&request);
                if let Some(door) = black_box(&door) {
                    door.enter(FileId(7), request);
                    door.served(FileId(7), black_box(&part), request, 4096, 1);
                }
            });
        });
    }
}

criterion_group!(benches, door);
criterion_main!(benches);
