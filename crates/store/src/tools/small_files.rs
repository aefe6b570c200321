//! Which small files leave the metadata tier or come back to it, by the threshold of now: Wei et al., equation (2), as corrected.
//!
//! A file that has more bytes in its inode than its own threshold goes to the servers, if it was made by the hint `small`. One that
//! was sent there, or whose first bytes went there as they were longer than its head, and was truncated since, comes back: its handle keeps
//! `small` with the bytes that it has to be shorter than. How often files went to and fro, and exactly how long they were, the caller keeps.
//! A file with a rule stays, as that names the place of every byte.

use crate::file::inode::Inode;
use crate::file::steps::Then;
use crate::format::parser;
use crate::os::error::{Error, Result};
use crate::os::sync::{Mutex, guard};
use crate::pool::store::Store;
use crate::tools::drain::{DrainWatch, Drained, StayingFile};
use crate::tools::named::NamedFiles;
use crate::tools::walk::{WalkedFile, walk};
use rustix::fd::AsFd as _;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Arc;
use stripewise_layout::{Layout, Stripe};
use stripewise_optimisation::{SMALL, file_threshold};

/// What is known of a file that was moved by the threshold before.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MovedBefore {
    /// How often it was, with decay (`Fre_m`).
    pub moves: f64,
    /// How long it was when it was sent to the servers; `None` where it has come back.
    pub sent_bytes: Option<u64>,
}

/// A file that is to move.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DueSmallFile {
    /// The file, relative to the tree.
    pub path: String,
    /// Its logical handle, by which [`MovedBefore`] is kept.
    pub handle: u64,
    /// How long it is.
    pub size_bytes: u64,
    /// How many of its first bytes are to be in its inode; 0 where it goes to the servers.
    pub head_bytes: u64,
    /// Bytes that change their place.
    pub moved_bytes: u64,
}

impl Store {
    /// The files that are to move, those with most bytes to move first: each once, whatever names it has. O(files of the tree).
    ///
    /// # Errors
    /// The tree or the rules cannot be read.
    pub fn due_small_files(self: &Arc<Self>, before: &HashMap<u64, MovedBefore>) -> Result<Vec<DueSmallFile>> {
        self.plane().meta_watch().look_if_idle(|| self.plane().meta_room());
        let tree = rustix::io::fcntl_dupfd_cloexec(self.tree(), 0).map_err(Error::io("open", "tree"))?;
        // A file with two names is found twice, and another one may have a copy of its handle.
        let due = Mutex::new(HashMap::new());
        let visit = |entry: &WalkedFile<'_>| {
            // What cannot be read cannot move.
            if let Ok(fd) = entry.open()
                && let Ok(Some(inode)) = self.inode(fd.as_fd())
                && let Ok(Some(found)) = self.due_small_file(&inode, entry, before.get(&inode.handle()))
            {
                guard(&due).insert(inode.key(), found);
            }
            Ok(true)
        };
        walk(&tree, 2, &visit, &|_, _| ())?;
        let mut due: Vec<DueSmallFile> = due.into_inner().unwrap_or_default().into_values().collect();
        due.sort_by(|a, b| (b.moved_bytes, &a.path).cmp(&(a.moved_bytes, &b.path)));
        Ok(due)
    }

    fn due_small_file(
        self: &Arc<Self>,
        inode: &Arc<Inode>,
        entry: &WalkedFile<'_>,
        before: Option<&MovedBefore>,
    ) -> Result<Option<DueSmallFile>> {
        if !inode.has_handle() {
            return Ok(None);
        }
        let made_with = parser::small_bytes(&inode.read_handle()?.optimisations);
        if before.is_none() && made_with.is_none() {
            return Ok(None);
        }
        let head_bytes = inode.layout()?.head_in_inode_bytes();
        let (path, size_bytes) = (entry.path(), inode.attributes()?.size_bytes);
        let name = path.file_name().unwrap_or(OsStr::new("")).as_bytes();
        let hinted = parser::small_bytes(&Self::hints_in(entry.directory()).of_name(name));
        // Where nothing is hinted any more, what it has is the most.
        let Some(most_bytes) = hinted.or((head_bytes > 0).then_some(head_bytes)) else { return Ok(None) };
        let step_bytes = SMALL.parameters[0].multiple;
        let global_bytes = self.plane().meta_watch().threshold(most_bytes, step_bytes);
        let own_bytes = file_threshold(most_bytes, global_bytes, before.map_or(0.0, |before| before.moves));
        // One that has left its head with its first bytes was longer than that.
        let (in_inode, sent_bytes) =
            (size_bytes.min(head_bytes), before.and_then(|before| before.sent_bytes).or(made_with));
        let (head_after, moved_bytes) = if in_inode > own_bytes {
            (0, in_inode)
        } else if head_bytes == 0 && sent_bytes.is_some_and(|sent| size_bytes < sent) && size_bytes < global_bytes {
            (global_bytes, size_bytes)
        } else {
            return Ok(None);
        };
        if self.rule_for(&path)?.is_some() {
            return Ok(None);
        }
        let (path, handle) = (path.to_string_lossy().into_owned(), inode.handle());
        Ok(Some(DueSmallFile { path, handle, size_bytes, head_bytes: head_after, moved_bytes }))
    }

    /// `layout` with that many bytes in the inode, and what lies behind them where it is.
    pub(crate) fn with_head(&self, layout: &Layout, head_bytes: u64) -> Result<Layout> {
        let servers = if layout.head_in_inode_bytes() == 0 {
            Ok(layout.clone())
        } else {
            let behind = layout.regions().iter().skip(1).map(|region| (region.offset(), region.stripes().to_vec()));
            // The first one has its bytes by their offset in the file, so that it can begin earlier.
            let mut regions: Vec<(u64, Vec<Stripe>)> = behind.collect();
            match regions.first_mut() {
                Some(first) => {
                    first.0 = 0;
                    Layout::new(regions)
                }
                None => Ok(Layout::clone(&self.with_room(self.default_now()))),
            }
        };
        let layout = match head_bytes {
            0 => servers,
            head_bytes => servers.and_then(|servers| servers.with_head_in_inode(head_bytes)),
        };
        layout.map_err(|error| Error::Invalid(error.to_string()))
    }
}

/// A file, and how many of its bytes are to be in its inode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewHead {
    /// Where it was when that was decided, relative to the tree.
    pub path: String,
    /// Its handle: another file that has come to this path stays as it is.
    pub handle: u64,
    /// To be in its inode; 0: it goes to the servers.
    pub head_bytes: u64,
}

impl From<&DueSmallFile> for NewHead {
    fn from(due: &DueSmallFile) -> Self {
        Self { path: due.path.clone(), handle: due.handle, head_bytes: due.head_bytes }
    }
}

/// Gives files of the pool in `file` their heads: one file after the other, each as `apply` moves it.
///
/// # Errors
/// Another process changes layouts of the pool.
pub fn move_small_files(file: &Path, heads: &[NewHead], watch: &mut dyn DrainWatch) -> Result<Drained> {
    let store = Store::of_file(file)?;
    let _alone = store.begin_apply()?;
    // So that no file goes to a server that is nearly full.
    if let Some(look) = store.due_look() {
        look.take();
    }
    let (mut done, files) = (Drained::default(), NamedFiles::of(&store));
    for NewHead { path, handle, head_bytes } in heads {
        let found = files.find(path, *handle).and_then(|found| {
            let Some((_, inode)) = found else { return Ok(None) };
            let layout = inode.layout().and_then(|layout| store.with_head(&layout, *head_bytes))?;
            Ok(Some((inode, layout)))
        });
        let (inode, layout) = match found {
            Ok(Some(found)) => found,
            Ok(None) => {
                done.passed_over.push(path.clone());
                continue;
            }
            Err(error) => {
                done.staying.push(StayingFile::of(path.clone(), &error));
                continue;
            }
        };
        let mut stopped = false;
        let mut progress = |done: u64, total: u64| {
            let then = watch.progress(path, done, total);
            stopped = then == Then::Stop;
            then
        };
        let moved =
            store.check_new_layout(&layout).and_then(|()| inode.move_by_threshold(&layout, path, &mut progress));
        match moved {
            Ok(moved) => {
                done.moved_files += 1;
                done.copied_bytes += moved.copied_bytes;
            }
            Err(_) if stopped => {
                done.stopped = true;
                break;
            }
            Err(Error::Nameless { .. }) => done.passed_over.push(path.clone()),
            Err(error) => done.staying.push(StayingFile::of(path.clone(), &error)),
        }
    }
    Ok(done)
}
