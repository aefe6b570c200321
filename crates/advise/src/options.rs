//! [`AdviceOptions`]: what advice is asked for, and what is known of the layouts that there are.

use crate::cluster_file::ClusterFile;
use std::path::Path;
use stripewise_layout::{Layout, LayoutFile};

/// Where a file's present layout is known from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LayoutSource {
    /// The log tells what Lustre had.
    Log,
    /// The pool itself.
    Pool,
    /// Nothing: the cluster's default.
    Default,
}

impl LayoutSource {
    /// In words.
    pub fn words(self) -> &'static str {
        match self {
            Self::Log => "log",
            Self::Pool => "pool",
            Self::Default => "default",
        }
    }
}

/// Where the servers are known from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServersFrom {
    /// A cluster file or a pool file.
    Named,
    /// The log's Lustre layouts, with as many more as [`AdviceOptions::osts`] says.
    Log,
    /// Their number alone is known, from [`AdviceOptions::osts`].
    Number,
    /// Nothing: one server stands for all of them, and nothing is said of layouts.
    Unknown,
}

impl ServersFrom {
    /// In words.
    pub fn words(self) -> &'static str {
        match self {
            Self::Named => "cluster",
            Self::Log => "log",
            Self::Number => "number",
            Self::Unknown => "unknown",
        }
    }
}

/// The layout that a path (below the root) has; `None` where only the cluster's default is known.
pub type PresentLayout<'a> = dyn Fn(&Path) -> Option<Layout> + 'a;

/// Reads a layout file on the servers that were found; an error names the line.
pub type ReadLayouts<'a> = dyn Fn(&ClusterFile) -> Result<LayoutFile, String> + 'a;

/// What to advise on.
#[derive(Clone, Copy)]
pub struct AdviceOptions<'a> {
    /// The servers; `None`: those that the log's Lustre layouts show.
    pub cluster: Option<&'a ClusterFile>,
    /// Profile of servers that were found from the log.
    pub preset: &'a str,
    /// Object storage targets of a Lustre file system of which no cluster file is given.
    pub osts: Option<u16>,
    /// Only files below it; `None`: all.
    pub root: Option<&'a Path>,
    /// Name of the planner; `None`: all of them for few files, `regions` for many.
    pub planner: Option<&'a str>,
    /// The layouts that files have, where they are known.
    pub present: Option<&'a PresentLayout<'a>>,
    /// Whether [`RULES`](crate::RULES) are tried, too.
    pub rules: bool,
    /// Layouts that are held against the present ones, doubtful or not; `None`: those that planners make.
    pub given: Option<&'a ReadLayouts<'a>>,
}
