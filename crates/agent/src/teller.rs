//! What is said to the log. What strangers can bring about is said a few times only.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Lines about what is refused, in a time.
const LINES: u32 = 20;
const LINES_IN: Duration = Duration::from_secs(10);

/// Where lines go.
#[derive(Clone)]
pub struct AgentLog {
    say: Arc<dyn Fn(&str) + Send + Sync>,
    /// Since when lines are counted, and how many there were.
    refused: Arc<Mutex<(Instant, u32)>>,
}

impl AgentLog {
    /// Lines go to `say`.
    pub fn new(say: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Self { say: Arc::new(say), refused: Arc::new(Mutex::new((Instant::now(), 0))) }
    }

    /// Says a line.
    pub fn say(&self, words: &str) {
        (self.say)(words);
    }

    /// Says that something was refused: at most 20 lines in 10 s, the last of which says so.
    pub fn refuse(&self, words: &str) {
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        if refused.0.elapsed() > LINES_IN {
            *refused = (Instant::now(), 0);
        }
        refused.1 += 1;
        let count = refused.1;
        drop(refused);
        if count <= LINES {
            (self.say)(words);
        }
        if count == LINES {
            (self.say)("more is refused than is said here: no further line about it for up to 10 s");
        }
    }
}
