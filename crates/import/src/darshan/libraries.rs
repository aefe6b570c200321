//! Records of libraries above MPI-IO: of HDF5's files and datasets, and of PnetCDF's files and variables.
//!
//! After darshan-hdf5-log-format.h and darshan-pnetcdf-log-format.h. What is kept of a record is what advice rests on: a
//! program may have a record for each rank of thousands of datasets.

use super::module::{KeptCounters, Module};
use stripewise_trace::Api;

/// A record's shape, and what is kept of it.
pub(super) struct LibraryShape {
    pub api: Api,
    /// Words before the integers: identifier, rank, and of a part of a file the file's identifier.
    pub head_words: usize,
    integer_words: usize,
    float_words: usize,
    /// Index among the integers, and name.
    pub integers: &'static [(usize, &'static str)],
    /// Index among the floating numbers, and name.
    pub floats: &'static [(usize, &'static str)],
}

impl LibraryShape {
    /// `None` for a version that is not known: such records are passed over, as those of modules that are not read.
    pub fn of(module: Module, version: u32) -> Option<Self> {
        match (module, version) {
            (Module::Hdf5File, 3) => Some(Self {
                api: Api::Hdf5,
                head_words: 2,
                integer_words: 3,
                float_words: 5,
                integers: &[(0, "H5F_OPENS"), (1, "H5F_FLUSHES"), (2, "H5F_USE_MPIIO")],
                floats: &[(4, "H5F_F_META_TIME")],
            }),
            // Since version 2 a record names its file.
            (Module::Hdf5Dataset, 1 | 2) => Some(Self {
                api: Api::Hdf5,
                head_words: if version == 1 { 2 } else { 3 },
                integer_words: 94,
                float_words: 17,
                integers: HDF5_DATASET,
                floats: &[(8, "H5D_F_READ_TIME"), (9, "H5D_F_WRITE_TIME"), (10, "H5D_F_META_TIME")],
            }),
            (Module::PnetCdfFile, 3) => Some(Self {
                api: Api::PnetCdf,
                head_words: 2,
                integer_words: 9,
                float_words: 8,
                integers: PNETCDF_FILE,
                floats: &[(6, "PNETCDF_FILE_F_META_TIME"), (7, "PNETCDF_FILE_F_WAIT_TIME")],
            }),
            (Module::PnetCdfVariable, 1) => Some(Self {
                api: Api::PnetCdf,
                head_words: 3,
                integer_words: 120,
                float_words: 17,
                integers: PNETCDF_VARIABLE,
                floats: &[(8, "PNETCDF_VAR_F_READ_TIME"), (9, "PNETCDF_VAR_F_WRITE_TIME")],
            }),
            _ => None,
        }
    }

    /// Length of a record in bytes.
    pub fn record_bytes(&self) -> usize {
        8 * (self.head_words + self.integer_words + self.float_words)
    }

    /// The kept counters of a record, whose word of an index `word` gives.
    pub fn kept(&self, word: impl Fn(usize) -> u64) -> KeptCounters {
        let integers = self.integers.iter().map(|&(at, name)| (name, word(self.head_words + at) as i64));
        let first = self.head_words + self.integer_words;
        let floats = self.floats.iter().map(|&(at, name)| (name, f64::from_bits(word(first + at))));
        (integers.collect(), floats.collect())
    }
}

const HDF5_DATASET: &[(usize, &str)] = &[
    (0, "H5D_OPENS"),
    (1, "H5D_READS"),
    (2, "H5D_WRITES"),
    (4, "H5D_BYTES_READ"),
    (5, "H5D_BYTES_WRITTEN"),
    (7, "H5D_REGULAR_HYPERSLAB_SELECTS"),
    (8, "H5D_IRREGULAR_HYPERSLAB_SELECTS"),
    (9, "H5D_POINT_SELECTS"),
    (82, "H5D_DATATYPE_SIZE"),
    (83, "H5D_CHUNK_SIZE_D1"),
    (84, "H5D_CHUNK_SIZE_D2"),
    (85, "H5D_CHUNK_SIZE_D3"),
    (86, "H5D_CHUNK_SIZE_D4"),
    (87, "H5D_CHUNK_SIZE_D5"),
    (88, "H5D_USE_MPIIO_COLLECTIVE"),
];

const PNETCDF_FILE: &[(usize, &str)] = &[
    (0, "PNETCDF_FILE_CREATES"),
    (1, "PNETCDF_FILE_OPENS"),
    (2, "PNETCDF_FILE_REDEFS"),
    (3, "PNETCDF_FILE_INDEP_WAITS"),
    (4, "PNETCDF_FILE_COLL_WAITS"),
    (6, "PNETCDF_FILE_BYTES_READ"),
    (7, "PNETCDF_FILE_BYTES_WRITTEN"),
];

const PNETCDF_VARIABLE: &[(usize, &str)] = &[
    (0, "PNETCDF_VAR_OPENS"),
    (1, "PNETCDF_VAR_INDEP_READS"),
    (2, "PNETCDF_VAR_INDEP_WRITES"),
    (3, "PNETCDF_VAR_COLL_READS"),
    (4, "PNETCDF_VAR_COLL_WRITES"),
    (5, "PNETCDF_VAR_NB_READS"),
    (6, "PNETCDF_VAR_NB_WRITES"),
    (7, "PNETCDF_VAR_BYTES_READ"),
    (8, "PNETCDF_VAR_BYTES_WRITTEN"),
];

/// The counter of this name, of any of the modules.
pub(super) fn known(name: &[u8]) -> Option<&'static str> {
    const SHAPES: [(Module, u32); 4] =
        [(Module::Hdf5File, 3), (Module::Hdf5Dataset, 2), (Module::PnetCdfFile, 3), (Module::PnetCdfVariable, 1)];
    let shapes = SHAPES.into_iter().filter_map(|(module, version)| LibraryShape::of(module, version));
    shapes
        .flat_map(|shape| shape.integers.iter().chain(shape.floats))
        .map(|(_, name)| *name)
        .find(|known| known.as_bytes() == name)
}
