//! Real software on files of many layouts: each program by way of the mount alone, and under the library.
//!
//! `STRIPEWISE_TEST_LONG=1 cargo test -p stripewise-preload --test software --test databases` runs the same programs on
//! much more: tens of thousands of objects and files, longer loads, more kills.

mod common;

use common::{TestPool, both_ways, long, need};
use std::path::Path;

both_ways! {
    git_clones_checks_and_repacks,
    tar_out_and_in_again,
    rsync_makes_equal_trees_and_finds_nothing_to_do,
    cargo_builds_runs_and_builds_again,
    fio_finds_what_every_engine_wrote,
}

/// Prints a history for `git fast-import`: files, then commits that change some of them.
const HISTORY: &str = r#"
import random, sys
files, commits = int(sys.argv[1]), 3
out, chance = sys.stdout.buffer, random.Random(5)
for commit in range(commits):
    when = 1700000000 + commit
    out.write(b'commit refs/heads/main\nmark :%d\ncommitter n <a@b> %d +0000\ndata 4\nmade' % (commit + 1, when))
    if commit:
        out.write(b'\nfrom :%d' % commit)
    for number in range(files):
        if commit == 0 or number % 7 == commit:
            size = 300_000 if number % 400 == 9 else chance.randrange(6000)
            data = (b'%d.%d ' % (number, commit)) + chance.randbytes(size // 2) + b'line\n' * (size // 10)
            out.write(b'\nM 644 inline d%d/file%d\ndata %d\n' % (number % 50, number, len(data)))
            out.write(data)
    out.write(b'\n')
out.write(b'done\n')
"#;

fn git_clones_checks_and_repacks(preload: bool) {
    let pool = TestPool::of_many_layouts();
    std::fs::write(pool.path("out/history.py"), HISTORY).expect("a script");
    let files = if long() { 30_000 } else { 200 };
    pool.script(
        preload,
        &format!(
            "export GIT_ALLOW_PROTOCOL=file
             git config --global user.email a@b; git config --global user.name n; git config --global gc.auto 0
             git config --global init.defaultBranch main; git config --global advice.detachedHead false
             git init -q --bare $OUT/big.git
             python3 $OUT/history.py {files} | git -C $OUT/big.git fast-import --done --quiet
             git clone -q file://$OUT/big.git clone; cd clone
             git fsck --full --strict --no-progress; test -z \"$(git status --porcelain)\"
             git clone -q $OUT/big.git $OUT/checkout; diff -r -x .git . $OUT/checkout
             test $(git log --format=%H | wc -l) = 3; git checkout -q HEAD~2; git checkout -q -; git diff --quiet HEAD
             # Every object in a file of its own, then all in one again.
             git init -q --bare ../loose.git
             cat .git/objects/pack/*.pack | git -C ../loose.git unpack-objects -q
             git -C ../loose.git update-ref refs/heads/main $(git rev-parse HEAD)
             git -C ../loose.git fsck --full --strict --no-progress
             git -C ../loose.git repack -adq; git -C ../loose.git prune-packed -q
             git -C ../loose.git fsck --full --strict --no-progress
             # A clone by hard links, a branch in it, a push back, and everything packed anew.
             git clone -q ../loose.git ../linked; cd ../linked; git checkout -q -b side
             for i in 1 2 3; do date > new$i; rm d$i/file$i; git add -A; git commit -qm side$i; done
             git push -q origin side; git -c gc.pruneExpire=now gc -q
             git fsck --full --strict --no-progress; test -z \"$(git status --porcelain)\"
             git -C ../loose.git fsck --full --strict --no-progress
             git clone -q -b side file://$PWD $OUT/back; diff -r -x .git . $OUT/back"
        ),
    );
}

/// Makes a tree with everything that archives carry: sizes around the borders of layouts, holes, links, modes, times,
/// attributes, odd names.
const TREE: &str = r#"
import os, random, sys
root, files = sys.argv[1], int(sys.argv[2])
chance = random.Random(3)
os.makedirs(root)
os.chdir(root)
sizes = [0, 1, 4096, 5000, 5001, 7001, 16384, 16385, 30001, 35005, 70000, 1000003, 1400000]
for number in range(files):
    directory = f'dir {number % 9}/deep\u00e4r/' if number % 4 == 0 else f'dir {number % 9}/'
    os.makedirs(directory, exist_ok=True)
    name = directory + ['plain', 'with space', "quo'te", 'new\nline', '-dash', '.hidden'][number % 6] + f'.{number}'
    size = sizes[number % len(sizes)] if number < 3 * len(sizes) else chance.randrange(40000)
    with open(name, 'wb') as file:
        file.write(chance.randbytes(size))
    if number % 11 == 0:
        with open(name, 'r+b') as file:
            file.truncate(size + 3_000_000); file.seek(size + 1_500_000); file.write(b'behind a hole')
    if number % 13 == 0:
        os.setxattr(name, 'user.note', b'%d' % number)
    if number % 10 == 0:
        os.link(name, name + '.link'); os.symlink(os.path.basename(name), name + '.sym')
        os.utime(name + '.sym', ns=(10**18, 10**18 + number), follow_symlinks=False)
    os.chmod(name, [0o644, 0o600, 0o444, 0o755][number % 4])
    os.utime(name, ns=(chance.randrange(10**18), chance.randrange(10**18)))
os.mkfifo('fifo'); os.symlink('nowhere', 'dangling'); os.mkdir('empty', 0o711)
for name in ('fifo', 'dangling'):
    os.utime(name, ns=(10**18, 10**18), follow_symlinks=False)
"#;

fn tree_in_out(pool: &TestPool) {
    need("getfattr");
    std::fs::write(pool.path("out/tree.py"), TREE).expect("a script");
    let made = std::process::Command::new(common::python())
        .arg(pool.path("out/tree.py"))
        .arg(pool.path("out/tree"))
        .arg(if long() { "20000" } else { "250" })
        .status();
    assert!(made.expect("python3").success());
}

/// Names, kinds, modes, links, sizes and times to the nanosecond; then every byte.
const SAME: &str = "describe() {
    (cd $1; find . -not -type d -printf '%P %y %m %n %s %T@ %l\\n' | sort; find . -type d -printf '%P %m\\n' | sort
     getfattr -R -h -d . 2> /dev/null || true) > $2
}
nothing() { test -z \"$1\" || { echo \"to do: $1\" >&2; exit 1; }; }
same() {
    describe $1 $OUT/one; describe $2 $OUT/two; cmp $OUT/one $OUT/two || { diff $OUT/one $OUT/two >&2; exit 1; }
    diff -r --no-dereference -x fifo $1 $2
}\n";

fn tar_out_and_in_again(preload: bool) {
    let pool = TestPool::of_many_layouts();
    tree_in_out(&pool);
    pool.script(
        preload,
        &format!(
            "{SAME}
             mkdir in; tar -C $OUT/tree --xattrs --sparse -cf - . | tar -C in --xattrs -xpf -
             # The archive itself lies in the pool; what it holds is compared with what is there.
             tar -C in --xattrs --sparse -cf archive.tar .; tar -C in -df archive.tar; tar -C $OUT/tree -df archive.tar
             tar -C in --xattrs -czf archive.tgz .; mkdir $OUT/out; tar -C $OUT/out --xattrs -xpzf archive.tgz
             tar -C in -rf archive.tar ./empty ./dangling; tar -tf archive.tar > /dev/null
             tar -C $OUT/out -xpf archive.tar --overwrite; tar -C $OUT/out -df archive.tar
             same $OUT/tree in; same $OUT/out in"
        ),
    );
}

fn rsync_makes_equal_trees_and_finds_nothing_to_do(preload: bool) {
    need("rsync");
    let pool = TestPool::of_many_layouts();
    tree_in_out(&pool);
    pool.script(
        preload,
        &format!(
            "{SAME}
             rsync -aHX --checksum $OUT/tree/ a/; rsync -aHX --checksum --sparse a/ b/
             nothing \"$(rsync -aHX --checksum --itemize-changes --delete $OUT/tree/ b/)\"
             # Changes in the middle, at the end and in place; names that go.
             find $OUT/tree -name 'plain*' -type f -size +20k -exec sh -euc 'for f; do
                 printf changed | dd of=\"$f\" bs=1 seek=7000 conv=notrunc status=none; echo more >> \"$f\"
             done' sh {{}} +
             rm -r \"$OUT/tree/dir 3\"; rm $OUT/tree/dangling
             rsync -aHX --inplace --no-whole-file --delete $OUT/tree/ a/
             rsync -aX --append-verify --ignore-times $OUT/tree/ a/; rsync -aHX --delete --delay-updates a/ b/
             nothing \"$(rsync -aHX --checksum --itemize-changes --delete $OUT/tree/ a/)\"
             same $OUT/tree a; same a b
             mkdir $OUT/back; rsync -aHX --checksum b/ $OUT/back/; same b $OUT/back"
        ),
    );
}

fn cargo_builds_runs_and_builds_again(preload: bool) {
    let pool = TestPool::of_many_layouts();
    // The toolchain itself, not a front that looks for one in the home directory.
    let toolchain = Path::new(env!("CARGO")).parent().expect("cargo's directory").display();
    pool.script(
        preload,
        &format!(
            "unset RUSTC RUSTFLAGS RUSTC_WRAPPER CARGO_TARGET_DIR CARGO_BUILD_TARGET CARGO_ENCODED_RUSTFLAGS RUSTUP_TOOLCHAIN
             export PATH={toolchain}:$PATH CARGO_HOME=$OUT/cargo CARGO_INCREMENTAL=1; unset CARGO_MANIFEST_DIR
             cargo new -q --vcs none --lib numbers; cargo new -q --vcs none program; cd program
             echo 'numbers = {{ path = \"../numbers\" }}' >> Cargo.toml
             echo 'pub fn sum(n: u64) -> u64 {{ (1..=n).sum() }} #[test] fn sums() {{ assert_eq!(sum(4), 10) }}' \\
                 > ../numbers/src/lib.rs
             echo 'fn main() {{ println!(\"{{}} {{}}\", numbers::sum(100), include_str!(concat!(env!(\"OUT_DIR\"), \"/made\"))) }}' \\
                 > src/main.rs
             echo 'fn main() {{ std::fs::write(std::env::var(\"OUT_DIR\").unwrap() + \"/made\", \"by build\").unwrap() }}' \\
                 > build.rs
             cargo build -q --offline; test \"$(target/debug/program)\" = '5050 by build'
             # Nothing to do: times are kept as they were.
             cargo build --offline -v 2>&1 | grep -q 'Fresh program'
             ! cargo build --offline -v 2>&1 | grep -q 'Dirty'
             echo 'pub fn sum(n: u64) -> u64 {{ n * (n + 1) / 2 + 1 }}' > ../numbers/src/lib.rs
             cargo run -q --offline > ran; test \"$(cat ran)\" = '5051 by build'
             cargo clean -q; ! test -e target"
        ),
    );
}

/// Each engine writes at random, verifies, and what it left is verified by other engines.
fn fio_finds_what_every_engine_wrote(preload: bool) {
    need("fio");
    let pool = TestPool::of_many_layouts();
    let size = if long() { "200m" } else { "1m" };
    let engines = [
        ("psync", "--fsync=16"),
        ("pvsync2", "--fdatasync=8"),
        ("sync", "--sync=1"),
        ("mmap", "--fsync=32"),
        ("libaio", "--iodepth=8 --fsync=16"),
        ("io_uring", "--iodepth=8 --fsync=16"),
        ("posixaio", "--iodepth=4"),
    ];
    let common = format!(
        "--size={size} --bsrange=4k-60k --numjobs=3 --group_reporting --verify=crc32c \
         --verify_fatal=1 --randseed=11 --fallocate=none --output=$OUT/fio.log"
    );
    // Names that end in different characters: different layouts.
    let mut script = "check() { fio \"$@\" || { cat $OUT/fio.log >&2; echo \"$*\" >&2; exit 1; }; }\n".to_owned();
    for (number, (engine, more)) in engines.iter().enumerate() {
        let name = format!("--name=job --filename_format=job.\\$jobnum.{engine}.{}", ["0", "1", "2", "3"][number % 4]);
        script += &format!("check {name} {common} --ioengine={engine} {more} --rw=randrw --do_verify=1 --thread\n");
        script += &format!("check {name}w {common} --ioengine={engine} {more} --rw=randwrite --do_verify=0\n");
        // Short: by the next two.
        let readers = engines.iter().cycle().skip(number + 1).take(if long() { engines.len() } else { 2 });
        for (reader, _) in readers {
            script += &format!("check {name}w {common} --ioengine={reader} --rw=randwrite --verify_only\n");
        }
    }
    pool.script(preload, &script);
}
