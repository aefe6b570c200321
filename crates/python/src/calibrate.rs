//! Calibration: what reads and writes cost on the servers of a pool.

use crate::convert::to_python;
use crate::error::raise;
use pyo3::prelude::*;
use serde_json::{Value, json};
use std::ops::ControlFlow;
use std::path::PathBuf;
use stripewise_model::OpProfile;
use stripewise_store::Pool;
use stripewise_store::calibrate::{
    self as measure, CalibrateOptions, IoPath, OpFit, ServerCalibration, TierCalibration,
};

/// Measures the servers of the named tiers, all at once, for about `budget_s` seconds. `progress(shares)` gets the share
/// done (0 to 1) of each server. Nothing is written into the pool file.
#[pyfunction]
pub(crate) fn calibrate<'py>(
    py: Python<'py>,
    pool_file: PathBuf,
    tiers: Vec<String>,
    budget_s: f64,
    progress: Py<PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let pool = Pool::load(&pool_file).map_err(raise)?;
    let mut targets = measure::targets(&pool);
    targets.retain(|target| tiers.contains(&target.tier));
    let options = CalibrateOptions { budget_s, ..CalibrateOptions::default() };
    let mut stopped = None;
    let measured = py.detach(|| {
        measure::calibrate(&targets, &options, |shares| {
            let told = Python::attach(|py| {
                py.check_signals()?;
                progress.call1(py, (shares.to_vec(),))
            });
            match told {
                Ok(_) => ControlFlow::Continue(()),
                Err(error) => {
                    stopped = Some(error);
                    ControlFlow::Break(())
                }
            }
        })
    });
    if let Some(error) = stopped {
        return Err(error);
    }
    let servers = measured.map_err(raise)?;
    let tiers: Vec<Value> = measure::tiers(&servers).iter().map(|tier| describe(tier, &servers)).collect();
    to_python(py, &Value::Array(tiers))
}

fn describe(tier: &TierCalibration, servers: &[ServerCalibration]) -> Value {
    json!({
        "name": tier.tier,
        "read": triple(&tier.profile.read),
        "write": triple(&tier.profile.write),
        "heads": [head(&tier.profile.read), head(&tier.profile.write)],
        "at_once": tier.at_once,
        "names": tier.names.map(|names| json!({ "look_s": names.look_s, "change_s": names.change_s })),
        "warnings": tier.warnings,
        "servers": servers.iter().filter(|server| server.target.tier == tier.tier).map(|server| json!({
            "name": server.target.server.name,
            "read": fit(&server.read),
            "write": fit(&server.write),
            "seeks": server.seeks.as_ref().map_or(Value::Null, |map| json!(map.points())),
            "method": match server.path {
                IoPath::Direct => "direct I/O",
                IoPath::Emulated => "emulated",
                IoPath::Cached => "page cache",
            },
        })).collect::<Vec<_>>(),
    })
}

/// As `pool_write_profile` takes it.
fn triple(op: &OpProfile) -> Value {
    json!([op.startup_min_s, op.startup_max_s, op.transfer_s_per_byte])
}

/// As `pool_write_profile` takes it.
fn head(op: &OpProfile) -> Value {
    op.head.map_or(Value::Null, |head| json!([head.sequential_startup_s, head.ahead_bytes]))
}

fn fit(fit: &OpFit) -> Value {
    json!({
        "startup_min_s": fit.profile.startup_min_s,
        "startup_max_s": fit.profile.startup_max_s,
        "sequential_startup_s": fit.profile.head.map(|head| head.sequential_startup_s),
        "ahead_bytes": fit.profile.ahead_bytes(),
        "transfer_s_per_byte": fit.profile.transfer_s_per_byte,
        "residual": fit.residual,
        "requests": fit.requests,
    })
}
