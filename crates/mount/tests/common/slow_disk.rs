//! A disk that neither the model nor the emulated devices know: one queue, a head that seeks by distance, and a buffer that it
//! fills by reading ahead while it is idle. It paces a file system of the tests' own.

use super::faulty::Pace;
use std::collections::HashMap;
use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};

/// Files begin this far apart on the disk.
const APART_BYTES: u64 = 8 << 30;

/// Bytes that the longest seek passes.
const STROKE_BYTES: f64 = 1e12;

/// Requests at the disk at once.
pub const DEPTH: usize = 32;

/// What a kind of disk can do.
#[derive(Clone, Copy)]
pub struct Mechanics {
    /// Of the command itself.
    command: Duration,
    /// Shortest and longest seek, and a turn.
    settle: Duration,
    stroke: Duration,
    turn: Duration,
    /// From the medium, and from the buffer.
    bytes_per_s: f64,
    buffer_bytes_per_s: f64,
    /// Bytes that it reads ahead.
    ahead_bytes: u64,
}

/// A hard disk.
pub const DISK: Mechanics = Mechanics {
    command: Duration::from_micros(150),
    settle: Duration::from_micros(1500),
    stroke: Duration::from_micros(9000),
    turn: Duration::from_micros(8300),
    bytes_per_s: 110e6,
    buffer_bytes_per_s: 400e6,
    ahead_bytes: 512 << 10,
};

/// Flash: no seeks.
pub const FLASH: Mechanics = Mechanics {
    command: Duration::from_micros(180),
    settle: Duration::ZERO,
    stroke: Duration::ZERO,
    turn: Duration::ZERO,
    bytes_per_s: 450e6,
    buffer_bytes_per_s: 450e6,
    ahead_bytes: 0,
};

#[derive(Default)]
struct State {
    /// Waiting requests: number and position.
    waiting: Vec<(u64, u64)>,
    next_number: u64,
    /// Whose turn it is.
    serving: Option<u64>,
    head: u64,
    /// What was read ahead begins at the head; since when the disk is idle there.
    idle_since: Option<Instant>,
    reads_ahead: bool,
    starts: HashMap<u64, u64>,
    random: u64,
}

/// A disk: its queue, its head, its buffer.
pub struct SlowDisk {
    mechanics: Mechanics,
    state: Mutex<State>,
    changed: Condvar,
}

impl State {
    /// C-LOOK: the nearest ahead of the head, else the lowest.
    fn choose(&mut self) {
        let head = self.head;
        let ahead = self.waiting.iter().filter(|(_, position)| *position >= head);
        let next = ahead.min_by_key(|of| (of.1, of.0)).or_else(|| self.waiting.iter().min_by_key(|of| (of.1, of.0)));
        self.serving = next.map(|of| of.0);
    }

    /// In [0, 1).
    fn drawn(&mut self) -> f64 {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 40) as f64 / (1_u64 << 24) as f64
    }

    fn service(&mut self, of: &Mechanics, position: u64, bytes: u64, writes: bool) -> Duration {
        let since = self.idle_since.take().filter(|_| self.reads_ahead && !writes);
        let buffered = since.map_or(0, |since| (since.elapsed().as_secs_f64() * of.bytes_per_s) as u64);
        let buffered = buffered.min(of.ahead_bytes);
        let distance = position.abs_diff(self.head);
        let from_buffer = if position == self.head { bytes.min(buffered) } else { 0 };
        let mut took = of.command;
        if distance > 0 {
            let share = (distance as f64 / STROKE_BYTES).min(1.0).sqrt();
            took += of.settle + (of.stroke - of.settle).mul_f64(share) + of.turn.mul_f64(self.drawn());
        }
        took += Duration::from_secs_f64(from_buffer as f64 / of.buffer_bytes_per_s);
        took += Duration::from_secs_f64((bytes - from_buffer) as f64 / of.bytes_per_s);
        self.head = position + bytes;
        self.reads_ahead = !writes;
        took
    }
}

impl SlowDisk {
    pub fn new(mechanics: Mechanics) -> Self {
        Self { mechanics, state: Mutex::default(), changed: Condvar::new() }
    }
}

impl Pace for SlowDisk {
    fn serve(&self, node: u64, offset: u64, bytes: u64, writes: bool) {
        let mut state = self.state.lock().expect("no request panics");
        let files = state.starts.len() as u64;
        let position = *state.starts.entry(node).or_insert(files * APART_BYTES) + offset;
        let number = state.next_number;
        state.next_number += 1;
        state.waiting.push((number, position));
        if state.serving.is_none() {
            state.serving = Some(number);
        }
        while state.serving != Some(number) {
            state = self.changed.wait(state).expect("no request panics");
        }
        let begun = Instant::now();
        state.waiting.retain(|of| of.0 != number);
        let until = begun + state.service(&self.mechanics, position, bytes, writes);
        drop(state);
        while let Some(left) = until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
            std::thread::sleep(left);
        }
        let mut state = self.state.lock().expect("no request panics");
        state.choose();
        state.idle_since = state.serving.is_none().then(Instant::now);
        self.changed.notify_all();
    }
}
