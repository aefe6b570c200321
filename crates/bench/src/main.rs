//! IOR-like workload: real processes, checked data.
fn main() {}
