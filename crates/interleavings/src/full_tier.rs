//! Small files on a metadata tier that has no room for more of their heads: they leave it in the middle of a write.

use crate::pools::{NAME, PAGE, TestFile, TestPool, layout_of, rests};
use rustix::io::Errno;
use shuttle::rand::{Rng, thread_rng};
use shuttle::sync::atomic::{AtomicBool, Ordering};
use shuttle::thread;
use std::io::{IoSlice, IoSliceMut};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use stripewise_control::{Sender, Way};
use stripewise_layout::Layout;
use stripewise_store::{Inode, OpenInode, Result};
use stripewise_switching::switching;

/// Pages that are written: those of the head, and two behind it.
const PAGES: usize = HEAD_PAGES + 2;
const HEAD_PAGES: usize = 4;
/// What the first page has before anything begins, so that the head has bytes and goes by no other way.
const BEFORE: u8 = 0xee;

/// Schedules in which a file has left the tier, for all executions of a test.
static LEFT: AtomicUsize = AtomicUsize::new(0);

/// How many schedules of [`a_small_file_is_used_on_a_tier_that_fills`] so far have had a file leave the tier by a write.
pub fn schedules_that_left() -> usize {
    LEFT.load(Ordering::SeqCst)
}

/// What is known of a file while threads change it.
#[derive(Debug)]
struct Known {
    /// Pages whose write has begun, and those of which it is done.
    begun: [AtomicBool; PAGES],
    written: [AtomicBool; PAGES],
    /// Where it is cut, or made longer; `None`: it is not.
    cut_at: Option<usize>,
    cut_has_begun: AtomicBool,
    is_cut: AtomicBool,
    /// Pages whose write was done before the cut began, and pages whose write began after the cut.
    before_cut: [AtomicBool; PAGES],
    after_cut: [AtomicBool; PAGES],
}

impl Known {
    fn new(cut_at: Option<usize>) -> Self {
        let none = || std::array::from_fn(|_| AtomicBool::new(false));
        Self {
            begun: none(),
            written: none(),
            cut_at,
            cut_has_begun: AtomicBool::new(false),
            is_cut: AtomicBool::new(false),
            before_cut: none(),
            after_cut: none(),
        }
    }

    fn is(flags: &[AtomicBool; PAGES], page: usize) -> bool {
        flags[page].load(Ordering::SeqCst)
    }

    fn begin(&self, page: usize) {
        self.after_cut[page].store(self.is_cut.load(Ordering::SeqCst), Ordering::SeqCst);
        self.begun[page].store(true, Ordering::SeqCst);
    }

    fn cut(&self, inode: &Inode, at: usize) {
        for page in 0..PAGES {
            self.before_cut[page].store(Self::is(&self.written, page), Ordering::SeqCst);
        }
        self.cut_has_begun.store(true, Ordering::SeqCst);
        inode.truncate(at as u64).expect("a size");
        self.is_cut.store(true, Ordering::SeqCst);
    }

    /// Fails unless `found` may be the byte at `at`, of a file whose page was written before it was read if `is_written`.
    fn assert_is(&self, at: usize, found: u8, is_written: bool) {
        let page = at / PAGE as usize;
        let before = if page == 0 { BEFORE } else { 0 };
        let may_be_cut = self.cut_at.is_some_and(|end| at >= end) && self.cut_has_begun.load(Ordering::SeqCst);
        let is_new = found == value(page) && Self::is(&self.begun, page);
        let is_old = !is_written && found == before;
        let is_gone = may_be_cut && found == 0 && !Self::is(&self.after_cut, page);
        // A failed write may have put some of its bytes where there was nothing.
        assert!(is_new || is_old || is_gone, "byte {at} is {found}, written: {is_written}, {self:?}");
    }

    /// Fails unless `content` is what the file may be in the end.
    fn assert_end(&self, content: &[u8]) {
        for at in 0..PAGES * PAGE as usize {
            let page = at / PAGE as usize;
            let found = content.get(at).copied().unwrap_or(0);
            self.assert_is(at, found, Self::is(&self.written, page));
            let is_cut_off = self.cut_at.is_some_and(|end| at >= end) && Self::is(&self.before_cut, page);
            assert!(!is_cut_off || found == 0, "byte {at} was cut off, and is {found}: {self:?}");
        }
        let end = (0..PAGES).rev().find(|&page| Self::is(&self.begun, page)).map_or(1, |page| page + 1);
        let most = (end * PAGE as usize).max(self.cut_at.unwrap_or(0));
        assert!(content.len() <= most, "{} bytes, {most} at most: {self:?}", content.len());
    }
}

/// Those that a file is moved to: on a server, and with a head on the tier.
fn layouts() -> [Layout; 2] {
    let on_server = layout_of(PAGE, 0, 1);
    let with_head = on_server.with_head_in_inode(HEAD_PAGES as u64 * PAGE).expect("a layout");
    [on_server, with_head]
}

fn value(page: usize) -> u8 {
    page as u8 + 1
}

fn library() -> Sender {
    Sender::this_process(Way::Library)
}

/// Writes all of a page.
fn write_page(open: &OpenInode, page: usize) -> Result<()> {
    let (bytes, begin) = ([value(page); PAGE as usize], page as u64 * PAGE);
    open.register_up_to(begin + PAGE)?;
    let mut done = 0;
    while done < bytes.len() {
        done += open.write_at(library(), &[IoSlice::new(&bytes[done..])], begin + done as u64)?;
    }
    Ok(())
}

/// Opens the file, writes each second page of it, from the `first` on, and closes it. `may_fail`: another process keeps the file where it is.
fn write_pages(inode: Arc<Inode>, known: &Known, first: usize, may_fail: bool) {
    let open = OpenInode::new(inode, true, false);
    for page in (first..PAGES).step_by(2) {
        known.begin(page);
        match write_page(&open, page) {
            Ok(()) => known.written[page].store(true, Ordering::SeqCst),
            Err(error) => assert!(may_fail && error.errno() == Errno::NOSPC, "page {page}: {error}"),
        }
    }
    open.release().expect("released");
}

fn read_pages(inode: Arc<Inode>, known: &Known) {
    let open = OpenInode::new(inode, false, false);
    for _ in 0..PAGES {
        let page = thread_rng().gen_range(0..PAGES);
        let is_written = Known::is(&known.written, page);
        let mut bytes = [0; PAGE as usize];
        let mut done = 0;
        while done < bytes.len() {
            let at = (page * PAGE as usize + done) as u64;
            match open.read_at(library(), &mut [IoSliceMut::new(&mut bytes[done..])], at).expect("read") {
                0 => break,
                count => done += count,
            }
        }
        for (at, byte) in bytes.iter().enumerate() {
            known.assert_is(page * PAGE as usize + at, *byte, is_written);
        }
    }
}

/// Two threads write pages of a small file whose head finds less room on the metadata tier than it needs, in one process or in two; a third
/// reads it; a fourth may cut it or make it longer; a fifth may move it to the servers or back. No byte is lost, no byte that was cut off
/// comes back, and no write fails where one process alone uses the file.
///
/// # Panics
/// That is not so.
pub fn a_small_file_is_used_on_a_tier_that_fills(pool: &TestPool) {
    pool.empty_tier();
    pool.keep_layouts(&layouts());
    let file = TestFile::make_small(pool, HEAD_PAGES as u64 * PAGE, thread_rng().gen_range(1..=2));
    let head_bytes = || file.inodes[0].layout().expect("a layout").head_in_inode_bytes();
    assert_eq!(head_bytes(), HEAD_PAGES as u64 * PAGE, "the head that was asked for");
    file.fill(&[BEFORE; PAGE as usize]);
    pool.fill_tier_but(thread_rng().gen_range(0..HEAD_PAGES as u64));
    let inode = |number: usize| file.inodes[number % file.inodes.len()].clone();
    let cut_at = thread_rng().gen_bool(0.4).then(|| thread_rng().gen_range(1..PAGES * PAGE as usize));
    let moves_to = thread_rng().gen_bool(0.4).then(|| {
        let [on_server, with_head] = layouts();
        if thread_rng().gen_bool(0.7) { on_server } else { with_head }
    });
    let (known, may_fail) = (Arc::new(Known::new(cut_at)), file.inodes.len() > 1);
    let has_moved = Arc::new(AtomicBool::new(false));
    let (reader, cutter, mover) = (inode(1), inode(0), inode(1));
    switching(|| {
        let mut threads: Vec<_> = (0..2)
            .map(|number| {
                let (inode, known) = (inode(number), known.clone());
                thread::spawn(move || write_pages(inode, &known, number, may_fail))
            })
            .collect();
        let seen = known.clone();
        threads.push(thread::spawn(move || read_pages(reader, &seen)));
        let cut = known.clone();
        threads.extend(cut_at.map(|at| thread::spawn(move || cut.cut(&cutter, at))));
        let moved = has_moved.clone();
        threads.extend(moves_to.map(|layout| {
            thread::spawn(move || {
                match mover.move_watched(&layout, NAME, thread_rng().gen_bool(0.5), &mut |_, _| rests()) {
                    Ok(_) => moved.store(true, Ordering::SeqCst),
                    Err(error) => assert!([Errno::BUSY, Errno::NOSPC].contains(&error.errno()), "{error}"),
                }
            })
        }));
        threads.into_iter().for_each(|thread| thread.join().expect("a thread"));
    });
    if head_bytes() == 0 && !has_moved.load(Ordering::SeqCst) {
        LEFT.fetch_add(1, Ordering::SeqCst);
    }
    known.assert_end(&file.end());
}

/// Two threads of one process append pages to a small file that finds less room on the metadata tier than it needs; it goes to one server or
/// to two. Each page is there once and whole, those of a thread in their order.
///
/// # Panics
/// That is not so.
pub fn a_small_file_is_appended_to_on_a_tier_that_fills(pool: &TestPool) {
    const EACH: usize = 3;
    pool.empty_tier();
    let file = TestFile::make_small(pool, HEAD_PAGES as u64 * PAGE, 1);
    pool.fill_tier_but(thread_rng().gen_range(0..HEAD_PAGES as u64));
    switching(|| {
        let threads: Vec<_> = (0..2)
            .map(|number| {
                let inode = file.inodes[0].clone();
                thread::spawn(move || {
                    let open = OpenInode::new(inode, true, false);
                    for page in 0..EACH {
                        let mut rest: &[u8] = &[(1 + number * EACH + page) as u8; PAGE as usize];
                        while !rest.is_empty() {
                            open.register().expect("a writer");
                            let (_, done) = open.inode().append(rest).expect("appended");
                            rest = &rest[done..];
                        }
                    }
                    open.release().expect("released");
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().expect("a thread"));
    });
    let found = file.end();
    let pages: Vec<u8> = found.chunks(PAGE as usize).map(|page| page[0]).collect();
    assert!(found.chunks(PAGE as usize).all(|page| page.len() == PAGE as usize && page.iter().all(|b| *b == page[0])));
    for number in 0..2 {
        let of_thread: Vec<_> = pages.iter().filter(|&&page| (page as usize - 1) / EACH == number).collect();
        let expected: Vec<u8> = (0..EACH).map(|page| (1 + number * EACH + page) as u8).collect();
        assert!(of_thread.into_iter().eq(&expected), "pages of thread {number}: {pages:?}");
    }
}
