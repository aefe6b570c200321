//! The MPI library, bound at run time: no MPI header or library is needed to build this.
//!
//! MPI fixes the C prototypes of its functions, but not what a handle is, nor the values of constants. There are two
//! families in wide use, told apart by what `MPI_Get_library_version` says, which may be called before `MPI_Init`:
//!
//! - MPICH's ABI, kept since 2013 by MPICH, Intel MPI, MVAPICH and Cray MPICH: handles are `int`s with fixed values.
//! - Open MPI's: handles are pointers to objects that the library exports.
//!
//! Here a handle is a word. As an argument it travels in one register, of which a callee that takes an `int` reads the
//! lower half (System V x86-64 and AArch64 alike); as a result it is written to a zeroed word, of which an `int` is the
//! lower half (little-endian machines). Arrays of handles are made for each family by [`packed`]. Every constant
//! that is used is in [`Constants`]. Anything else is refused before a second function is called.

use std::ffi::{CStr, CString, c_char, c_int, c_longlong, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::error::BenchError;

#[cfg(not(all(target_pointer_width = "64", target_endian = "little")))]
compile_error!("MPI handles are passed as 64-bit little-endian words");

/// An MPI handle of any kind.
pub type MpiHandle = usize;

/// `MPI_Aint`.
type Address = isize;
/// `MPI_Offset`.
pub type Offset = c_longlong;
/// Room for an `MPI_Status` of either family (20 and 24 bytes).
pub type Status = [u64; 8];

/// Longest text that a library writes: `MPI_MAX_LIBRARY_VERSION_STRING` is 8192 in MPICH, the others are shorter.
const TEXT: usize = 16384;

macro_rules! functions {
    ($($(#[$attribute:meta])* $field:ident = $name:literal ($($argument:ty),*);)*) => {
        /// The functions that are used, with the prototypes of the MPI standard.
        struct Functions {
            $($(#[$attribute])* $field: unsafe extern "C" fn($($argument),*) -> c_int,)*
        }

        impl Functions {
            /// Looks all of them up among the libraries that are loaded globally.
            ///
            /// In the order of an ordinary program that is linked to MPI, so that a library that is preloaded to see
            /// MPI calls sees these, too.
            fn find() -> Result<Self, BenchError> {
                Ok(Self {
                    $($field: {
                        let address = symbol($name)
                            .ok_or_else(|| BenchError::NoMpi(format!("the MPI library has no {}", $name.to_string_lossy())))?;
                        // SAFETY: the MPI standard gives the function of this name these parameters; see the module's
                        // text for handles.
                        unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($argument),*) -> c_int>(address) }
                    },)*
                })
            }
        }
    };
}

functions! {
    init = c"MPI_Init"(*mut c_int, *mut c_void);
    finalize = c"MPI_Finalize"();
    abort = c"MPI_Abort"(MpiHandle, c_int);
    error_string = c"MPI_Error_string"(c_int, *mut c_char, *mut c_int);
    comm_rank = c"MPI_Comm_rank"(MpiHandle, *mut c_int);
    comm_size = c"MPI_Comm_size"(MpiHandle, *mut c_int);
    comm_split = c"MPI_Comm_split"(MpiHandle, c_int, c_int, *mut MpiHandle);
    barrier = c"MPI_Barrier"(MpiHandle);
    ibarrier = c"MPI_Ibarrier"(MpiHandle, *mut MpiHandle);
    test = c"MPI_Test"(*mut MpiHandle, *mut c_int, *mut Status);
    gather = c"MPI_Gather"(*const c_void, c_int, MpiHandle, *mut c_void, c_int, MpiHandle, c_int, MpiHandle);
    get_count = c"MPI_Get_count"(*const Status, MpiHandle, *mut c_int);
    info_create = c"MPI_Info_create"(*mut MpiHandle);
    info_set = c"MPI_Info_set"(MpiHandle, *const c_char, *const c_char);
    info_free = c"MPI_Info_free"(*mut MpiHandle);
    type_contiguous = c"MPI_Type_contiguous"(c_int, MpiHandle, *mut MpiHandle);
    type_create_hvector = c"MPI_Type_create_hvector"(c_int, c_int, Address, MpiHandle, *mut MpiHandle);
    type_create_resized = c"MPI_Type_create_resized"(MpiHandle, Address, Address, *mut MpiHandle);
    type_create_subarray = c"MPI_Type_create_subarray"(
        c_int, *const c_int, *const c_int, *const c_int, c_int, MpiHandle, *mut MpiHandle
    );
    type_create_struct = c"MPI_Type_create_struct"(
        c_int, *const c_int, *const Address, *const c_void, *mut MpiHandle
    );
    type_commit = c"MPI_Type_commit"(*mut MpiHandle);
    type_free = c"MPI_Type_free"(*mut MpiHandle);
    file_open = c"MPI_File_open"(MpiHandle, *const c_char, c_int, MpiHandle, *mut MpiHandle);
    file_close = c"MPI_File_close"(*mut MpiHandle);
    file_sync = c"MPI_File_sync"(MpiHandle);
    file_get_size = c"MPI_File_get_size"(MpiHandle, *mut Offset);
    file_set_view = c"MPI_File_set_view"(MpiHandle, Offset, MpiHandle, MpiHandle, *const c_char, MpiHandle);
    file_read_at = c"MPI_File_read_at"(MpiHandle, Offset, *mut c_void, c_int, MpiHandle, *mut Status);
    file_read_at_all = c"MPI_File_read_at_all"(MpiHandle, Offset, *mut c_void, c_int, MpiHandle, *mut Status);
    file_write_at = c"MPI_File_write_at"(MpiHandle, Offset, *const c_void, c_int, MpiHandle, *mut Status);
    file_write_at_all = c"MPI_File_write_at_all"(MpiHandle, Offset, *const c_void, c_int, MpiHandle, *mut Status);
}

fn symbol(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: the name ends with a zero.
    let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    (!address.is_null()).then_some(address)
}

/// What differs between the families.
struct Constants {
    comm_world: MpiHandle,
    comm_self: MpiHandle,
    byte: MpiHandle,
    info_null: MpiHandle,
    order_c: c_int,
    /// Bytes of a handle in an array.
    handle_bytes: usize,
}

/// `MPI_MODE_CREATE`, the same in both families.
pub const MODE_CREATE: c_int = 1;
/// `MPI_MODE_RDONLY`, the same in both families.
pub const MODE_RDONLY: c_int = 2;
/// `MPI_MODE_RDWR`, the same in both families.
pub const MODE_RDWR: c_int = 8;

impl Constants {
    /// Those of the library with this version text, or why there are none.
    fn of(version: &str) -> Result<Self, BenchError> {
        if ["MPICH Version", "Intel(R) MPI Library", "MVAPICH", "CRAY MPICH"].iter().any(|name| version.contains(name))
        {
            // Builds for the standard ABI of MPI 5 say the same of themselves; their handles are others.
            if standard_abi() {
                return Err(BenchError::NoMpi(
                    "the MPI library is one of the standard ABI (libmpi_abi), which stripewise-bench does not speak; name \
                     the usual one beside it by --mpi-library, as in --mpi-library /usr/lib/libmpi.so.12"
                        .into(),
                ));
            }
            return Ok(Self {
                comm_world: 0x4400_0000,
                comm_self: 0x4400_0001,
                byte: 0x4c00_010d,
                info_null: 0x1c00_0000,
                order_c: 56,
                handle_bytes: 4,
            });
        }
        if version.starts_with("Open MPI") {
            let object = |name: &CStr| {
                let missing = || BenchError::NoMpi(format!("the MPI library has no {}", name.to_string_lossy()));
                symbol(name).map(|address| address as MpiHandle).ok_or_else(missing)
            };
            return Ok(Self {
                comm_world: object(c"ompi_mpi_comm_world")?,
                comm_self: object(c"ompi_mpi_comm_self")?,
                byte: object(c"ompi_mpi_byte")?,
                info_null: object(c"ompi_mpi_info_null")?,
                order_c: 0,
                handle_bytes: 8,
            });
        }
        Err(BenchError::NoMpi(format!(
            "the MPI library calls itself '{}', and stripewise-bench speaks the ABIs of MPICH and Open MPI; name such a \
             library by --mpi-library and its mpiexec by --mpiexec",
            version.lines().next().unwrap_or_default()
        )))
    }
}

/// Whether the loaded library is built for the standard ABI of MPI 5, whose handles are small constants.
fn standard_abi() -> bool {
    let Some(address) = symbol(c"MPI_Abi_get_version") else { return false };
    let (mut major, mut minor) = (-1, -1);
    // SAFETY: MPI 5.0 gives the function these parameters; it may be called before MPI_Init.
    unsafe {
        let function =
            std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*mut c_int, *mut c_int) -> c_int>(address);
        function(&raw mut major, &raw mut minor);
    }
    // A library of another ABI says -1.
    major > 0
}

/// The library, loaded.
pub struct Library {
    functions: Functions,
    constants: Constants,
    /// The first line of its version text.
    pub version: String,
}

impl Library {
    /// Loads `chosen`, or the first of `candidates` that is there.
    ///
    /// # Errors
    /// [`BenchError::NoMpi`] when there is none, or only of an ABI that is not known here.
    pub fn load(chosen: Option<&Path>, candidates: &[PathBuf]) -> Result<Self, BenchError> {
        match chosen {
            Some(path) => open(path)
                .map_err(|error| BenchError::NoMpi(format!("cannot load --mpi-library {}: {error}", path.display())))?,
            None => candidates.iter().find_map(|path| open(path).ok()).ok_or_else(|| {
                BenchError::NoMpi(
                    "no MPI library found (libmpi.so.12 of MPICH or libmpi.so.40 of Open MPI, beside mpiexec or where the \
                     loader looks); install one, as by `pip install mpich`, or name it by --mpi-library"
                        .into(),
                )
            })?,
        }
        let version = version()?;
        let constants = Constants::of(&version)?;
        let first_line = version.lines().next().unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ");
        let version = first_line.split(',').next().unwrap_or_default().chars().take(80).collect();
        Ok(Self { functions: Functions::find()?, constants, version })
    }
}

/// Loads a library for the whole process. It stays.
fn open(path: &Path) -> Result<(), String> {
    let name = CString::new(path.as_os_str().as_bytes()).map_err(|_| "a NUL byte in its name".to_owned())?;
    // SAFETY: the name ends with a zero; the library's initialisers are what any MPI program runs.
    let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
    if !library.is_null() {
        return Ok(());
    }
    // SAFETY: after a failure the loader gives a text, valid until the next call.
    let message = unsafe {
        let message = libc::dlerror();
        if message.is_null() { None } else { Some(CStr::from_ptr(message).to_string_lossy().into_owned()) }
    };
    Err(message.unwrap_or_else(|| "the loader does not say why".into()))
}

fn version() -> Result<String, BenchError> {
    let address = symbol(c"MPI_Get_library_version").ok_or_else(|| {
        BenchError::NoMpi("the MPI library is older than MPI 3: it has no MPI_Get_library_version".into())
    })?;
    let mut text = vec![0_u8; TEXT];
    let mut length: c_int = 0;
    // SAFETY: MPI 3.0 gives the function these parameters, allows it before MPI_Init, and bounds what it writes.
    unsafe {
        let function =
            std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*mut c_char, *mut c_int) -> c_int>(address);
        function(text.as_mut_ptr().cast(), &raw mut length);
    }
    let end = text.iter().position(|byte| *byte == 0).unwrap_or(0);
    Ok(String::from_utf8_lossy(&text[..end]).into_owned())
}

/// What a function returns when it failed: its text.
pub type MpiResult<T> = Result<T, String>;

/// The functions, each safe to call after `init` and before `finalize` with handles that others of them gave and did
/// not take back. Counts and sizes are the callers' to bound by `c_int`.
impl Library {
    fn checked(&self, code: c_int) -> MpiResult<()> {
        if code == 0 {
            return Ok(());
        }
        let mut text = vec![0_u8; TEXT];
        let mut length: c_int = 0;
        // SAFETY: the buffer is longer than MPI_MAX_ERROR_STRING of any library.
        unsafe { (self.functions.error_string)(code, text.as_mut_ptr().cast(), &raw mut length) };
        let end = text.iter().position(|byte| *byte == 0).unwrap_or(0);
        let words = String::from_utf8_lossy(&text[..end]).split_whitespace().collect::<Vec<_>>().join(" ");
        // MPICH adds where in its own source it was.
        let words = words.split(", error stack").next().unwrap_or_default();
        Err(if words.is_empty() { format!("error {code}") } else { words.to_owned() })
    }

    /// A handle that a function writes.
    fn made(&self, call: impl FnOnce(*mut MpiHandle) -> c_int) -> MpiResult<MpiHandle> {
        let mut handle: MpiHandle = 0;
        let code = call(&raw mut handle);
        self.checked(code).map(|()| handle)
    }

    /// `MPI_COMM_WORLD`.
    pub fn world(&self) -> MpiHandle {
        self.constants.comm_world
    }

    /// `MPI_COMM_SELF`.
    pub fn alone(&self) -> MpiHandle {
        self.constants.comm_self
    }

    /// `MPI_BYTE`.
    pub fn byte(&self) -> MpiHandle {
        self.constants.byte
    }

    /// `MPI_Init`.
    pub fn init(&self) -> MpiResult<()> {
        // SAFETY: since MPI 2 both may be null.
        let code = unsafe { (self.functions.init)(std::ptr::null_mut(), std::ptr::null_mut()) };
        self.checked(code)
    }

    /// `MPI_Finalize`.
    pub fn finalize(&self) -> MpiResult<()> {
        // SAFETY: no parameters.
        let code = unsafe { (self.functions.finalize)() };
        self.checked(code)
    }

    /// `MPI_Abort` of all processes, with exit code 1.
    pub fn abort(&self) {
        // SAFETY: the world is a communicator.
        unsafe { (self.functions.abort)(self.world(), 1) };
    }

    /// Rank and size in `comm`.
    pub fn place(&self, comm: MpiHandle) -> MpiResult<(u32, u32)> {
        let (mut rank, mut size): (c_int, c_int) = (0, 0);
        // SAFETY: both are valid places.
        unsafe {
            self.checked((self.functions.comm_rank)(comm, &raw mut rank))?;
            self.checked((self.functions.comm_size)(comm, &raw mut size))?;
        }
        Ok((rank as u32, size as u32))
    }

    /// `MPI_Comm_split`: the communicator of the processes of the same colour.
    pub fn split(&self, comm: MpiHandle, colour: u32, key: u32) -> MpiResult<MpiHandle> {
        // SAFETY: `made` gives a valid place.
        self.made(|place| unsafe { (self.functions.comm_split)(comm, colour as c_int, key as c_int, place) })
    }

    /// Waits for all processes of `comm`; `rest` is called between looks, or never, when it is `None`, as MPI itself
    /// waits.
    pub fn barrier(&self, comm: MpiHandle, rest: Option<&mut dyn FnMut()>) -> MpiResult<()> {
        let Some(rest) = rest else {
            // SAFETY: a communicator.
            let code = unsafe { (self.functions.barrier)(comm) };
            return self.checked(code);
        };
        // SAFETY: `made` gives a valid place.
        let mut request = self.made(|place| unsafe { (self.functions.ibarrier)(comm, place) })?;
        loop {
            let (mut done, mut status): (c_int, Status) = (0, [0; 8]);
            // SAFETY: the request is the one that was begun above, and all are valid places.
            let code = unsafe { (self.functions.test)(&raw mut request, &raw mut done, &raw mut status) };
            self.checked(code)?;
            if done != 0 {
                return Ok(());
            }
            rest();
        }
    }

    /// `MPI_Gather` of as many words from each process of the world to rank 0, which gets those of all, by rank.
    pub fn gather(&self, words: &[u64], rank: u32, processes: u32) -> MpiResult<Vec<u64>> {
        let bytes =
            c_int::try_from(size_of_val(words)).map_err(|_| "more than 2 GiB of figures in a process".to_owned())?;
        let mut all = vec![0_u64; if rank == 0 { words.len() * processes as usize } else { 0 }];
        // SAFETY: `words` has `bytes` bytes, and `all`, which only rank 0 uses, as many for each process.
        let code = unsafe {
            (self.functions.gather)(
                words.as_ptr().cast(),
                bytes,
                self.byte(),
                all.as_mut_ptr().cast(),
                bytes,
                self.byte(),
                0,
                self.world(),
            )
        };
        self.checked(code).map(|()| all)
    }

    /// Hints for opening a file; `MPI_INFO_NULL` for none.
    pub fn info(&self, hints: &[(CString, CString)]) -> MpiResult<MpiHandle> {
        if hints.is_empty() {
            return Ok(self.constants.info_null);
        }
        // SAFETY: `made` gives a valid place.
        let info = self.made(|place| unsafe { (self.functions.info_create)(place) })?;
        for (key, value) in hints {
            // SAFETY: both end with a zero.
            let code = unsafe { (self.functions.info_set)(info, key.as_ptr(), value.as_ptr()) };
            self.checked(code)?;
        }
        Ok(info)
    }

    /// Frees what [`Library::info`] gave.
    pub fn info_free(&self, mut info: MpiHandle) -> MpiResult<()> {
        if info == self.constants.info_null {
            return Ok(());
        }
        // SAFETY: an info that was made, not used again.
        let code = unsafe { (self.functions.info_free)(&raw mut info) };
        self.checked(code)
    }

    /// `count` elements one after the other.
    pub fn contiguous(&self, count: u64, element: MpiHandle) -> MpiResult<MpiHandle> {
        let count = int(count)?;
        // SAFETY: `made` gives a valid place.
        self.made(|place| unsafe { (self.functions.type_contiguous)(count, element, place) })
    }

    /// `count` blocks of `block` bytes, each `stride` bytes after the begin of the one before.
    pub fn vector(&self, count: u64, block: u64, stride: u64) -> MpiResult<MpiHandle> {
        let (count, block, stride) = (int(count)?, int(block)?, address(stride)?);
        // SAFETY: `made` gives a valid place.
        self.made(|place| unsafe { (self.functions.type_create_hvector)(count, block, stride, self.byte(), place) })
    }

    /// `datatype` from its begin on with an extent of `extent` bytes. Frees `datatype`.
    pub fn resized(&self, datatype: MpiHandle, extent: u64) -> MpiResult<MpiHandle> {
        let extent = address(extent)?;
        // SAFETY: `made` gives a valid place.
        let made = self.made(|place| unsafe { (self.functions.type_create_resized)(datatype, 0, extent, place) })?;
        self.type_free(datatype)?;
        Ok(made)
    }

    /// A part of an array in C's order.
    pub fn subarray(&self, sizes: &[u64], parts: &[u64], starts: &[u64], element: MpiHandle) -> MpiResult<MpiHandle> {
        let ints = |values: &[u64]| values.iter().map(|value| int(*value)).collect::<MpiResult<Vec<c_int>>>();
        let (sizes, parts, starts) = (ints(sizes)?, ints(parts)?, ints(starts)?);
        let (dimensions, order) = (sizes.len() as c_int, self.constants.order_c);
        assert!(sizes.len() == parts.len() && sizes.len() == starts.len());
        // SAFETY: the three arrays have that many dimensions, and `made` gives a valid place.
        self.made(|place| unsafe {
            (self.functions.type_create_subarray)(
                dimensions,
                sizes.as_ptr(),
                parts.as_ptr(),
                starts.as_ptr(),
                order,
                element,
                place,
            )
        })
    }

    /// All of `types` laid over each other. Takes them.
    pub fn overlay(&self, types: &[MpiHandle]) -> MpiResult<MpiHandle> {
        let (ones, zeros, handles) =
            (vec![1; types.len()], vec![0; types.len()], packed(types, self.constants.handle_bytes));
        // SAFETY: the three arrays have as many entries as there are types, and `made` gives a valid place.
        let made = self.made(|place| unsafe {
            (self.functions.type_create_struct)(
                types.len() as c_int,
                ones.as_ptr(),
                zeros.as_ptr(),
                handles.as_ptr().cast(),
                place,
            )
        })?;
        types.iter().try_for_each(|datatype| self.type_free(*datatype))?;
        Ok(made)
    }

    /// Makes a datatype ready for use.
    pub fn commit(&self, mut datatype: MpiHandle) -> MpiResult<()> {
        // SAFETY: a datatype that was made; the handle does not change.
        let code = unsafe { (self.functions.type_commit)(&raw mut datatype) };
        self.checked(code)
    }

    /// Frees a datatype.
    pub fn type_free(&self, mut datatype: MpiHandle) -> MpiResult<()> {
        // SAFETY: a datatype that was made, not used again.
        let code = unsafe { (self.functions.type_free)(&raw mut datatype) };
        self.checked(code)
    }

    /// `MPI_File_open`.
    pub fn open(&self, comm: MpiHandle, path: &CStr, mode: c_int, info: MpiHandle) -> MpiResult<MpiHandle> {
        // SAFETY: the path ends with a zero, and `made` gives a valid place.
        self.made(|place| unsafe { (self.functions.file_open)(comm, path.as_ptr(), mode, info, place) })
    }

    /// `MPI_File_close`.
    pub fn close(&self, mut file: MpiHandle) -> MpiResult<()> {
        // SAFETY: a file that was opened, not used again.
        let code = unsafe { (self.functions.file_close)(&raw mut file) };
        self.checked(code)
    }

    /// `MPI_File_sync`.
    pub fn sync(&self, file: MpiHandle) -> MpiResult<()> {
        // SAFETY: an open file.
        let code = unsafe { (self.functions.file_sync)(file) };
        self.checked(code)
    }

    /// `MPI_File_get_size`.
    pub fn size(&self, file: MpiHandle) -> MpiResult<u64> {
        let mut size: Offset = 0;
        // SAFETY: an open file and a valid place.
        let code = unsafe { (self.functions.file_get_size)(file, &raw mut size) };
        self.checked(code).map(|()| size.max(0) as u64)
    }

    /// `MPI_File_set_view`, in bytes.
    pub fn set_view(&self, file: MpiHandle, displacement: u64, filetype: MpiHandle) -> MpiResult<()> {
        let displacement = Offset::try_from(displacement).map_err(|_| "a view above 2^63-1".to_owned())?;
        let info = self.constants.info_null;
        // SAFETY: an open file, committed types, and a text that ends with a zero.
        let code = unsafe {
            (self.functions.file_set_view)(file, displacement, self.byte(), filetype, c"native".as_ptr(), info)
        };
        self.checked(code)
    }

    /// `MPI_File_read_at` or `MPI_File_read_at_all`. Returns how many elements were read.
    ///
    /// # Safety
    /// `buffer` has room for `count` elements of `datatype`.
    pub unsafe fn read_at(
        &self,
        (file, offset, collective): (MpiHandle, Offset, bool),
        buffer: *mut c_void,
        (count, datatype): (c_int, MpiHandle),
    ) -> MpiResult<c_int> {
        let function = if collective { self.functions.file_read_at_all } else { self.functions.file_read_at };
        let mut status: Status = [0; 8];
        // SAFETY: the caller's promise; the status has room for one of any family.
        let code = unsafe { function(file, offset, buffer, count, datatype, &raw mut status) };
        self.checked(code)?;
        self.count(&status, datatype)
    }

    /// `MPI_File_write_at` or `MPI_File_write_at_all`. Returns how many elements were written.
    ///
    /// # Safety
    /// `buffer` holds `count` elements of `datatype`.
    pub unsafe fn write_at(
        &self,
        (file, offset, collective): (MpiHandle, Offset, bool),
        buffer: *const c_void,
        (count, datatype): (c_int, MpiHandle),
    ) -> MpiResult<c_int> {
        let function = if collective { self.functions.file_write_at_all } else { self.functions.file_write_at };
        let mut status: Status = [0; 8];
        // SAFETY: the caller's promise; the status has room for one of any family.
        let code = unsafe { function(file, offset, buffer, count, datatype, &raw mut status) };
        self.checked(code)?;
        self.count(&status, datatype)
    }

    /// Whole elements that a status counts; negative for a part of one.
    fn count(&self, status: &Status, datatype: MpiHandle) -> MpiResult<c_int> {
        let mut count: c_int = 0;
        // SAFETY: a status that a read or write has filled, and a valid place.
        let code = unsafe { (self.functions.get_count)(status, datatype, &raw mut count) };
        self.checked(code).map(|()| count)
    }
}

/// An array of handles of `handle_bytes` bytes each, the last word filled up with zeros.
fn packed(handles: &[MpiHandle], handle_bytes: usize) -> Vec<u64> {
    let words = |handle: &MpiHandle| *handle as u64;
    if handle_bytes == 8 {
        return handles.iter().map(words).collect();
    }
    let two = |pair: &[MpiHandle]| words(&pair[0]) & 0xffff_ffff | pair.get(1).map_or(0, words) << 32;
    handles.chunks(2).map(two).collect()
}

fn int(value: u64) -> MpiResult<c_int> {
    c_int::try_from(value).map_err(|_| format!("{value} is more than MPI's counts hold"))
}

fn address(value: u64) -> MpiResult<Address> {
    Address::try_from(value).map_err(|_| format!("{value} is more than MPI's addresses hold"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_library_is_refused_by_name() {
        let message = Constants::of("HP-MPI 2.3\nrest").err().unwrap().to_string();
        assert!(message.contains("'HP-MPI 2.3'") && message.contains("--mpi-library"), "{message}");
        for known in
            ["MPICH Version:      4.2.1", "Intel(R) MPI Library 2021.12 for Linux* OS", "MVAPICH2 Version : 2.3"]
        {
            assert_eq!(Constants::of(known).unwrap().comm_world, 0x4400_0000);
        }
    }

    #[test]
    fn arrays_of_handles_are_as_wide_as_the_family_s() {
        let bytes = |words: Vec<u64>| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
        let ints = bytes(packed(&[0x4c00_010d, 0x8c00_0001, 7], 4));
        let expected: Vec<u8> =
            [0x4c00_010d_u32, 0x8c00_0001, 7, 0].iter().flat_map(|handle| handle.to_le_bytes()).collect();
        assert_eq!(ints, expected);
        assert_eq!(packed(&[0x7f00_0000_1234, 2], 8), [0x7f00_0000_1234, 2]);
    }

    #[test]
    fn a_missing_library_names_the_remedy() {
        let none = Library::load(None, &["/no/such/libmpi.so.12".into()]).err().unwrap().to_string();
        assert!(none.contains("pip install mpich"), "{none}");
        let chosen = Library::load(Some(Path::new("/no/such/libmpi.so")), &[]).err().unwrap().to_string();
        assert!(chosen.contains("/no/such/libmpi.so"), "{chosen}");
    }
}
