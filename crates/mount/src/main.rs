//! `stripewise-mount`: mounts a pool, unmounts it, or runs one program with a mount of its own.

use std::ffi::OsString;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use stripewise_mount::{
    HelperCall, MountError, MountOptions, Serving, door, is_helper, observed, remount, run_private, unmount,
};
use stripewise_store::Pool;

/// Mount a Stripewise pool.
///
/// Exit codes: 0 when mounted (or unmounted), 1 with a message when not, 2 for a wrong command line; with --private
/// those of the program, 128 + N when signal N killed it, 127 when it does not exist, 126 when it cannot be executed.
#[derive(Parser, Debug)]
#[command(
    name = "stripewise-mount",
    version,
    override_usage = "stripewise-mount [OPTIONS] POOL.toml [DIR]\n       \
    stripewise-mount --private POOL.toml -- PROGRAM [ARGS]...\n       stripewise-mount --unmount DIR"
)]
struct Args {
    /// The pool's file
    #[arg(value_name = "POOL.toml", required_unless_present = "unmount")]
    pool: Option<PathBuf>,
    /// Where to mount it, instead of the pool's own `mount`
    #[arg(value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Stay in the foreground, messages to standard error
    #[arg(short, long)]
    foreground: bool,
    /// Run one program with the pool mounted for it alone; needs no root where user namespaces are allowed
    #[arg(long, requires = "command", conflicts_with_all = ["foreground", "dir"])]
    private: bool,
    /// Unmount what is mounted on DIR
    #[arg(short, long, value_name = "DIR", conflicts_with_all = ["pool", "dir", "private", "foreground"])]
    unmount: Option<PathBuf>,
    /// With --unmount: detach it now, end it when no program uses it any more
    #[arg(long, requires = "unmount")]
    lazy: bool,
    /// With --unmount: how long to wait for the end of the process that serves the mount, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 60, requires = "unmount", conflicts_with = "lazy")]
    wait: u64,
    /// Mount options: ro, nosuid, nodev, noexec, noatime, sync, dirsync, allow_other, nonempty, nopassthrough, orchestrated,
    /// latencies, max_read=BYTES, threads=N, clone_fd, fsname=NAME, remount; what /etc/fstab says to others is overlooked
    #[arg(short = 'o', value_name = "OPTIONS")]
    options: Vec<String>,
    /// With --private: how long processes that the program left running may go on using the pool, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    grace: u64,
    /// With --private: the program and its arguments
    #[arg(last = true, value_name = "PROGRAM")]
    command: Vec<OsString>,
}

fn main() -> ExitCode {
    let mut words = std::env::args_os();
    let done = if words.next().is_some_and(|name| is_helper(&name)) { help(words) } else { run(&Args::parse()) };
    match done {
        Ok(code) => ExitCode::from(code as u8),
        Err(error) => {
            eprintln!("stripewise-mount: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<i32, MountError> {
    if let Some(dir) = &args.unmount {
        unmount(dir, args.lazy, Duration::from_secs(args.wait))?;
        return Ok(0);
    }
    let mut options = MountOptions::defaults(rustix::process::geteuid().is_root());
    for list in &args.options {
        options.add(list)?;
    }
    let Some(file) = &args.pool else { return Ok(2) };
    let pool = Pool::load(file)?;
    if args.private {
        return run_private(pool, &args.command, &options, Duration::from_secs(args.grace));
    }
    let dir = args.dir.clone().unwrap_or_else(|| pool.mount.clone());
    if options.remount {
        return remount(&dir, &options).map(|()| 0);
    }
    if args.foreground { serve(pool, &dir, &options, None) } else { daemon(pool, &dir, &options) }
}

/// Does what mount(8) asks for.
fn help(words: impl Iterator<Item = OsString>) -> Result<i32, MountError> {
    let call = HelperCall::parse(words, rustix::process::geteuid().is_root())?;
    if call.options.remount {
        // mount(8) may name the pool by what the mount table shows, which need not be its file.
        return remount(&call.dir, &call.options).map(|()| 0);
    }
    let pool = Pool::load(&call.pool)?;
    if call.fake { Ok(0) } else { daemon(pool, &call.dir, &call.options) }
}

/// Mounts and serves until the mount ends; `ready` is told when it is there.
fn serve(pool: Pool, dir: &Path, options: &MountOptions, ready: Option<OwnedFd>) -> Result<i32, MountError> {
    let signals = [libc::SIGTERM, libc::SIGINT, libc::SIGHUP];
    let set = signal_set(&signals);
    // SAFETY: the set is initialised; what was blocked before is not asked for.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut()) };
    // Before there is a mount: it would end where no descriptor is left for this.
    let come = signals_come(&set)?;
    let door = observed(door(&pool, options)?, &pool, options)?;
    let serving = Serving::start(pool, dir, options, door)?;
    if let Some(ready) = ready {
        become_quiet(ready);
    }
    let mut detached = false;
    while has_signal(&come, serving.end())? {
        let at_once = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: set and time are initialised; no answer is asked for.
        let signal = unsafe { libc::sigtimedwait(&set, std::ptr::null_mut(), &at_once) };
        if signal <= 0 {
            continue;
        }
        if detached || serving.open_files() == 0 {
            serving.stop();
            return Ok(0);
        }
        // Programs have files open: they are served until they close them, or until the next signal.
        serving.detach();
        detached = true;
    }
    serving.wait()?;
    Ok(0)
}

fn signal_set(signals: &[i32]) -> libc::sigset_t {
    let mut set = std::mem::MaybeUninit::uninit();
    // SAFETY: sigemptyset initialises the set before anything else uses it; the numbers are valid signals.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for signal in signals {
            libc::sigaddset(set.as_mut_ptr(), *signal);
        }
        set.assume_init()
    }
}

/// What `poll` finds readable when a signal of the set has come.
fn signals_come(set: &libc::sigset_t) -> Result<OwnedFd, MountError> {
    // SAFETY: the set is initialised.
    match unsafe { libc::signalfd(-1, set, libc::SFD_CLOEXEC) } {
        -1 => Err(MountError::System { what: "waiting for signals", source: std::io::Error::last_os_error() }),
        // SAFETY: the kernel has just made it, and no object owns it.
        made => Ok(unsafe { OwnedFd::from_raw_fd(made) }),
    }
}

/// Waits for a signal, without a look at the time: an idle mount takes none of a processor's. False: the mount has ended.
fn has_signal(signals: &OwnedFd, end: BorrowedFd<'_>) -> Result<bool, MountError> {
    loop {
        let mut asked = [PollFd::new(signals, PollFlags::IN), PollFd::from_borrowed_fd(end, PollFlags::IN)];
        match poll(&mut asked, None) {
            Ok(_) => return Ok(asked[1].revents().is_empty()),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(MountError::System { what: "waiting for signals", source: errno.into() }),
        }
    }
}

/// Serves from a process of its own; returns when the pool is mounted, or with the reason why not.
fn daemon(pool: Pool, dir: &Path, options: &MountOptions) -> Result<i32, MountError> {
    let failed = |source: Errno| MountError::System { what: "starting the daemon", source: source.into() };
    let (mut reader, writer) =
        std::io::pipe().map_err(|source| MountError::System { what: "starting the daemon", source })?;
    // SAFETY: this process has one thread, so the child may go on as if nothing had happened.
    match unsafe { libc::fork() } {
        -1 => Err(MountError::System { what: "starting the daemon", source: std::io::Error::last_os_error() }),
        0 => {
            drop(reader);
            // A group leader cannot become a session leader, and a new child is none.
            rustix::process::setsid().map_err(failed)?;
            serve(pool, dir, options, Some(writer.into()))
        }
        child => {
            drop(writer);
            let mut ready = [0];
            if reader.read(&mut ready).is_ok_and(|count| count == 1) {
                return Ok(0);
            }
            // The child has said why on its (and our) standard error; its exit code is passed on.
            let mut status = 0;
            // SAFETY: our own child, and room for its status.
            unsafe { libc::waitpid(child, &mut status, 0) };
            Ok(if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { 1 })
        }
    }
}

/// Lets go of the terminal and of the starting directory, then says that the mount is there.
fn become_quiet(ready: OwnedFd) {
    stripewise_mount::log::to_syslog();
    // None of this can fail in a way that matters more than the mount.
    let _ = rustix::process::chdir("/");
    if let Ok(null) = std::fs::File::options().read(true).write(true).open("/dev/null") {
        for standard in 0..3 {
            // SAFETY: both descriptors are open; standard input, output and error are not owned by any object.
            unsafe { libc::dup2(null.as_raw_fd(), standard) };
        }
    }
    let _ = std::fs::File::from(ready).write_all(&[1]);
}
