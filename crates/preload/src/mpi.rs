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

/// The name under which an MPI library has the function `$name` too, for those who define that themselves.
macro_rules! profiling_name {
    ($name:ident) => {
        const {
            match CStr::from_bytes_with_nul(concat!("P", stringify!($name), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => panic!("a name without zeros"),
            }
        }
    };
}

/// Calls the MPI function `$name` with arguments of the given types; `None` when no library has it.
macro_rules! pmpi {
    ($name:expr, $($arg:expr => $type:ty),*) => {{
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

/// The data calls, each with a count of `int` and one of `MPI_Count`. `last` is the status or the request; those that begin a
/// split collective have none.
macro_rules! data_calls {
    ($($name:ident $large:ident: $shape:ident, $op:ident, $flags:expr;)*) => {
        $( data_calls!(@$shape $name, c_int, $op, $flags); data_calls!(@$shape $large, Offset, $op, $flags); )*
    };
    (@at $($call:tt)*) => { data_calls!(@define [offset] [last] At::Given(offset), $($call)*); };
    (@at_begin $($call:tt)*) => { data_calls!(@define [offset] [] At::Given(offset), $($call)*); };
    (@own $($call:tt)*) => { data_calls!(@define [] [last] At::OwnPointer, $($call)*); };
    (@own_begin $($call:tt)*) => { data_calls!(@define [] [] At::OwnPointer, $($call)*); };
    (@shared $($call:tt)*) => { data_calls!(@define [] [last] At::SharedPointer, $($call)*); };
    (@shared_begin $($call:tt)*) => { data_calls!(@define [] [] At::SharedPointer, $($call)*); };
    (@define [$($offset:ident)?] [$($last:ident)?] $at:expr, $name:ident, $count:ty, $op:ident, $flags:expr) => {
        #[unsafe(no_mangle)]
        extern "C" fn $name(
            file: Handle, $($offset: Offset,)? buffer: *mut c_void, count: $count, datatype: Handle,
            $($last: *mut c_void,)?
        ) -> c_int {
            request(file, Operation::$op, $at, (i64::from(count), datatype), $flags, || {
                pmpi!(profiling_name!($name), file => Handle, $($offset => Offset,)? buffer => *mut c_void,
                      count => $count, datatype => Handle $(, $last => *mut c_void)?)
            })
        }
    };
}

const COLLECTIVE: u16 = marks::COLLECTIVE;
const LATER: u16 = marks::NONBLOCKING;

data_calls! {
    MPI_File_read_at MPI_File_read_at_c: at, Read, 0;
    MPI_File_read_at_all MPI_File_read_at_all_c: at, Read, COLLECTIVE;
    MPI_File_iread_at MPI_File_iread_at_c: at, Read, LATER;
    MPI_File_iread_at_all MPI_File_iread_at_all_c: at, Read, COLLECTIVE | LATER;
    MPI_File_read_at_all_begin MPI_File_read_at_all_begin_c: at_begin, Read, COLLECTIVE | LATER;
    MPI_File_read MPI_File_read_c: own, Read, 0;
    MPI_File_read_all MPI_File_read_all_c: own, Read, COLLECTIVE;
    MPI_File_iread MPI_File_iread_c: own, Read, LATER;
    MPI_File_iread_all MPI_File_iread_all_c: own, Read, COLLECTIVE | LATER;
    MPI_File_read_all_begin MPI_File_read_all_begin_c: own_begin, Read, COLLECTIVE | LATER;
    MPI_File_read_shared MPI_File_read_shared_c: shared, Read, 0;
    MPI_File_iread_shared MPI_File_iread_shared_c: shared, Read, LATER;
    MPI_File_read_ordered MPI_File_read_ordered_c: shared, Read, COLLECTIVE;
    MPI_File_read_ordered_begin MPI_File_read_ordered_begin_c: shared_begin, Read, COLLECTIVE | LATER;
    MPI_File_write_at MPI_File_write_at_c: at, Write, 0;
    MPI_File_write_at_all MPI_File_write_at_all_c: at, Write, COLLECTIVE;
    MPI_File_iwrite_at MPI_File_iwrite_at_c: at, Write, LATER;
    MPI_File_iwrite_at_all MPI_File_iwrite_at_all_c: at, Write, COLLECTIVE | LATER;
    MPI_File_write_at_all_begin MPI_File_write_at_all_begin_c: at_begin, Write, COLLECTIVE | LATER;
    MPI_File_write MPI_File_write_c: own, Write, 0;
    MPI_File_write_all MPI_File_write_all_c: own, Write, COLLECTIVE;
    MPI_File_iwrite MPI_File_iwrite_c: own, Write, LATER;
    MPI_File_iwrite_all MPI_File_iwrite_all_c: own, Write, COLLECTIVE | LATER;
    MPI_File_write_all_begin MPI_File_write_all_begin_c: own_begin, Write, COLLECTIVE | LATER;
    MPI_File_write_shared MPI_File_write_shared_c: shared, Write, 0;
    MPI_File_iwrite_shared MPI_File_iwrite_shared_c: shared, Write, LATER;
    MPI_File_write_ordered MPI_File_write_ordered_c: shared, Write, COLLECTIVE;
    MPI_File_write_ordered_begin MPI_File_write_ordered_begin_c: shared_begin, Write, COLLECTIVE | LATER;
}
