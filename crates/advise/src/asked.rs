//! [`Asked`]: what a program asked of MPI-IO and of the libraries above it, beside what reached the file system.

use serde::{Deserialize, Serialize};

/// Calls of MPI-IO in one direction, of all ranks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct AskedCalls {
    /// Made by all ranks together; each rank's part counts.
    pub collective: u64,
    /// Made by each rank on its own.
    pub independent: u64,
    /// Of these: return before they are done (`MPI_File_iwrite_at`, `MPI_File_write_all_begin`).
    pub nonblocking: u64,
    /// Bytes asked for by all calls.
    pub bytes: u64,
}

impl AskedCalls {
    fn add(&mut self, other: &Self) {
        self.collective = self.collective.saturating_add(other.collective);
        self.independent = self.independent.saturating_add(other.independent);
        self.nonblocking = self.nonblocking.saturating_add(other.nonblocking);
        self.bytes = self.bytes.saturating_add(other.bytes);
    }

    /// All of them.
    pub fn calls(&self) -> u64 {
        self.collective.saturating_add(self.independent)
    }

    /// Whether most are made by all ranks together: then aggregators move the bytes. Of the independent calls `tiny` are
    /// left out: those of a library's metadata, which move next to nothing.
    pub fn is_collective(&self, tiny: u64) -> bool {
        self.collective > self.independent.saturating_sub(tiny)
    }
}

/// What was asked above POSIX.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Asked {
    /// Reads through MPI-IO.
    pub reads: AskedCalls,
    /// Writes through MPI-IO.
    pub writes: AskedCalls,
    /// HDF5 opened the file, through MPI-IO.
    pub hdf5: bool,
    /// Accesses of HDF5's datasets by ranks, and those of datasets that were ever accessed collectively.
    pub hdf5_accesses: (u64, u64),
    /// PnetCDF's accesses, independent and collective.
    pub pnetcdf: (u64, u64),
}

impl Asked {
    /// Adds what was asked of other files.
    pub(crate) fn add(&mut self, other: &Self) {
        self.reads.add(&other.reads);
        self.writes.add(&other.writes);
        self.hdf5 |= other.hdf5;
        for (own, of) in [(&mut self.hdf5_accesses, other.hdf5_accesses), (&mut self.pnetcdf, other.pnetcdf)] {
            *own = (own.0.saturating_add(of.0), own.1.saturating_add(of.1));
        }
    }
}
