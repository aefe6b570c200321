// The one table of the calls that take the fast path. The functions are made from it (data.rs), and docs/preload.md is
// printed from it (the test `symbols`).
//
// Each row: name and arguments after the descriptor; direction, buffers, position; and when the call is left to libc.

fast_path! {
    read(buffer: *mut c_void, count: size_t) => Read, ProgramBuffers::one(buffer, count), Cursor, plain if false;
    __read(buffer: *mut c_void, count: size_t) => Read, ProgramBuffers::one(buffer, count), Cursor, plain if false;
    write(buffer: *mut c_void, count: size_t) => Write, ProgramBuffers::one(buffer, count), Cursor, plain if false;
    __write(buffer: *mut c_void, count: size_t) => Write, ProgramBuffers::one(buffer, count), Cursor, plain if false;
    pread(buffer: *mut c_void, count: size_t, offset: off_t) => Read, ProgramBuffers::one(buffer, count), At(offset), plain if false;
    pread64(buffer: *mut c_void, count: size_t, offset: off_t) => Read, ProgramBuffers::one(buffer, count), At(offset), plain if false;
    __pread64(buffer: *mut c_void, count: size_t, offset: off_t) => Read, ProgramBuffers::one(buffer, count), At(offset), plain if false;
    pwrite(buffer: *mut c_void, count: size_t, offset: off_t) => Write, ProgramBuffers::one(buffer, count), At(offset), plain if false;
    pwrite64(buffer: *mut c_void, count: size_t, offset: off_t) => Write, ProgramBuffers::one(buffer, count), At(offset), plain if false;
    __pwrite64(buffer: *mut c_void, count: size_t, offset: off_t) => Write, ProgramBuffers::one(buffer, count), At(offset), plain if false;
    readv(vector: *const iovec, count: c_int) => Read, ProgramBuffers::many(vector, count), Cursor, plain if false;
    writev(vector: *const iovec, count: c_int) => Write, ProgramBuffers::many(vector, count), Cursor, plain if false;
    preadv(vector: *const iovec, count: c_int, offset: off_t) => Read, ProgramBuffers::many(vector, count), At(offset), plain if false;
    preadv64(vector: *const iovec, count: c_int, offset: off_t) => Read, ProgramBuffers::many(vector, count), At(offset), plain if false;
    pwritev(vector: *const iovec, count: c_int, offset: off_t) => Write, ProgramBuffers::many(vector, count), At(offset), plain if false;
    pwritev64(vector: *const iovec, count: c_int, offset: off_t) => Write, ProgramBuffers::many(vector, count), At(offset), plain if false;
    // Flags ask for what only the kernel does (RWF_APPEND, RWF_NOWAIT, RWF_DSYNC).
    preadv2(vector: *const iovec, count: c_int, offset: off_t, flags: c_int) => Read, ProgramBuffers::many(vector, count), at_or_cursor(offset), plain if flags != 0;
    preadv64v2(vector: *const iovec, count: c_int, offset: off_t, flags: c_int) => Read, ProgramBuffers::many(vector, count), at_or_cursor(offset), plain if flags != 0;
    pwritev2(vector: *const iovec, count: c_int, offset: off_t, flags: c_int) => Write, ProgramBuffers::many(vector, count), at_or_cursor(offset), plain if flags != 0;
    pwritev64v2(vector: *const iovec, count: c_int, offset: off_t, flags: c_int) => Write, ProgramBuffers::many(vector, count), at_or_cursor(offset), plain if flags != 0;
    // What programs built with _FORTIFY_SOURCE call; an overflow is left to libc, which ends the program.
    __read_chk(buffer: *mut c_void, count: size_t, room: size_t) => Read, ProgramBuffers::one(buffer, count), Cursor, plain if count > room;
    __pread_chk(buffer: *mut c_void, count: size_t, offset: off_t, room: size_t) => Read, ProgramBuffers::one(buffer, count), At(offset), plain if count > room;
    __pread64_chk(buffer: *mut c_void, count: size_t, offset: off_t, room: size_t) => Read, ProgramBuffers::one(buffer, count), At(offset), plain if count > room;
}
