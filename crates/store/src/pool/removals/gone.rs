//! A file that has lost its last name, as a fact that outlives the process that saw it, and the removal of its
//! datafiles by that alone.
//!
//! An inode that has had a name and has none left does not get one again: the kernel refuses it. So the fact stays
//! true, and its datafiles can go at any later time, by any process with the rights to remove them. They are found by
//! the logical handle, which is random and of this file alone: an inode number that is used again leads to other
//! datafiles.

use crate::file::inode::Inode;
use crate::file::lockfile::{LockFile, Purpose};
use crate::file::rights::{Rights, remove_datafile};
use crate::format::identity::Identity;
use crate::format::placement::Datafile;
use crate::os::error::{Error, Result};
use crate::pool::store::Store;
use rustix::fs::Stat;
use rustix::io::Errno;
use std::collections::HashMap;
use stripewise_layout::ServerId;

/// Most runs of datafiles that a fact names.
pub(super) const MAX_RUNS: usize = 10;
/// A server that has refused this many removals in one round is not asked again in it.
const PATIENCE: u32 = 3;

/// Datafiles of one generation on consecutive servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DatafileRun {
    pub(super) generation: u32,
    pub(super) first: u16,
    /// At least 1.
    pub(super) count: u16,
}

/// A file that has lost its last name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Gone {
    /// Logical handle.
    pub(super) handle: u64,
    pub(super) identity: Identity,
    pub(super) rights: Rights,
    /// Version of the handle.
    pub(super) version: u32,
    /// Which datafiles it may have.
    pub(super) runs: Vec<DatafileRun>,
}

/// Which of the datafiles that a layout gives are meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Which {
    /// Those that exist.
    Present,
    /// All: a program has the file open, and may have more of them made.
    Possible,
}

/// What has become of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RemovalOutcome {
    /// No datafile is left.
    Done,
    /// Another has it open or is registered as its writer, and removes the datafiles.
    InUse,
    /// Some are left, on servers that cannot remove them.
    Left,
}

/// Servers that have refused removals in this round.
#[derive(Debug, Default)]
pub(super) struct Outages(HashMap<ServerId, u32>);

impl Outages {
    fn has(&self, server: ServerId) -> bool {
        self.0.get(&server).is_some_and(|refused| *refused >= PATIENCE)
    }

    fn add(&mut self, server: ServerId, error: &Error) {
        let refused = self.0.entry(server).or_default();
        *refused += if matches!(error, Error::MissingServer { .. }) { PATIENCE } else { 1 };
    }
}

/// `datafiles` as runs; `None`: they are too scattered to be named in [`MAX_RUNS`].
fn runs(mut datafiles: Vec<Datafile>) -> Option<Vec<DatafileRun>> {
    datafiles.sort_unstable_by_key(|datafile| (datafile.generation, datafile.server.0));
    let mut exact: Vec<DatafileRun> = Vec::new();
    for Datafile { server: ServerId(server), generation } in datafiles {
        match exact.last_mut() {
            Some(run)
                if run.generation == generation && u32::from(run.first) + u32::from(run.count) == server.into() =>
            {
                run.count += 1;
            }
            _ => exact.push(DatafileRun { generation, first: server, count: 1 }),
        }
    }
    if exact.len() > MAX_RUNS {
        // All servers between the first and the last of a generation: where there is no datafile, none is removed.
        exact.dedup_by(|next, run| {
            let same = run.generation == next.generation;
            if same {
                run.count = next.first - run.first + next.count;
            }
            same
        });
    }
    (exact.len() <= MAX_RUNS).then_some(exact)
}

impl Gone {
    /// What `inode`, whose attributes `stat` are and say that it has no name, is a fact of. No system call where no
    /// other process has changed the file's layout since it was opened.
    ///
    /// # Errors
    /// Its handle cannot be read, or its datafiles are too scattered.
    pub(super) fn of(inode: &Inode, stat: &Stat, which: Which) -> Result<Self> {
        let file = inode.known_file()?;
        let placement = file.current_placement();
        let table = file.datafiles().table.iter().enumerate();
        let meant = table.filter(|(index, _)| which == Which::Possible || placement.present.contains(*index));
        let runs = runs(meant.map(|(_, datafile)| *datafile).collect()).ok_or_else(|| {
            Error::Invalid(format!("the datafiles of handle {:016x} are too scattered", inode.handle()))
        })?;
        Ok(Self {
            handle: inode.handle(),
            identity: inode.identity(),
            rights: Rights::without_list(stat),
            version: placement.version,
            runs,
        })
    }

    fn datafiles(&self) -> impl Iterator<Item = Datafile> + '_ {
        self.runs.iter().flat_map(|run| {
            let servers = u32::from(run.first)..u32::from(run.first) + u32::from(run.count);
            let generation = run.generation;
            servers
                .filter_map(|server| u16::try_from(server).ok())
                .map(move |server| Datafile { server: ServerId(server), generation })
        })
    }

    /// Removes the datafiles, unless the file is in use. `interrupted`: the process that saw the fact has ended before
    /// it removed any, so that a change of layout may have ended later, with datafiles of the next generation.
    ///
    /// # Errors
    /// The lock file cannot be had.
    pub(super) fn collect(&self, store: &Store, outages: &mut Outages, interrupted: bool) -> Result<RemovalOutcome> {
        if store.has_open(self.handle, self.identity.inode) {
            return Ok(RemovalOutcome::InUse);
        }
        // A server that the pool file no longer has keeps what it has.
        let known = |datafile: &Datafile| store.plane().server(datafile.server).is_ok();
        if self.datafiles().any(|datafile| known(&datafile))
            && self.datafiles().filter(known).all(|datafile| outages.has(datafile.server))
        {
            return Ok(RemovalOutcome::Left);
        }
        let lock = loop {
            let (lock, _) =
                LockFile::open(store.plane(), store.locks(), self.handle, self.identity, || Ok(self.rights), || false)?;
            if !lock.try_exclusive(Purpose::Writers)? {
                return Ok(RemovalOutcome::InUse);
            }
            if lock.is_current(store.locks()) {
                break lock;
            }
        };
        let Some(_heads) = store.heads.exclude(self.handle)? else {
            // A program of another mount has the file open and writes its head.
            drop(lock);
            return Ok(RemovalOutcome::InUse);
        };
        let mut outcome = RemovalOutcome::Done;
        for datafile in self.datafiles().filter(known) {
            if outages.has(datafile.server) {
                outcome = RemovalOutcome::Left;
            } else if let Err(error) = self.remove(store, datafile) {
                // Another user's: that user may remove it, and `stripewise fsck` as root does.
                if store.plane().is_shared() && matches!(error.errno(), Errno::PERM | Errno::ACCESS) {
                    continue;
                }
                outages.add(datafile.server, &error);
                outcome = RemovalOutcome::Left;
            }
        }
        if interrupted {
            for server in store.plane().servers() {
                if !outages.has(server.id()) {
                    // Most often there is none; what cannot be removed now is an orphan for a check.
                    let generation = self.version.wrapping_add(1);
                    let _ = self.remove(store, Datafile { server: server.id(), generation });
                }
            }
        }
        lock.remove(store.locks())?;
        Ok(outcome)
    }

    fn remove(&self, store: &Store, datafile: Datafile) -> Result<()> {
        remove_datafile(store.plane(), self.handle, datafile, self.rights.uid, self.identity)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn datafile(server: u16, generation: u32) -> Datafile {
        Datafile { server: ServerId(server), generation }
    }

    #[test]
    fn consecutive_servers_of_a_generation_are_one_run() {
        let found = runs(vec![datafile(2, 1), datafile(0, 1), datafile(1, 1), datafile(1, 3), datafile(5, 1)]).unwrap();
        let run = |generation, first, count| DatafileRun { generation, first, count };
        assert_eq!(found, [run(1, 0, 3), run(1, 5, 1), run(3, 1, 1)]);
        assert_eq!(runs(Vec::new()), Some(Vec::new()));
    }

    #[test]
    fn many_runs_of_a_generation_become_one_that_has_them_all() {
        let scattered: Vec<_> = (0..20).map(|number| datafile(number * 2, 1 + u32::from(number) / 10)).collect();
        let found = runs(scattered.clone()).unwrap();
        let named = |datafile: &Datafile| {
            let within = |run: &&DatafileRun| {
                run.generation == datafile.generation && (run.first..run.first + run.count).contains(&datafile.server.0)
            };
            found.iter().filter(within).count() == 1
        };
        assert_eq!(found.len(), 2);
        assert!(scattered.iter().all(named));
        assert_eq!(runs((0..20).map(|number| datafile(0, number)).collect()), None);
    }
}
