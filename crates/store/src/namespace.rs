//! The namespace: the directory that holds names, layouts, locks and rules; and the markers by which a server's
//! directory is known.

use crate::error::{Error, Result};
use crate::pool::Pool;

pub(crate) fn prepare(pool: &Pool) -> Result<()> {
    todo!()
}
