//! The pages of a node whose plans come from another one.

use stripewise_store::emulate::now_ns;
use stripewise_store::{Error, Pool, Result};

use crate::nodes::{check_node_name, pages_of};
use crate::plan_page::{LASTING_WINDOWS, PublishedPlan};
use crate::plan_writer::PlanWriter;
use crate::snapshot::{NodeSnapshot, PageReader};
use crate::turns::make_plan_page;

/// The pages of a node; dropping this opens its gates.
pub struct NodePages {
    writer: PlanWriter,
    reader: PageReader,
    /// Of the plan that came last.
    policy: Option<String>,
}

impl NodePages {
    /// Makes the pages of `node` in the namespace of `pool`. Programs and mounts that are started from now on look at them.
    ///
    /// # Errors
    /// `node` is no name; another agent is at work there; the namespace cannot be written.
    pub fn open(pool: &Pool, node: &str) -> Result<Self> {
        check_node_name(node)?;
        let directory = pages_of(pool, node).ok_or_else(|| Error::Invalid(format!("'{node}' is no name of a node")))?;
        // A gate looks for its node's page where a pool has one of its own.
        drop(make_plan_page(pool)?);
        let writer = PlanWriter::open(pool, &directory)?;
        Ok(Self { writer, reader: PageReader::new(&directory, pool.servers.len()), policy: None })
    }

    /// What programs of this node do: some hundred microseconds a user.
    pub fn snapshot(&mut self) -> NodeSnapshot {
        self.reader.read(now_ns())
    }

    /// Takes a plan with times of this node's clock: it is in force when it begins, if [`Self::tick`] is called then. `false`:
    /// it would have been over by now, and is left out.
    pub fn put(&mut self, policy: &str, plan: PublishedPlan) -> bool {
        let now_ns = now_ns();
        if plan.begin_ns.saturating_add(plan.window_ns.saturating_mul(LASTING_WINDOWS)) <= now_ns {
            return false;
        }
        if self.policy.as_deref() != Some(policy) {
            self.writer.begin(policy, now_ns);
            self.policy = Some(policy.to_owned());
        }
        self.writer.publish(plan, now_ns);
        true
    }

    /// Whether gates of this node keep to slices now.
    pub fn is_in_turns(&self) -> bool {
        self.writer.is_in_turns(now_ns())
    }

    /// What is to be told of pages since this was asked last.
    pub fn take_remarks(&mut self) -> Vec<String> {
        let mut remarks = self.reader.take_remarks();
        remarks.extend(self.writer.take_remarks());
        remarks
    }

    /// When the next plan begins: `CLOCK_MONOTONIC` in nanoseconds.
    pub fn due_ns(&self) -> Option<u64> {
        self.writer.due_ns()
    }

    /// Puts the next plan in force if its time has come.
    pub fn tick(&mut self) {
        self.writer.tick(now_ns());
    }
}
