//! The environment that the program was started with.

use std::ffi::{CStr, c_char};

unsafe extern "C" {
    fn secure_getenv(name: *const c_char) -> *mut c_char;
}

/// A variable of the environment that is set and not empty; none in a program that runs with other rights than
/// its starter (set-user-id, file capabilities): that user chose the environment.
pub(crate) fn variable(name: &CStr) -> Option<&'static [u8]> {
    // SAFETY: the name ends with a zero. The value is copied by all callers before the program can change it: they run
    // before its own code, or are the start of one of its threads at worst.
    let value = unsafe {
        let value = secure_getenv(name.as_ptr());
        if value.is_null() {
            return None;
        }
        CStr::from_ptr(value)
    };
    Some(value.to_bytes()).filter(|value| !value.is_empty())
}
