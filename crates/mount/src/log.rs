//! Messages of a serving mount: to standard error, or to the system log once it has become a daemon.

use std::ffi::CString;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::lock;
use crate::sync::Mutex;

static TO_SYSLOG: AtomicBool = AtomicBool::new(false);
static LAST: Mutex<Option<(String, Instant)>> = Mutex::new(None);

/// A message that repeats within this time is dropped: a lost server fails thousands of requests in the same words.
const REPEAT: Duration = Duration::from_secs(1);

/// From now on messages go to the system log.
pub fn to_syslog() {
    TO_SYSLOG.store(true, Ordering::Relaxed);
}

/// Says `message` to the administrator of this mount.
pub fn error(message: &str) {
    if cfg!(feature = "shuttle") {
        panic!("in a schedule nothing fails: {message}");
    }
    let mut last = lock(&LAST);
    if last.as_ref().is_some_and(|(text, when)| text == message && when.elapsed() < REPEAT) {
        return;
    }
    *last = Some((message.to_owned(), Instant::now()));
    drop(last);
    if TO_SYSLOG.load(Ordering::Relaxed) {
        let text = CString::new(format!("stripewise-mount: {}", message.replace('\0', "\u{fffd}"))).unwrap_or_default();
        // SAFETY: both strings end with a zero and live through the call; "%s" takes exactly one of them.
        unsafe { libc::syslog(libc::LOG_DAEMON | libc::LOG_ERR, c"%s".as_ptr(), text.as_ptr()) };
    } else {
        eprintln!("stripewise-mount: {message}");
    }
}
