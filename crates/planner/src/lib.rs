//! From requests to a layout.

pub mod harl;
pub mod stripe_search;
