//! What a call costs through the preload library, against libc's own function: both are called in turns, in short blocks,
//! in this one process, so whatever else the machine does meets both.
//!
//! `LD_PRELOAD=libstripewise_preload.so request_cost read|write|open BYTES OURS PLAIN [ROUNDS]`
//!
//! OURS is the file that the intercepted function works on, PLAIN that of libc's own; they may be the same: then the two
//! sides are half the file apart, so that neither finds in the caches what the other left. Both are made as long as
//! needed. Each line printed is one round: nanoseconds per call through the preload, nanoseconds per call of
//! libc's own, and the median over the round's pairs of blocks of the first over the second.

use std::error::Error;
use std::ffi::{CString, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Instant;

type Transfer = unsafe extern "C" fn(c_int, *mut c_void, usize, i64) -> isize;
type Open = unsafe extern "C" fn(*const libc::c_char, c_int, ...) -> c_int;
type Close = unsafe extern "C" fn(c_int) -> c_int;

/// Bytes that requests go over, again and again: more than a processor's caches hold.
const SPAN_BYTES: usize = 64 << 20;
/// Pairs of blocks in a round.
const PAIRS: usize = 1000;
/// Bytes of a block, and calls of one where none are moved: short beside the slices of a scheduler, so that few blocks
/// have another program's time in them and the median has none.
const BLOCK_BYTES: usize = 512 << 10;
const BLOCK_CALLS: usize = 100;

/// What a block does.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Call {
    Read,
    Write,
    Open,
}

/// The functions that are measured.
#[derive(Clone, Copy)]
struct Functions {
    pread: Transfer,
    pwrite: Transfer,
    open: Open,
    close: Close,
}

/// The functions of one side and the file that they work on.
struct Side {
    call: Functions,
    path: CString,
    fd: c_int,
    at: usize,
}

impl Side {
    /// Opens the file and fills it with requests of `bytes` through its own functions.
    fn new(call: Functions, path: &str, buffer: &mut [u8]) -> Result<Self, Box<dyn Error>> {
        let path = CString::new(Path::new(path).as_os_str().as_bytes())?;
        // SAFETY: the path ends with a zero; the mode is given as O_CREAT wants it.
        let fd = unsafe { (call.open)(path.as_ptr(), libc::O_RDWR | libc::O_CREAT | libc::O_CLOEXEC, 0o644) };
        if fd < 0 {
            return Err(format!("{}: {}", path.to_string_lossy(), std::io::Error::last_os_error()).into());
        }
        let mut side = Self { call, path, fd, at: 0 };
        for _ in 0..SPAN_BYTES / buffer.len() {
            side.one(Call::Write, buffer)?;
        }
        Ok(side)
    }

    fn one(&mut self, call: Call, buffer: &mut [u8]) -> Result<(), Box<dyn Error>> {
        let (pointer, length, offset) = (buffer.as_mut_ptr().cast(), buffer.len(), self.at as i64);
        // SAFETY: the buffer is valid for reads and writes of `length` bytes, the path ends with a zero.
        let done = unsafe {
            match call {
                Call::Read => (self.call.pread)(self.fd, pointer, length, offset),
                Call::Write => (self.call.pwrite)(self.fd, pointer, length, offset),
                Call::Open => match (self.call.open)(self.path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) {
                    -1 => -1,
                    fd => (self.call.close)(fd) as isize + length as isize,
                },
            }
        };
        if done != length as isize {
            let path = self.path.to_string_lossy();
            return Err(format!("{path}: {done} of {length} bytes: {}", std::io::Error::last_os_error()).into());
        }
        self.at = (self.at + length) % (SPAN_BYTES / length * length);
        Ok(())
    }

    /// Nanoseconds per call of a block.
    fn block(&mut self, call: Call, calls: usize, buffer: &mut [u8]) -> Result<f64, Box<dyn Error>> {
        let begin = Instant::now();
        for _ in 0..calls {
            self.one(call, buffer)?;
        }
        Ok(begin.elapsed().as_nanos() as f64 / calls as f64)
    }
}

/// What the program itself gets when it calls: the preload's functions, if it is loaded.
fn intercepted() -> Functions {
    unsafe extern "C" {
        fn pread64(fd: c_int, buffer: *mut c_void, count: usize, offset: i64) -> isize;
        fn pwrite64(fd: c_int, buffer: *mut c_void, count: usize, offset: i64) -> isize;
        fn open64(path: *const libc::c_char, flags: c_int, ...) -> c_int;
        fn close(fd: c_int) -> c_int;
    }
    Functions { pread: pread64, pwrite: pwrite64, open: open64, close }
}

/// libc's own functions, whatever is loaded before it.
fn of_libc() -> Result<Functions, Box<dyn Error>> {
    // SAFETY: libc is loaded already; this only gives its handle.
    let libc = unsafe { libc::dlopen(c"libc.so.6".as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
    if libc.is_null() {
        return Err("libc.so.6 is not loaded: this program measures on glibc only".into());
    }
    // SAFETY: the handle is libc's; the names are strings with a zero at their end.
    let find = |name: &std::ffi::CStr| unsafe { libc::dlsym(libc, name.as_ptr()) };
    let found = [find(c"pread64"), find(c"pwrite64"), find(c"open64"), find(c"close")];
    if found.iter().any(|address| address.is_null()) {
        return Err("libc.so.6 has no pread64".into());
    }
    // SAFETY: the addresses are of libc's functions of these names, which have these types.
    Ok(unsafe {
        Functions {
            pread: std::mem::transmute::<*mut c_void, Transfer>(found[0]),
            pwrite: std::mem::transmute::<*mut c_void, Transfer>(found[1]),
            open: std::mem::transmute::<*mut c_void, Open>(found[2]),
            close: std::mem::transmute::<*mut c_void, Close>(found[3]),
        }
    })
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (call, bytes, ours, plain, rounds) = match &arguments[..] {
        [call, bytes, ours, plain] => (call, bytes, ours, plain, 5),
        [call, bytes, ours, plain, rounds] => (call, bytes, ours, plain, rounds.parse()?),
        _ => return Err("usage: request_cost read|write|open BYTES OURS PLAIN [ROUNDS]".into()),
    };
    let call = match call.as_str() {
        "read" => Call::Read,
        "write" => Call::Write,
        "open" => Call::Open,
        other => return Err(format!("'{other}' is none of read, write, open").into()),
    };
    let bytes: usize = bytes.parse()?;
    if bytes == 0 || bytes > SPAN_BYTES {
        return Err(format!("requests of {bytes} bytes: it must be 1 to {SPAN_BYTES}").into());
    }
    let mut buffer = vec![7_u8; bytes];
    let mut ours = Side::new(intercepted(), ours, &mut buffer)?;
    let mut plain = Side::new(of_libc()?, plain, &mut buffer)?;
    plain.at = SPAN_BYTES / 2 / bytes * bytes;
    let calls = if call == Call::Open { BLOCK_CALLS } else { (BLOCK_BYTES / bytes).clamp(1, BLOCK_CALLS) };
    for _ in 0..rounds {
        let (mut ours_ns, mut plain_ns, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
        for number in 0..PAIRS {
            // Each is first every other time.
            let mut pair = (0.0, 0.0);
            if number % 2 == 0 {
                pair.0 = ours.block(call, calls, &mut buffer)?;
            }
            pair.1 = plain.block(call, calls, &mut buffer)?;
            if number % 2 == 1 {
                pair.0 = ours.block(call, calls, &mut buffer)?;
            }
            ours_ns.push(pair.0);
            plain_ns.push(pair.1);
            ratios.push(pair.0 / pair.1);
        }
        println!("{:.1} {:.1} {:.4}", median(&mut ours_ns), median(&mut plain_ns), median(&mut ratios));
    }
    Ok(())
}
