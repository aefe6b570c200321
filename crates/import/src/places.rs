//! Where requests of known sizes stand in a file, and which rank makes them, so that they agree with counters.

use crate::sizes::Sizes;
use crate::stated::Stated;

/// How the requests of one direction lie in the file.
///
/// Requests that begin where the one before ended form runs; runs stand in order of offset, as far apart as the file's
/// extent wants, and go round the ranks: as many runs as ranks is a segment each, many more is a strided pattern. Where
/// more bytes were moved than the file is long, it is passed over again and again, and each rank makes a part of that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Places {
    requests: u64,
    /// Consecutive requests in runs of about this many.
    runs: u64,
    lanes: u64,
    extent: u64,
    /// Bytes between the requests in all; `None`: the file is passed over more than once.
    gaps: Option<u64>,
    /// Between two runs, where that is stated.
    stride: Option<u64>,
    alignment: u64,
    /// Whether requests reach further than the file was touched.
    pub contradictory: bool,
    /// Requests of one lane that stay together when its order is mixed; `None`: it goes forward.
    pub mixed: Option<u64>,
}

/// Where one request stands, and which of the ranks makes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RankRequest {
    pub offset: u64,
    /// Number of the rank among those that take part.
    pub lane: u64,
}

impl Places {
    pub fn of(stated: &Stated, sizes: &Sizes, lanes: u64, sampled: bool) -> Self {
        let (requests, bytes, largest) = (sizes.requests(), sizes.bytes(), sizes.largest());
        let stated_extent = stated.extent.map(u128::from);
        let whole = stated_extent.unwrap_or(bytes).max(u128::from(largest));
        let extent = u64::try_from(whole).unwrap_or(u64::MAX);
        let gaps = u128::from(extent).checked_sub(bytes).map(|gaps| gaps as u64);
        let alone = stated.consecutive.map(|count| stated.requests.saturating_sub(count));
        let runs = match alone {
            _ if sampled => requests,
            Some(alone) => alone.clamp(lanes.min(requests), requests),
            None => lanes.min(requests),
        };
        // Less than nine of ten requests go forward: the order is not that of offset.
        let forward = stated.sequential.map(|count| count.saturating_add(lanes));
        let backward = forward.is_some_and(|count| u128::from(count) * 10 < u128::from(stated.requests) * 9);
        let stride = stated.stride.filter(|stride| {
            let all = u128::from(*stride) * u128::from(runs.saturating_sub(1));
            lanes == 1 && !sampled && gaps.is_some_and(|gaps| all <= u128::from(gaps))
        });
        Places {
            requests,
            runs: runs.max(1),
            lanes: lanes.max(1),
            extent,
            gaps,
            stride,
            alignment: stated.alignment,
            contradictory: stated_extent.is_some_and(|extent| extent < u128::from(largest)),
            mixed: backward.then(|| (requests / runs.max(1)).max(1)),
        }
    }

    /// The places of requests of these sizes, in order of offset (of passes where there are several). O(1) each.
    pub fn walk(&self, sizes: impl Iterator<Item = u64>) -> impl Iterator<Item = (RankRequest, u64)> {
        let mut cursor = 0u64;
        let (mut last_run, mut gap) = (0, 0);
        sizes.enumerate().map(move |(index, size)| {
            let index = index as u64;
            let Some(gaps) = self.gaps else {
                // The last request of a pass ends where the file does.
                let fits = cursor.checked_add(size).is_some_and(|end| end <= self.extent);
                let offset = if fits { cursor } else { self.extent - size };
                cursor = if fits { offset + size } else { 0 };
                return (RankRequest { offset, lane: part(index, self.lanes, self.requests) }, size);
            };
            let run = part(index, self.runs, self.requests);
            if run != last_run || index == 0 {
                (last_run, gap) = (run, self.gap_before(run, gaps));
            }
            let offset = cursor + gap;
            cursor += size;
            (RankRequest { offset, lane: run % self.lanes }, size)
        })
    }

    /// Bytes that are left out before run `run`.
    fn gap_before(&self, run: u64, gaps: u64) -> u64 {
        let last = self.runs - 1;
        if run >= last {
            // What does not begin at the start of the file ends where it was last touched.
            return gaps;
        }
        if let Some(stride) = self.stride {
            return run * stride;
        }
        let even = (u128::from(gaps) * u128::from(run) / u128::from(last)) as u64;
        even - even % self.alignment
    }
}

/// In which of `parts` equal parts number `index` of `all` is. Both are far below 2^32: a record has at most
/// [`RECORD_ROWS`](crate::reconstruct::RECORD_ROWS), and a lane for each at most.
fn part(index: u64, parts: u64, all: u64) -> u64 {
    index * parts / all.max(1)
}
