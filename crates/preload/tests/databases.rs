//! Databases, whose writers and whose mount are killed while they work: what was committed is there, and nothing is wrong.

mod common;

use common::{TestPool, both_ways, eventually, long, need, succeeded};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command};

both_ways! {
    synchronous_writes_are_durable_when_they_return,
    sqlite_keeps_what_it_committed,
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
        for round in 0..if long() { 50 } else { 3 } {
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
