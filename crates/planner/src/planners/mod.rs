//! The planners: one file or directory each behind one trait, in one list.
//!
//! A planner makes one layout per file from a [`Job`](crate::Job) and knows nothing of the others. What all of them share
//! is in the frame around it ([`propose`]).
//!
//! To add a planner, write `planners/NAME.rs` with a unit struct that implements [`Planner`], declare it here and add it
//! to the list below; the command line, `auto` and the tests find it there. `docs/adding-a-planner.md` goes through it.

pub(crate) mod chen;
mod fixed;
pub(crate) mod harl;
pub(crate) mod planner;
mod regions;
mod server_widths;
pub(crate) mod song;
pub(crate) mod whole_files;

pub use planner::{Planner, Proposal, propose};

/// Every planner that makes layouts by itself, in the order in which they are listed. Of two that are equally
/// good the first is taken: what the pool does anyway, then Stripewise's own, the simpler of two that build on
/// each other first, then the corrected planner of a paper before the paper's.
pub static PLANNERS: &[&dyn Planner] = &[
    &fixed::Fixed,
    &regions::Regions,
    &server_widths::ServerWidths,
    &whole_files::WholeFiles,
    &chen::Groups,
    &chen::OneDh,
    &chen::OneDv,
    &chen::TwoD,
    &song::EqualDepth,
    &song::EqualDepthPaper,
    &harl::Harl,
    &harl::HarlPaper,
];

/// The planner of that name.
pub fn by_name(name: &str) -> Option<&'static dyn Planner> {
    PLANNERS.iter().copied().find(|planner| planner.name() == name)
}
