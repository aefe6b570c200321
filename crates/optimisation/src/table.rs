//! The table of all optimisations.

/// What an optimisation is: its place in a handle, its name, and its one parameter, a number of bytes.
#[derive(Debug, PartialEq, Eq)]
pub struct OptimisationType {
    /// The upper 5 bits of its word, and its bit in the mask.
    pub index: u32,
    /// How people write it.
    pub name: &'static str,
    /// Bits of the parameter, the lowest of the word; all others are zero.
    pub parameter_bits: u32,
    /// Least parameter in bytes.
    pub least_bytes: u64,
    /// Greatest parameter in bytes.
    pub most_bytes: u64,
    /// The parameter is a multiple of this many bytes.
    pub multiple_bytes: u64,
    /// The parameter in bytes where only the name is written.
    pub default_bytes: u64,
    /// What it does, for the documentation.
    pub does: &'static str,
}

/// The first bytes of a file stay in its inode on the metadata tier; what comes behind goes to the servers.
pub const SMALL: OptimisationType = OptimisationType {
    index: 0,
    name: "small",
    parameter_bits: 40,
    least_bytes: 4 << 10,
    most_bytes: 1 << 30,
    multiple_bytes: 4 << 10,
    default_bytes: 64 << 10,
    does: "the first bytes of the file, as many as it says, are in its inode on the metadata tier; the rest is on the servers",
};

/// All of them, by index.
pub const TABLE: &[OptimisationType] = &[SMALL];

impl OptimisationType {
    /// The optimisation of that index; `None` for one that this release does not know. O(number of optimisations).
    pub fn of_index(index: u32) -> Option<&'static Self> {
        TABLE.iter().find(|each| each.index == index)
    }

    /// The optimisation of that name.
    pub fn of_name(name: &str) -> Option<&'static Self> {
        TABLE.iter().find(|each| each.name == name)
    }
}
