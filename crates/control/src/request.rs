//! One request, and who sent it.

use std::fs;

/// The program that a request belongs to: a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Program(u32);

impl Program {
    /// The kernel itself, which writes pages back without saying for which process.
    pub const KERNEL: Program = Program(0);

    /// The program of process `id`; 0 is the kernel.
    pub fn of_process(id: u32) -> Self {
        Program(id)
    }

    /// The process.
    pub fn process(self) -> u32 {
        self.0
    }
}

/// The part of Stripewise that a request comes through.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Way {
    /// The mount.
    Mount,
    /// The preload, inside the program.
    Preload,
    /// The store's own interface, and Python's.
    Library,
    /// A move to another layout.
    Mover,
    /// A copy out of the pool.
    Exporter,
}

/// Who sends requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sender {
    way: Way,
    /// `None`: this process, whose number a `fork` changes.
    thread: Option<u32>,
}

impl Sender {
    /// This process.
    pub const fn this_process(way: Way) -> Self {
        Self { way, thread: None }
    }

    /// Thread `id` of another process, which asks through `way`; 0 is the kernel.
    pub const fn thread(way: Way, id: u32) -> Self {
        Self { way, thread: Some(id) }
    }

    /// The part of Stripewise that it asks.
    pub fn way(&self) -> Way {
        self.way
    }

    /// The thread of another process that asks, as this process's namespace numbers it; 0 is the kernel. `None`: this process.
    pub fn asking_thread(&self) -> Option<u32> {
        self.thread
    }

    /// The program. One system call for this process, and a file of `/proc` for the thread of another; that thread's own
    /// number where it has ended.
    pub fn program(&self) -> Program {
        match self.thread {
            None => Program(std::process::id()),
            Some(0) => Program::KERNEL,
            Some(thread) => Program(process_of(thread).unwrap_or(thread)),
        }
    }
}

/// The process that a thread belongs to.
fn process_of(thread: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{thread}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("Tgid:"))?.trim().parse().ok()
}

/// What a request does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Action {
    /// Reads bytes.
    Read,
    /// Writes bytes.
    Write,
    /// Writes bytes at the end of the file, which is found only when the request is served.
    Append,
    /// Sets the size of the file.
    Truncate,
    /// Gives a range of the file its space, zeros, or a hole (`fallocate`).
    Allocate,
    /// Makes what was written durable.
    Sync,
}

/// One request on a file's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// Who sends it.
    pub sender: Sender,
    /// What it does.
    pub action: Action,
    /// First byte of the file; 0 of an append and of a sync, and of a truncation the new size.
    pub offset: u64,
    /// Bytes that it asks for; 0 of a truncation and of a sync.
    pub len: u64,
    /// How far behind others it is served, as its file's hint `class` says; 0: with all others.
    pub rank: u8,
}

/// A file of a pool, by its logical handle; one that has none, by the number of its inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FileId(pub u64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_belongs_to_its_process() {
        let own = Sender::this_process(Way::Library).program();
        assert_eq!(own, Program::of_process(std::process::id()));
        let other = std::thread::spawn(|| {
            let thread = fs::read_link("/proc/thread-self").unwrap();
            let id = thread.file_name().unwrap().to_str().unwrap().parse().unwrap();
            (id, Sender::thread(Way::Mount, id).program())
        });
        let (id, program) = other.join().unwrap();
        assert_ne!(id, std::process::id());
        assert_eq!(program, own);
        assert_eq!(Sender::thread(Way::Mount, 0).program(), Program::KERNEL);
    }
}
