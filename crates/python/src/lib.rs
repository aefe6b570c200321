//! `stripewise._native`: what the Python package calls. One file an area, each a thin layer over one crate.

mod advise;
mod calibrate;
mod cluster;
mod convert;
mod emulation;
mod error;
mod experiment;
mod files;
mod fsck;
mod heat;
mod hints;
mod latencies;
mod layout_file;
mod open_files;
mod orchestrate;
mod plan;
mod pool;
mod pool_life;
mod report;
mod signature;
mod simulate;
mod together;
mod trace;
mod units;

use pyo3::prelude::*;

/// The compiled part of the package.
#[pymodule]
#[expect(clippy::too_many_lines, reason = "a table: a line for each name")]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("StripewiseError", module.py().get_type::<error::StripewiseError>())?;
    module.add_function(wrap_pyfunction!(units::parse_bytes, module)?)?;
    module.add_function(wrap_pyfunction!(trace::trace_merge, module)?)?;
    module.add_function(wrap_pyfunction!(trace::path_pattern, module)?)?;
    module.add_function(wrap_pyfunction!(trace::log_format, module)?)?;
    module.add_class::<trace::PyTrace>()?;
    module.add_class::<signature::PyTraceSignature>()?;
    module.add_function(wrap_pyfunction!(signature::signature_expand, module)?)?;
    module.add_function(wrap_pyfunction!(signature::signature_programs, module)?)?;
    module.add_function(wrap_pyfunction!(pool::pool_load, module)?)?;
    module.add_function(wrap_pyfunction!(pool::pool_init, module)?)?;
    module.add_function(wrap_pyfunction!(pool::pool_write_profile, module)?)?;
    module.add_function(wrap_pyfunction!(pool::pool_write_seeks, module)?)?;
    module.add_function(wrap_pyfunction!(pool::pool_write_at_once, module)?)?;
    module.add_function(wrap_pyfunction!(heat::pool_heat, module)?)?;
    module.add_function(wrap_pyfunction!(latencies::pool_latencies, module)?)?;
    module.add_function(wrap_pyfunction!(pool_life::pool_add, module)?)?;
    module.add_function(wrap_pyfunction!(pool_life::pool_drain, module)?)?;
    module.add_function(wrap_pyfunction!(pool_life::pool_remove, module)?)?;
    module.add_function(wrap_pyfunction!(pool_life::pool_rebalance, module)?)?;
    module.add_function(wrap_pyfunction!(pool_life::pool_tier_parts, module)?)?;
    module.add_function(wrap_pyfunction!(pool_life::pool_relieve, module)?)?;
    module.add_function(wrap_pyfunction!(calibrate::calibrate, module)?)?;
    module.add_function(wrap_pyfunction!(emulation::emulation_snapshot, module)?)?;
    module.add_class::<emulation::PyEmulationSnapshot>()?;
    module.add_class::<orchestrate::PyOrchestrator>()?;
    module.add_function(wrap_pyfunction!(orchestrate::schedule_policies, module)?)?;
    module.add_function(wrap_pyfunction!(orchestrate::orchestrate, module)?)?;
    module.add_function(wrap_pyfunction!(orchestrate::orchestration, module)?)?;
    module.add_function(wrap_pyfunction!(layout_file::layout_read, module)?)?;
    module.add_function(wrap_pyfunction!(layout_file::layout_parse, module)?)?;
    module.add_function(wrap_pyfunction!(layout_file::layout_check, module)?)?;
    module.add_function(wrap_pyfunction!(layout_file::layout_present, module)?)?;
    module.add_function(wrap_pyfunction!(files::layout_apply, module)?)?;
    module.add_function(wrap_pyfunction!(files::layout_forecast, module)?)?;
    module.add_function(wrap_pyfunction!(files::rules_snapshot, module)?)?;
    module.add_class::<files::RulesSnapshot>()?;
    module.add_function(wrap_pyfunction!(files::file_stat, module)?)?;
    module.add_function(wrap_pyfunction!(hints::optimisation_table, module)?)?;
    module.add_function(wrap_pyfunction!(hints::hints_of, module)?)?;
    module.add_function(wrap_pyfunction!(hints::hint_set, module)?)?;
    module.add_function(wrap_pyfunction!(hints::hint_remove, module)?)?;
    module.add_function(wrap_pyfunction!(hints::hints_remove_all, module)?)?;
    module.add_function(wrap_pyfunction!(hints::path_taken, module)?)?;
    module.add_function(wrap_pyfunction!(fsck::pool_fsck, module)?)?;
    module.add_function(wrap_pyfunction!(fsck::pool_export_tree, module)?)?;
    module.add_class::<open_files::PoolFiles>()?;
    module.add_class::<open_files::PyOpenFile>()?;
    module.add_function(wrap_pyfunction!(cluster::cluster_load, module)?)?;
    module.add_function(wrap_pyfunction!(plan::plan, module)?)?;
    module.add_function(wrap_pyfunction!(advise::advise, module)?)?;
    module.add_function(wrap_pyfunction!(advise::advise_pass, module)?)?;
    module.add_function(wrap_pyfunction!(advise::io_hints, module)?)?;
    module.add_function(wrap_pyfunction!(advise::job_facts, module)?)?;
    module.add_function(wrap_pyfunction!(plan::plan_on_cluster, module)?)?;
    module.add_function(wrap_pyfunction!(plan::planners, module)?)?;
    module.add_function(wrap_pyfunction!(plan::predict, module)?)?;
    module.add_function(wrap_pyfunction!(report::access, module)?)?;
    module.add_function(wrap_pyfunction!(report::server_load, module)?)?;
    module.add_function(wrap_pyfunction!(simulate::simulate, module)?)?;
    module.add_function(wrap_pyfunction!(simulate::simulate_on_cluster, module)?)?;
    module.add_function(wrap_pyfunction!(together::together, module)?)?;
    module.add_function(wrap_pyfunction!(experiment::simulate_generated, module)?)?;
    module.add_function(wrap_pyfunction!(experiment::price_generated, module)?)?;
    module.add_function(wrap_pyfunction!(experiment::price_native, module)?)?;
    module.add_function(wrap_pyfunction!(layout_file::pattern_place, module)?)?;
    module.add_function(wrap_pyfunction!(layout_file::pattern_matches, module)?)?;
    module.add_function(wrap_pyfunction!(experiment::plan_generated, module)?)?;
    module.add_function(wrap_pyfunction!(experiment::plan_harl_generated, module)?)?;
    module.add_function(wrap_pyfunction!(experiment::equal_depth_generated, module)?)?;
    module.add_function(wrap_pyfunction!(experiment::chen_costs, module)?)?;
    Ok(())
}
