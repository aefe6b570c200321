//! What a check is asked to do.

use std::path::PathBuf;

/// How to check a pool.
#[derive(Debug, Clone, Default)]
pub struct CheckOptions {
    /// Only say what would be mended; nothing on the disks changes.
    pub dry_run: bool,
    /// Take over a copied or restored pool: a new uuid, and the handles get the numbers of the inodes that carry them.
    pub rebind: bool,
    /// Take datafiles that are gone for lost: their bytes read as zeros from now on.
    pub forget_missing: bool,
    /// Remove orphan datafiles instead of keeping them in `lost+found`.
    pub remove_orphans: bool,
    /// Read every byte of every file, to find what the disks cannot give back.
    pub scrub: bool,
    /// Namespaces of other pools, in which a missing layout may be found.
    pub layouts_from: Vec<PathBuf>,
    /// Threads that look at files; 0 takes twice the number of processors.
    pub threads: usize,
}
