//! The preload library with a gate that holds each request for 10 ms and an observer, both of which write what they see to
//! the file that `STRIPEWISE_TEST_WATCHED` names. `tests/door.rs` runs programs under it.

use rustix::fs::{Mode, OFlags};
use std::fmt::{Arguments, Write as _};
use std::io::Cursor;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;
use stripewise_control::{Door, FileId, Gate, Observer, Request, Served};
use stripewise_store::Pool;

const HOLD: Duration = Duration::from_millis(10);
/// Out of the way of the program's own descriptors.
const FLOOR: i32 = 500;

struct Watch(Option<OwnedFd>);

/// A line on the stack: nothing may be allocated here.
struct Line(Cursor<[u8; 256]>);

impl std::fmt::Write for Line {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        std::io::Write::write_all(&mut self.0, text.as_bytes()).map_err(|_| std::fmt::Error)
    }
}

impl Watch {
    fn note(&self, words: Arguments<'_>) {
        let mut line = Line(Cursor::new([0; 256]));
        let filled = writeln!(line, "{words}").map(|()| line.0.position() as usize);
        if let (Some(fd), Ok(filled)) = (&self.0, filled) {
            // A line that is lost fails the test.
            let _ = rustix::io::write(fd, &line.0.get_ref()[..filled]);
        }
    }
}

impl Gate for Watch {
    fn enter(&self, _: FileId, request: &Request) {
        let Request { sender, action, offset, len, .. } = request;
        std::thread::sleep(HOLD);
        self.note(format_args!("{:?} {} {action:?} {offset} {len}", sender.way(), sender.program().process()));
    }
}

impl Observer for Watch {
    fn served(&self, _: FileId, request: &Request, served: &Served<'_>) {
        self.note(format_args!("server {} {:?} {}", served.part.server.0, request.action, served.done_bytes));
    }
}

fn door(_: &Pool) -> Door {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::APPEND | OFlags::CLOEXEC;
    let path = std::env::var_os("STRIPEWISE_TEST_WATCHED");
    let opened = path.and_then(|path| rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR).ok());
    let high = opened.and_then(|fd| rustix::io::fcntl_dupfd_cloexec(fd, FLOOR).ok());
    let watch = Arc::new(Watch(high));
    Door::default().with_gate(watch.clone()).with_observer(watch)
}

/// Before the library's own, which may open files that the program has inherited: the linker puts entries with numbers first.
#[used]
#[unsafe(link_section = ".init_array.00101")]
static AT_LOAD: extern "C" fn() = {
    extern "C" fn at_load() {
        stripewise_preload::install_door(door);
    }
    at_load
};
