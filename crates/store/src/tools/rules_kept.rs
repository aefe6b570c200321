//! Rules as they were at one moment, to be put back later.

use crate::os::error::Result;
use crate::pool::store::Store;
use std::sync::Arc;
use stripewise_layout::{Layout, Pattern};

/// The rules for some patterns as they were at one moment.
#[derive(Debug, Clone)]
pub struct RulesKept {
    /// `None` where a pattern had no rule.
    rules: Vec<(Pattern, Option<Arc<Layout>>)>,
}

impl Store {
    /// The rules for exactly these patterns.
    ///
    /// # Errors
    /// The rules, or the layout of one, cannot be read.
    pub fn keep_rules<'a>(&self, patterns: impl IntoIterator<Item = &'a Pattern>) -> Result<RulesKept> {
        let known = self.rules()?;
        let keep = |pattern: &Pattern| {
            let rule = known.iter().find(|rule| rule.pattern == *pattern);
            Ok((pattern.clone(), rule.map(|rule| self.rule_layout(rule)).transpose()?))
        };
        Ok(RulesKept { rules: patterns.into_iter().map(keep).collect::<Result<_>>()? })
    }

    /// Puts them back: a pattern that had a rule gets it again, the rules of the others go.
    ///
    /// # Errors
    /// As [`Store::set_rule`] and [`Store::remove_rule`].
    pub fn restore_rules(&self, kept: &RulesKept) -> Result<()> {
        for (pattern, layout) in &kept.rules {
            match layout {
                Some(layout) => self.set_rule(pattern, layout)?,
                None => {
                    self.remove_rule(pattern)?;
                }
            }
        }
        Ok(())
    }
}
