//! Devices by name, as pool and cluster files name them; and the parameter sets of math F.2, for tests, benchmarks and
//! comparisons with the papers.

use crate::profile::{Cluster, Head, OpProfile, Profile};

/// Names of devices and what they stand for.
pub const DEVICES: [(&str, &str); 4] = [
    ("hdd-7200", "hard disk of 7200 rpm: startup 4 to 12 ms, 80 MB/s"),
    ("hdd-7200-head", "the same with a head: startup 0.1 ms where the last request ended, or one that waits"),
    ("ssd-sata", "SATA solid-state disk: startup 0.08 to 0.12 ms, 400 MB/s"),
    ("nvme", "NVMe solid-state disk: startup 0.06 to 0.1 ms (read), 0.015 to 0.03 ms (write), 3 and 2 GB/s"),
];

/// The profile of the device `name`, without a network; `None` when there is none of that name ([`DEVICES`] lists them).
///
/// `hdd-7200` and `ssd-sata` are set P (physical devices of the 2020s). `nvme` is a mainstream PCIe 3 drive: reads wait
/// for the flash, writes for the drive's cache only.
pub fn device(name: &str) -> Option<Profile> {
    const fn op(startup_min_us: f64, startup_max_us: f64, mb_per_s: f64) -> OpProfile {
        OpProfile {
            startup_min_s: startup_min_us * 1e-6,
            startup_max_s: startup_max_us * 1e-6,
            transfer_s_per_byte: 1e-6 / mb_per_s,
            head: None,
        }
    }
    let (read, write) = match name {
        "hdd-7200" => (op(4000.0, 12_000.0, 80.0), op(4000.0, 12_000.0, 80.0)),
        "ssd-sata" => (op(80.0, 120.0, 400.0), op(80.0, 120.0, 400.0)),
        "nvme" => (op(60.0, 100.0, 3000.0), op(15.0, 30.0, 2000.0)),
        "hdd-7200-head" => {
            let disk = OpProfile {
                head: Some(Head { sequential_startup_s: 100e-6, ahead_bytes: 0 }),
                ..op(4000.0, 12_000.0, 80.0)
            };
            (disk, disk)
        }
        _ => return None,
    };
    Some(Profile { read, write, network_s_per_byte: 0.0 })
}

/// Startup in milliseconds, bandwidth in KB (1024 bytes) per millisecond: the units of the papers.
pub fn op_profile(startup_min_ms: f64, startup_max_ms: f64, kb_per_ms: f64) -> OpProfile {
    OpProfile {
        startup_min_s: startup_min_ms * 1e-3,
        startup_max_s: startup_max_ms * 1e-3,
        transfer_s_per_byte: seconds_per_byte(kb_per_ms),
        head: None,
    }
}

/// Seconds per byte of a bandwidth in KB (1024 bytes) per millisecond.
pub fn seconds_per_byte(kb_per_ms: f64) -> f64 {
    1e-3 / (1024.0 * kb_per_ms)
}

/// A cluster of tiers `(name, servers, profile)`; servers are numbered in order, as in a pool file; no space limits.
///
/// # Panics
/// With more servers than a layout can name.
pub fn cluster(tiers: &[(&str, u16, Profile)]) -> Cluster {
    let tiers = tiers.iter().map(|&(name, servers, profile)| (name.to_owned(), servers, profile));
    Cluster::numbered(tiers).expect("at most 65,535 servers")
}

fn hybrid(hdds: u16, ssds: u16, hdd: Profile, ssd: Profile) -> Cluster {
    cluster(&[("hdd", hdds, hdd), ("ssd", ssds, ssd)])
}

/// Set AB: all the optima that HARL reports hold together (`hdds` = 6, `ssds` = 2).
pub fn set_ab(hdds: u16, ssds: u16) -> Cluster {
    let network_s_per_byte = seconds_per_byte(117.0);
    let disk = op_profile(0.3, 1.4, 24.0);
    let (read, write) = (op_profile(0.05, 0.10, 122.0), op_profile(0.08, 0.16, 103.0));
    hybrid(
        hdds,
        ssds,
        Profile { read: disk, write: disk, network_s_per_byte },
        Profile { read, write, network_s_per_byte },
    )
}

/// Set B: near HARL's optima.
pub fn set_b(hdds: u16, ssds: u16) -> Cluster {
    let network_s_per_byte = seconds_per_byte(117.0);
    let disk = op_profile(0.3, 1.5, 20.0);
    let (read, write) = (op_profile(0.05, 0.10, 102.0), op_profile(0.08, 0.16, 85.0));
    hybrid(
        hdds,
        ssds,
        Profile { read: disk, write: disk, network_s_per_byte },
        Profile { read, write, network_s_per_byte },
    )
}

/// Set P: physical devices of the 2020s, with their network (`t` = 1/117) or on one machine (`t` = 0).
pub fn set_p(hdds: u16, ssds: u16, network: bool) -> Cluster {
    let network_s_per_byte = if network { seconds_per_byte(117.0) } else { 0.0 };
    let (disk, flash) = (op_profile(4.0, 12.0, 80.0), op_profile(0.08, 0.12, 400.0));
    hybrid(
        hdds,
        ssds,
        Profile { read: disk, write: disk, network_s_per_byte },
        Profile { read: flash, write: flash, network_s_per_byte },
    )
}
