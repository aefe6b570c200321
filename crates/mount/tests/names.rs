//! Names that several programs make and look for at once.

mod common;

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::sync::Barrier;

use common::{Mounted, TestPool};

/// What the kernel calls an open file.
fn name_of(file: &File) -> String {
    fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap().display().to_string()
}

/// The kernel must not drop the name of a file while it is being made: the program that makes it would hold a file that
/// is "(deleted)".
#[test]
fn a_new_file_keeps_its_name_whoever_looks_for_it() {
    const THREADS: usize = 12;
    for servers in [&["s0", "s1", "s2"][..], &["s0"]] {
        let pool = TestPool::with("4KiB", servers);
        let mount = Mounted::new(&pool, "mnt", "rw");
        let together = Barrier::new(THREADS);
        // Nobody may stop half-way, or the others would wait for him for ever.
        let make = |who: usize| {
            let mut wrong = Vec::new();
            for round in 0..150 {
                let path = mount.path(&format!("f{round}"));
                together.wait();
                let file = match who % 3 {
                    // Some wait for the file, as programs do that were told its name.
                    0 => std::iter::repeat_with(|| File::open(&path)).find_map(Result::ok),
                    1 if path.exists() => File::open(&path).ok(),
                    _ => File::options().append(true).create(true).open(&path).ok(),
                };
                let name = || file.as_ref().map_or_else(|| "not to be opened".to_owned(), name_of);
                let first = name();
                // And it keeps it, while others have come to it.
                together.wait();
                let names = [first, name()];
                if names.iter().any(|name| *name != path.display().to_string()) {
                    wrong.push(names);
                }
            }
            wrong
        };
        let wrong: Vec<_> = std::thread::scope(|scope| {
            let all: Vec<_> = (0..THREADS).map(|who| scope.spawn(move || make(who))).collect();
            all.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        assert!(wrong.is_empty(), "{} names were dropped, one of them {:?}", wrong.len(), wrong[0]);
    }
}
