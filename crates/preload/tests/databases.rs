//! Databases, whose writers and whose mount are killed while they work: what was committed is there, and nothing is
//! wrong.

mod common;

use common::{TestPool, both_ways, eventually, long, need, succeeded};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

both_ways! {
    synchronous_writes_are_durable_when_they_return,
    sqlite_keeps_what_it_committed,
    postgres_recovers,
}

/// What the mount and the program sync is counted: each such write is followed by it, others are not.
fn synchronous_writes_are_durable_when_they_return(preload: bool) {
    need("strace");
    let pool = TestPool::new();
    let writes = |open: &str, flags: &str| {
        let script = format!(
            "import os\nos.chdir(os.environ['M'])\nf = os.open('f', os.O_RDWR | os.O_CREAT | {open})\n\
             for at in range(5): assert os.pwritev(f, [b'x' * 10], at * 10, {flags}) == 10\n\
             for at in range(5): assert os.write(f, b'y' * 10) == 10\nos._exit(0)"
        );
        let mounted = pool.command(preload, &[common::python(), "-c", &script]);
        let log = pool.path("out/strace.log");
        let mut command = Command::new("strace");
        command.args(["-f", "-y", "-e", "trace=fsync,fdatasync", "-o"]).arg(&log);
        command.arg(mounted.get_program()).args(mounted.get_args()).stdin(std::process::Stdio::null());
        command.envs(mounted.get_envs().filter_map(|(name, value)| Some((name, value?))));
        succeeded(&script, &command.output().expect("strace"));
        let log = std::fs::read_to_string(log).expect("a log");
        // Datafiles have names of 16 and 8 digits.
        let datafile = |line: &&str| line.contains("/s0/") && line.contains(".0000000");
        log.lines().filter(datafile).count()
    };
    assert_eq!(writes("0", "0"), 0);
    assert!(writes("os.O_DSYNC", "0") >= 10);
    assert!(writes("os.O_SYNC", "0") >= 10);
    assert!(writes("0", "os.RWF_DSYNC") >= 5);
    assert!(writes("0", "os.RWF_SYNC") >= 5);
}

/// A program in its own process group, which ends with the value.
struct Group {
    first: Child,
}

impl Group {
    fn start(mut command: Command, log: &Path) -> Self {
        let log = std::fs::File::create(log).expect("a log");
        command.stdout(log.try_clone().expect("a descriptor")).stderr(log).process_group(0);
        Self { first: command.spawn().expect("the program") }
    }

    /// All processes below it, though they may have made groups of their own.
    fn processes(&self) -> Vec<u32> {
        let mut found = vec![self.first.id()];
        let mut next = 0;
        while let Some(&parent) = found.get(next) {
            let tasks = std::fs::read_dir(format!("/proc/{parent}/task")).into_iter().flatten().flatten();
            for task in tasks {
                let children = std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
                found.extend(children.split_whitespace().map(|child| child.parse::<u32>().expect("a number")));
            }
            next += 1;
        }
        found
    }

    /// SIGKILL to `some` of its processes; then to the rest, after all that had come to what it would.
    fn kill(mut self, some: impl Fn(&[u32]) -> Vec<u32>) {
        let all = self.processes();
        for process in some(&all) {
            kill(process);
        }
        let _ = self.first.wait();
        all.iter().skip(1).for_each(|&process| kill(process));
        eventually("the end of the program's processes", || {
            all[1..].iter().all(|process| {
                std::fs::read_to_string(format!("/proc/{process}/stat")).map_or(true, |stat| stat.contains(") Z "))
            })
        });
    }
}

fn kill(process: u32) {
    if let Some(process) = rustix::process::Pid::from_raw(process as i32) {
        // Gone already is as good.
        let _ = rustix::process::kill_process(process, rustix::process::Signal::KILL);
    }
}

/// Writes transactions of several rows until it is killed, and notes outside the pool which were committed.
const WRITER: &str = r#"
import itertools, os, sqlite3, sys
os.chdir(os.environ['M'])
name, mode, noted = sys.argv[1], sys.argv[2], os.open(os.environ['OUT'] + '/noted', os.O_WRONLY | os.O_APPEND | os.O_CREAT)
base = sqlite3.connect(name, isolation_level=None)
base.execute(f'pragma journal_mode={mode}')
base.execute('pragma synchronous=full')
base.execute('pragma wal_autocheckpoint=20')
base.execute('create table if not exists t (run integer, number integer, part integer, pad blob, primary key (run, number, part))')
base.execute('create index if not exists pads on t (substr(pad, 1, 8))')
run = (base.execute('select max(run) from t').fetchone()[0] or 0) + 1
for number in itertools.count():
    base.execute('begin')
    for part in range(8):
        base.execute('insert into t values (?, ?, ?, ?)', (run, number, part, os.urandom(1 + number * 97 % 3000)))
    if number % 5 == 4:
        base.execute('delete from t where run = ? and number = ?', (run, number - 4))
    base.execute('commit')
    os.write(noted, b'%d %d\n' % (run, number))
"#;

const CHECK: &str = r#"
import os, sqlite3, sys
os.chdir(os.environ['M'])
base = sqlite3.connect(sys.argv[1])
assert base.execute('pragma integrity_check').fetchall() == [('ok',)]
there = dict()
for run, number, parts in base.execute('select run, number, count(*) from t group by run, number'):
    assert parts == 8, (run, number, parts)
    there.setdefault(run, set()).add(number)
noted = [tuple(map(int, line.split())) for line in open(os.environ['OUT'] + '/noted')]
last = {}
for run, number in noted:
    last[run] = number
for run, number in noted:
    deleted = number % 5 == 0 and number + 4 <= max(there.get(run, {0}) | {last[run]})
    assert deleted or number in there.get(run, ()), ('lost', run, number)
"#;

fn sqlite_keeps_what_it_committed(preload: bool) {
    for (mode, name) in [("wal", "base0"), ("wal", "base1"), ("delete", "base2")] {
        let pool = TestPool::of_many_layouts();
        let noted = pool.path("out/noted");
        for round in 0..if long() { 50 } else { 2 } {
            let before = std::fs::metadata(&noted).map_or(0, |noted| noted.len());
            let mut writer = pool.command(preload, &[common::python(), "-c", WRITER, name, mode]);
            writer.env("PYTHONDONTWRITEBYTECODE", "1");
            let group = Group::start(writer, &pool.path("out/log"));
            eventually("some transactions", || {
                std::fs::metadata(&noted).is_ok_and(|noted| noted.len() > before + 150 + 37 * round)
            });
            // The writer alone, or the mount under it.
            let mount_too = round % 2 == 1;
            group.kill(|all| if mount_too { all[..1].to_vec() } else { all[1..].to_vec() });
            let check = pool.command(preload, &[common::python(), "-c", CHECK, name]).output().expect("python3");
            succeeded(&format!("{mode}, round {round}"), &check);
        }
    }
}

/// Where PostgreSQL's server programs are: Debian keeps them out of the search path.
fn postgres_programs() -> PathBuf {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut found: Vec<_> = versions.map(|version| version.path().join("bin")).collect();
    found.retain(|programs| programs.join("initdb").exists() && programs.join("pgbench").exists());
    found.sort();
    found.pop().unwrap_or_else(|| {
        need("initdb");
        let there = Command::new("sh").args(["-c", "dirname $(readlink -f $(command -v initdb))"]).output();
        String::from_utf8(there.expect("sh").stdout).expect("a path").trim().into()
    })
}

/// Starts the server in the foreground of a background job; it serves when this returns.
const START: &str = "
    export PATH=$PROGRAMS:$PATH LC_ALL=C PGHOST=$OUT PGDATABASE=postgres PGUSER=user
    start() {
        postgres -D $M/data -k $OUT -c listen_addresses= -c max_wal_size=32MB -c checkpoint_timeout=30s \\
            -c wal_buffers=64kB -c shared_buffers=4MB -c wal_sync_method=$1 -c full_page_writes=on \\
            -c log_checkpoints=on >> $OUT/server.log 2>&1 &
        server=$!
        until pg_isready -q; do
            kill -0 $server || { cat $OUT/server.log >&2; exit 1; }
            sleep 0.05
        done
    }
";

fn postgres_recovers(preload: bool) {
    let pool = TestPool::of_many_layouts().unprivileged();
    let programs = postgres_programs();
    let shell = |script: &str| {
        let mut command = pool.command(preload, &["sh", "-euc", &format!("{START}\n{script}")]);
        command.env("PROGRAMS", &programs);
        command
    };
    let run = |script: &str| succeeded(script, &shell(script).output().expect("sh"));
    run("initdb -D $M/data -U user -A trust --data-checksums --no-sync --no-instructions > $OUT/initdb.log
         start fdatasync; pgbench -i -q -s 1 > $OUT/init.log 2>&1
         psql -qc 'create table noise (a int primary key, b text)'
         kill -INT $server; wait $server");
    let seconds = if long() { 60 } else { 2 };
    for round in 0..if long() { 12 } else { 2 } {
        // Clients that note each commit they were told of, beside one that makes files come and go.
        let method = ["fdatasync", "open_datasync", "fsync"][round % 3];
        let load = shell(&format!(
            "start {method}
             (while :; do
                 psql -qc \"insert into noise select i, repeat('x', 900) from generate_series(1, 3000) i;
                     update noise set b = b || 'y' where a % 3 = 0\" -c checkpoint -c 'truncate noise' || exit 0
             done > $OUT/noise.log 2>&1) &
             touch $OUT/loaded.{round}
             pgbench -n -c 4 -j 2 -T 600 -l --log-prefix=$OUT/commits.{round} > $OUT/pgbench.log 2>&1; exit 0"
        ));
        let group = Group::start(load, &pool.path("out/load.log"));
        eventually("the load", || pool.path(&format!("out/loaded.{round}")).exists());
        std::thread::sleep(std::time::Duration::from_secs(seconds));
        let commits = || -> u64 {
            let logs = std::fs::read_dir(pool.path("out")).expect("a directory").flatten();
            let logs = logs.filter(|log| log.file_name().to_string_lossy().starts_with("commits."));
            logs.map(|log| {
                std::fs::read(log.path()).expect("a log").iter().filter(|&&byte| byte == b'\n').count() as u64
            })
            .sum()
        };
        let server_only = round % 2 == 0;
        group.kill(|all| {
            let name = |process: &u32| std::fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default();
            match server_only {
                true => all.iter().copied().filter(|process| name(process).starts_with("postgres")).collect(),
                false => all[..1].to_vec(),
            }
        });
        let committed = commits();
        let counted = run(
            "rm -f $M/data/postmaster.pid $OUT/.s.PGSQL.*; start fdatasync
             psql -Atc 'select (select sum(abalance) from pgbench_accounts) = (select sum(delta) from pgbench_history),
                 (select sum(tbalance) from pgbench_tellers) = (select sum(delta) from pgbench_history),
                 (select sum(bbalance) from pgbench_branches) = (select sum(delta) from pgbench_history),
                 (select count(*) from pgbench_history)'
             pg_amcheck --heapallindexed --install-missing -d postgres > $OUT/amcheck.log 2>&1 || { cat $OUT/amcheck.log >&2; exit 1; }
             psql -qc 'drop table noise; create table noise (a int primary key, b text)'
             kill -INT $server; wait $server; pg_checksums --check -D $M/data > $OUT/checksums.log",
        );
        let log = std::fs::read_to_string(pool.path("out/server.log")).expect("a log");
        assert!(!log.contains("beyond EOF"), "after round {round}, a process saw an old size: {log}");
        let fields: Vec<_> = counted.trim().split('|').collect();
        assert_eq!(fields[..3], ["t", "t", "t"], "after round {round}: {counted}");
        let there: u64 = fields[3].parse().expect("a count");
        assert!(there >= committed, "{committed} commits were told to clients, {there} are there");
        assert!(there > 0, "nothing was committed: {}", std::fs::read_to_string(pool.path("out/pgbench.log")).unwrap());
    }
}
