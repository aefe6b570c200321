//! From any log to advice: where each kind of file is and what it waits for, where it should be, what that gains, and
//! what matters more than layout.
//!
//! A [`ClusterFile`] says what servers there are, [`Below`] hands the requests of a trace's files to planner and
//! simulator, [`advise`] does the rest.

mod advice;
mod advise;
mod asked;
mod bottleneck;
mod case;
mod cluster_file;
mod cluster_text;
mod counted;
mod defaults;
mod drift;
mod error;
mod findings;
mod fit;
mod gaps;
mod gather;
mod hints;
mod interval;
mod job;
mod job_ranks;
mod kinds;
mod layout_rules;
mod look;
mod more_writers;
mod mounts;
mod options;
mod passes;
mod phased;
mod planning;
mod present;
mod rehearsal;
mod requests;
mod served;
mod served_run;
mod settable;
mod sides;
mod slow;
mod stripes;
mod surveying;
mod usage;
mod writers;

pub use advice::{Advice, AdviceRow, DirectoryAdvice, FittedProfile, KindPlacement, Reproduced, TierSpace};
pub use advise::{advise, advise_by, job_facts};
pub use bottleneck::Bottleneck;
pub use cluster_file::{ClusterFile, ClusterTier, DefaultLayout, FileSystem};
pub use cluster_text::ClusterError;
pub use error::AdviseError;
pub use findings::{Finding, Hints, Severity};
pub use fit::HeldOut;
pub use hints::{FileHints, file_hints};
pub use interval::{Cause, Gain};
pub use job::JobFacts;
pub use kinds::numbers_replaced;
pub use layout_rules::{LayoutRule, RULES, RuleGain};
pub use options::{AdviceOptions, LayoutSource, PresentLayout, ReadLayouts, ServersFrom};
pub use passes::{Pass, PassResult, Passes, Wanted};
pub use requests::{Below, FileRequests, below, common_directory};
pub use sides::{Sided, Sides};
