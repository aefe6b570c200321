//! The table of the program's descriptors.

use crate::placed::Placed;
use stripewise_descriptors::DescriptorTable;

/// What is known of the program's descriptors. Those from this number on are left to the mount and not recorded.
pub(crate) static TABLE: DescriptorTable<Placed, { 1 << 16 }> = DescriptorTable::new(Placed);
