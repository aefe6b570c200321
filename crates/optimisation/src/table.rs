//! The table of all optimisations.

use crate::parameter::{ParameterType, ParameterUnit};

/// What an optimisation is: its place in a handle, its name, and its parameters.
#[derive(Debug, PartialEq, Eq)]
pub struct OptimisationType {
    /// The upper 5 bits of its word, and its bit in the mask.
    pub index: u32,
    /// How people write it.
    pub name: &'static str,
    /// Its parameters, one to [`MOST_PARAMETERS`]: the first has the lowest bits of the word. All other bits are zero.
    pub parameters: &'static [ParameterType],
    /// What it does, for the documentation.
    pub does: &'static str,
}

/// Most parameters of an optimisation.
pub const MOST_PARAMETERS: usize = 2;

/// The first bytes of a file stay in its inode on the metadata tier; what comes behind goes to the servers.
pub const SMALL: OptimisationType = OptimisationType {
    index: 0,
    name: "small",
    parameters: &[ParameterType {
        name: "size",
        unit: ParameterUnit::Bytes,
        bits: 40,
        least: 4 << 10,
        most: 1 << 30,
        multiple: 4 << 10,
        default: 64 << 10,
    }],
    does: "the first bytes of the file, as many as it says, are in its inode on the metadata tier; the rest is on the servers",
};

/// What a sequential or strided reader reads next is fetched from the servers before it asks.
pub const READAHEAD: OptimisationType = OptimisationType {
    index: 1,
    name: "readahead",
    parameters: &[
        ParameterType {
            name: "window",
            unit: ParameterUnit::Bytes,
            bits: 40,
            least: 64 << 10,
            most: 128 << 20,
            multiple: 4 << 10,
            default: 8 << 20,
        },
        ParameterType {
            name: "depth",
            unit: ParameterUnit::Count,
            bits: 4,
            least: 1,
            most: 8,
            multiple: 1,
            default: 2,
        },
    ],
    does: "what a program that reads one piece after the other, or pieces at equal distances, reads next is fetched from all \
           servers before it asks: windows of that size, as many at once as depth says; a block of which programs that jump have \
           asked for much is fetched as a whole",
};

/// What a program writes piece by piece is gathered, and goes to the servers in whole stripes.
pub const WRITEBEHIND: OptimisationType = OptimisationType {
    index: 2,
    name: "writebehind",
    parameters: &[
        ParameterType {
            name: "size",
            unit: ParameterUnit::Bytes,
            bits: 40,
            least: 64 << 10,
            most: 128 << 20,
            multiple: 4 << 10,
            default: 4 << 20,
        },
        ParameterType {
            name: "delay",
            unit: ParameterUnit::Milliseconds,
            bits: 16,
            least: 10,
            most: 60_000,
            multiple: 10,
            default: 1000,
        },
    ],
    does: "what a program writes one small piece after the other is gathered in memory and goes to the servers in whole stripes, \
           as much at once as size says; at the latest after the delay, and before a sync or close returns",
};

/// What programs read of a data set stays in the kernel's memory, from one open to the next.
pub const CACHED: OptimisationType = OptimisationType {
    index: 3,
    name: "cached",
    parameters: &[ParameterType {
        name: "most",
        unit: ParameterUnit::Bytes,
        bits: 50,
        least: 4 << 10,
        most: 1 << 49,
        multiple: 4 << 10,
        default: 1 << 30,
    }],
    does: "what programs read through a mount stays in the kernel's memory, from one open to the next, of files that have no more \
           bytes than it says; such a file cannot be written while it is open so",
};

/// Who is served first: requests on such a file wait for those on others, while programs take turns.
pub const CLASS: OptimisationType = OptimisationType {
    index: 4,
    name: "class",
    parameters: &[ParameterType {
        name: "rank",
        unit: ParameterUnit::Count,
        bits: 3,
        least: 1,
        most: 7,
        multiple: 1,
        default: 1,
    }],
    does: "while an orchestrator is at work, requests on the file wait until programs have paused on files of a lower rank, and on \
           those without one, which have rank 0; two windows at most",
};

/// Large requests leave nothing in the page caches of the servers.
pub const DIRECT: OptimisationType = OptimisationType {
    index: 5,
    name: "direct",
    parameters: &[ParameterType {
        name: "least",
        unit: ParameterUnit::Bytes,
        bits: 40,
        least: 4 << 10,
        most: 1 << 30,
        multiple: 4 << 10,
        default: 1 << 20,
    }],
    does: "requests of that size and more leave nothing in the page caches of the servers, so that what passes once does not push \
           out what is used again",
};

/// All of them, by index.
pub const TABLE: &[OptimisationType] = &[SMALL, READAHEAD, WRITEBEHIND, CACHED, CLASS, DIRECT];

impl OptimisationType {
    /// The optimisation of that index; `None` for one that this release does not know. O(number of optimisations).
    pub fn of_index(index: u32) -> Option<&'static Self> {
        TABLE.iter().find(|each| each.index == index)
    }

    /// The optimisation of that name.
    pub fn of_name(name: &str) -> Option<&'static Self> {
        TABLE.iter().find(|each| each.name == name)
    }

    /// How it is written: `small=SIZE`, `readahead=WINDOW:DEPTH`.
    pub fn form(&self) -> String {
        let parameters: Vec<_> = self.parameters.iter().map(|each| each.name.to_uppercase()).collect();
        format!("{}={}", self.name, parameters.join(":"))
    }
}
