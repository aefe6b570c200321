//! Reads and writes: the functions of the one table of calls that take the fast path, `fast_path.rs`.

use crate::bypass::{FilePosition, ProgramBuffers, TransferDirection, transfer};
use crate::real::wrap;
use libc::{iovec, off_t, size_t, ssize_t};
use std::ffi::{c_int, c_void};

use FilePosition::{At, Cursor};
use TransferDirection::{Read, Write};

macro_rules! fast_path {
    ($($name:ident($($arg:ident: $type:ty),*) => $direction:expr, $buffers:expr, $position:expr, plain if $plain:expr;)*) => {
        wrap! { real; $(
            fn $name(fd: c_int, $($arg: $type),*) -> ssize_t {
                if $plain {
                    return real(fd, $($arg),*);
                }
                transfer(fd, $direction, $position, $buffers, || real(fd, $($arg),*))
            }
        )* }
    };
}

include!("fast_path.rs");

/// -1 is the descriptor's own offset in `preadv2` and `pwritev2`.
fn at_or_cursor(offset: off_t) -> FilePosition {
    if offset == -1 { Cursor } else { At(offset) }
}
