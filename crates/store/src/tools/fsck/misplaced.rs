//! Datafiles that stand in another's place: where a file's datafile may be when it is not in its place.

use super::context::Context;
use crate::backend::{Backend, Found};
use crate::format::placement::{Datafile, DatafileKey};
use crate::os::sync::{Mutex, guard};
use std::collections::HashMap;
use stripewise_layout::ServerId;

/// Where datafiles stand that are not in their places.
type Places = HashMap<DatafileKey, String>;

/// What was found on each server that was searched.
#[derive(Debug, Default)]
pub(super) struct Misplaced(Mutex<HashMap<ServerId, Places>>);

impl Misplaced {
    /// Where that datafile stands instead of in its place. The first call for a server lists all that it has; the
    /// memory is that of what stands in the wrong one.
    pub(super) fn find(&self, context: &Context<'_>, logical: u64, datafile: Datafile) -> Option<String> {
        let backend = context.ground.server(datafile.server)?;
        let mut searched = guard(&self.0);
        let places = searched.entry(datafile.server).or_insert_with(|| search(backend));
        places.get(&datafile.key(logical)).cloned()
    }
}

fn search(backend: &dyn Backend) -> Places {
    let mut places = Places::new();
    for part in 0..backend.upkeep().parts() {
        // What cannot be read is told when the datafiles are looked at.
        for found in backend.upkeep().list(part).into_iter().flatten() {
            match found {
                Ok(Found::Elsewhere(key, place)) => drop(places.insert(key, place)),
                Ok(_) => {}
                Err(_) => break,
            }
        }
    }
    places
}
