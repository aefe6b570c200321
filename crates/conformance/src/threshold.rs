//! The threshold of small files, which falls and rises between the operations of a case, and moves files both ways.

use std::collections::HashMap;
use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use stripewise_store::drain::DrainWatch;
use stripewise_store::small_files::{MovedBefore, NewHead, move_small_files};
use stripewise_store::{Store, Then};

/// The shares of what is hinted, in turn. It falls as often as it rises, and stays.
const SHARES: [f64; 6] = [0.0625, 1.0, 0.25, 0.25, 1.0, 1.0];
/// Operations between two of them.
const OPERATIONS: u64 = 3;
/// Where the page of the load has the share.
const SHARE_AT: u64 = 16;

/// The threshold of a case, and what it has moved.
#[derive(Debug, Default)]
pub struct MovingThreshold {
    operations: u64,
    /// What the case's files were moved for before, by their handles.
    before: HashMap<u64, MovedBefore>,
    /// Files that went to the servers, in all cases.
    pub sent_files: u64,
    /// Files that came back.
    pub returned_files: u64,
}

/// Lets files move without a rest.
struct On;

impl DrainWatch for On {
    fn progress(&mut self, _: &str, _: u64, _: u64) -> Then {
        Then::On
    }
}

impl MovingThreshold {
    /// Begins a case.
    pub fn begin(&mut self) {
        self.operations = 0;
        self.before.clear();
    }

    /// Before an operation: where it is time, the threshold goes to its next share, and the files that are due by it move as
    /// `stripewise adapt` moves them, from a process of its own. New files get that share.
    ///
    /// # Errors
    /// The tree cannot be read, or a file neither moves nor is one that is being written.
    pub fn step(&mut self, store: &Arc<Store>) -> Result<(), String> {
        self.operations += 1;
        if !self.operations.is_multiple_of(OPERATIONS) {
            return Ok(());
        }
        let share = SHARES[(self.operations / OPERATIONS) as usize % SHARES.len()];
        let told = |error: stripewise_store::Error| format!("the threshold goes to {share}: {error}");
        // The first look ends the period, so that none ends between the share and what is due by it.
        store.due_small_files(&self.before).map_err(told)?;
        let page = store.pool().namespace.join("meta-load.2");
        let page = OpenOptions::new().write(true).open(page).map_err(|error| error.to_string())?;
        page.write_all_at(&share.to_bits().to_ne_bytes(), SHARE_AT).map_err(|error| error.to_string())?;
        let due = store.due_small_files(&self.before).map_err(told)?;
        let heads: Vec<_> = due.iter().map(NewHead::from).collect();
        let moved = move_small_files(&store.pool().file, &heads, &mut On).map_err(told)?;
        if let Some(staying) = moved.staying.iter().find(|staying| !staying.is_busy) {
            return Err(format!("the threshold goes to {share}, and {} stays: {}", staying.path, staying.why));
        }
        for file in due.iter().filter(|file| moved.staying.iter().all(|staying| staying.path != file.path)) {
            // Any size is below that: it comes back with the threshold, without a truncation.
            let sent_bytes = (file.head_bytes == 0).then_some(u64::MAX);
            self.before.insert(file.handle, MovedBefore { moves: 0.0, sent_bytes });
            *if sent_bytes.is_some() { &mut self.sent_files } else { &mut self.returned_files } += 1;
        }
        Ok(())
    }
}
