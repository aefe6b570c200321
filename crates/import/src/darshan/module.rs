//! [`Module`]: the parts of a log that are read, and their numbers in each format.

/// The two lists of a record of counters: integers, then floats, with their names.
pub(super) type KeptCounters = (Vec<(&'static str, i64)>, Vec<(&'static str, f64)>);

/// Modules that are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Module {
    Posix,
    MpiIo,
    Hdf5File,
    Hdf5Dataset,
    PnetCdfFile,
    PnetCdfVariable,
    Lustre,
    Stdio,
    DxtPosix,
    DxtMpiIo,
    Dfs,
    Daos,
}

impl Module {
    pub const ALL: [Module; 12] = [
        Module::Posix,
        Module::MpiIo,
        Module::Hdf5File,
        Module::Hdf5Dataset,
        Module::PnetCdfFile,
        Module::PnetCdfVariable,
        Module::Lustre,
        Module::Stdio,
        Module::DxtPosix,
        Module::DxtMpiIo,
        Module::Dfs,
        Module::Daos,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Module::Posix => "POSIX",
            Module::MpiIo => "MPI-IO",
            Module::Hdf5File => "H5F",
            Module::Hdf5Dataset => "H5D",
            Module::PnetCdfFile => "PNETCDF_FILE",
            Module::PnetCdfVariable => "PNETCDF_VAR",
            Module::Lustre => "LUSTRE",
            Module::Stdio => "STDIO",
            Module::DxtPosix => "DXT_POSIX",
            Module::DxtMpiIo => "DXT_MPIIO",
            Module::Dfs => "DFS",
            Module::Daos => "DAOS",
        }
    }

    /// Its number in a log of format 3.`minor`, where that format has it: two modules were put in between later (H5D in
    /// 3.20, PNETCDF_VAR in 3.41), and DAOS came at the end.
    pub fn number(self, minor: u32) -> Option<usize> {
        let moved = usize::from(minor >= 20) + usize::from(minor >= 41);
        match self {
            Module::Posix => Some(1),
            Module::MpiIo => Some(2),
            Module::Hdf5File => Some(3),
            Module::Hdf5Dataset => (minor >= 20).then_some(4),
            Module::PnetCdfFile => Some(4 + usize::from(minor >= 20)),
            Module::PnetCdfVariable => (minor >= 41).then_some(6),
            Module::Lustre => Some(6 + moved),
            Module::Stdio => Some(7 + moved),
            Module::DxtPosix => Some(8 + moved),
            Module::DxtMpiIo => Some(9 + moved),
            Module::Dfs => (minor >= 41).then_some(16),
            Module::Daos => (minor >= 41).then_some(17),
        }
    }
}
