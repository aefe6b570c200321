//! `fsck`: finds what crashes, power cuts, copies and people left in a pool, and mends it.
//!
//! ```text
//! ground      namespace, markers and servers: what there is to stand on
//! walk 1      every file: handle, layout, datafiles, size       file, hold, layouts, misplaced
//! walk 2      handles that cannot be used, if there are any      handles, duplicates
//! servers     every datafile: whose is it?                       servers, lost_found
//! walk 3      leftovers of files, if there are any               leftovers
//! rest        lock files, half-written files                     rest
//! reading     every byte of every file, if that is asked for     scrub
//! ```
//!
//! Nothing that a writer has registered is touched: a file is judged and mended under its structural lock, and what
//! needs the whole pool to itself (datafiles that no file names) only when nothing has it mounted. No byte is destroyed
//! that might still be wanted: it goes to `lost+found`. Every step can be repeated, so a run that was killed is finished
//! by the next.

mod bindings;
mod context;
mod correct;
mod datafiles;
mod duplicates;
mod file;
mod finding;
mod ground;
mod handles;
mod hold;
mod holding;
mod known;
mod layouts;
mod leftovers;
mod lost_found;
mod misplaced;
mod options;
mod rebind;
mod rest;
mod scrub;
mod servers;

pub use context::{CheckStep, CheckWatch};
pub use finding::{CheckFinding, CheckReport, DamageKind, FindingOutcome, Outcomes};
pub use options::CheckOptions;

use crate::os::error::{Error, Result};
use crate::pool::namespace::is_shared;
use crate::pool::pool_file::Pool;
use crate::pool::shared::is_root;
use context::Context;

/// Checks `pool` and, unless `options` say otherwise, mends it. Findings are told to `watch` as they come; memory grows
/// by 32 bytes per placed file and by what is damaged.
///
/// # Errors
/// The pool cannot be checked at all (its namespace is not there, another check runs), or `watch` stopped the check.
/// What was found until then has been told, and what was mended is.
pub fn check(pool: &Pool, options: &CheckOptions, watch: &dyn CheckWatch) -> Result<CheckReport> {
    if is_shared(pool).unwrap_or(false) && !is_root() {
        return Err(Error::Invalid(format!(
            "pool '{}' is one of several users, of whose datafiles only root sees all: run this as root",
            pool.name
        )));
    }
    let taken_over = rebind::switch(pool, options)?;
    let context = match Context::open(pool, options, watch)? {
        Ok(context) => context,
        Err(report) => return Ok(report),
    };
    taken_over.into_iter().for_each(|finding| context.tell(finding));
    let mut known = file::check_all(&context)?;
    handles::resolve(&context, &mut known)?;
    let leftovers = servers::check_all(&context, &known)?;
    leftovers::mend(&context, leftovers)?;
    rest::check(&context, &known)?;
    drop(known);
    scrub::read_all(&context)?;
    context.end()
}
