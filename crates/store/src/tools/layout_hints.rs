//! The layouts that a directory gives to files that are made in it, and below it. They are rules, as `apply` sets them: each names a
//! layout of the pool for the paths of a pattern, and the directory is the beginning of that.

use crate::os::error::{Error, Result};
use crate::pool::rules::Rule;
use crate::pool::store::Store;
use std::path::Path;
use std::sync::Arc;
use stripewise_layout::{Layout, Pattern};

/// What stands between the directory and the pattern of names: it holds in the directory itself, too.
const BELOW: &str = "**/";

/// A rule of a directory.
#[derive(Debug, Clone)]
pub struct HintedLayout {
    /// What its pattern says below the directory.
    pub pattern: String,
    /// The layout that such a file gets.
    pub layout: Arc<Layout>,
}

/// How the patterns begin that match no file but below the directory at `path` (relative to the tree). `None`: no rule names it, as
/// patterns are UTF-8 and its path is not.
fn beginning(path: &Path) -> Result<Option<String>> {
    let mut names = path.components().peekable();
    if names.peek().is_none() || path == Path::new(".") {
        return Ok(Some(String::new()));
    }
    let Some(text) = path.to_str() else { return Ok(None) };
    let exact = Pattern::exact(text).map_err(|error| Error::Invalid(error.to_string()))?;
    Ok(Some(format!("{}/", exact.as_str())))
}

/// The pattern of the rule for the names of `names` (all: `None`) in and below a directory.
fn pattern_of(beginning: &str, names: Option<&Pattern>) -> Result<Pattern> {
    let text = format!("{beginning}{BELOW}{}", names.map_or("*", Pattern::as_str));
    Pattern::new(&text).map_err(|error| Error::Invalid(error.to_string()))
}

/// The patterns of the rules that say something of exactly these names: the one of hints, and, as `apply` sets it for files to
/// come, the one of the directory itself. None where no rule can name the directory.
fn patterns_of(path: &Path, names: Option<&Pattern>) -> Result<Vec<Pattern>> {
    let Some(beginning) = beginning(path)? else { return Ok(Vec::new()) };
    let mut found = vec![pattern_of(&beginning, names)?];
    if let Some(names) = names {
        let text = format!("{beginning}{}", names.as_str());
        found.push(Pattern::new(&text).map_err(|error| Error::Invalid(error.to_string()))?);
    }
    Ok(found)
}

impl Store {
    /// Says what layout files get that are made in the directory at `path` (relative to the tree) or below it, with a name that
    /// matches `names`, in place of what was said of exactly these. Of all names it counts only where no pattern of the directory
    /// matches. Where what is to be done `then` fails, nothing is changed.
    ///
    /// # Errors
    /// The path of the directory is not UTF-8, the pool cannot have the layout, or the rules cannot be written; those of `then`.
    pub(crate) fn hint_layout(
        &self,
        path: &Path,
        names: Option<&Pattern>,
        layout: &Layout,
        then: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let beginning = beginning(path)?.ok_or_else(|| {
            let why = "its path is not UTF-8, and a layout is a rule, whose pattern is: rename the directory";
            Error::Invalid(format!("{} cannot give a layout: {why}", path.display()))
        })?;
        let pattern = pattern_of(&beginning, names)?;
        let first = names.is_none().then(|| format!("{beginning}{BELOW}"));
        self.set_rule_before(&pattern, layout, first.as_deref(), then)
    }

    /// The rules for files in and below the directory at `path` alone, the oldest first: by hints, and by `apply`.
    ///
    /// # Errors
    /// The rules, or the layout of one, cannot be read.
    pub fn hinted_layouts(&self, path: &Path) -> Result<Vec<HintedLayout>> {
        let Some(beginning) = beginning(path)? else { return Ok(Vec::new()) };
        let below = |rule: &Rule| rule.pattern.as_str().strip_prefix(&beginning).map(str::to_owned);
        let rules = self.rules()?;
        let found = rules.iter().filter_map(|rule| below(rule).map(|pattern| (pattern, rule)));
        found.map(|(pattern, rule)| Ok(HintedLayout { pattern, layout: self.rule_layout(rule)? })).collect()
    }

    /// Whether a rule of the directory says something of exactly these names: of [`Store::hint_layout`], or of `apply`.
    ///
    /// # Errors
    /// The rules cannot be read.
    pub(crate) fn has_hinted_layout(&self, path: &Path, names: Option<&Pattern>) -> Result<bool> {
        let patterns = patterns_of(path, names)?;
        Ok(self.rules()?.iter().any(|rule| patterns.contains(&rule.pattern)))
    }

    /// Removes the rules of the directory for exactly these names. Where what is to be done `then` fails, nothing is changed.
    ///
    /// # Errors
    /// The rules cannot be read or written; those of `then`.
    pub(crate) fn remove_hinted_layout(
        &self,
        path: &Path,
        names: Option<&Pattern>,
        then: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let patterns = patterns_of(path, names)?;
        self.change_rules_then(|rules| rules.retain(|rule| !patterns.contains(&rule.pattern)), then)
    }

    /// Removes all that [`Store::hint_layout`] has said of the directory, as one change with what is to be done `then`.
    ///
    /// # Errors
    /// As [`Store::remove_hinted_layout`].
    pub(crate) fn remove_hinted_layouts(&self, path: &Path, then: impl FnOnce() -> Result<()>) -> Result<()> {
        let Some(beginning) = beginning(path)?.map(|beginning| format!("{beginning}{BELOW}")) else { return then() };
        let is_own = |rule: &Rule| {
            let names = rule.pattern.as_str().strip_prefix(&beginning);
            names.is_some_and(|names| !names.contains('/'))
        };
        // Who may not write the rules may ask for what is not there.
        if self.rules()?.iter().any(is_own) {
            return self.change_rules_then(|rules| rules.retain(|rule| !is_own(rule)), then);
        }
        then()
    }
}
