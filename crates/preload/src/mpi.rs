//! MPI-IO: recorded with the caller's sizes, before what the MPI library makes of them.
//!
//! No MPI header is needed to build this: handles are passed on as words (an `int` in MPICH, a pointer in Open MPI; both
//! travel in one register), and the functions behind are found at run time under their profiling names, in whichever
//! MPI library the program has loaded.

use crate::recording::TimedOperation;
use crate::runtime;
use libc::dl_phdr_info;
use std::ffi::{CStr, c_char, c_int, c_longlong, c_void};
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering};
use stripewise_trace::{Api, Operation, flags as marks, now_ns};

/// An MPI handle of any kind.
type Handle = usize;
/// `MPI_Offset`, and `MPI_Count` of the large-count functions.
type Offset = c_longlong;

const MPI_SUCCESS: c_int = 0;
/// `MPI_ERR_OTHER` of the MPI ABI and of MPICH; any value but 0 is a failure to a caller.
const MPI_ERR_OTHER: c_int = 15;

/// A function of the MPI library.
struct Function {
    name: &'static CStr,
    address: AtomicPtr<c_void>,
}

impl Function {
    const fn new(name: &'static CStr) -> Self {
        Self { name, address: AtomicPtr::new(std::ptr::null_mut()) }
    }

    fn address(&self) -> Option<*mut c_void> {
        let known = self.address.load(Ordering::Relaxed);
        if !known.is_null() {
            return Some(known);
        }
        let found = find(self.name)?;
        self.address.store(found, Ordering::Relaxed);
        Some(found)
    }
}

/// Looks `name` up among all libraries that are global, then in each loaded library whose name begins with `libmpi`
/// or that is Open MPI's or MPICH's by another name (Python modules load theirs locally).
fn find(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: the name ends with a zero.
    let global = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    if !global.is_null() {
        return Some(global);
    }
    struct Search<'a> {
        name: &'a CStr,
        found: *mut c_void,
    }
    unsafe extern "C" fn visit(info: *mut dl_phdr_info, _size: usize, search: *mut c_void) -> c_int {
        // SAFETY: both pointers are valid during the call: the loader's, and our own `Search` from below.
        let (info, search) = unsafe { (&*info, &mut *search.cast::<Search<'_>>()) };
        let Some(path) = crate::paths::bytes(info.dlpi_name) else { return 0 };
        let file = path.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
        if !(file.starts_with(b"libmpi") || file.starts_with(b"libmpich") || file.starts_with(b"libpmpi")) {
            return 0;
        }
        // SAFETY: a name of the loader's own; the library is loaded, so this only counts it, and it stays loaded.
        unsafe {
            let library = libc::dlopen(info.dlpi_name, libc::RTLD_LAZY | libc::RTLD_NOLOAD);
            if !library.is_null() {
                search.found = libc::dlsym(library, search.name.as_ptr());
            }
        }
        c_int::from(!search.found.is_null())
    }
    let mut search = Search { name, found: std::ptr::null_mut() };
    // SAFETY: `visit` has the type that is asked for, and `search` lives until the call returns.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut search).cast()) };
    (!search.found.is_null()).then_some(search.found)
}

/// Open MPI files by their handle, each with its file in the trace. A file that finds no place is not recorded.
struct OpenFiles {
    handles: [AtomicUsize; OpenFiles::SIZE],
    files: [AtomicU32; OpenFiles::SIZE],
}

static OPEN: OpenFiles = OpenFiles {
    handles: [const { AtomicUsize::new(0) }; OpenFiles::SIZE],
    files: [const { AtomicU32::new(0) }; OpenFiles::SIZE],
};

impl OpenFiles {
    const SIZE: usize = 1024;

    fn insert(&self, handle: Handle, file: u32) {
        for (place, id) in self.handles.iter().zip(&self.files) {
            if place.compare_exchange(0, handle, Ordering::AcqRel, Ordering::Acquire).is_ok() {
                id.store(file, Ordering::Release);
                return;
            }
        }
    }

    fn file(&self, handle: Handle) -> u32 {
        let place = self.handles.iter().position(|place| place.load(Ordering::Acquire) == handle);
        place.map_or(0, |place| self.files[place].load(Ordering::Acquire))
    }

    fn remove(&self, handle: Handle) {
        if let Some(place) = self.handles.iter().position(|place| place.load(Ordering::Acquire) == handle) {
            self.files[place].store(0, Ordering::Release);
            self.handles[place].store(0, Ordering::Release);
        }
    }
}

/// Calls the MPI function `$name` with arguments of the given types; `None` when no library has it.
macro_rules! pmpi {
    ($name:literal, $($arg:expr => $type:ty),*) => {{
        static FUNCTION: Function = Function::new($name);
        FUNCTION.address().map(|address| {
            // SAFETY: MPI defines the function with these parameters (a handle is a word or half of one).
            let function = unsafe { std::mem::transmute::<*mut c_void, extern "C" fn($($type),*) -> c_int>(address) };
            function($($arg),*)
        })
    }};
}

/// Bytes of `count` elements of a datatype.
fn bytes(count: i64, datatype: Handle) -> u64 {
    let mut size: c_int = 0;
    let known = pmpi!(c"PMPI_Type_size", datatype => Handle, &raw mut size => *mut c_int) == Some(MPI_SUCCESS);
    if known { (count.max(0) as u64).saturating_mul(size.max(0) as u64) } else { 0 }
}

/// Where a request begins in its view, in units of the view's elementary type.
#[derive(Clone, Copy)]
enum At {
    Given(Offset),
    OwnPointer,
    SharedPointer,
}

/// Where a request begins in the file, in bytes.
fn absolute(handle: Handle, at: At) -> Option<u64> {
    let mut offset: Offset = 0;
    let found = match at {
        At::Given(given) => {
            offset = given;
            Some(MPI_SUCCESS)
        }
        At::OwnPointer => pmpi!(c"PMPI_File_get_position", handle => Handle, &raw mut offset => *mut Offset),
        At::SharedPointer => pmpi!(c"PMPI_File_get_position_shared", handle => Handle, &raw mut offset => *mut Offset),
    };
    let mut place: Offset = 0;
    let converted = pmpi!(
        c"PMPI_File_get_byte_offset", handle => Handle, offset => Offset, &raw mut place => *mut Offset
    );
    let ok = found == Some(MPI_SUCCESS) && converted == Some(MPI_SUCCESS);
    u64::try_from(place).ok().filter(|_| ok)
}

/// A request. Its size is what was asked for: the count that was completed is in a status that may not be there.
fn request(
    handle: Handle,
    op: Operation,
    at: At,
    (count, datatype): (i64, Handle),
    flags: u16,
    call: impl FnOnce() -> Option<c_int>,
) -> c_int {
    let Some((recording, file)) = recorded(handle) else { return call().unwrap_or(MPI_ERR_OTHER) };
    let offset = absolute(handle, at);
    let size = bytes(count, datatype);
    let unknown = if offset.is_none() { marks::OFFSET_UNKNOWN } else { 0 };
    let flags = flags | marks::SIZE_REQUESTED | unknown;
    let event =
        TimedOperation { file, api: Api::MpiIo, op, offset: offset.unwrap_or(0), size, start_ns: now_ns(), flags };
    let result = call().unwrap_or(MPI_ERR_OTHER);
    recording.note(event.result(if result == MPI_SUCCESS { 0 } else { -1 }));
    result
}

/// Another operation on an open MPI file.
fn operation(handle: Handle, op: Operation, offset: u64, size: u64, call: impl FnOnce() -> Option<c_int>) -> c_int {
    let Some((recording, file)) = recorded(handle) else { return call().unwrap_or(MPI_ERR_OTHER) };
    let event =
        TimedOperation { file, api: Api::MpiIo, op, offset, size, start_ns: now_ns(), flags: marks::COLLECTIVE };
    let result = call().unwrap_or(MPI_ERR_OTHER);
    recording.note(event.result(if result == MPI_SUCCESS { 0 } else { -1 }));
    result
}

fn recorded(handle: Handle) -> Option<(&'static crate::recording::Recording, u32)> {
    let recording = runtime::recording()?;
    let file = OPEN.file(handle);
    (file != 0).then_some((recording, file))
}

#[unsafe(no_mangle)]
extern "C" fn MPI_File_open(comm: Handle, name: *const c_char, mode: c_int, info: Handle, out: *mut c_void) -> c_int {
    let start_ns = now_ns();
    let result = pmpi!(
        c"PMPI_File_open",
        comm => Handle, name => *const c_char, mode => c_int, info => Handle, out => *mut c_void
    );
    let result = result.unwrap_or(MPI_ERR_OTHER);
    let Some(recording) = runtime::recording() else { return result };
    let Some(name) = crate::paths::bytes(name) else { return result };
    // ROMIO takes a file system's name before the path ("ufs:/data/file").
    let path = match name.iter().position(|&byte| byte == b':') {
        Some(colon) if !name[..colon].contains(&b'/') => &name[colon + 1..],
        _ => name,
    };
    let file = recording.file_at(libc::AT_FDCWD, path);
    if file == 0 {
        return result;
    }
    if result == MPI_SUCCESS && !out.is_null() {
        // SAFETY: the call succeeded, so it wrote the handle there; an MPI_File is a pointer in every library.
        OPEN.insert(unsafe { out.cast::<Handle>().read() }, file);
    }
    let event = TimedOperation {
        file,
        api: Api::MpiIo,
        op: Operation::Open,
        offset: 0,
        size: 0,
        start_ns,
        flags: marks::COLLECTIVE,
    };
    recording.note(event.result(if result == MPI_SUCCESS { 0 } else { -1 }));
    result
}

#[unsafe(no_mangle)]
extern "C" fn MPI_File_close(place: *mut c_void) -> c_int {
    // SAFETY: the program passes its MPI_File, a pointer in every library.
    let handle = if place.is_null() { 0 } else { unsafe { place.cast::<Handle>().read() } };
    let result = operation(handle, Operation::Close, 0, 0, || pmpi!(c"PMPI_File_close", place => *mut c_void));
    if result == MPI_SUCCESS {
        OPEN.remove(handle);
    }
    result
}

#[unsafe(no_mangle)]
extern "C" fn MPI_File_sync(file: Handle) -> c_int {
    operation(file, Operation::Sync, 0, 0, || pmpi!(c"PMPI_File_sync", file => Handle))
}

#[unsafe(no_mangle)]
extern "C" fn MPI_File_set_size(file: Handle, size: Offset) -> c_int {
    operation(
        file,
        Operation::Truncate,
        0,
        size.max(0) as u64,
        || pmpi!(c"PMPI_File_set_size", file => Handle, size => Offset),
    )
}

#[unsafe(no_mangle)]
extern "C" fn MPI_File_preallocate(file: Handle, size: Offset) -> c_int {
    operation(
        file,
        Operation::Allocate,
        0,
        size.max(0) as u64,
        || pmpi!(c"PMPI_File_preallocate", file => Handle, size => Offset),
    )
}

/// The data calls. `last` is the status, the request, or nothing (null, not passed on by split collectives).
macro_rules! data_calls {
    ($($name:ident, $pmpi:literal, $shape:ident, $op:ident, $at:ident, $count:ty, $flags:expr;)*) => {
        $( data_calls!(@$shape $name, $pmpi, $op, $at, $count, $flags); )*
    };
    // (file, offset, buffer, count, datatype, status or request)
    (@explicit $name:ident, $pmpi:literal, $op:ident, $at:ident, $count:ty, $flags:expr) => {
        #[unsafe(no_mangle)]
        extern "C" fn $name(
            file: Handle, offset: Offset, buffer: *mut c_void, count: $count, datatype: Handle, last: *mut c_void,
        ) -> c_int {
            request(file, Operation::$op, At::Given(offset), (i64::from(count), datatype), $flags, || {
                pmpi!($pmpi, file => Handle, offset => Offset, buffer => *mut c_void, count => $count,
                      datatype => Handle, last => *mut c_void)
            })
        }
    };
    // (file, offset, buffer, count, datatype)
    (@explicit_begin $name:ident, $pmpi:literal, $op:ident, $at:ident, $count:ty, $flags:expr) => {
        #[unsafe(no_mangle)]
        extern "C" fn $name(
            file: Handle, offset: Offset, buffer: *mut c_void, count: $count, datatype: Handle,
        ) -> c_int {
            request(file, Operation::$op, At::Given(offset), (i64::from(count), datatype), $flags, || {
                pmpi!($pmpi, file => Handle, offset => Offset, buffer => *mut c_void, count => $count,
                      datatype => Handle)
            })
        }
    };
    // (file, buffer, count, datatype, status or request)
    (@pointer $name:ident, $pmpi:literal, $op:ident, $at:ident, $count:ty, $flags:expr) => {
        #[unsafe(no_mangle)]
        extern "C" fn $name(
            file: Handle, buffer: *mut c_void, count: $count, datatype: Handle, last: *mut c_void,
        ) -> c_int {
            request(file, Operation::$op, At::$at, (i64::from(count), datatype), $flags, || {
                pmpi!($pmpi, file => Handle, buffer => *mut c_void, count => $count, datatype => Handle,
                      last => *mut c_void)
            })
        }
    };
    // (file, buffer, count, datatype)
    (@pointer_begin $name:ident, $pmpi:literal, $op:ident, $at:ident, $count:ty, $flags:expr) => {
        #[unsafe(no_mangle)]
        extern "C" fn $name(file: Handle, buffer: *mut c_void, count: $count, datatype: Handle) -> c_int {
            request(file, Operation::$op, At::$at, (i64::from(count), datatype), $flags, || {
                pmpi!($pmpi, file => Handle, buffer => *mut c_void, count => $count, datatype => Handle)
            })
        }
    };
}

const COLLECTIVE: u16 = marks::COLLECTIVE;
const LATER: u16 = marks::NONBLOCKING;

data_calls! {
    MPI_File_read_at, c"PMPI_File_read_at", explicit, Read, Given, c_int, 0;
    MPI_File_read_at_all, c"PMPI_File_read_at_all", explicit, Read, Given, c_int, COLLECTIVE;
    MPI_File_iread_at, c"PMPI_File_iread_at", explicit, Read, Given, c_int, LATER;
    MPI_File_iread_at_all, c"PMPI_File_iread_at_all", explicit, Read, Given, c_int, COLLECTIVE | LATER;
    MPI_File_read_at_all_begin, c"PMPI_File_read_at_all_begin", explicit_begin, Read, Given, c_int, COLLECTIVE | LATER;
    MPI_File_read, c"PMPI_File_read", pointer, Read, OwnPointer, c_int, 0;
    MPI_File_read_all, c"PMPI_File_read_all", pointer, Read, OwnPointer, c_int, COLLECTIVE;
    MPI_File_iread, c"PMPI_File_iread", pointer, Read, OwnPointer, c_int, LATER;
    MPI_File_iread_all, c"PMPI_File_iread_all", pointer, Read, OwnPointer, c_int, COLLECTIVE | LATER;
    MPI_File_read_all_begin, c"PMPI_File_read_all_begin", pointer_begin, Read, OwnPointer, c_int, COLLECTIVE | LATER;
    MPI_File_read_shared, c"PMPI_File_read_shared", pointer, Read, SharedPointer, c_int, 0;
    MPI_File_iread_shared, c"PMPI_File_iread_shared", pointer, Read, SharedPointer, c_int, LATER;
    MPI_File_read_ordered, c"PMPI_File_read_ordered", pointer, Read, SharedPointer, c_int, COLLECTIVE;
    MPI_File_read_ordered_begin, c"PMPI_File_read_ordered_begin", pointer_begin, Read, SharedPointer, c_int, COLLECTIVE | LATER;
    MPI_File_read_at_c, c"PMPI_File_read_at_c", explicit, Read, Given, Offset, 0;
    MPI_File_read_at_all_c, c"PMPI_File_read_at_all_c", explicit, Read, Given, Offset, COLLECTIVE;
    MPI_File_iread_at_c, c"PMPI_File_iread_at_c", explicit, Read, Given, Offset, LATER;
    MPI_File_iread_at_all_c, c"PMPI_File_iread_at_all_c", explicit, Read, Given, Offset, COLLECTIVE | LATER;
    MPI_File_read_at_all_begin_c, c"PMPI_File_read_at_all_begin_c", explicit_begin, Read, Given, Offset, COLLECTIVE | LATER;
    MPI_File_read_c, c"PMPI_File_read_c", pointer, Read, OwnPointer, Offset, 0;
    MPI_File_read_all_c, c"PMPI_File_read_all_c", pointer, Read, OwnPointer, Offset, COLLECTIVE;
    MPI_File_iread_c, c"PMPI_File_iread_c", pointer, Read, OwnPointer, Offset, LATER;
    MPI_File_iread_all_c, c"PMPI_File_iread_all_c", pointer, Read, OwnPointer, Offset, COLLECTIVE | LATER;
    MPI_File_read_all_begin_c, c"PMPI_File_read_all_begin_c", pointer_begin, Read, OwnPointer, Offset, COLLECTIVE | LATER;
    MPI_File_read_shared_c, c"PMPI_File_read_shared_c", pointer, Read, SharedPointer, Offset, 0;
    MPI_File_iread_shared_c, c"PMPI_File_iread_shared_c", pointer, Read, SharedPointer, Offset, LATER;
    MPI_File_read_ordered_c, c"PMPI_File_read_ordered_c", pointer, Read, SharedPointer, Offset, COLLECTIVE;
    MPI_File_read_ordered_begin_c, c"PMPI_File_read_ordered_begin_c", pointer_begin, Read, SharedPointer, Offset, COLLECTIVE | LATER;
    MPI_File_write_at, c"PMPI_File_write_at", explicit, Write, Given, c_int, 0;
    MPI_File_write_at_all, c"PMPI_File_write_at_all", explicit, Write, Given, c_int, COLLECTIVE;
    MPI_File_iwrite_at, c"PMPI_File_iwrite_at", explicit, Write, Given, c_int, LATER;
    MPI_File_iwrite_at_all, c"PMPI_File_iwrite_at_all", explicit, Write, Given, c_int, COLLECTIVE | LATER;
    MPI_File_write_at_all_begin, c"PMPI_File_write_at_all_begin", explicit_begin, Write, Given, c_int, COLLECTIVE | LATER;
    MPI_File_write, c"PMPI_File_write", pointer, Write, OwnPointer, c_int, 0;
    MPI_File_write_all, c"PMPI_File_write_all", pointer, Write, OwnPointer, c_int, COLLECTIVE;
    MPI_File_iwrite, c"PMPI_File_iwrite", pointer, Write, OwnPointer, c_int, LATER;
    MPI_File_iwrite_all, c"PMPI_File_iwrite_all", pointer, Write, OwnPointer, c_int, COLLECTIVE | LATER;
    MPI_File_write_all_begin, c"PMPI_File_write_all_begin", pointer_begin, Write, OwnPointer, c_int, COLLECTIVE | LATER;
    MPI_File_write_shared, c"PMPI_File_write_shared", pointer, Write, SharedPointer, c_int, 0;
    MPI_File_iwrite_shared, c"PMPI_File_iwrite_shared", pointer, Write, SharedPointer, c_int, LATER;
    MPI_File_write_ordered, c"PMPI_File_write_ordered", pointer, Write, SharedPointer, c_int, COLLECTIVE;
    MPI_File_write_ordered_begin, c"PMPI_File_write_ordered_begin", pointer_begin, Write, SharedPointer, c_int, COLLECTIVE | LATER;
    MPI_File_write_at_c, c"PMPI_File_write_at_c", explicit, Write, Given, Offset, 0;
    MPI_File_write_at_all_c, c"PMPI_File_write_at_all_c", explicit, Write, Given, Offset, COLLECTIVE;
    MPI_File_iwrite_at_c, c"PMPI_File_iwrite_at_c", explicit, Write, Given, Offset, LATER;
    MPI_File_iwrite_at_all_c, c"PMPI_File_iwrite_at_all_c", explicit, Write, Given, Offset, COLLECTIVE | LATER;
    MPI_File_write_at_all_begin_c, c"PMPI_File_write_at_all_begin_c", explicit_begin, Write, Given, Offset, COLLECTIVE | LATER;
    MPI_File_write_c, c"PMPI_File_write_c", pointer, Write, OwnPointer, Offset, 0;
    MPI_File_write_all_c, c"PMPI_File_write_all_c", pointer, Write, OwnPointer, Offset, COLLECTIVE;
    MPI_File_iwrite_c, c"PMPI_File_iwrite_c", pointer, Write, OwnPointer, Offset, LATER;
    MPI_File_iwrite_all_c, c"PMPI_File_iwrite_all_c", pointer, Write, OwnPointer, Offset, COLLECTIVE | LATER;
    MPI_File_write_all_begin_c, c"PMPI_File_write_all_begin_c", pointer_begin, Write, OwnPointer, Offset, COLLECTIVE | LATER;
    MPI_File_write_shared_c, c"PMPI_File_write_shared_c", pointer, Write, SharedPointer, Offset, 0;
    MPI_File_iwrite_shared_c, c"PMPI_File_iwrite_shared_c", pointer, Write, SharedPointer, Offset, LATER;
    MPI_File_write_ordered_c, c"PMPI_File_write_ordered_c", pointer, Write, SharedPointer, Offset, COLLECTIVE;
    MPI_File_write_ordered_begin_c, c"PMPI_File_write_ordered_begin_c", pointer_begin, Write, SharedPointer, Offset, COLLECTIVE | LATER;
}
