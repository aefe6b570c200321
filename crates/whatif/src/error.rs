//! Why there is no answer.

use stripewise_advise::{AdviseError, ClusterError};
use stripewise_layout::LoadError;
use stripewise_planner::PlanError;
use stripewise_simulate::SimulateError;

/// Why there is no answer. The text is that of the part that found it.
#[derive(Debug, thiserror::Error)]
pub enum WhatifError {
    /// The pool, or a file of it.
    #[error(transparent)]
    Store(#[from] stripewise_store::Error),
    /// The cluster file.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    /// The layout file.
    #[error(transparent)]
    Layout(#[from] LoadError),
    /// It cannot be planned.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// It cannot be simulated.
    #[error(transparent)]
    Simulate(#[from] SimulateError),
    /// There is no advice on it.
    #[error(transparent)]
    Advise(#[from] AdviseError),
    /// What was asked for does not fit the trace or the servers.
    #[error("{0}")]
    Asked(String),
}
