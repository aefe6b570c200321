//! Which program a process is of.
//!
//! | found by | name |
//! |---|---|
//! | `STRIPEWISE_JOB` (`--program NAME`) | as given |
//! | Slurm | `slurm:JOB.STEP` |
//! | Flux | `flux:JOB` |
//! | PRRTE, Open MPI 5 | `pmix:NAMESPACE` |
//! | Open MPI 4 | `ompi:JOB` |
//! | Hydra (MPICH) | `hydra:PROCESS` of its proxy |
//! | PBS | `pbs:JOB` |
//! | `stripewise run` | `COMMAND.PROCESS` |
//! | a cgroup that is no login | `cgroup:NAME` |
//! | else | `session:PROCESS` |
//!
//! PBS stands behind launchers that run inside its jobs, as one job may have several of them.

use rustix::fs::{CWD, Mode, OFlags};
use stripewise_schedule::{PROGRAM_NAME_BYTES, ProgramKey};

/// The environment variable that names a program; `--program NAME` sets it.
pub const JOB_VARIABLE: &str = "STRIPEWISE_JOB";
/// The environment variable by which `stripewise run` names what it starts.
pub const RUN_VARIABLE: &str = "STRIPEWISE_RUN";

/// Most bytes of a file of `/proc` that are looked at.
const PROC_BYTES: usize = 1 << 16;
/// Ancestors that are looked at for Hydra's proxy.
const MOST_ANCESTORS: usize = 16;

/// A program: its key, and its name for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identified {
    /// Of its user and its whole name.
    pub key: ProgramKey,
    /// The beginning of its name; zeros behind.
    pub name: [u8; PROGRAM_NAME_BYTES],
    /// Its user.
    pub uid: u32,
}

impl Identified {
    /// The program that user `uid` has under `name`. Control characters become `?`, since names are shown on terminals.
    pub fn named(uid: u32, name: &[u8]) -> Self {
        let mut short = [0; PROGRAM_NAME_BYTES];
        for (to, from) in short.iter_mut().zip(name) {
            *to = if from.is_ascii_control() { b'?' } else { *from };
        }
        let hash = name.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        // FNV-1a of the name, folded to 32 bits; 0 stands for all others. The user is in the key as it is, so that no page of
        // one user can speak of another's programs.
        let folded = ((hash ^ (hash >> 32)) as u32).max(1);
        Self { key: ProgramKey((u64::from(uid) << 32) | u64::from(folded)), name: short, uid }
    }

    /// The user that a program's key is of.
    pub(crate) fn user_of(key: ProgramKey) -> u32 {
        (key.0 >> 32) as u32
    }

    /// The program of this process, whose environment is asked by `variable`. Up to a few system calls where neither a
    /// launcher nor `stripewise run` has left a name there.
    pub fn this_process(variable: impl Fn(&str) -> Option<Vec<u8>>) -> Self {
        let uid = rustix::process::geteuid().as_raw();
        // Not by its number: where `/proc` is of another namespace, that is another process's there.
        Self::named(uid, &name_of("self", &variable))
    }

    /// The program of process or thread `id` of user `uid`, by its environment as it was started with; what cannot be read
    /// leaves the cgroup or the session. Several system calls.
    pub fn other_process(id: u32, uid: u32) -> Self {
        let process = id.to_string();
        let environment = proc_file(&process, "environ").unwrap_or_default();
        let variable = |name: &str| {
            let mut words = environment.split(|byte| *byte == 0);
            words.find_map(|word| word.strip_prefix(name.as_bytes())?.strip_prefix(b"=")).map(<[u8]>::to_vec)
        };
        Self::named(uid, &name_of(&process, &variable))
    }
}

/// The name of the program of `process`, which is `self` or the number of another one.
fn name_of(process: &str, variable: &impl Fn(&str) -> Option<Vec<u8>>) -> Vec<u8> {
    let set = |name: &str| variable(name).filter(|value| !value.is_empty());
    let under = |launcher: &str, name: &str| set(name).map(|value| [launcher.as_bytes(), b":", &value].concat());
    let slurm = || {
        let mut name = under("slurm", "SLURM_JOB_ID").or_else(|| under("slurm", "SLURM_JOBID"))?;
        if let Some(step) = set("SLURM_STEP_ID").or_else(|| set("SLURM_STEPID")) {
            name.push(b'.');
            name.extend(step);
        }
        Some(name)
    };
    set(JOB_VARIABLE)
        .or_else(slurm)
        .or_else(|| under("flux", "FLUX_JOB_ID"))
        .or_else(|| under("pmix", "PMIX_NAMESPACE"))
        .or_else(|| under("ompi", "OMPI_MCA_ess_base_jobid"))
        .or_else(|| set("PMI_RANK").and_then(|_| hydra_proxy(process)))
        .or_else(|| under("pbs", "PBS_JOBID"))
        .or_else(|| set(RUN_VARIABLE))
        .or_else(|| cgroup_of(process))
        .unwrap_or_else(|| session_of(process))
}

/// Hydra gives its processes no name of the run. All of a run on a node are descendants of one proxy.
fn hydra_proxy(process: &str) -> Option<Vec<u8>> {
    let mut stat = stat_of(process)?;
    for _ in 0..MOST_ANCESTORS {
        if stat.command.starts_with(b"hydra_pmi_proxy") || stat.command.starts_with(b"hydra_bstrap_pr") {
            return Some(format!("hydra:{}", stat.id).into_bytes());
        }
        stat = stat_of(&stat.parent.to_string())?;
    }
    None
}

/// The last part of the cgroup, where that is one of a job or a container: not the root, and not a login.
fn cgroup_of(process: &str) -> Option<Vec<u8>> {
    let text = proc_file(process, "cgroup")?;
    let path = text.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(b"0::"))?;
    let last = path.rsplit(|byte| *byte == b'/').find(|part| !part.is_empty())?;
    let is_login = last.starts_with(b"session-") || last.starts_with(b"user") || last.ends_with(b".slice");
    (!is_login).then(|| [b"cgroup:", last].concat())
}

/// The session, or the process alone where `/proc` does not tell. `getsid` of rustix takes the answer for the number of a
/// process, which the 0 of a session from outside of a PID namespace is not; `/proc` says 0 there, too, as a number.
fn session_of(process: &str) -> Vec<u8> {
    let session = stat_of(process).map(|stat| stat.session.to_string());
    format!("session:{}", session.as_deref().unwrap_or(process)).into_bytes()
}

/// What `/proc` says of a process, in the numbers of its PID namespace.
#[derive(Debug, PartialEq, Eq)]
struct ProcessStat {
    id: u32,
    command: Vec<u8>,
    parent: u32,
    session: u32,
}

fn stat_of(process: &str) -> Option<ProcessStat> {
    parse_stat(&proc_file(process, "stat")?)
}

fn parse_stat(text: &[u8]) -> Option<ProcessStat> {
    // A command may have parentheses and spaces of its own.
    let (begin, end) = (text.iter().position(|byte| *byte == b'(')?, text.iter().rposition(|byte| *byte == b')')?);
    let id = std::str::from_utf8(text.get(..begin)?).ok()?.trim().parse().ok()?;
    let mut fields = std::str::from_utf8(text.get(end + 1..)?).ok()?.split_ascii_whitespace().skip(1);
    let parent = fields.next()?.parse().ok()?;
    let session = fields.nth(1)?.parse().ok()?;
    Some(ProcessStat { id, command: text.get(begin + 1..end)?.to_vec(), parent, session })
}

/// A file of a process, or its beginning. By system calls of our own: the preload wraps libc's.
fn proc_file(process: &str, name: &str) -> Option<Vec<u8>> {
    let path = format!("/proc/{process}/{name}");
    let fd = rustix::fs::openat(CWD, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let mut text = vec![0; PROC_BYTES];
    let mut filled = 0;
    while filled < text.len() {
        match rustix::io::read(&fd, &mut text[filled..]) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return None,
        }
    }
    text.truncate(filled);
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn under(environment: &[(&str, &str)]) -> String {
        let variable = |name: &str| {
            let found = environment.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| value.as_bytes().to_vec())
        };
        let identified = Identified::this_process(variable);
        String::from_utf8(identified.name.to_vec()).unwrap().trim_end_matches('\0').to_owned()
    }

    #[test]
    fn launchers_name_programs_and_a_name_given_comes_first() {
        let slurm =
            [("SLURM_JOB_ID", "17"), ("SLURM_STEP_ID", "2"), ("STRIPEWISE_RUN", "cp.9"), ("PBS_JOBID", "4.srv")];
        assert_eq!(under(&slurm), "slurm:17.2");
        assert_eq!(under(&slurm[2..]), "pbs:4.srv");
        assert_eq!(under(&slurm[2..3]), "cp.9");
        assert_eq!(under(&[("FLUX_JOB_ID", "f3"), slurm[2]]), "flux:f3");
        assert_eq!(under(&[("PMIX_NAMESPACE", "prterun-a-1@1"), ("PMI_RANK", "0")]), "pmix:prterun-a-1@1");
        assert_eq!(under(&[slurm[0], ("STRIPEWISE_JOB", "mine")]), "mine");
        assert_eq!(under(&[("STRIPEWISE_JOB", ""), slurm[2]]), "cp.9", "an empty name is none");
        // This test is no process of Hydra's, whatever it says.
        assert_eq!(under(&[("PMI_RANK", "0"), slurm[2]]), "cp.9");
        let without = under(&[]);
        assert!(without.starts_with("cgroup:") || without.starts_with("session:"), "{without}");
    }

    #[test]
    fn a_session_from_outside_of_a_container_is_a_session() {
        let inside = b"7 (a) b (c) S 0 0 0 0 -1 4194560 1 2 3";
        let stat = ProcessStat { id: 7, command: b"a) b (c".to_vec(), parent: 0, session: 0 };
        assert_eq!(parse_stat(inside), Some(stat));
        for broken in [&b""[..], b"7 (a", b"x (a) S 1 1 1", b"7 (a) S 1", b")7(", b"7 (a) S 1 1 -1"] {
            assert_eq!(parse_stat(broken), None);
        }
        let own = stat_of("self").unwrap();
        assert_eq!(session_of("self"), session_of(&own.id.to_string()));
        assert_eq!(session_of("0"), b"session:0", "there is no process 0");
    }

    #[test]
    fn users_and_long_names_are_told_apart() {
        let long = [b'x'; 100];
        let (one, other) = (Identified::named(1, &long), Identified::named(1, &long[..99]));
        assert_eq!(one.name, other.name);
        assert_ne!(one.key, other.key);
        assert_ne!(Identified::named(1, b"a").key, Identified::named(2, b"a").key);
        assert_eq!(&Identified::named(1, b"a\x1b[2J\n").name[..6], b"a?[2J?");
    }

    #[test]
    fn another_process_is_known_by_its_environment() {
        let mut child =
            std::process::Command::new("sleep").arg("600").env("STRIPEWISE_JOB", "sleeper").spawn().unwrap();
        // Until it has executed its program it has the environment of this one.
        let begin = std::time::Instant::now();
        let mut found = Identified::other_process(child.id(), 7);
        while found != Identified::named(7, b"sleeper") && begin.elapsed().as_secs() < 120 {
            std::thread::yield_now();
            found = Identified::other_process(child.id(), 7);
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(found, Identified::named(7, b"sleeper"));
    }
}
