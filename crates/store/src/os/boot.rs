//! Which boot of the machine this is.

use rustix::fs::{CWD, Mode, OFlags};

/// The kernel's identifier of this boot, from which `CLOCK_MONOTONIC` and `CLOCK_BOOTTIME` count; `None` without `/proc`.
pub(crate) fn boot_id() -> Option<[u64; 2]> {
    let file = rustix::fs::openat(
        CWD,
        "/proc/sys/kernel/random/boot_id",
        OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW,
        Mode::empty(),
    )
    .ok()?;
    let mut text = [0_u8; 64];
    let length = rustix::io::read(&file, &mut text).ok()?;
    let mut id = 0_u128;
    for digit in text[..length].iter().filter_map(|&byte| char::from(byte).to_digit(16)) {
        id = id << 4 | u128::from(digit);
    }
    Some([(id >> 64) as u64, id as u64])
}
