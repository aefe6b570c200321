//! The door of a mount that is made by a command: with the gate of turns, if the pool is orchestrated.

use stripewise_control::Door;
use stripewise_orchestrate::{Asker, Turns, is_orchestrated, make_plan_page};
use stripewise_store::Pool;

use crate::error::MountError;
use crate::log;
use crate::options::MountOptions;

/// The door for a mount of `pool`. One with a gate lets the kernel serve no file itself, so that there is one only where an
/// orchestrator is at work or `-o orchestrated` says that one will be.
///
/// # Errors
/// The page of turns that the option asks for cannot be made.
pub fn door(pool: &Pool, options: &MountOptions) -> Result<Door, MountError> {
    if options.orchestrated {
        make_plan_page(pool)?;
    } else if !is_orchestrated(pool) {
        return Ok(Door::default());
    }
    let turns = Turns::open(pool, || Asker::Threads, log::error);
    Ok(turns.map_or_else(Door::default, |turns| turns.install(Door::default())))
}
