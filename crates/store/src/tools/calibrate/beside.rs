//! How many requests a server serves side by side.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;

use rustix::io::Result;
use stripewise_model::{Op, OpProfile};

use super::scratch::{AlignedBuffer, BLOCK_BYTES, ScratchFile};
use crate::backend::emulate::{MOST_AT_ONCE, now_ns};

/// Requests that are under way together at a time: more than twice of what most servers serve.
const UNDER_WAY: u64 = 32;
/// Requests of each, whatever time there is.
const LEAST_ROUNDS: u64 = 2;

/// Reads blocks at random places of `scratch` for about `budget_ns`, [`UNDER_WAY`] at a time: how many times as many are served as one
/// after the other, by the `profile` of single ones. So that many requests, each of which takes what the profile says, give what the
/// server gives in all.
///
/// # Errors
/// A read fails.
pub(super) fn at_once(
    scratch: &ScratchFile,
    bytes: u64,
    profile: &OpProfile,
    budget_ns: u64,
    stop: &AtomicBool,
) -> Result<u32> {
    let done = AtomicU64::new(0);
    let begin_ns = now_ns();
    let worker = |number: u64| {
        let mut buffer = AlignedBuffer::new(BLOCK_BYTES);
        let mut random = begin_ns ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        for round in 0.. {
            if stop.load(Relaxed) || (round >= LEAST_ROUNDS && now_ns() - begin_ns > budget_ns) {
                break;
            }
            random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            let offset = (random >> 16) % (bytes / BLOCK_BYTES as u64) * BLOCK_BYTES as u64;
            scratch.request(Op::Read, offset, buffer.bytes(BLOCK_BYTES))?;
            done.fetch_add(1, Relaxed);
        }
        Ok(())
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..UNDER_WAY).map(|number| scope.spawn(move || worker(number))).collect();
        workers
            .into_iter()
            .try_for_each(|worker| worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })?;
    let alone_s =
        (profile.startup_min_s + profile.startup_max_s) / 2.0 + BLOCK_BYTES as f64 * profile.transfer_s_per_byte;
    let took_s = (now_ns() - begin_ns) as f64 * 1e-9;
    Ok(((done.load(Relaxed) as f64 * alone_s / took_s).round() as u32).clamp(1, MOST_AT_ONCE))
}
