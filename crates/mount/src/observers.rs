//! The observers of a mount's door: those that the pool file asks for, and those that the mount was made with.

use crate::error::MountError;
use crate::options::MountOptions;
use stripewise_control::Door;
use stripewise_store::Pool;
use stripewise_store::pool::{with_heat, with_latencies};

/// `door` with what keeps heat, if the pool keeps it, and what counts how long servers take, if `options` ask for that.
///
/// # Errors
/// A file that the counts are kept in cannot be made or mapped.
pub fn observed(door: Door, pool: &Pool, options: &MountOptions) -> Result<Door, MountError> {
    let door = with_heat(door, pool)?;
    Ok(if options.latencies { with_latencies(door, pool)? } else { door })
}
