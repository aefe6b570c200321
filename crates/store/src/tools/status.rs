//! What is at a path of a pool, and where the bytes of a placed file are.

use crate::file::inode::Inode;
use crate::format::handle::Optimisations;
use crate::format::parser;
use crate::format::placement::{Datafiles, Placement};
use crate::os::error::{Error, Result};
use crate::pool::pool_file::Pool;
use crate::pool::store::Store;
use rustix::fd::AsFd as _;
use rustix::fs::{AtFlags, FileType};
use rustix::io::Errno;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;
use stripewise_layout::{FileLayout, Layout, LayoutFile, Pattern, ServerId};

/// What is at a path.
#[derive(Debug)]
pub struct FileStatus {
    /// What kind of file it is.
    pub kind: FileType,
    /// Its size in bytes.
    pub size_bytes: u64,
    /// What a symbolic link points at.
    pub target: Option<PathBuf>,
    /// Where the bytes of a regular file are.
    pub placed: Option<PlacedStatus>,
}

/// Where the bytes of a regular file are.
#[derive(Debug)]
pub struct PlacedStatus {
    /// Whether it has a handle; without one it has the layout `[meta]`.
    pub has_handle: bool,
    /// Its layout, handle and generations.
    pub placement: Placement,
    /// Its layout as it has it: cut where a generation begins within a region.
    pub placed: Layout,
    /// Servers of the layout that its path gives a new file, which this one leaves out.
    pub left_out: Vec<ServerId>,
    /// The datafiles that it has.
    pub datafiles: Vec<DatafileStatus>,
    /// What it was given when it was made, unless it has been moved since.
    pub made_with: Optimisations,
    /// The tier on which it has landed, until it moves to its place.
    pub landed_on: Option<String>,
}

/// A datafile as it is found on its server.
#[derive(Debug)]
pub struct DatafileStatus {
    /// Its server.
    pub server: ServerId,
    /// Its generation.
    pub generation: u32,
    /// Where it is.
    pub path: PathBuf,
    /// Its length, and the bytes that its blocks take, or why neither can be told.
    pub found: std::result::Result<(u64, u64), String>,
}

impl Store {
    /// Opens the pool of the pool file `file`.
    ///
    /// # Errors
    /// As [`Pool::load`] and [`Store::open`].
    pub fn of_file(file: &Path) -> Result<Arc<Self>> {
        Pool::load(file).and_then(Self::open)
    }

    /// The placed file at `path`; `None` where there is no file, or a plain one.
    ///
    /// # Errors
    /// What is there, or its handle, cannot be read.
    pub fn existing(self: &Arc<Self>, path: &Path) -> Result<Option<Arc<Inode>>> {
        if self.found(path)?.is_some() { self.lookup(path) } else { Ok(None) }
    }

    /// As [`Store::existing`], of what is to move: in a pool of several users no link leads to it.
    ///
    /// # Errors
    /// As [`Store::existing`]; a link is in the path.
    pub(crate) fn existing_to_move(self: &Arc<Self>, path: &Path) -> Result<Option<Arc<Inode>>> {
        if self.found(path)?.is_some() { self.inode(self.open_to_move(path)?.as_fd()) } else { Ok(None) }
    }

    /// The layout that `path` has, or would get if it were made now.
    ///
    /// # Errors
    /// A handle, rule or layout cannot be read.
    pub fn present_layout(self: &Arc<Self>, path: &Path) -> Result<Arc<Layout>> {
        match self.existing(path)? {
            Some(inode) => inode.layout(),
            None => match self.found(path)? {
                Some(FileType::RegularFile) => Ok(self.in_inode().clone()),
                _ => self.layout_for(path),
            },
        }
    }

    /// When the pool got the layout that the file at `path` has; `None` where there is no such file, or it is unknown.
    pub fn layout_kept_at(self: &Arc<Self>, path: &Path) -> Option<SystemTime> {
        let layout = self.existing(path).ok()??.layout().ok()?;
        self.layouts.kept_at(&layout.hash())
    }

    /// What stands at `path` in the tree, a link not followed; also where the namespace's disk has been unmounted meanwhile.
    fn found(&self, path: &Path) -> Result<Option<FileType>> {
        match rustix::fs::statat(self.tree(), path, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(FileType::from_raw_mode(stat.st_mode))),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::NAMETOOLONG) => Ok(None),
            Err(errno) => Err(Error::io("look at", path)(errno)),
        }
    }

    /// A layout file with [`Store::present_layout`] of each of `paths`.
    ///
    /// # Errors
    /// As [`Store::present_layout`], or a path that no file has.
    pub fn present_layouts<'a>(self: &Arc<Self>, paths: impl IntoIterator<Item = &'a str>) -> Result<LayoutFile> {
        let file = |path: &str| {
            let layout = Layout::clone(&*self.present_layout(Path::new(path))?);
            let path = Pattern::exact(path).map_err(|error| Error::Invalid(error.to_string()))?;
            Ok(FileLayout { path, layout, note: None, region_notes: Vec::new() })
        };
        Ok(LayoutFile { pool: self.pool().name.clone(), files: paths.into_iter().map(file).collect::<Result<_>>()? })
    }

    /// What is at `path`, a link at the end not followed.
    ///
    /// # Errors
    /// There is nothing, the path leads out of the pool, or the handle cannot be read.
    pub fn status(self: &Arc<Self>, path: &Path) -> Result<FileStatus> {
        let place = self.open_place(path).map_err(|error| self.not_found(path, error))?;
        let failed = |errno| Error::Io { action: "read", path: path.to_owned(), errno };
        let stat = rustix::fs::fstat(&place).map_err(failed)?;
        let kind = FileType::from_raw_mode(stat.st_mode);
        let inode = (kind == FileType::RegularFile).then(|| self.file(place.as_fd(), false)).transpose()?;
        let placed = inode.as_ref().map(|inode| self.placed_status(inode, path)).transpose()?;
        let size_bytes = match &inode {
            Some(inode) => inode.attributes()?.size_bytes,
            None => u64::try_from(stat.st_size).unwrap_or(0),
        };
        let target = (kind == FileType::Symlink).then(|| rustix::fs::readlinkat(&place, "", Vec::new()));
        let target = target.transpose().map_err(failed)?;
        let target = target.map(|target| std::ffi::OsString::from_vec(target.into_bytes()).into());
        Ok(FileStatus { kind, size_bytes, target, placed })
    }

    fn placed_status(self: &Arc<Self>, inode: &Arc<Inode>, path: &Path) -> Result<PlacedStatus> {
        let placement = inode.placement()?;
        let Datafiles { table, placed, .. } = placement.datafiles()?;
        let present = table.iter().enumerate().filter(|(index, _)| placement.present.contains(*index));
        let datafiles = present.map(|(_, datafile)| {
            let (path, stat) = self.look_at(*datafile, placement.handle);
            let found = stat.map(|stat| (stat.st_size as u64, stat.st_blocks as u64 * 512));
            DatafileStatus { server: datafile.server, generation: datafile.generation, path, found }
        });
        let datafiles = datafiles.collect();
        let has_handle = inode.has_handle();
        // The layout of a file without a handle was never chosen, so that it leaves none out.
        let planned = has_handle.then(|| self.layout_for(path)).transpose()?;
        let made_with = if has_handle { inode.read_handle()?.optimisations } else { Optimisations::default() };
        // One whose first bytes were longer than its head has none.
        let head = parser::small_bytes(&made_with).filter(|_| placement.layout.head_in_inode_bytes() > 0);
        let planned = planned.map(|planned| match head.map(|head| planned.with_head_in_inode(head)) {
            Some(Ok(with_head)) => Arc::new(with_head),
            _ => planned,
        });
        let left_out = planned.map_or_else(Vec::new, |planned| self.left_out(&planned, &placement.layout));
        let landed_on = self.landed_on(&placement, path)?.map(|tier| tier.name.clone());
        Ok(PlacedStatus { has_handle, left_out, datafiles, made_with, landed_on, placed, placement })
    }

    /// Why a path cannot be opened, in words of names and not of system calls.
    fn not_found(&self, path: &Path, error: Error) -> Error {
        let (path, pool) = (path.display(), &self.pool().name);
        match error {
            Error::Io { errno: Errno::NOENT | Errno::NOTDIR, .. } => {
                Error::Invalid(format!("there is no '{path}' in pool '{pool}'; check the path"))
            }
            Error::Io { errno: Errno::XDEV, .. } => {
                Error::Invalid(format!("'{path}' leads out of pool '{pool}' by a link; name what the link points at"))
            }
            error => error,
        }
    }
}
