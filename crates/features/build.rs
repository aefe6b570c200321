//! Without it Cargo does not look at the build dependencies.

fn main() {}
