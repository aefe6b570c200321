//! What a seek takes by the gap that it crosses: pairs of requests that are so far apart.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use rustix::io::Result;
use stripewise_model::{Op, OpProfile, SeekMap};

use super::scratch::{AlignedBuffer, BLOCK_BYTES, ScratchFile};
use crate::backend::emulate::now_ns;

/// The least gap; each other one is eight times the one before, as far as the device reaches.
const LEAST_GAP_BYTES: u64 = 256 << 10;
const GAP_FACTOR: u64 = 8;
/// Pairs of each gap: what is left of the mean of half a turn of a disk is a fifth of a turn.
const PAIRS: usize = 8;
/// Pairs of each gap, whatever time there is.
const LEAST_PAIRS: usize = 2;

/// Gaps that fit into `reach_bytes` with a request before and behind.
fn gaps(reach_bytes: u64) -> Vec<u64> {
    let room = reach_bytes.saturating_sub(2 * BLOCK_BYTES as u64);
    std::iter::successors(Some(LEAST_GAP_BYTES), |gap| gap.checked_mul(GAP_FACTOR))
        .take_while(|gap| *gap <= room)
        .collect()
}

/// Reads pairs of blocks of `scratch` for about `budget_ns`: the mean startup of the second of a pair, by gap. The gaps take turns,
/// so that what else the machine does falls on each of them. The slowest read of each gap is left out: a hiccup is no seek. `None`
/// where the device is too small.
///
/// # Errors
/// A read fails.
pub(super) fn seeks(
    scratch: &ScratchFile,
    profile: &OpProfile,
    budget_ns: u64,
    buffer: &mut AlignedBuffer,
    stop: &AtomicBool,
) -> Result<Option<SeekMap>> {
    let (block, reach) = (BLOCK_BYTES as u64, scratch.reach_bytes());
    let gaps = gaps(reach);
    let mut times_s: Vec<Vec<f64>> = vec![Vec::new(); gaps.len()];
    let begin_ns = now_ns();
    let mut random = begin_ns | 1;
    for round in 0..PAIRS {
        if stop.load(Relaxed) || (round >= LEAST_PAIRS && now_ns() - begin_ns > budget_ns) {
            break;
        }
        for (gap, times_s) in gaps.iter().zip(&mut times_s) {
            random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            let first = (random >> 16) % ((reach - gap) / block - 1) * block;
            // Heads go both ways.
            let mut pair = [first, first + block + gap];
            if round % 2 == 1 {
                pair.reverse();
            }
            scratch.request(Op::Read, pair[0], buffer.bytes(BLOCK_BYTES))?;
            times_s.push(scratch.request(Op::Read, pair[1], buffer.bytes(BLOCK_BYTES))?);
        }
    }
    let transfer_s = block as f64 * profile.transfer_s_per_byte;
    let mean = |(gap, times_s): (u64, &mut Vec<f64>)| {
        times_s.sort_unstable_by(f64::total_cmp);
        let kept = &times_s[..times_s.len() - usize::from(times_s.len() > LEAST_PAIRS)];
        let mean_s = kept.iter().sum::<f64>() / kept.len() as f64;
        (!kept.is_empty()).then(|| (gap, (mean_s - transfer_s).max(0.0)))
    };
    let means: Vec<(u64, f64)> = gaps.iter().copied().zip(&mut times_s).filter_map(mean).collect();
    Ok(SeekMap::isotonic(&means))
}

#[cfg(test)]
mod tests {
    use stripewise_layout::ServerId;
    use stripewise_model::Queue;

    use super::*;
    use crate::backend::emulate::{DiskConfig, EmulateConfig, preset};
    use crate::backend::{Server, ServerState};

    #[test]
    fn seeks_of_an_emulated_disk_grow_and_are_none_faster_than_it_is() {
        let directory = tempfile::tempdir().unwrap();
        let disk =
            DiskConfig { queue: Queue::Fifo, size_bytes: 1 << 40, file_distance_bytes: 1 << 30, rotation_s: Some(0.0) };
        let config = EmulateConfig { dilation: 0.1, disk: Some(disk), ..preset("hdd-7200-head").unwrap() };
        let server = Server {
            id: ServerId(0),
            name: "hdd.0".to_owned(),
            tier: 0,
            kind: "directory",
            root: directory.path().to_owned(),
            capacity_bytes: None,
            emulate: Some(config),
            state: ServerState::Used,
            replaced_by: None,
            seeks: None,
        };
        let mut buffer = AlignedBuffer::new(1 << 20);
        let scratch = ScratchFile::new(&server, 1 << 20, &mut buffer).unwrap();
        let read = config.effective_profile().read;
        let map = seeks(&scratch, &read, 0, &mut buffer, &AtomicBool::new(false)).unwrap().unwrap();
        let curve = config.effective_disk().unwrap().curve(&read);
        assert_eq!(map.points().len(), 8);
        for (gap, startup_s) in map.points() {
            // How much slower than the device is the machine's matter.
            assert!(*startup_s > 0.95 * curve.seek_s(*gap), "{map:?}, {gap}: {}", curve.seek_s(*gap));
        }
        let none = seeks(&scratch, &read, 0, &mut buffer, &AtomicBool::new(true)).unwrap();
        assert_eq!(none, None, "it was stopped");
    }

    #[test]
    fn gaps_are_those_that_fit() {
        assert_eq!(gaps(0), []);
        assert_eq!(gaps(LEAST_GAP_BYTES), []);
        assert_eq!(gaps(LEAST_GAP_BYTES + 8192), [LEAST_GAP_BYTES]);
        assert_eq!(gaps(1 << 40).len(), 8);
        assert_eq!(gaps(u64::MAX).len(), 16);
    }
}
