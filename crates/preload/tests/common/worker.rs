//! A program under the library that does what it is told, one call at a time.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use super::{TestPool, library, python};

/// A line for a [`Worker`]: whether it has a datafile on the server `s1` open by itself.
pub const GOES_PAST_THE_MOUNT: &str = "any('/s1/' in os.readlink('/proc/self/fd/' + fd) for fd in os.listdir('/proc/self/fd') \
                                       if os.path.lexists('/proc/self/fd/' + fd))";

/// Carries out lines of Python as they come, and answers each with its value or the number of its error.
const WORKER: &str = r#"
import ctypes, os, sys, threading
os.chdir(os.environ['M'])
for line in sys.stdin:
    try:
        value = eval(line)
    except OSError as error:
        value = -error.errno
    print(value, flush=True)
"#;

/// A Python under the library.
pub struct Worker {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Worker {
    /// Starts one in the pool's mount, which is there.
    pub fn start(pool: &TestPool) -> Worker {
        let mut command = Command::new(python());
        command.args(["-c", WORKER]).env("LD_PRELOAD", library()).env("M", pool.path("mnt"));
        command.env("STRIPEWISE_POOL", pool.path("pool.toml")).env("STRIPEWISE_MOUNT", pool.path("mnt"));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        Worker { child, input, output }
    }

    /// What it answers to a line of Python.
    pub fn ask(&mut self, line: &str) -> String {
        writeln!(self.input, "{line}").unwrap();
        let mut answer = String::new();
        self.output.read_line(&mut answer).unwrap();
        answer.trim().to_owned()
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
