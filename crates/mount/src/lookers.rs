//! Which programs look at the names that they list.
//!
//! A list begins with the attributes of its names, as the kernel asks for the first ones before a program has shown that it looks at
//! them. Each takes the mount longer than the name. Programs that look at names while they list are asked for by the kernel: from its
//! second request on a list has attributes where the program looked at those of the first. Programs that list all names first and
//! then look at them (`tar`, `du`, `find -size`) are known here, from their first directory on.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Programs that are told apart, by their numbers.
const TOLD_APART: usize = 64;
/// Attributes that a list begins with for a program which is not known to look.
const FIRST: usize = 32;

/// What programs did lately. What two programs of one place overwrite costs a list some attributes too many or too few.
#[derive(Debug)]
pub struct Lookers {
    /// The directory of which the program at this place was told names without attributes.
    listed: [AtomicU64; TOLD_APART],
    /// The program at this place that looked at such names.
    looked: [AtomicU32; TOLD_APART],
}

impl Default for Lookers {
    fn default() -> Lookers {
        let listed = [const { AtomicU64::new(0) }; TOLD_APART];
        Lookers { listed, looked: [const { AtomicU32::new(0) }; TOLD_APART] }
    }
}

impl Lookers {
    /// Attributes that a list begins with for `program`, 0 for one of another process namespace. A load.
    pub fn first_of(&self, program: u32) -> usize {
        let looks = program > 0 && self.looked[place(program)].load(Ordering::Relaxed) == program;
        if looks { usize::MAX } else { FIRST }
    }

    /// `program` gets no more attributes with the first names of `directory`. A store.
    pub fn ends_short(&self, program: u32, directory: u64) {
        self.listed[place(program)].store(directory, Ordering::Relaxed);
    }

    /// `program` has looked up a name in `directory`, which is no directory: a walk needs those without a look at attributes. A load; a
    /// store where it was listed short.
    pub fn looks(&self, program: u32, directory: u64) {
        let place = place(program);
        if program > 0 && self.listed[place].load(Ordering::Relaxed) == directory {
            self.looked[place].store(program, Ordering::Relaxed);
        }
    }
}

fn place(program: u32) -> usize {
    program as usize % TOLD_APART
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_looks_at_what_it_listed_gets_all_attributes_and_no_other_does() {
        let lookers = Lookers::default();
        lookers.looks(7, 10);
        assert_eq!(lookers.first_of(7), FIRST, "nothing was listed");
        lookers.ends_short(7, 10);
        lookers.looks(7, 11);
        lookers.looks(8, 10);
        assert_eq!([7, 8].map(|program| lookers.first_of(program)), [FIRST; 2], "another directory, another program");
        lookers.looks(7, 10);
        assert_eq!(lookers.first_of(7), usize::MAX);
        assert_eq!(lookers.first_of(7 + TOLD_APART as u32), FIRST, "at the same place");
    }

    #[test]
    fn programs_of_another_process_namespace_are_not_told_apart() {
        let lookers = Lookers::default();
        lookers.ends_short(0, 10);
        lookers.looks(0, 10);
        assert_eq!(lookers.first_of(0), FIRST);
    }
}
