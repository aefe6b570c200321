//! What a process has in the place of a mapped page that its file system has taken with it.
//!
//! Who touches a page of a mapped file is killed by the kernel (SIGBUS) where the page would have to be read, or noted as changed, and the
//! file system has failed: XFS that has shut itself down, a disk that was pulled out, a file that was cut. A mount would end with all
//! that it serves, and so would a program that uses a pool by itself. So the process gets memory of its own there, with what the page
//! had if that can still be read, as systemd does it for its journals.
//!
//! No other process learns what is written there. The pages count what is done to files of the same file system, on which nothing can
//! be changed any more: every change of a file asks that first, and fails.

use libc::{c_int, c_void, siginfo_t};
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

/// Addresses that are watched over.
#[derive(Debug)]
pub(crate) struct Watched {
    /// First address; 0: free.
    from: AtomicUsize,
    /// Behind the last one.
    to: AtomicUsize,
    next: *const Watched,
}

// SAFETY: `next` is set before others see it, and what it leads to is never freed.
unsafe impl Send for Watched {}
// SAFETY: as above.
unsafe impl Sync for Watched {}

/// All that were ever needed at a time, so that the handler can go through them at any moment.
static FIRST: AtomicPtr<Watched> = AtomicPtr::new(null_mut());
/// What SIGBUS did before.
static BEFORE: AtomicPtr<libc::sigaction> = AtomicPtr::new(null_mut());
static PAGE_BYTES: AtomicUsize = AtomicUsize::new(0);
static IS_INSTALLED: AtomicBool = AtomicBool::new(false);

/// Watches over `bytes` at `address`, which are mapped, until they are let go by [`let_go`]. O(what is watched over).
pub(crate) fn watch(address: usize, bytes: usize) -> &'static Watched {
    install();
    let mut node = FIRST.load(Ordering::Acquire).cast_const();
    // SAFETY: no node is ever freed.
    while let Some(free) = unsafe { node.as_ref() } {
        if free.from.compare_exchange(0, address, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            free.to.store(address + bytes, Ordering::Release);
            return free;
        }
        node = free.next;
    }
    let (from, to) = (AtomicUsize::new(address), AtomicUsize::new(address + bytes));
    let made = Box::leak(Box::new(Watched { from, to, next: null() }));
    let mut first = FIRST.load(Ordering::Acquire);
    loop {
        made.next = first;
        match FIRST.compare_exchange_weak(first, made, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => return made,
            Err(now) => first = now,
        }
    }
}

/// Watches over them no more: before they are unmapped.
pub(crate) fn let_go(watched: &Watched) {
    watched.to.store(0, Ordering::Release);
    watched.from.store(0, Ordering::Release);
}

fn is_watched(address: usize) -> bool {
    let mut node = FIRST.load(Ordering::Acquire).cast_const();
    // SAFETY: no node is ever freed.
    while let Some(watched) = unsafe { node.as_ref() } {
        let to = watched.to.load(Ordering::Acquire);
        let from = watched.from.load(Ordering::Acquire);
        if from != 0 && from <= address && address < to {
            return true;
        }
        node = watched.next;
    }
    false
}

/// Has SIGBUS come here first, once in a process. Where it cannot, such a page kills as it always has.
fn install() {
    if IS_INSTALLED.swap(true, Ordering::AcqRel) {
        return;
    }
    // SAFETY: a look at what the C library knows.
    let page_bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    PAGE_BYTES.store(usize::try_from(page_bytes).unwrap_or(4096), Ordering::Release);
    // SAFETY: zeros are a value of it: no handler, no flags, an empty mask.
    let mut ours: libc::sigaction = unsafe { std::mem::zeroed() };
    let mut before = ours;
    ours.sa_sigaction = on_bus_error as extern "C" fn(c_int, *mut siginfo_t, *mut c_void) as usize;
    ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
    // SAFETY: both are of the kernel's form, and live until the call returns.
    if unsafe { libc::sigaction(libc::SIGBUS, null(), &raw mut before) } == 0 {
        // Before it can be needed.
        BEFORE.store(Box::into_raw(Box::new(before)), Ordering::Release);
        // SAFETY: as above; the handler does nothing but loads, and system calls that POSIX or Linux allows in one.
        unsafe { libc::sigaction(libc::SIGBUS, &raw const ours, null_mut()) };
    }
}

extern "C" fn on_bus_error(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel gives what SA_SIGINFO promises; errno is this thread's own.
    let (address, errno) = unsafe { ((*info).si_addr() as usize, *libc::__errno_location()) };
    // SAFETY: as above.
    let is_of_memory = unsafe { (*info).si_code } > 0;
    if !(is_of_memory && is_watched(address) && replace(address)) {
        // SAFETY: what the kernel gave is handed on as it came.
        unsafe { as_before(signal, info, context, is_of_memory) };
    }
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
}

/// Puts memory of this process in the place of the page with this address; whether it could. Three system calls.
fn replace(address: usize) -> bool {
    let bytes = PAGE_BYTES.load(Ordering::Acquire);
    let page = (address & !(bytes - 1)) as *mut c_void;
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping at an address of the kernel's choice. The page that it takes the place of is one that `watch` was told
    // of, of atomics, for which all bytes are a value. The kernel reads it for `process_vm_readv`, which fails where this thread
    // would be killed: then it is zeros.
    unsafe {
        let own = libc::mmap(null_mut(), bytes, access, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0);
        if own == libc::MAP_FAILED {
            return false;
        }
        let (to, from) =
            (libc::iovec { iov_base: own, iov_len: bytes }, libc::iovec { iov_base: page, iov_len: bytes });
        libc::process_vm_readv(libc::getpid(), &raw const to, 1, &raw const from, 1, 0);
        libc::mremap(own, bytes, bytes, libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED, page) == page
    }
}

/// Does what the process did on SIGBUS before [`install`].
///
/// # Safety
/// With what the kernel gave a handler, within that.
unsafe fn as_before(signal: c_int, info: *mut siginfo_t, context: *mut c_void, is_of_memory: bool) {
    let before = BEFORE.load(Ordering::Acquire);
    // SAFETY: it is set before this handler is, and stays.
    let before = unsafe { &*before };
    match before.sa_sigaction {
        // What a touch of memory raises kills a process that ignores it, too.
        libc::SIG_IGN if !is_of_memory => {}
        libc::SIG_IGN | libc::SIG_DFL => {
            // SAFETY: zeros are a value of it: the kernel's own way, no flags, an empty mask.
            let default: libc::sigaction = unsafe { std::mem::zeroed() };
            // SAFETY: of the kernel's form. A touch of memory is made again when this returns; else the signal comes again.
            unsafe {
                libc::sigaction(signal, &raw const default, null_mut());
                if !is_of_memory {
                    libc::raise(signal);
                }
            }
        }
        handler if before.sa_flags & libc::SA_SIGINFO != 0 => {
            // SAFETY: by this flag it is such a function.
            let handler: extern "C" fn(c_int, *mut siginfo_t, *mut c_void) = unsafe { std::mem::transmute(handler) };
            handler(signal, info, context);
        }
        handler => {
            // SAFETY: without the flag it is such a function.
            let handler: extern "C" fn(c_int) = unsafe { std::mem::transmute(handler) };
            handler(signal);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::os::shared_pages::SharedPage;
    use rustix::fd::AsFd;
    use rustix::mm::ProtFlags;
    use std::os::unix::fs::FileExt;
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;
    use std::sync::atomic::{AtomicU64, Ordering};

    const DIES: &str = "STRIPEWISE_TEST_DIES_BY";

    fn pages(file: &std::fs::File) -> SharedPage<[AtomicU64; 1024]> {
        file.set_len(8192).unwrap();
        file.write_all_at(&[1; 8192], 0).unwrap();
        SharedPage::map(file.as_fd(), 0, ProtFlags::READ | ProtFlags::WRITE).unwrap()
    }

    #[test]
    fn a_page_that_is_gone_is_memory_of_the_process() {
        let file = tempfile::tempfile().unwrap();
        let map = pages(&file);
        file.set_len(4096).unwrap();
        assert_eq!(map[1000].fetch_add(7, Ordering::SeqCst), 0);
        assert_eq!((map[1000].load(Ordering::SeqCst), map[999].load(Ordering::SeqCst)), (7, 0));
        map[3].store(5, Ordering::SeqCst);
        let mut of_file = [0; 8];
        file.read_exact_at(&mut of_file, 24).unwrap();
        assert_eq!(u64::from_ne_bytes(of_file), 5, "the other page is the file's");
        drop(map);
        // The place in the list is free for the next.
        let again = pages(&file);
        file.set_len(0).unwrap();
        assert_eq!(again[0].load(Ordering::SeqCst), 0);
    }

    /// What is not the store's kills as ever: a map of another's, and the signal that a process sends itself.
    #[test]
    fn others_die_of_it_as_before() {
        const TEST: &str = "os::lost_pages::tests::others_die_of_it_as_before";
        if let Ok(by) = std::env::var(DIES) {
            let file = tempfile::tempfile().unwrap();
            let ours = pages(&file);
            let other = tempfile::tempfile().unwrap();
            other.set_len(4096).unwrap();
            // SAFETY: a new mapping at an address of the kernel's choice.
            let map = unsafe {
                rustix::mm::mmap(std::ptr::null_mut(), 4096, ProtFlags::READ, rustix::mm::MapFlags::SHARED, &other, 0)
            };
            other.set_len(0).unwrap();
            if by == "raise" {
                // SAFETY: it kills this process.
                unsafe { libc::raise(libc::SIGBUS) };
            }
            // SAFETY: mapped above; this process dies of it.
            let read = unsafe { map.unwrap().cast::<u8>().read_volatile() };
            panic!("lives, with {read} and {}", ours[0].load(Ordering::SeqCst));
        }
        for by in ["touch", "raise"] {
            let mut command = Command::new(std::env::current_exe().unwrap());
            let status = command.args([TEST, "--exact"]).env(DIES, by).status().unwrap();
            assert_eq!(status.signal(), Some(libc::SIGBUS), "{by}: {status}");
        }
    }

    /// A program that has a handler of its own gets what is not the store's.
    #[test]
    fn a_handler_that_was_there_before_is_called() {
        const TEST: &str = "os::lost_pages::tests::a_handler_that_was_there_before_is_called";
        extern "C" fn exits(_: libc::c_int) {
            // SAFETY: it ends the process, from a handler, too.
            unsafe { libc::_exit(42) };
        }
        if std::env::var_os(DIES).is_some() {
            // SAFETY: zeros are a value of it, and the handler does nothing but to end the process.
            unsafe {
                let mut action: libc::sigaction = std::mem::zeroed();
                action.sa_sigaction = exits as extern "C" fn(libc::c_int) as usize;
                assert_eq!(libc::sigaction(libc::SIGBUS, &raw const action, std::ptr::null_mut()), 0);
            }
            let file = tempfile::tempfile().unwrap();
            let ours = pages(&file);
            file.set_len(0).unwrap();
            assert_eq!(ours[0].load(Ordering::SeqCst), 0);
            // SAFETY: what follows is the handler's.
            unsafe { libc::raise(libc::SIGBUS) };
            panic!("lives");
        }
        let mut command = Command::new(std::env::current_exe().unwrap());
        let status = command.args([TEST, "--exact"]).env(DIES, "").status().unwrap();
        assert_eq!(status.code(), Some(42), "{status}");
    }
}
