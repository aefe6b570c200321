//! Runs processes under ptrace(2): every system call of theirs that changes something on the disks comes by here, in
//! order, before and after it is carried out, and a process can be killed before any of them. A filter of seccomp(2) has
//! the others go on without a stop, which are nearly all.
//!
//! Nothing of the product is changed for it: it is the real program that is watched.

use std::collections::HashMap;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{PoisonError, RwLock};

use crate::effect::{CALLS, Call, Effect, Objects};

/// Descriptor to which a script says what it begins and what it has done: the last that a process may have anywhere, as
/// nothing that this one has open while tests run side by side may be in its place.
pub const MARKS: i32 = 1023;

/// Where a second mount is, below the base directory.
pub const OTHER: &str = "other";

/// Held for writing where a process is made, for reading where a store is used in this one: until it has been replaced by its
/// program, a new process holds every lock that this one has.
pub static FORKING: RwLock<()> = RwLock::new(());

/// What a process under watch is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The mount: its system calls are the store's.
    Mount,
    /// The script: it marks what it does, and what it does to the pool's directories itself is the store's too.
    Script,
}

/// One step of a run.
#[derive(Clone, Debug)]
pub enum Step {
    /// The script began its operation of that number.
    Begins(usize),
    /// It was told that the operation is done.
    Ends(usize),
    /// A system call of the store has changed something.
    Effect(Effect),
}

/// What a run came to.
#[derive(Debug, Default)]
pub struct Run {
    /// Everything in order.
    pub steps: Vec<Step>,
    /// Fault points that were passed: system calls of the store with an effect, since the script began.
    pub points: usize,
    /// Which process was killed, and the call that was not carried out therefore.
    pub killed: Option<(Role, String)>,
    /// Operations the script was told to be done.
    pub ended: usize,
    /// Operations the script has begun.
    pub begun: usize,
    /// The script's exit code.
    pub script_code: Option<i32>,
}

struct Thread {
    process: i32,
    role: Role,
    /// Under way: its end is waited for.
    call: Option<Call>,
}

/// Processes under watch.
pub struct Tracer {
    threads: HashMap<i32, Thread>,
    leaders: HashMap<i32, (Role, Option<i32>)>,
    objects: Objects,
    run: Run,
    kill_at: Option<usize>,
    /// Operations before the first fault point.
    setup: usize,
}

fn ptrace(request: libc::c_uint, pid: i32, address: usize, data: usize) -> Result<i64, std::io::Error> {
    // SAFETY: requests that write into this process are given a buffer of theirs below; all others take numbers.
    match unsafe { libc::ptrace(request, pid, address, data) } {
        -1 => Err(std::io::Error::last_os_error()),
        done => Ok(done),
    }
}

/// Has the calls of this process stop for its tracer that may have an effect.
///
/// # Errors
///
/// Those of seccomp(2): it takes root.
fn stop_at_calls() -> Result<(), std::io::Error> {
    // Where the kernel puts the call's number, and the lower half of the third argument, which are openat's flags.
    const NUMBER: u32 = std::mem::offset_of!(libc::seccomp_data, nr) as u32;
    const FLAGS: u32 =
        (std::mem::offset_of!(libc::seccomp_data, args) + 16 + if cfg!(target_endian = "big") { 4 } else { 0 }) as u32;
    const LOAD: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
    const SAME: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    const ANY_BIT: u32 = libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K;
    const RETURN: u32 = libc::BPF_RET | libc::BPF_K;
    let one = |code: u32, k: u32, jt: u8, jf: u8| libc::sock_filter { code: code as u16, jt, jf, k };
    let makes = libc::O_CREAT | libc::O_TRUNC | libc::O_TMPFILE & !libc::O_DIRECTORY;
    let mut filter = [one(RETURN, libc::SECCOMP_RET_ALLOW, 0, 0); 7 + 2 * CALLS.len()];
    filter[..5].copy_from_slice(&[
        one(LOAD, NUMBER, 0, 0),
        one(SAME, libc::SYS_openat as u32, 0, 4),
        one(LOAD, FLAGS, 0, 0),
        one(ANY_BIT, makes as u32, 0, 1),
        one(RETURN, libc::SECCOMP_RET_TRACE, 0, 0),
    ]);
    for (index, &call) in CALLS.iter().enumerate() {
        filter[6 + 2 * index] = one(SAME, call as u32, 0, 1);
        filter[7 + 2 * index] = one(RETURN, libc::SECCOMP_RET_TRACE, 0, 0);
    }
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: the program and its filter live until the call returns; the kernel copies them.
    match unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) } {
        -1 => Err(std::io::Error::last_os_error()),
        _ => Ok(()),
    }
}

impl Tracer {
    /// Watches what is done below `base`. With `kill_at`, the process that is about to pass that fault point is killed.
    pub fn new(base: &Path, setup: usize, kill_at: Option<usize>) -> Tracer {
        Tracer {
            threads: HashMap::new(),
            leaders: HashMap::new(),
            objects: Objects::new(base),
            run: Run::default(),
            kill_at,
            setup,
        }
    }

    /// The inodes it knows.
    pub fn objects(&mut self) -> &mut Objects {
        &mut self.objects
    }

    /// Starts a process; it waits until the next [`Tracer::until`].
    pub fn start(&mut self, mut command: Command, role: Role) -> i32 {
        // SAFETY: ptrace(2) and prctl(2) are plain system calls, allowed between fork and exec.
        unsafe {
            command.pre_exec(|| match libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) {
                -1 => Err(std::io::Error::last_os_error()),
                _ => stop_at_calls(),
            });
        }
        let _alone = FORKING.write().unwrap_or_else(PoisonError::into_inner);
        #[expect(clippy::zombie_processes, reason = "every process is waited for by `step`")]
        let child = command.spawn().expect("a process to watch starts");
        let pid = child.id() as i32;
        let mut status = 0;
        // SAFETY: our own child, and room for its status. It stops by itself after exec.
        unsafe { libc::waitpid(pid, &raw mut status, libc::__WALL) };
        assert!(libc::WIFSTOPPED(status), "the process stops after exec");
        let options = libc::PTRACE_O_TRACESYSGOOD
            | libc::PTRACE_O_TRACECLONE
            | libc::PTRACE_O_TRACEFORK
            | libc::PTRACE_O_TRACEVFORK
            | libc::PTRACE_O_TRACEEXEC
            | libc::PTRACE_O_TRACESECCOMP
            | libc::PTRACE_O_EXITKILL;
        ptrace(libc::PTRACE_SETOPTIONS, pid, 0, options as usize).expect("ptrace works here");
        self.threads.insert(pid, Thread { process: pid, role, call: None });
        self.leaders.insert(pid, (role, None));
        ptrace(libc::PTRACE_CONT, pid, 0, 0).expect("the process goes on");
        pid
    }

    /// Lets everything run until the process `pid` has ended.
    pub fn until_end_of(&mut self, pid: i32) {
        while self.leaders.get(&pid).is_some_and(|(_, code)| code.is_none()) {
            self.step();
        }
    }

    /// Whether the process has not ended.
    pub fn runs(&self, pid: i32) -> bool {
        self.leaders.get(&pid).is_some_and(|(_, code)| code.is_none())
    }

    /// What has happened.
    pub fn finish(mut self) -> Run {
        assert!(self.leaders.values().all(|(_, code)| code.is_some()), "a watched process still runs");
        std::mem::take(&mut self.run)
    }

    fn step(&mut self) {
        let mut status = 0;
        // SAFETY: room for the status. Only children of this thread, so that tests run side by side.
        let tid = unsafe { libc::waitpid(-1, &raw mut status, libc::__WALL | libc::__WNOTHREAD) };
        assert!(tid > 0, "a watched process vanished: {}", std::io::Error::last_os_error());
        if libc::WIFEXITED(status) || libc::WIFSIGNALED(status) {
            self.threads.remove(&tid);
            if let Some((role, code)) = self.leaders.get_mut(&tid) {
                let ended = if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { -libc::WTERMSIG(status) };
                *code = Some(ended);
                if *role == Role::Script {
                    self.run.script_code = Some(ended);
                }
            }
            return;
        }
        let signal = libc::WSTOPSIG(status);
        let mut deliver = 0;
        if signal == libc::SIGTRAP | 0x80 || status >> 16 == libc::PTRACE_EVENT_SECCOMP {
            self.system_call(tid);
        } else if status >> 16 != 0 {
            // An event: a new thread or process stops by itself, and is met here when it does.
        } else if signal == libc::SIGSTOP && !self.threads.contains_key(&tid) {
            self.adopt(tid);
        } else if signal != libc::SIGTRAP {
            deliver = signal;
        }
        // To the end of the call that it is in, if that is looked at.
        let is_looked_at = self.threads.get(&tid).is_some_and(|thread| thread.call.is_some());
        let until = if is_looked_at { libc::PTRACE_SYSCALL } else { libc::PTRACE_CONT };
        // It may have been killed meanwhile: its end comes by here next.
        let _ = ptrace(until, tid, 0, deliver as usize);
    }

    /// A thread, or a child, of a process under watch.
    fn adopt(&mut self, tid: i32) {
        let status = std::fs::read_to_string(format!("/proc/{tid}/status")).unwrap_or_default();
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|value| value.trim().parse::<i32>().ok())
        };
        let process = field("Tgid:").unwrap_or(tid);
        let of = if process == tid { field("PPid:").unwrap_or(tid) } else { process };
        let role = self.leaders.get(&of).map_or(Role::Mount, |(role, _)| *role);
        if process == tid {
            self.leaders.insert(tid, (role, None));
        }
        self.threads.insert(tid, Thread { process, role, call: None });
    }

    fn system_call(&mut self, tid: i32) {
        if !self.threads.contains_key(&tid) {
            self.adopt(tid);
        }
        let mut info = std::mem::MaybeUninit::<libc::ptrace_syscall_info>::zeroed();
        let size = size_of::<libc::ptrace_syscall_info>();
        if ptrace(libc::PTRACE_GET_SYSCALL_INFO, tid, size, info.as_mut_ptr() as usize).is_err() {
            return;
        }
        // SAFETY: zeroed, then filled by the kernel; all of its fields are plain numbers.
        let info = unsafe { info.assume_init() };
        let Some(thread) = self.threads.get_mut(&tid) else { return };
        match info.op {
            libc::PTRACE_SYSCALL_INFO_SECCOMP => {
                // SAFETY: `op` says which field holds.
                let entry = unsafe { info.u.seccomp };
                thread.call = None;
                let (role, process) = (thread.role, thread.process);
                if role == Role::Script && entry.nr == libc::SYS_write as u64 && entry.args[0] == MARKS as u64 {
                    let text = crate::effect::memory(tid, entry.args[1], entry.args[2] as usize);
                    self.mark(&String::from_utf8_lossy(&text));
                    return;
                }
                let call = self.objects.enter(tid, entry.nr as i64, entry.args);
                if call.is_some() {
                    self.pass(tid, process, role, call);
                }
            }
            libc::PTRACE_SYSCALL_INFO_EXIT => {
                // SAFETY: as above.
                let exit = unsafe { info.u.exit };
                if let Some(call) = thread.call.take()
                    && exit.is_error == 0
                {
                    self.run.steps.extend(self.objects.leave(tid, call, exit.sval).into_iter().map(Step::Effect));
                }
            }
            _ => {}
        }
    }

    /// A call with an effect is about to be carried out.
    fn pass(&mut self, tid: i32, process: i32, role: Role, call: Option<Call>) {
        if self.run.begun > self.setup && self.run.killed.is_none() {
            if self.kill_at == Some(self.run.points) {
                self.run.killed = call.as_ref().map(|call| (role, call.to_string()));
                // SAFETY: a child of ours that has not been waited for.
                unsafe { libc::kill(process, libc::SIGKILL) };
                return;
            }
            self.run.points += 1;
        }
        if let Some(thread) = self.threads.get_mut(&tid) {
            thread.call = call;
        }
    }

    fn mark(&mut self, text: &str) {
        let (kind, number) = text.split_at(1);
        let number: usize = number.trim().parse().expect("a mark has a number");
        if kind == "B" {
            self.run.begun = number + 1;
            self.run.steps.push(Step::Begins(number));
        } else {
            self.run.ended = number + 1;
            self.run.steps.push(Step::Ends(number));
        }
    }
}

impl Drop for Tracer {
    fn drop(&mut self) {
        for (pid, (_, code)) in &self.leaders {
            if code.is_none() {
                // SAFETY: a child of ours that has not been waited for. A failed test leaves nothing running.
                unsafe { libc::kill(*pid, libc::SIGKILL) };
            }
        }
        while self.leaders.values().any(|(_, code)| code.is_none()) {
            self.step();
        }
    }
}

/// Where a process's descriptor can be looked at.
pub fn descriptor(tid: i32, fd: i32) -> PathBuf {
    PathBuf::from(format!("/proc/{tid}/fd/{fd}"))
}
