//! A program with a mount of its own: namespaces, the program as a child, signals, the end.
//!
//! The serving process and the program live in a new mount namespace; no program outside sees the mount, and it goes
//! with the last process in it. Root needs only the mount namespace; any other user gets a user namespace around it, in
//! which the user's identity is unchanged.
//!
//! **The end.** When the program has exited, the mount stays while processes that it left running have files of the
//! pool open, or work in a directory of it, but no longer than the grace. Then sizes and times are put and the mount
//! ends. A process that it left and that comes back to the pool later finds it gone (`ENOTCONN`): let the program wait
//! for what it starts.
//!
//! **If the serving process dies** (SIGKILL), the program is killed too: it has lost its files.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::mount::{MountPropagationFlags, mount_change};
use rustix::process::{Resource, Rlimit, Signal};
use rustix::thread::UnshareFlags;
use stripewise_store::Pool;

use crate::error::MountError;
use crate::log;
use crate::mounts::{HeldDirectory, MountEntry};
use crate::observers::observed;
use crate::options::MountOptions;
use crate::session::Serving;
use crate::turns;

/// Exit code when the program is not there, as shells have it.
const NOT_FOUND: i32 = 127;
/// Exit code when it cannot be executed.
const NOT_EXECUTABLE: i32 = 126;

/// Signals that are passed on to the program.
const FORWARDED: [i32; 8] = [
    libc::SIGHUP,
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGTERM,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGCONT,
    libc::SIGWINCH,
];

/// What a program inherits and the server changes for itself.
struct Inherited {
    umask: rustix::fs::Mode,
    open_files: Rlimit,
    signals: libc::sigset_t,
}

/// Runs `command` with the pool mounted at its mount path, privately unless it is mounted there already; the exit code
/// to pass on: the program's, 128 + the signal that killed it, 127 if it is not there, 126 if it cannot be executed.
///
/// Call it from the only thread of the process: namespaces are made.
///
/// # Errors
/// Those of [`MountError`]: no namespaces, no FUSE, an unusable pool. The program has not run then.
pub fn run_private(
    pool: Pool,
    command: &[OsString],
    options: &MountOptions,
    grace: Duration,
) -> Result<i32, MountError> {
    let dir = pool.mount.clone();
    let cwd = std::env::current_dir().ok();
    if already_mounted(&pool)? {
        // The program takes our place: nothing stands between it and its signals.
        let error = program(command, None).exec();
        return Ok(cannot_run(&command[0], &error));
    }
    if HeldDirectory::open(&dir).is_err() {
        std::fs::create_dir_all(&dir).map_err(|source| MountError::MountPoint { dir: dir.clone(), source })?;
    }
    enter_namespaces()?;
    let signals = block_signals()?;
    let umask = rustix::process::umask(rustix::fs::Mode::empty());
    let inherited = Inherited { umask, open_files: rustix::process::getrlimit(Resource::Nofile), signals };
    // What lies under the mount point is hidden from this program only.
    let options = MountOptions { nonempty: true, own_namespace: true, ..options.clone() };
    let door = observed(turns::door(&pool, &options)?, &pool, &options)?;
    let serving = Serving::start(pool, &dir, &options, door)?;
    // A directory below the mount point now is another one of the same name.
    let inside = cwd.filter(|cwd| cwd.starts_with(&dir));
    if let Some(cwd) = &inside
        && !cwd.is_dir()
    {
        log::error(&format!(
            "{} is the working directory and does not exist in the pool: go somewhere else",
            cwd.display()
        ));
        serving.stop();
        return Ok(NOT_FOUND);
    }
    let mut program = program(command, inside.as_deref());
    restore_in_child(&mut program, inherited);
    let code = match program.spawn() {
        Ok(mut child) => {
            let status = supervise(&mut child)?;
            linger(&serving, &dir, grace);
            exit_code(status)
        }
        Err(error) => cannot_run(&command[0], &error),
    };
    serving.stop();
    Ok(code)
}

fn already_mounted(pool: &Pool) -> Result<bool, MountError> {
    let Ok(place) = HeldDirectory::open(&pool.mount) else { return Ok(false) };
    let entry = place.mount().map_err(MountError::system("reading the mount table"))?;
    let Some(entry) = entry.filter(MountEntry::is_ours) else { return Ok(false) };
    if entry.is_of(pool) && place.is_dead() {
        let dir = place.path.display();
        log::error(&format!(
            "the process of the mount on {dir} has died (`stripewise umount {dir}` clears it): the program gets a mount of its own"
        ));
        return Ok(false);
    }
    if entry.is_of(pool) {
        return Ok(true);
    }
    Err(MountError::Mounted { dir: place.path, pool: entry.source.to_string_lossy().into_owned() })
}

fn program(command: &[OsString], dir: Option<&Path>) -> Command {
    let mut program = Command::new(&command[0]);
    program.args(&command[1..]);
    if let Some(dir) = dir {
        program.current_dir(dir);
    }
    program
}

fn cannot_run(name: &OsStr, error: &io::Error) -> i32 {
    let name = name.to_string_lossy();
    if error.kind() == io::ErrorKind::NotFound {
        log::error(&format!("{name}: no such program (look at its name and at PATH)"));
        NOT_FOUND
    } else {
        log::error(&format!("{name} cannot be executed: {error}"));
        NOT_EXECUTABLE
    }
}

fn enter_namespaces() -> Result<(), MountError> {
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    // SAFETY: nothing of this process relies on sharing what is unshared; it has one thread.
    let unshare = |flags| unsafe { rustix::thread::unshare_unsafe(flags) };
    // Root of a container may lack the right to mount and still be allowed a user namespace.
    if uid != 0 || unshare(UnshareFlags::NEWNS) == Err(Errno::PERM) {
        let denied = |errno: Errno| MountError::NoNamespace { source: errno.into() };
        unshare(UnshareFlags::NEWUSER | UnshareFlags::NEWNS).map_err(denied)?;
        let write =
            |file: &str, text: String| std::fs::write(file, text).map_err(|source| MountError::NoNamespace { source });
        write("/proc/self/setgroups", "deny".to_owned())?;
        write("/proc/self/uid_map", format!("{uid} {uid} 1"))?;
        write("/proc/self/gid_map", format!("{gid} {gid} 1"))?;
    }
    // Mounts made outside later still come in; ours do not get out.
    let flags = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
    mount_change("/", flags).map_err(MountError::system("making the mounts private"))
}

/// Blocks what [`supervise`] waits for, in this thread and in all it starts; what was blocked before.
fn block_signals() -> Result<libc::sigset_t, MountError> {
    let set = waited_signals();
    let mut before = empty_signals();
    // SAFETY: both sets are initialised and live through the call.
    match unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &set, &mut before) } {
        0 => Ok(before),
        code => Err(MountError::system("blocking signals")(io::Error::from_raw_os_error(code))),
    }
}

fn empty_signals() -> libc::sigset_t {
    let mut set = std::mem::MaybeUninit::uninit();
    // SAFETY: sigemptyset initialises the whole set.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        set.assume_init()
    }
}

fn waited_signals() -> libc::sigset_t {
    let mut set = empty_signals();
    for signal in FORWARDED.into_iter().chain([libc::SIGCHLD]) {
        // SAFETY: the set is initialised, the signal numbers are valid.
        unsafe { libc::sigaddset(&mut set, signal) };
    }
    set
}

fn restore_in_child(program: &mut Command, inherited: Inherited) {
    let parent = std::process::id();
    let restore = move || {
        rustix::process::umask(inherited.umask);
        // The limit was never below what it is set to now.
        let _ = rustix::process::setrlimit(Resource::Nofile, inherited.open_files);
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
        if rustix::process::getppid().is_none_or(|pid| pid.as_raw_nonzero().get() as u32 != parent) {
            // The server died before the line above.
            return Err(Errno::SRCH.into());
        }
        // SAFETY: the set came from pthread_sigmask.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &inherited.signals, std::ptr::null_mut()) };
        Ok(())
    };
    // SAFETY: the closure makes system calls only: no allocation, no locks.
    unsafe { program.pre_exec(restore) };
}

/// Waits for the program's end and passes signals on to it.
fn supervise(child: &mut Child) -> Result<ExitStatus, MountError> {
    let set = waited_signals();
    loop {
        if let Some(status) = child.try_wait().map_err(MountError::system("waiting for the program"))? {
            return Ok(status);
        }
        let mut info = std::mem::MaybeUninit::<libc::siginfo_t>::zeroed();
        // SAFETY: the set is initialised and `info` has room for the answer.
        let signal = unsafe { libc::sigwaitinfo(&set, info.as_mut_ptr()) };
        if signal <= 0 || signal == libc::SIGCHLD {
            continue;
        }
        // SAFETY: zeroed is a valid siginfo_t, and sigwaitinfo has filled it.
        let from_terminal = unsafe { info.assume_init() }.si_code == libc::SI_KERNEL;
        // What the terminal sends, it sends to the program as well.
        if !from_terminal {
            // SAFETY: the child has not been waited for, so its number is still its own.
            unsafe { libc::kill(child.id() as libc::pid_t, signal) };
        }
    }
}

/// Waits while the program's remains use the mount, at most for `grace`; SIGTERM and SIGINT end it at once.
fn linger(serving: &Serving, dir: &Path, grace: Duration) {
    let begin = Instant::now();
    let mut told = false;
    while begin.elapsed() < grace {
        let open = serving.open_files();
        if open == 0 && !works_below(dir) {
            return;
        }
        if !told && begin.elapsed() > Duration::from_secs(1) {
            log::error(&format!(
                "the program has exited and left processes that use {} ({open} open files): waiting up to {} s for them",
                dir.display(),
                grace.as_secs()
            ));
            told = true;
        }
        let set = waited_signals();
        let pause = libc::timespec { tv_sec: 0, tv_nsec: 2_000_000 };
        // SAFETY: set and time are initialised; no answer is asked for.
        let signal = unsafe { libc::sigtimedwait(&set, std::ptr::null_mut(), &pause) };
        if signal == libc::SIGTERM || signal == libc::SIGINT {
            return;
        }
    }
    log::error(&format!("{} is still in use: ending it", dir.display()));
}

/// Whether another process of this mount namespace has its working directory below `dir`.
fn works_below(dir: &Path) -> bool {
    let Ok(ours) = std::fs::read_link("/proc/self/ns/mnt") else { return false };
    let Ok(processes) = std::fs::read_dir("/proc") else { return false };
    let own = std::process::id();
    // Beside the numbers there are links to ourselves.
    let number = |process: &std::fs::DirEntry| process.file_name().to_str().and_then(|name| name.parse::<u32>().ok());
    processes.flatten().filter(|process| number(process).is_some_and(|number| number != own)).any(|process| {
        let path = process.path();
        std::fs::read_link(path.join("cwd")).is_ok_and(|cwd| cwd.starts_with(dir))
            && std::fs::read_link(path.join("ns/mnt")).is_ok_and(|theirs| theirs == ours)
    })
}

fn exit_code(status: ExitStatus) -> i32 {
    status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_are_the_shells() {
        assert_eq!(exit_code(ExitStatus::from_raw(3 << 8)), 3);
        assert_eq!(exit_code(ExitStatus::from_raw(9)), 137);
    }
}
