//! Whether `io_uring` can be had, how many threads, and why not.

use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::connection::FuseDevice;
use crate::uring::entry::UringTransport;

/// The kernel's switch.
const SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";
/// The processors that there can be, for each of which the kernel wants a queue.
const PROCESSORS: &str = "/sys/devices/system/cpu/possible";
/// Threads at most, each of which has an entry.
const MOST_THREADS: usize = 1024;
/// Threads of a queue at least, or as many as are asked for: fewer could wait for each other too easily.
const LEAST_OF_QUEUE: usize = 8;

/// What is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    /// It is to be used.
    pub wanted: bool,
    /// The kernel's first message says that it has it and may use it.
    pub kernel_can: bool,
    /// Threads of a queue: as many as the device has in all. Fewer where that would be more than 1,024 in all, but not below 8.
    pub threads: usize,
    /// Descriptors at most, of which each thread takes one.
    pub most_descriptors: usize,
    /// Bytes behind the headers of a message at most.
    pub payload_bytes: usize,
}

/// The entries of all queues, of which the kernel knows nothing yet.
///
/// # Errors
/// Why there are none, and what can be done: words for a person.
pub fn prepare(device: &Arc<FuseDevice>, asked: Asked) -> Result<Vec<UringTransport>, String> {
    if !asked.wanted {
        return Err("io_uring was not to be used".to_owned());
    }
    if !asked.kernel_can {
        return Err(match Path::new(SWITCH).exists() {
            true => format!("for io_uring: `echo Y > {SWITCH}` as root, then mount again"),
            false => "this kernel has no FUSE over io_uring; Linux 6.14 can have it".to_owned(),
        });
    }
    let possible = std::fs::read_to_string(PROCESSORS).map_err(|error| format!("{PROCESSORS}: {error}"))?;
    let queues = count(&possible).ok_or_else(|| format!("{PROCESSORS} has no list of processors"))?;
    let threads = of_queue(queues, asked)?;
    UringTransport::try_ring().map_err(|error| denied(&error))?;
    let mut entries = Vec::with_capacity(queues * threads);
    // The kernel takes the entry first that came last: a queue's entries come from all its threads anyway.
    for queue in (0..queues).flat_map(|queue| std::iter::repeat_n(queue, threads)) {
        let queue = u16::try_from(queue).map_err(|_| "more than 65,536 processors".to_owned())?;
        entries.push(UringTransport::new(device, queue, asked.payload_bytes).map_err(|error| denied(&error))?);
    }
    Ok(entries)
}

fn denied(error: &io::Error) -> String {
    format!(
        "this process may have no io_uring ({error}); see /proc/sys/kernel/io_uring_disabled, or the container's seccomp profile"
    )
}

/// Threads of each queue.
fn of_queue(queues: usize, asked: Asked) -> Result<usize, String> {
    let least = asked.threads.min(LEAST_OF_QUEUE);
    let most = MOST_THREADS.min(asked.most_descriptors) / queues;
    if most < least {
        return Err(match MOST_THREADS / queues < least {
            true => format!("{queues} processors are too many for a queue of {least} threads each"),
            false => format!(
                "the limit of open files leaves {} for queues of {queues} processors, {least} each (ulimit -n)",
                asked.most_descriptors
            ),
        });
    }
    Ok(asked.threads.min(most))
}

/// How many a list of numbers and ranges (`0-3,8`) has.
fn count(list: &str) -> Option<usize> {
    let mut sum = 0_usize;
    for part in list.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        sum = sum.checked_add(last.checked_sub(first)?.checked_add(1)?)?;
    }
    Some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_are_counted() {
        assert_eq!([count("0-1\n"), count("0"), count("0,2-5,9")], [Some(2), Some(1), Some(6)]);
        assert_eq!([count(""), count("3-1"), count("a"), count("0-")], [None; 4]);
    }

    #[test]
    fn a_queue_has_as_many_threads_as_the_device_where_there_is_room() {
        let asked = |threads, most_descriptors| Asked {
            wanted: true,
            kernel_can: true,
            threads,
            most_descriptors,
            payload_bytes: 0,
        };
        assert_eq!(of_queue(2, asked(64, 65_536)), Ok(64));
        assert_eq!(of_queue(64, asked(64, 65_536)), Ok(16));
        assert_eq!(of_queue(128, asked(64, 65_536)), Ok(8));
        assert_eq!(of_queue(2, asked(1, 65_536)), Ok(1));
        assert!(of_queue(256, asked(64, 65_536)).unwrap_err().contains("256 processors"));
        assert_eq!(of_queue(4, asked(8, 32)), Ok(8));
        assert!(of_queue(8, asked(8, 32)).unwrap_err().contains("ulimit -n"));
    }
}
