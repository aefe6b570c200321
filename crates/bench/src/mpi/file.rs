//! Files through MPI-IO.

use std::ffi::{CString, c_int};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use super::library::{Library, MODE_CREATE, MODE_RDONLY, MODE_RDWR, MpiHandle, MpiResult};
use crate::error::BenchError;
use crate::process::{BenchFile, FileRequest, Opening, footprint};
use crate::view::Type;
use crate::workload::{PhaseKind, Spaced};

/// A file opened by `MPI_File_open`.
pub struct MpiFile<'a> {
    library: &'a Library,
    handle: MpiHandle,
    rank: u32,
    path: PathBuf,
    /// The committed type of the view, where there is one.
    filetype: Option<MpiHandle>,
    memory: Option<Spaced>,
    /// The committed type of the last request's memory, and how many runs it has.
    memory_type: Option<(u64, MpiHandle)>,
    collective: bool,
    /// Bytes of a file that is read.
    size: u64,
}

impl<'a> MpiFile<'a> {
    /// Opens a file on `comm` and sets its view.
    ///
    /// # Errors
    /// [`BenchError::Mpi`] with what the library said.
    pub fn open(
        library: &'a Library,
        (comm, rank): (MpiHandle, u32),
        opening: &Opening<'_>,
        hints: &[(CString, CString)],
        collective: bool,
    ) -> Result<Self, BenchError> {
        let path = opening.path.to_owned();
        let name = CString::new(path.as_os_str().as_bytes())
            .map_err(|_| BenchError::Usage(format!("{path:?} has a NUL byte; no file can have that name")))?;
        // A view with holes is written by reading, changing and writing what is around it, so writers read, too.
        let mode = if opening.phase == PhaseKind::Write { MODE_CREATE | MODE_RDWR } else { MODE_RDONLY };
        let memory = opening.memory;
        let mut file =
            Self { library, handle: 0, rank, path, filetype: None, memory, memory_type: None, collective, size: 0 };
        let info = library.info(hints);
        let info = file.said("MPI_Info_set", None, info)?;
        let opened = library.open(comm, &name, mode, info);
        file.handle = file.said("MPI_File_open", None, opened)?;
        let freed = library.info_free(info);
        file.said("MPI_Info_free", None, freed)?;
        if opening.phase == PhaseKind::Read {
            let size = library.size(file.handle);
            file.size = file.said("MPI_File_get_size", None, size)?;
        }
        let view = opening.view;
        // Setting a view is collective: all processes do it, or none.
        if !opening.plain {
            let made = datatype(library, &view.filetype);
            let (filetype, own) = file.said("MPI_Type_create", None, made)?;
            let set = library.set_view(file.handle, view.displacement, filetype);
            file.said("MPI_File_set_view", None, set)?;
            file.filetype = own.then_some(filetype);
        }
        Ok(file)
    }

    /// What a function returned, an error with the call and its request.
    fn said<T>(
        &self,
        call: &'static str,
        access: Option<&FileRequest<'_>>,
        outcome: MpiResult<T>,
    ) -> Result<T, BenchError> {
        outcome.map_err(|message| {
            let offset = access.and_then(|access| access.segments.first()).map(|part| part.offset);
            let request = match (offset, access) {
                (Some(offset), Some(access)) => format!(" at offset {offset} for {} bytes", access.bytes),
                _ => String::new(),
            };
            let place = format!(" of {}{request}", self.path.display());
            BenchError::Mpi { rank: self.rank, call, place, message }
        })
    }

    /// Count and type of a request's memory.
    fn memory_of(&mut self, bytes: u64) -> MpiResult<(c_int, MpiHandle)> {
        let Some(Spaced { run, gap }) = self.memory else {
            return Ok((
                c_int::try_from(bytes).map_err(|_| format!("a request of {bytes} bytes"))?,
                self.library.byte(),
            ));
        };
        let runs = bytes / run;
        if let Some((known, datatype)) = self.memory_type {
            if known == runs {
                return Ok((1, datatype));
            }
            self.library.type_free(datatype)?;
        }
        self.memory_type = None;
        let datatype = self.library.vector(runs, run, run + gap)?;
        self.library.commit(datatype)?;
        self.memory_type = Some((runs, datatype));
        Ok((1, datatype))
    }

    fn short(&self, offset: u64) -> BenchError {
        BenchError::Short { rank: self.rank, path: self.path.clone(), offset }
    }
}

/// The committed datatype, and whether it was made here.
fn datatype(library: &Library, filetype: &Type) -> MpiResult<(MpiHandle, bool)> {
    if *filetype == Type::Bytes {
        return Ok((library.byte(), false));
    }
    let made = uncommitted(library, filetype)?;
    library.commit(made)?;
    Ok((made, true))
}

fn uncommitted(library: &Library, filetype: &Type) -> MpiResult<MpiHandle> {
    match filetype {
        Type::Bytes => library.contiguous(1, library.byte()),
        Type::Vector { count, block, stride } => {
            library.resized(library.vector(*count, *block, *stride)?, filetype.extent())
        }
        Type::Subarray { sizes, parts, starts, element } => {
            let element = library.contiguous(*element, library.byte())?;
            let made = library.subarray(sizes, parts, starts, element)?;
            library.type_free(element)?;
            Ok(made)
        }
        Type::Overlay(types) => {
            let parts = types.iter().map(|part| uncommitted(library, part)).collect::<MpiResult<Vec<_>>>()?;
            library.overlay(&parts)
        }
    }
}

impl BenchFile for MpiFile<'_> {
    fn write(&mut self, access: &FileRequest<'_>, buffer: &[u8]) -> Result<(), BenchError> {
        let call = if self.collective { "MPI_File_write_at_all" } else { "MPI_File_write_at" };
        let memory = self.memory_of(access.bytes);
        let (count, datatype) = self.said("MPI_Type_create_hvector", Some(access), memory)?;
        assert!(buffer.len() >= footprint(access.bytes, self.memory));
        let target = (self.handle, access.offset as i64, self.collective);
        // SAFETY: the type covers the request's footprint, which the buffer has.
        let put = unsafe { self.library.write_at(target, buffer.as_ptr().cast(), (count, datatype)) };
        let put = self.said(call, Some(access), put)?;
        let all =
            if put == count { Ok(()) } else { Err(format!("wrote {put} of {count} elements: is the disk full?")) };
        self.said(call, Some(access), all)
    }

    fn read(&mut self, access: &FileRequest<'_>, buffer: &mut [u8]) -> Result<(), BenchError> {
        // Collective reads past the end report no error.
        if access.segments.last().is_some_and(|part| part.offset + part.bytes as u64 > self.size) {
            return Err(self.short(self.size));
        }
        let call = if self.collective { "MPI_File_read_at_all" } else { "MPI_File_read_at" };
        let memory = self.memory_of(access.bytes);
        let (count, datatype) = self.said("MPI_Type_create_hvector", Some(access), memory)?;
        assert!(buffer.len() >= footprint(access.bytes, self.memory));
        let target = (self.handle, access.offset as i64, self.collective);
        // SAFETY: the type covers the request's footprint, which the buffer has.
        let got = unsafe { self.library.read_at(target, buffer.as_mut_ptr().cast(), (count, datatype)) };
        let got = self.said(call, Some(access), got)?;
        let all = if got == count { Ok(()) } else { Err(format!("read {got} of {count} elements")) };
        self.said(call, Some(access), all)
    }

    fn sync(&mut self) -> Result<(), BenchError> {
        let synced = self.library.sync(self.handle);
        self.said("MPI_File_sync", None, synced)
    }

    fn close(self: Box<Self>) -> Result<(), BenchError> {
        let closed = self.library.close(self.handle);
        self.said("MPI_File_close", None, closed)?;
        for datatype in self.filetype.into_iter().chain(self.memory_type.map(|(_, datatype)| datatype)) {
            let freed = self.library.type_free(datatype);
            self.said("MPI_Type_free", None, freed)?;
        }
        Ok(())
    }
}
