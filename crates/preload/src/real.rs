//! The functions behind ours: what the program would have called without this library.

use std::ffi::{CStr, c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// A function of the next library that has it.
pub(crate) struct NextSymbol {
    name: &'static CStr,
    address: AtomicPtr<c_void>,
}

impl NextSymbol {
    pub(crate) const fn new(name: &'static CStr) -> Self {
        Self { name, address: AtomicPtr::new(ptr::null_mut()) }
    }

    /// Its address; that of [`missing`] when no library has it. One load once it was looked for.
    #[inline]
    pub(crate) fn address(&self) -> *mut c_void {
        let address = self.address.load(Ordering::Relaxed);
        if address.is_null() { self.resolve() } else { address }
    }

    /// Whether [`NextSymbol::address`] takes no search any more.
    pub(crate) fn is_resolved(&self) -> bool {
        !self.address.load(Ordering::Relaxed).is_null()
    }

    #[cold]
    fn resolve(&self) -> *mut c_void {
        // SAFETY: the name ends with a zero.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        let address = if found.is_null() { missing as *mut c_void } else { found };
        self.address.store(address, Ordering::Relaxed);
        address
    }
}

/// Stands for a function that this libc does not have.
extern "C" fn missing() -> isize {
    set_errno(libc::ENOSYS);
    -1
}

pub(crate) fn errno() -> c_int {
    // SAFETY: libc's pointer to this thread's errno is always valid.
    unsafe { *libc::__errno_location() }
}

pub(crate) fn set_errno(value: c_int) {
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = value };
}

// The linker gathers a pointer to every symbol of `wrap!` here, and gives the borders.
unsafe extern "C" {
    #[link_name = "__start_stripewise_symbols"]
    static FIRST: [usize; 0];
    #[link_name = "__stop_stripewise_symbols"]
    static END: [usize; 0];
}

/// Looks every function up now, so that none is looked up in a signal handler or inside an allocator later.
pub(crate) fn resolve_all() {
    // SAFETY: both are borders of one section, which `wrap!` fills with references to `NextSymbol`s only.
    let symbols = unsafe {
        let first = (&raw const FIRST).cast::<&'static NextSymbol>();
        let end = (&raw const END).cast::<&'static NextSymbol>();
        std::slice::from_raw_parts(first, end.offset_from_unsigned(first))
    };
    for symbol in symbols {
        symbol.address();
    }
}

/// Defines functions in libc's place. `real` names libc's own in the bodies, as a function of the same type.
macro_rules! wrap {
    ($real:ident; $(fn $name:ident($($arg:ident: $type:ty),* $(,)?) -> $result:ty $body:block)*) => {
        $(
            #[unsafe(no_mangle)]
            extern "C" fn $name($($arg: $type),*) -> $result {
                static SYMBOL: $crate::real::NextSymbol = $crate::real::NextSymbol::new(
                    match ::std::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                        Ok(name) => name,
                        Err(_) => panic!("a name has no zero inside"),
                    },
                );
                #[used]
                #[unsafe(link_section = "stripewise_symbols")]
                static ENTRY: &$crate::real::NextSymbol = &SYMBOL;
                // SAFETY: the next library's function of this name has this type; the arguments are the caller's own,
                // and what they must fulfil is between the caller and it.
                let $real: extern "C" fn($($type),*) -> $result = unsafe { ::std::mem::transmute(SYMBOL.address()) };
                $body
            }
        )*
    };
}
pub(crate) use wrap;
