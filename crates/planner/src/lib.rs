//! From requests to a layout.
