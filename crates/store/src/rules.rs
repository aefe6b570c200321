//! Rules: which layout files to come get, by path or pattern.

use crate::error::Result;
use crate::store::Store;
use std::path::Path;
use stripewise_layout::Layout;

impl Store {
    /// Files to come whose path (relative to the tree) matches `pattern` (`*`, `?`, `**`) get `layout`. Replaces the rule of
    /// the same pattern. An exact path wins over a pattern, a later pattern over an earlier one.
    pub fn set_rule(&self, pattern: &str, layout: &Layout) -> Result<()> {
        todo!()
    }

    /// Removes the rule of exactly this pattern; whether there was one.
    pub fn remove_rule(&self, pattern: &str) -> Result<bool> {
        todo!()
    }

    /// The layout that a new file at `path` (relative to the tree) gets.
    pub fn layout_for(&self, path: &Path) -> Result<Layout> {
        todo!()
    }
}
