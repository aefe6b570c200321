//! An observer that counts the bytes of each server.

mod common;

use common::{TestPool, succeeded};
use std::collections::BTreeMap;
use std::process::Command;
use std::sync::{Arc, Mutex};
use stripewise_control::{Action, Door, FileId, Observer, Request, Served};
use stripewise_layout::{Layout, Pattern, ServerId, Stripe};
use stripewise_mount::{MountOptions, Serving};
use stripewise_store::{Pool, Store};

/// Bytes by action and server.
#[derive(Default)]
struct CountsBytes(Mutex<BTreeMap<(&'static str, u16), u64>>);

impl Observer for CountsBytes {
    fn served(&self, _: FileId, request: &Request, served: &Served<'_>) {
        let action = match request.action {
            Action::Read => "read",
            Action::Write => "write",
            Action::Append => "append",
            Action::Truncate | Action::Allocate | Action::Sync => unreachable!("no bytes of it are served"),
        };
        *self.0.lock().unwrap().entry((action, served.part.server.0)).or_default() += served.done_bytes;
    }

    fn wants_times(&self) -> bool {
        false
    }
}

impl CountsBytes {
    /// What was counted since the last call.
    fn take(&self) -> Vec<(&'static str, u16, u64)> {
        let counted = std::mem::take(&mut *self.0.lock().unwrap());
        counted.into_iter().map(|((action, server), bytes)| (action, server, bytes)).collect()
    }
}

fn run(pool: &TestPool, script: &str) {
    let output = Command::new("sh").args(["-ec", script]).current_dir(pool.path("mnt")).output().unwrap();
    succeeded(script, &output);
}

fn observed(pool: &TestPool, test: impl FnOnce(&CountsBytes)) {
    let counted = Arc::new(CountsBytes::default());
    let door = Door::default().with_observer(counted.clone());
    let loaded = Pool::load(&pool.file()).unwrap();
    let options = MountOptions::defaults(rustix::process::geteuid().is_root());
    let serving = Serving::start(loaded, &pool.path("mnt"), &options, door).unwrap();
    test(&counted);
    serving.stop();
}

#[test]
fn each_server_serves_its_stripes() {
    let pool = TestPool::new();
    observed(&pool, |counted| {
        run(&pool, "dd if=/dev/zero of=f bs=24576 count=4");
        assert_eq!(counted.take(), [("write", 0, 32768), ("write", 1, 32768), ("write", 2, 32768)]);
        run(&pool, "cat f > /dev/null");
        assert_eq!(counted.take(), [("read", 0, 32768), ("read", 1, 32768), ("read", 2, 32768)]);
        // One stripe, and a part of the next one.
        run(&pool, "dd if=f of=/dev/null bs=5000 count=1");
        assert_eq!(counted.take(), [("read", 0, 4096), ("read", 1, 904)]);
    });
}

/// Each of them once, whatever the mount asks of the namespace for it.
#[test]
fn operations_on_names_take_time_of_an_emulated_metadata_tier() {
    let pool = TestPool::new();
    let op = "{ startup = [\"10us\", \"10us\"], bandwidth = \"1GB/s\" }";
    let emulate = format!("emulate = {{ read = {op}, write = {op}, at_once = 4 }}");
    let text = std::fs::read_to_string(pool.file()).unwrap();
    std::fs::write(pool.file(), format!("{text}\n[meta]\n{emulate}\n")).unwrap();
    let loaded = Pool::load(&pool.file()).unwrap();
    assert_eq!(loaded.meta.at_once, 4);
    let served = || {
        let [(_, done)] = &loaded.emulation_statistics().unwrap()[..] else { panic!("one server is emulated") };
        (done.read.requests, done.write.requests, done.read.bytes + done.write.bytes)
    };
    observed(&pool, |_| {
        let changes = |script: &str| {
            let before = served();
            run(&pool, script);
            let after = served();
            (after.1 - before.1, after.0 > before.0, after.2 - before.2)
        };
        assert_eq!(changes("mkdir d; ln -s f d/s; mkfifo d/p"), (3, true, 0));
        assert_eq!(changes("mv d/s d/t; rm d/t d/p; rmdir d"), (4, true, 0));
        // It is made, and its bytes are no matter of the names.
        assert_eq!(changes("head -c 4096 /dev/zero > f"), (1, true, 0));
        assert_eq!(changes("ls -l; cat f > /dev/null"), (0, true, 0));
    });
    std::fs::write(pool.file(), text.replace("[[tier]]", &format!("[[tier]]\n{emulate}"))).unwrap();
    assert!(Pool::load(&pool.file()).unwrap_err().to_string().contains("only [meta] can serve several requests"));
}

#[test]
fn a_file_that_the_kernel_could_serve_itself_is_observed_too() {
    let pool = TestPool::with("4KiB", &["s0"]);
    observed(&pool, |counted| {
        run(
            &pool,
            "dd if=/dev/zero of=f bs=10000 count=1; dd if=/dev/zero of=f bs=100 count=3 oflag=append conv=notrunc",
        );
        assert_eq!(counted.take(), [("append", 0, 300), ("write", 0, 10_000)]);
        run(&pool, "dd if=f of=/dev/null bs=4096");
        assert_eq!(counted.take(), [("read", 0, 10_300)]);
    });
}

#[test]
fn the_metadata_tier_is_a_server_too() {
    const META: u16 = u16::MAX;
    let pool = TestPool::new();
    let names = pool.path("ns/tree");
    std::fs::write(names.join("without_handle"), [7; 10_000]).unwrap();
    let store = Store::open(Pool::load(&pool.file()).unwrap()).unwrap();
    let stripe = Stripe { server: ServerId::META, width_bytes: 65536 };
    let on_meta = Layout::new([(0, vec![stripe])]).unwrap();
    store.set_rule(&Pattern::new("with_handle").unwrap(), &on_meta).unwrap();
    drop(store);
    observed(&pool, |counted| {
        run(&pool, "dd if=without_handle of=with_handle bs=4096");
        assert_eq!(counted.take(), [("read", META, 10_000), ("write", META, 10_000)]);
        for name in ["with_handle", "without_handle"] {
            run(&pool, &format!("dd if=/dev/zero of={name} bs=5000 count=2 seek=1 conv=notrunc"));
            run(&pool, &format!("dd if=/dev/zero of={name} bs=100 count=3 oflag=append conv=notrunc"));
            assert_eq!(counted.take(), [("append", META, 300), ("write", META, 10_000)], "{name}");
        }
        run(&pool, "cmp with_handle without_handle");
    });
    assert!(pool.datafiles().is_empty());
}
