//! What cannot be simulated.

use stripewise_layout::ServerId;

/// What cannot be simulated.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum SimulateError {
    /// A layout names a server that the cluster does not have.
    #[error("the layout of file {file} uses server {server}, which no tier of the cluster has")]
    UnknownServer {
        /// Index of the file.
        file: usize,
        /// The server.
        server: ServerId,
    },
    /// A request for a file without a layout.
    #[error("process {process} uses file {file}, but only {layouts} layouts were given")]
    NoLayout {
        /// Index of the process.
        process: usize,
        /// Index of the file.
        file: u32,
        /// Number of layouts.
        layouts: usize,
    },
    /// A request ends beyond the largest file offset.
    #[error("process {process}: the request of {size} bytes at {offset} ends beyond 2^63 bytes")]
    BeyondEnd {
        /// Index of the process.
        process: usize,
        /// First byte.
        offset: u64,
        /// Bytes.
        size: u64,
    },
    /// Turns by a policy that is none.
    #[error("no policy is named '{policy}': take one of {policies}")]
    UnknownPolicy {
        /// What was asked for.
        policy: String,
        /// What there is.
        policies: String,
    },
    /// Turns of programs that do not have all processes.
    #[error("turns need one of the {programs} programs for each of {processes} processes")]
    NoProgram {
        /// Number of processes.
        processes: usize,
        /// Number of programs.
        programs: usize,
    },
    /// A process of a number that is beyond all that are simulated.
    #[error("process {process}: at most {most} are simulated")]
    ManyProcesses {
        /// Its number.
        process: usize,
        /// How many there may be.
        most: usize,
    },
    /// A file of a number that steps do not explain.
    #[error("file {file}: there are only {steps} steps")]
    ManyFiles {
        /// Its number.
        file: usize,
        /// Number of steps.
        steps: usize,
    },
    /// A think time that is negative or not a number.
    #[error("process {process}: a think time of {think_s} s is not a time")]
    Think {
        /// Index of the process.
        process: usize,
        /// The think time in seconds.
        think_s: f64,
    },
    /// A step that only [`run`](crate::run()) knows.
    #[error(
        "process {process} has a {step} step; simulate it with `run`, which has communicators and metadata servers"
    )]
    NeedsRun {
        /// Index of the process.
        process: usize,
        /// Kind of step.
        step: &'static str,
    },
    /// A collective call on a communicator that the process is no member of.
    #[error("process {process} makes a collective call on communicator {communicator}, of which it is no member")]
    NotMember {
        /// Index of the process.
        process: usize,
        /// Number of the communicator.
        communicator: u32,
    },
    /// Processes wait for each other.
    #[error("process {process} waits forever {at}: another member waits elsewhere for it")]
    Deadlock {
        /// The first process that waits.
        process: usize,
        /// Where.
        at: String,
    },
    /// A number of the system that is none a device can have.
    #[error("{what} is {value}; give a finite number above 0, or 0 for a time that takes none")]
    Value {
        /// What it is.
        what: &'static str,
        /// The number.
        value: f64,
    },
    /// A weight or a limit of a program that is none.
    #[error("{0}")]
    Rule(String),
    /// Too many of something for the 32 bits that number it.
    #[error("{count} {what} are more than the simulator can number ({most})")]
    TooMany {
        /// What there are too many of.
        what: &'static str,
        /// How many.
        count: usize,
        /// How many there may be.
        most: usize,
    },
}
