//! What operations on names cost on the metadata tier.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, Dir, FlockOperation, Mode, OFlags, XattrFlags};
use rustix::io::{Errno, Result};
use stripewise_model::{NameCosts, Op};

use super::scratch::ScratchFile;
use crate::backend::emulate::now_ns;
use crate::format::handle::ATTRIBUTE;
use crate::os::sys::retry;

/// The directory in which names come and go begins with this; the number of the process is behind it.
const SCRATCH: &str = "calibrate-names-";
/// Rounds of a measurement, whatever time there is.
const LEAST_ROUNDS: usize = 20;
/// The slowest are left out: something else ran.
const KEPT: f64 = 0.98;
/// As many may be this fast, and count as the least.
const FASTEST: f64 = 0.05;

/// Makes, looks up, renames and removes files with a handle for about `budget_ns`, one after the other, in a directory of its own
/// beside the tree of names; on an emulated tier waits for its queue instead. The directory is gone afterwards; one that a killed
/// measurement has left goes first.
///
/// # Errors
/// Those of the namespace.
pub(super) fn names(scratch: &ScratchFile, budget_ns: u64, stop: &AtomicBool) -> Result<NameCosts> {
    let names = match scratch.device() {
        Some(_) => None,
        None => Some(Names::new(scratch.directory()?)?),
    };
    let (mut looks, mut changes) = (Vec::new(), Vec::new());
    let begin_ns = now_ns();
    let timed = |work: &dyn Fn() -> Result<()>| {
        let start_ns = now_ns();
        work()?;
        Ok::<f64, Errno>((now_ns() - start_ns) as f64 * 1e-9)
    };
    for round in 0.. {
        if stop.load(Relaxed) || (round >= LEAST_ROUNDS && now_ns() - begin_ns > budget_ns) {
            break;
        }
        match (&names, scratch.device()) {
            (Some(names), _) => {
                changes.push(timed(&|| names.make())?);
                looks.push(timed(&|| names.look())?);
                changes.push(timed(&|| names.rename())?);
                changes.push(timed(&|| names.remove())?);
            }
            (None, Some(device)) => {
                for (op, times) in [(Op::Read, &mut looks), (Op::Write, &mut changes)] {
                    times.push(timed(&|| {
                        device.serve_names(op);
                        Ok(())
                    })?);
                }
            }
            (None, None) => unreachable!("a tier is emulated or not"),
        }
    }
    Ok(NameCosts { look_s: range(looks), change_s: range(changes) })
}

/// Least and greatest of a uniform draw with the least and the mean of `times_s`.
fn range(mut times_s: Vec<f64>) -> [f64; 2] {
    times_s.sort_unstable_by(f64::total_cmp);
    let kept = &times_s[..(times_s.len() as f64 * KEPT).ceil() as usize];
    let Some(&least_s) = kept.get((kept.len() as f64 * FASTEST) as usize) else { return [0.0; 2] };
    let mean_s = kept.iter().sum::<f64>() / kept.len() as f64;
    [least_s, (2.0 * mean_s - least_s).max(least_s)]
}

/// A directory for names that come and go.
struct Names<'a> {
    namespace: BorrowedFd<'a>,
    name: String,
    directory: OwnedFd,
}

impl<'a> Names<'a> {
    fn new(namespace: BorrowedFd<'a>) -> Result<Self> {
        remove_left(namespace)?;
        let name = format!("{SCRATCH}{}", std::process::id());
        rustix::fs::mkdirat(namespace, &name, Mode::RWXU)?;
        let directory = open_directory(namespace, &name).inspect_err(|_| {
            // Why it cannot be used is told.
            let _ = rustix::fs::unlinkat(namespace, &name, AtFlags::REMOVEDIR);
        })?;
        // Where a file system has no such locks another measurement may remove it, which is an error here.
        let _ = rustix::fs::flock(&directory, FlockOperation::NonBlockingLockExclusive);
        Ok(Self { namespace, name, directory })
    }

    fn make(&self) -> Result<()> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let file = retry(|| rustix::fs::openat(&self.directory, "a", flags, Mode::RUSR | Mode::WUSR))?;
        rustix::fs::fsetxattr(&file, ATTRIBUTE, &[0; 96], XattrFlags::CREATE)
    }

    fn look(&self) -> Result<()> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = retry(|| rustix::fs::openat(&self.directory, "a", flags, Mode::empty()))?;
        rustix::fs::fstat(&file)?;
        rustix::fs::fgetxattr(&file, ATTRIBUTE, &mut [0; 128][..]).map(drop)
    }

    fn rename(&self) -> Result<()> {
        rustix::fs::renameat(&self.directory, "a", &self.directory, "b")
    }

    fn remove(&self) -> Result<()> {
        rustix::fs::unlinkat(&self.directory, "b", AtFlags::empty())
    }
}

impl Drop for Names<'_> {
    fn drop(&mut self) {
        // What stays is removed by the next measurement.
        let _ = remove(self.namespace, &self.name, &self.directory);
    }
}

fn open_directory(namespace: BorrowedFd<'_>, name: &str) -> Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    retry(|| rustix::fs::openat(namespace, name, flags, Mode::empty()))
}

fn remove(namespace: BorrowedFd<'_>, name: &str, directory: &OwnedFd) -> Result<()> {
    for file in ["a", "b"] {
        match rustix::fs::unlinkat(directory, file, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(errno),
        }
    }
    rustix::fs::unlinkat(namespace, name, AtFlags::REMOVEDIR)
}

/// Removes the directories of measurements that were killed: those that are not locked.
fn remove_left(namespace: BorrowedFd<'_>) -> Result<()> {
    for entry in Dir::read_from(open_directory(namespace, ".")?)? {
        let entry = entry?;
        let Ok(name) = entry.file_name().to_str() else { continue };
        if name.starts_with(SCRATCH)
            && let Ok(directory) = open_directory(namespace, name)
            && rustix::fs::flock(&directory, FlockOperation::NonBlockingLockExclusive).is_ok()
        {
            // Another measurement may do the same now.
            let _ = remove(namespace, name, &directory);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::range;

    #[test]
    fn the_range_has_the_mean_of_all_but_the_slowest() {
        let mut times_s = vec![1.0; 50];
        times_s.extend([3.0; 48]);
        times_s.extend([1000.0; 2]);
        let [least_s, most_s] = range(times_s);
        assert_eq!(least_s, 1.0);
        assert!(((least_s + most_s) / 2.0 - (50.0 + 144.0) / 98.0).abs() < 1e-9);
        assert_eq!(range(vec![2.0; 3]), [2.0, 2.0]);
        assert_eq!(range(Vec::new()), [0.0, 0.0]);
    }
}
