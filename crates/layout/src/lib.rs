//! Where the bytes of a file are.
//!
//! A [`Layout`] is a list of [`Region`]s in order of offset; a region is served in *rounds*; a round is an
//! ordered list of [`Stripe`]s, each a server and a width in bytes. The position of a byte in its round is
//! `offset mod round_bytes`, counted from the start of the *file* (the absolute phase), so splitting or merging
//! regions of equal rounds moves nothing.
//!
//! The crate knows nothing of servers' disks and costs: planners produce layouts, the store serves them.

mod binary;
mod head;
mod layout;
mod line;
mod load;
mod names;
mod pattern;
mod rst;
mod split;
pub mod units;

pub use binary::{DecodeError, MAX_STRIPES};
pub use layout::{Layout, LayoutError, Location, MAX_OFFSET, Region, ServerId, Stripe};
pub use load::LoadError;
pub use names::{META_NAME, ServerNames};
pub use pattern::{Pattern, PatternError};
pub use rst::{FileLayout, LAYOUT_FILE_VERSION, LayoutFile, RstError, RstProblem, round_entries};
pub use split::{Pieces, SubRequest, SubRequests};
