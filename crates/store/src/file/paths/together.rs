//! What all opens of a file in this process read together: each some pieces of a stretch, and all of them nearly in order.

use crate::file::paths::dense::DenseBlocks;
use crate::file::paths::fetch::Fetch;
use crate::file::paths::pattern::ReadFront;
use crate::file::paths::windows::KeptWindows;
use crate::os::first_process::FirstProcess;
use crate::os::sync::{Mutex, MutexGuard, guard};
use std::collections::VecDeque;
use std::sync::Arc;

/// Streams of one file that are told apart.
const MOST_STREAMS: usize = 8;
/// Requests of other streams after which one is forgotten, with what was fetched for it.
const MOST_OTHERS: u64 = 512;

/// The streams of one file.
#[derive(Debug, Default)]
pub(crate) struct ReadTogether {
    process: FirstProcess,
    streams: Mutex<StreamsTogether>,
}

/// The streams. Who has them can change them.
#[derive(Debug, Default)]
pub(crate) struct StreamsTogether {
    /// The one that was used last comes first.
    list: VecDeque<StreamTogether>,
    requests: u64,
    /// Blocks for readers in no order.
    pub(crate) dense: DenseBlocks<Arc<Fetch>>,
    /// Requests for which nothing is fetched.
    pub(crate) pause: u32,
}

/// One of them.
#[derive(Debug)]
pub(crate) struct StreamTogether {
    pub(crate) front: ReadFront,
    /// What was fetched for it, wherever its readers are.
    pub(crate) windows: KeptWindows<Arc<Fetch>>,
    /// The request by which it was used last, by number.
    used: u64,
}

impl ReadTogether {
    /// Waits for the streams. `None` in a child of the process that had them first: locks may be held by threads that are not there.
    pub(crate) fn lock(&self) -> Option<MutexGuard<'_, StreamsTogether>> {
        self.process.is_this().then(|| guard(&self.streams))
    }
}

impl StreamsTogether {
    /// Notes a request, and gives the stream that it is a piece of. O(streams).
    pub(crate) fn note(&mut self, offset: u64, len: u64) -> &mut StreamTogether {
        self.requests += 1;
        let requests = self.requests;
        // One that has fetched it comes before those that it is near to: these may be of readers that have drifted off.
        let at = self.list.iter().position(|stream| stream.has_fetched(offset, len));
        let at = at.or_else(|| self.list.iter().position(|stream| stream.has(offset, len)));
        let mut stream = at.and_then(|at| self.list.remove(at)).unwrap_or_else(|| StreamTogether {
            front: ReadFront::of(offset, len),
            windows: KeptWindows::default(),
            used: requests,
        });
        if at.is_some() {
            stream.front.note(offset, len);
        }
        stream.windows.note(offset..offset + len);
        stream.used = requests;
        self.list.retain(|other| requests - other.used <= MOST_OTHERS);
        // Readers at random make a stream of each of their requests: what has shown an order stays before those.
        while self.list.len() >= MOST_STREAMS {
            let unordered = self.list.iter().rposition(|other| !other.goes_on());
            self.list.remove(unordered.unwrap_or(self.list.len() - 1));
        }
        self.list.push_front(stream);
        &mut self.list[0]
    }

    /// Whether a request is a piece of a stream that several opens have read in order. O(streams).
    pub(crate) fn goes_on_with(&self, offset: u64, len: u64) -> bool {
        self.list.iter().any(|stream| stream.goes_on() && stream.has(offset, len))
    }

    /// Forgets all of them, with what was fetched. Blocks stay, which serve no request that they have not all bytes of.
    pub(crate) fn let_go(&mut self) {
        self.list.clear();
    }
}

impl StreamTogether {
    /// Whether several opens have read it in order.
    fn goes_on(&self) -> bool {
        self.windows.has_begun() || self.front.goes_on()
    }

    /// Whether a request is for one of its pieces: near to the last ones, or where something was fetched for it.
    fn has(&self, offset: u64, len: u64) -> bool {
        self.front.place(offset, len).is_some() || self.has_fetched(offset, len)
    }

    /// Whether a request is for what was fetched for it, or will be next.
    fn has_fetched(&self, offset: u64, len: u64) -> bool {
        self.front.is_piece(offset, len) && self.windows.reach(offset)
    }
}
