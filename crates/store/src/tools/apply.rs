//! Applies layouts to a pool: files that are there are moved, one after the other, and files to come get rules. When one of
//! them cannot be done, those before it are undone.

use crate::file::inode::Inode;
use crate::file::moving::Moved;
use crate::file::steps::Then;
use crate::os::error::{Error, Result};
use crate::pool::applying::Applying;
use crate::pool::space::Forecast;
use crate::pool::store::Store;
use crate::tools::rules_kept::RulesKept;
use std::collections::VecDeque;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use stripewise_layout::{FileLayout, Layout};

/// Between two tries to have the right to change layouts.
const TRY_AGAIN: Duration = Duration::from_millis(50);

/// How often a file that was replaced meanwhile is looked for again in one application.
const MOST_REPLACED: usize = 1000;

/// Told how [`Store::apply`] goes on, in the thread that called it.
pub trait ApplyWatch {
    /// Another process of this user changes layouts of the pool: whether to wait for it.
    fn waits(&mut self) -> bool;

    /// `done` of the `total` bytes of the move of the file at `path` are copied or read back. A move that is stopped leaves
    /// that file as it was.
    fn progress(&mut self, path: &str, done_bytes: u64, total_bytes: u64) -> Then;

    /// Whether a move ends with [`Error::Busy`] when a writer comes, which waits for all of it otherwise.
    fn gives_way(&self) -> bool;
}

/// A file that is to get another layout.
#[derive(Debug, Clone)]
pub struct PlannedMove {
    /// Its path relative to the tree.
    pub path: String,
    /// Itself.
    pub inode: Arc<Inode>,
    /// Its layout to be.
    pub layout: Layout,
}

/// What was done to a file, or for files to come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Applied {
    /// The path of the file, or the pattern of the rule.
    pub path: String,
    /// What the move did; `None` for a rule.
    pub moved: Option<Moved>,
}

/// What [`Store::apply`] would do to a file.
#[derive(Debug, Clone)]
pub struct ForecastMove {
    /// Its path.
    pub path: String,
    /// Its layout now.
    pub before: Arc<Layout>,
    /// Its layout to be.
    pub after: Layout,
    /// Bytes that would be copied.
    pub copied_bytes: u64,
    /// Bytes that would stay where they are.
    pub kept_bytes: u64,
    /// Its size in bytes.
    pub size_bytes: u64,
}

/// What is to be undone when something fails.
#[derive(Debug)]
struct Undo {
    /// Files that have moved, with the layouts that they had.
    files: Vec<(String, Arc<Inode>, Arc<Layout>)>,
    /// The rules before any was set.
    rules: Option<RulesKept>,
}

impl Store {
    /// The placed files that are there of those that `entries` are for, and what it takes to move them. Nothing is moved.
    ///
    /// # Errors
    /// A layout that the pool cannot have, a handle that cannot be read, or as [`Store::check_moves`].
    fn moves(self: &Arc<Self>, entries: &[FileLayout]) -> Result<(Vec<PlannedMove>, Forecast)> {
        let mut moves = Vec::new();
        for entry in entries {
            self.check_new_layout(&entry.layout)?;
            let found = match entry.path.exact_path() {
                Some(path) => {
                    self.existing_to_move(Path::new(&path))?.map(|inode| (path.into(), inode)).into_iter().collect()
                }
                None => self.find(&|path| entry.path.matches(path.as_os_str().as_bytes()))?,
            };
            moves.extend(found.into_iter().map(|(path, inode)| PlannedMove {
                path: path.to_string_lossy().into_owned(),
                inode,
                layout: entry.layout.clone(),
            }));
        }
        let forecast = self.check_moves(moves.iter().map(|of| (of.path.as_str(), &*of.inode, &of.layout)))?;
        Ok((moves, forecast))
    }

    /// What [`Store::apply`] would do to the files that are there, and what it would leave of the servers' room. Nothing is
    /// changed.
    ///
    /// # Errors
    /// [`Error::Busy`] with a file that could not be moved now; else those that [`Store::apply`] finds before it begins.
    pub fn forecast(self: &Arc<Self>, entries: &[FileLayout]) -> Result<(Vec<ForecastMove>, Forecast)> {
        let (moves, forecast) = self.moves(entries)?;
        let mut files = Vec::new();
        for (PlannedMove { path, inode, layout }, &copied_bytes) in moves.into_iter().zip(&forecast.moved_bytes) {
            if inode.is_nameless() {
                continue;
            }
            let before = inode.layout()?;
            if *before != layout && inode.is_kept_from(&layout)? {
                return Err(Error::Busy { file: path });
            }
            let size_bytes = inode.attributes()?.size_bytes;
            let kept_bytes = size_bytes.saturating_sub(copied_bytes);
            files.push(ForecastMove { path, before, after: layout, copied_bytes, kept_bytes, size_bytes });
        }
        Ok((files, forecast))
    }

    /// Gives the files of `entries` their layouts: those that are there are moved, and with `rules` those to come get theirs.
    /// Everything is checked first. When a move or a rule fails, those before it are undone. A file that is removed meanwhile is passed over,
    /// and one that is replaced moves as what is there then. One process of a user does so at a time. `None` when `watch` has stopped it: then the files before the one that it stopped have moved.
    ///
    /// # Errors
    /// What keeps the layouts from being applied; of a file that could not be moved back it says so.
    pub fn apply(
        self: &Arc<Self>,
        entries: &[FileLayout],
        rules: bool,
        watch: &mut dyn ApplyWatch,
    ) -> Result<Option<Vec<Applied>>> {
        let _alone = self.begin_apply_by(watch)?;
        let (moves, _) = self.moves(entries)?;
        let kept = rules.then(|| self.keep_rules(entries.iter().map(|entry| &entry.path))).transpose()?;
        let mut undo = Undo { files: Vec::new(), rules: None };
        let mut applied = Vec::new();
        let (mut moves, mut again) = (VecDeque::from(moves), 0);
        while let Some(PlannedMove { path, inode, layout }) = moves.pop_front() {
            let (mut stopped, gives_way) = (false, watch.gives_way());
            let mut progress = |done, total| {
                let then = watch.progress(&path, done, total);
                stopped = then == Then::Stop;
                then
            };
            let before = inode.layout();
            let moved =
                before.and_then(|before| Ok((before, inode.move_watched(&layout, &path, gives_way, &mut progress)?)));
            match moved {
                Ok((before, moved)) => {
                    undo.files.push((path.clone(), inode, before));
                    applied.push(Applied { path, moved: Some(moved) });
                }
                Err(_) if stopped => return Ok(None),
                // Removed or replaced meanwhile, as programs do: that keeps no other file from its layout. The one that is there now gets it.
                Err(_) if inode.is_nameless() => {
                    if let Ok(Some(inode)) = self.existing_to_move(Path::new(&path))
                        && again < MOST_REPLACED
                    {
                        again += 1;
                        moves.push_front(PlannedMove { path, inode, layout });
                    }
                }
                Err(error) => return Err(self.undo(undo, error)),
            }
        }
        undo.rules = kept;
        for entry in entries.iter().filter(|_| rules) {
            if let Err(error) = self.set_rule(&entry.path, &entry.layout) {
                return Err(self.undo(undo, error));
            }
            applied.push(Applied { path: entry.path.as_str().to_owned(), moved: None });
        }
        Ok(Some(applied))
    }

    /// Takes the right to change layouts, when the process that has it is done if `watch` waits.
    fn begin_apply_by(&self, watch: &mut dyn ApplyWatch) -> Result<Applying<'_>> {
        loop {
            match self.begin_apply() {
                Err(Error::Applying { .. }) if watch.waits() => std::thread::sleep(TRY_AGAIN),
                begun => return begun,
            }
        }
    }

    /// Puts everything back that was changed before `error`; the error with what stays changed.
    fn undo(self: &Arc<Self>, undo: Undo, error: Error) -> Error {
        let mut stays = String::new();
        if let Some(Err(error)) = undo.rules.map(|rules| self.restore_rules(&rules)) {
            stays += &format!("; rules for files to come stay changed, they cannot be put back: {error}");
        }
        for (path, inode, layout) in undo.files.into_iter().rev() {
            if let Err(error) = inode.move_to(&layout, &path, &mut |_, _| true)
                && !matches!(error, Error::Nameless { .. })
            {
                stays += &format!("; {path} stays in its new layout, it cannot be moved back: {error}");
            }
        }
        if stays.is_empty() { error } else { Error::Invalid(format!("{error}{stays}")) }
    }
}
