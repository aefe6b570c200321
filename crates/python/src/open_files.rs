//! Files of a pool, opened without a mount.

use crate::error::raise;
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyBufferError, PyOSError, PyValueError};
use pyo3::prelude::*;
use rustix::fs::{Mode, OFlags, RenameFlags, SeekFrom, Stat};
use std::io::{IoSlice, IoSliceMut};
use std::path::PathBuf;
use std::sync::{Arc, RwLock};
use stripewise_store::{Error, File, Files, Pool};

/// As an `OSError` of its errno's kind, with the store's own words.
fn os_error(error: Error) -> PyErr {
    PyOSError::new_err((error.errno().raw_os_error(), error.to_string()))
}

/// `(mode, links, size in bytes, inode, atime, mtime, ctime)`, times in nanoseconds.
type Attributes = (u32, u64, i64, u64, i64, i64, i64);

fn attributes(stat: Stat) -> Attributes {
    let ns = |seconds: i64, ns: i64| seconds * 1_000_000_000 + ns;
    (
        stat.st_mode,
        stat.st_nlink as _,
        stat.st_size,
        stat.st_ino,
        ns(stat.st_atime, stat.st_atime_nsec as i64),
        ns(stat.st_mtime, stat.st_mtime_nsec as i64),
        ns(stat.st_ctime, stat.st_ctime_nsec as i64),
    )
}

/// A pool in use.
#[pyclass(frozen, module = "stripewise._native")]
pub(crate) struct PoolFiles {
    files: Arc<Files>,
}

#[pymethods]
impl PoolFiles {
    #[new]
    fn new(py: Python<'_>, pool_file: PathBuf) -> PyResult<Self> {
        let files = py.detach(|| Pool::load(&pool_file).and_then(Files::open)).map_err(raise)?;
        Ok(Self { files })
    }

    fn open(&self, py: Python<'_>, path: PathBuf, flags: i32, mode: u32) -> PyResult<PyOpenFile> {
        let (flags, mode) = (OFlags::from_bits_retain(flags as u32), Mode::from_raw_mode(mode));
        let file = py.detach(|| self.files.open_file(&path, flags, mode)).map_err(os_error)?;
        Ok(PyOpenFile { files: self.files.clone(), file: RwLock::new(Some(file)) })
    }

    fn stat(&self, py: Python<'_>, path: PathBuf, follow: bool) -> PyResult<Attributes> {
        py.detach(|| self.files.stat(&path, follow)).map(attributes).map_err(os_error)
    }

    /// Names in a directory.
    fn list(&self, py: Python<'_>, path: PathBuf) -> PyResult<Vec<std::ffi::OsString>> {
        py.detach(|| self.files.list(&path)).map_err(os_error)
    }

    fn make_directory(&self, path: PathBuf, mode: u32) -> PyResult<()> {
        self.files.make_directory(&path, Mode::from_raw_mode(mode)).map_err(os_error)
    }

    fn remove_directory(&self, path: PathBuf) -> PyResult<()> {
        self.files.remove_directory(&path).map_err(os_error)
    }

    fn unlink(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        py.detach(|| self.files.unlink(&path)).map_err(os_error)
    }

    fn rename(&self, py: Python<'_>, source: PathBuf, target: PathBuf, flags: u32) -> PyResult<()> {
        py.detach(|| self.files.rename(&source, &target, RenameFlags::from_bits_retain(flags))).map_err(os_error)
    }
}

/// An open file.
#[pyclass(frozen, name = "OpenFile", module = "stripewise._native")]
pub(crate) struct PyOpenFile {
    files: Arc<Files>,
    /// `None` once it is closed. Readers of the lock are calls under way.
    file: RwLock<Option<File>>,
}

impl PyOpenFile {
    fn with<T: Send>(&self, py: Python<'_>, work: impl FnOnce(&File) -> Result<T, Error> + Send) -> PyResult<T> {
        py.detach(|| {
            let file = self.file.read().unwrap_or_else(std::sync::PoisonError::into_inner);
            file.as_ref().map(work)
        })
        .ok_or_else(|| PyValueError::new_err("I/O operation on closed file"))?
        .map_err(os_error)
    }
}

/// The memory of a buffer of bytes that lie one after the other.
fn memory(buffer: &PyBuffer<u8>, writable: bool) -> PyResult<(usize, usize)> {
    if !buffer.is_c_contiguous() || writable && buffer.readonly() {
        let wanted = if writable { "a writable buffer" } else { "a buffer" };
        return Err(PyBufferError::new_err(format!("{wanted} of contiguous bytes is needed")));
    }
    // As a number: the buffer stays exported while another thread of this process may run.
    Ok((buffer.buf_ptr() as usize, buffer.len_bytes()))
}

#[pymethods]
impl PyOpenFile {
    /// Reads into `buffer`, at `offset` or at the file's own; how many bytes.
    fn read_into(&self, py: Python<'_>, buffer: PyBuffer<u8>, offset: Option<u64>) -> PyResult<usize> {
        let (address, len) = memory(&buffer, true)?;
        self.with(py, move |file| {
            // SAFETY: `buffer` is exported until this method returns, so its memory stays where it is. A thread
            // that writes to it meanwhile does what it could do to a read(2) of the kernel.
            let bytes = unsafe { std::slice::from_raw_parts_mut(address as *mut u8, len) };
            let mut bufs = [IoSliceMut::new(bytes)];
            match offset {
                Some(offset) => file.read_at(&mut bufs, offset),
                None => file.read(&mut bufs),
            }
        })
    }

    /// Writes `buffer`, at `offset` or at the file's own; how many bytes.
    fn write_from(&self, py: Python<'_>, buffer: PyBuffer<u8>, offset: Option<u64>) -> PyResult<usize> {
        let (address, len) = memory(&buffer, false)?;
        self.with(py, move |file| {
            // SAFETY: as in `read_into`.
            let bytes = unsafe { std::slice::from_raw_parts(address as *const u8, len) };
            let bufs = [IoSlice::new(bytes)];
            match offset {
                Some(offset) => file.write_at(&bufs, offset),
                None => file.write(&bufs),
            }
        })
    }

    fn seek(&self, py: Python<'_>, offset: i64, whence: i32) -> PyResult<u64> {
        let before = |errno: rustix::io::Errno| {
            PyOSError::new_err((errno.raw_os_error(), format!("offset {offset} is before the beginning")))
        };
        let start = |errno| u64::try_from(offset).map_err(|_| before(errno));
        let to = match whence {
            libc::SEEK_SET => SeekFrom::Start(start(rustix::io::Errno::INVAL)?),
            libc::SEEK_CUR => SeekFrom::Current(offset),
            libc::SEEK_END => SeekFrom::End(offset),
            libc::SEEK_DATA => SeekFrom::Data(start(rustix::io::Errno::NXIO)?),
            libc::SEEK_HOLE => SeekFrom::Hole(start(rustix::io::Errno::NXIO)?),
            _ => return Err(PyValueError::new_err(format!("whence is {whence}; see os.SEEK_SET and those beside it"))),
        };
        self.with(py, move |file| file.seek(to))
    }

    fn truncate(&self, py: Python<'_>, size_bytes: u64) -> PyResult<()> {
        self.with(py, move |file| file.truncate(size_bytes))
    }

    fn sync(&self, py: Python<'_>, data_only: bool) -> PyResult<()> {
        self.with(py, move |file| file.sync(data_only))
    }

    fn stat(&self, py: Python<'_>) -> PyResult<Attributes> {
        self.with(py, |file| file.stat()).map(attributes)
    }

    /// Regions as `(offset, [(server, width in bytes)])`.
    #[allow(clippy::type_complexity, reason = "as Python has it")]
    fn layout(&self, py: Python<'_>) -> PyResult<Vec<(u64, Vec<(String, u64)>)>> {
        let layout = self.with(py, |file| file.layout())?;
        let pool = self.files.store().pool();
        let round = |stripes: &[stripewise_layout::Stripe]| {
            stripes.iter().map(|stripe| (pool.server_name(stripe.server), stripe.width_bytes)).collect()
        };
        Ok(layout.regions().iter().map(|region| (region.offset(), round(region.stripes()))).collect())
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| {
            let file = self.file.write().unwrap_or_else(std::sync::PoisonError::into_inner).take();
            file.map_or(Ok(()), File::close)
        })
        .map_err(os_error)
    }
}
