//! Maps, for each pair of ways in: what one wrote and closed is what the other sees through a map after it has opened
//! the file, and what the other then puts into the map, the first one reads. A test per pair, both ways round where
//! both map.

use stripewise_conformance::operation::{Answer, CaseOperation, pattern};
use stripewise_conformance::world::AccessWay::{Longer, Mount, Preload, Private, PrivatePreload, Python, Store};
use stripewise_conformance::world::LayoutRows;
use stripewise_conformance::world::{AccessWay, World};

/// Neither a multiple of a page nor of a stripe.
const LEN: usize = 100_003;
const LONGER: usize = 140_001;

/// Over all servers in small stripes, whole on one server (where the kernel may serve it itself), and in regions, the
/// first on the metadata tier.
fn layouts() -> [(&'static str, LayoutRows); 3] {
    [
        ("a", vec![(0, vec![(0, 1000), (1, 4096), (2, 777), (3, 64)])]),
        ("b", vec![(0, vec![(2, 65536)])]),
        ("c", vec![(0, vec![(u16::MAX, 4096)]), (8192, vec![(1, 8192), (3, 4096)]), (65536, vec![(0, 4096)])]),
    ]
}

fn maps(way: AccessWay) -> bool {
    !matches!(way, Store | Python)
}

/// A pair at work on one file: `who` writes, `other` maps, as the bytes in `right` say.
struct Pair<'a> {
    world: &'a mut World,
    file: &'static str,
    right: Vec<u8>,
    seed: u64,
}

impl Pair<'_> {
    fn run(&mut self, who: usize, operation: &CaseOperation) -> Answer {
        let answer = self.world.run(who, operation, &operation.data()).unwrap();
        if let Answer::Failed(errno) = answer {
            let error = std::io::Error::from_raw_os_error(errno);
            panic!("{operation:?} of {} through {}: {error}", self.file, self.world.name_of(who));
        }
        answer
    }

    fn open(&mut self, who: usize) {
        let path = self.file.to_owned();
        self.run(who, &CaseOperation::Open { slot: 0, path, flags: libc::O_RDWR | libc::O_CREAT, mode: 0o644 });
    }

    fn close(&mut self, who: usize) {
        self.run(who, &CaseOperation::Close { slot: 0 });
    }

    fn put(&mut self, at: usize, len: usize) -> u64 {
        self.seed += 1;
        self.right.resize(self.right.len().max(at + len), 0);
        self.right[at..at + len].copy_from_slice(&pattern(len, self.seed));
        self.seed
    }

    fn write(&mut self, who: usize, at: usize, len: usize) {
        let seed = self.put(at, len);
        let answer = self.run(who, &CaseOperation::Pwrite { slot: 0, at: at as i64, len, seed });
        assert_eq!(answer, Answer::Done(len as i64));
    }

    fn write_map(&mut self, who: usize, at: usize, len: usize) {
        let seed = self.put(at, len);
        self.run(who, &CaseOperation::MapWrite { slot: 0, at, len, seed });
    }

    fn map(&mut self, who: usize) {
        self.run(who, &CaseOperation::Map { slot: 0, len: self.right.len() });
    }

    fn sees(&mut self, who: usize, operation: &CaseOperation, when: &str) {
        let Answer::Bytes { data } = self.run(who, operation) else { panic!("no bytes of {operation:?}") };
        let name = self.world.name_of(who);
        assert_eq!(data.len(), self.right.len(), "{}, {when}, through {name}: its size", self.file);
        let wrong = data.iter().zip(&self.right).position(|(found, right)| found != right);
        assert_eq!(wrong, None, "{}, {when}, through {name}: the first byte that is wrong", self.file);
    }

    fn sees_map(&mut self, who: usize, when: &str) {
        self.sees(who, &CaseOperation::MapRead { slot: 0, at: 0, len: self.right.len() }, when);
    }

    fn reads(&mut self, who: usize, when: &str) {
        // One byte more than there are.
        self.sees(who, &CaseOperation::Pread { slot: 0, at: 0, len: self.right.len() + 1 }, when);
    }

    fn take_turns(&mut self, who: usize, other: usize) {
        self.open(who);
        self.write(who, 0, LEN);
        self.close(who);

        self.open(other);
        self.map(other);
        self.sees_map(other, "mapped after the other wrote and closed it");
        self.run(other, &CaseOperation::Unmap { slot: 0 });
        self.close(other);

        // What the other's kernel remembers of the map is old now.
        self.open(who);
        self.write(who, 4000, 9000);
        self.write(who, LEN - 10, LONGER - LEN + 10);
        self.close(who);
        self.open(other);
        self.map(other);
        self.sees_map(other, "mapped again after the other changed it");

        self.write_map(other, 30_000, 20_000);
        self.run(other, &CaseOperation::Msync { slot: 0 });
        self.open(who);
        self.reads(who, "after msync of the other's map");
        self.close(who);

        self.write_map(other, LONGER - 5000, 5000);
        self.run(other, &CaseOperation::Unmap { slot: 0 });
        self.close(other);
        self.open(who);
        self.reads(who, "after the other put bytes into its map and closed it");

        // Shorter and longer again: zeros in the place of what the other's map had.
        self.run(who, &CaseOperation::Ftruncate { slot: 0, size: 50_000 });
        self.run(who, &CaseOperation::Ftruncate { slot: 0, size: LEN as i64 });
        self.right.truncate(50_000);
        self.right.resize(LEN, 0);
        self.close(who);
        self.open(other);
        self.map(other);
        self.sees_map(other, "mapped after the other cut it and made it longer");
        self.run(other, &CaseOperation::Unmap { slot: 0 });
        self.close(other);
    }
}

fn both_see_maps(one: AccessWay, other: AccessWay) {
    let mut world = World::new(&[one, other], "directory", None);
    let rows: Vec<LayoutRows> = layouts().into_iter().map(|(_, rows)| rows).collect();
    for (who, mapping) in [(0, 1), (1, 0)] {
        if !maps([one, other][mapping]) {
            continue;
        }
        world.begin(&rows).unwrap();
        for (file, _) in layouts() {
            Pair { world: &mut world, file, right: Vec::new(), seed: 0 }.take_turns(who, mapping);
            // No later operation asks the other kernel for this name.
            world.run(who, &CaseOperation::Unlink { path: file.to_owned() }, &[]).unwrap();
        }
        world.end().unwrap();
    }
}

macro_rules! pairs {
    ($($name:ident: $one:expr, $other:expr;)*) => { $(
        #[test]
        fn $name() {
            both_see_maps($one, $other);
        }
    )* };
}

pairs! {
    mount_and_mount: Mount(0), Mount(0);
    mount_and_preload: Mount(0), Preload(0);
    mount_and_store: Mount(0), Store;
    mount_and_python: Mount(0), Python;
    preload_and_preload: Preload(0), Preload(0);
    preload_and_store: Preload(0), Store;
    preload_and_python: Preload(0), Python;
    two_mounts: Mount(0), Mount(1);
    two_mounts_one_without_passthrough: Mount(0), Longer(1);
    preloads_of_two_mounts: Preload(0), Preload(1);
    two_private_mounts: Private, Private;
    preloads_of_two_private_mounts: PrivatePreload, PrivatePreload;
    private_mount_and_mount: PrivatePreload, Mount(1);
}
