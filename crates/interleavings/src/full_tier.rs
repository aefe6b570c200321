//! Small files on a metadata tier that has no room for more of their heads: they leave it in the middle of a write.

use crate::pools::{NAME, PAGE, TestFile, TestPool, layout_of, rests};
use rustix::io::Errno;
use shuttle::rand::{Rng, thread_rng};
use shuttle::sync::atomic::{AtomicBool, AtomicU8, Ordering};
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

/// What is known of a file while threads change it. Each page has one writer, which counts its versions from 1 on.
#[derive(Debug)]
struct Known {
    /// The last version of each page whose write has begun, and the last that is written.
    begun: [AtomicU8; PAGES],
    written: [AtomicU8; PAGES],
    /// Where it is cut, or made longer; `None`: it is not.
    cut_at: Option<usize>,
    cut_has_begun: AtomicBool,
    is_cut: AtomicBool,
    /// The version of each page that was written before the cut began, and whether a write that began after the cut is done.
    before_cut: [AtomicU8; PAGES],
    after_cut: [AtomicBool; PAGES],
}

/// What was known of a page at a moment: its last version that was written, and whether the cut was before that.
#[derive(Debug, Clone, Copy)]
struct Least {
    version: u8,
    is_after_cut: bool,
}

impl Known {
    fn new(cut_at: Option<usize>) -> Self {
        let none = || std::array::from_fn(|_| AtomicU8::new(0));
        Self {
            begun: none(),
            written: none(),
            cut_at,
            cut_has_begun: AtomicBool::new(false),
            is_cut: AtomicBool::new(false),
            before_cut: none(),
            after_cut: std::array::from_fn(|_| AtomicBool::new(false)),
        }
    }

    /// Writes the next version of a page by `write`, and notes it if that is done.
    fn write(&self, page: usize, write: impl FnOnce(u8) -> Result<()>) -> Result<()> {
        let begins_after_cut = self.is_cut.load(Ordering::SeqCst);
        let version = self.begun[page].fetch_add(1, Ordering::SeqCst) + 1;
        write(version)?;
        self.after_cut[page].fetch_or(begins_after_cut, Ordering::SeqCst);
        self.written[page].store(version, Ordering::SeqCst);
        Ok(())
    }

    fn cut(&self, inode: &Inode, at: usize) {
        for (before, written) in self.before_cut.iter().zip(&self.written) {
            before.store(written.load(Ordering::SeqCst), Ordering::SeqCst);
        }
        self.cut_has_begun.store(true, Ordering::SeqCst);
        inode.truncate(at as u64).expect("a size");
        self.is_cut.store(true, Ordering::SeqCst);
    }

    fn least(&self, page: usize) -> Least {
        let version = self.written[page].load(Ordering::SeqCst);
        Least { version, is_after_cut: version > 0 && self.after_cut[page].load(Ordering::SeqCst) }
    }

    /// Fails unless `found` may be the byte at `at`, of which `least` was known before it was read.
    fn assert_is(&self, at: usize, found: u8, least: Least) {
        let page = at / PAGE as usize;
        let last = self.begun[page].load(Ordering::SeqCst);
        let is_new = (least.version.max(1)..=last).any(|version| found == value(page, version));
        // A write that failed has put nothing there, or some of its bytes.
        let is_old = least.version == 0 && found == if page == 0 { BEFORE } else { 0 };
        let may_be_cut = self.cut_at.is_some_and(|end| at >= end) && self.cut_has_begun.load(Ordering::SeqCst);
        let is_gone = may_be_cut && found == 0 && !least.is_after_cut;
        assert!(is_new || is_old || is_gone, "byte {at} is {found}, {least:?}, {self:?}");
    }

    /// Fails unless `content` is what the file may be in the end.
    fn assert_end(&self, content: &[u8]) {
        for at in 0..PAGES * PAGE as usize {
            let page = at / PAGE as usize;
            let found = content.get(at).copied().unwrap_or(0);
            self.assert_is(at, found, self.least(page));
            let (before, last) = (&self.before_cut[page], &self.begun[page]);
            let (before, last) = (before.load(Ordering::SeqCst), last.load(Ordering::SeqCst));
            let is_cut_off = self.cut_at.is_some_and(|end| at >= end) && before > 0 && before == last;
            assert!(!is_cut_off || found == 0, "byte {at} was cut off, and is {found}: {self:?}");
        }
        let has_begun = |page: &usize| self.begun[*page].load(Ordering::SeqCst) > 0;
        let end = (0..PAGES).rev().find(has_begun).map_or(1, |page| page + 1);
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

/// The bytes of a page in that version: those of no other.
fn value(page: usize, version: u8) -> u8 {
    page as u8 * 8 + version
}

fn library() -> Sender {
    Sender::this_process(Way::Library)
}

/// Writes all of a page.
fn write_page(open: &OpenInode, page: usize, version: u8) -> Result<()> {
    let (bytes, begin) = ([value(page, version); PAGE as usize], page as u64 * PAGE);
    open.register_up_to(begin + PAGE)?;
    let mut done = 0;
    while done < bytes.len() {
        done += open.write_at(library(), &[IoSlice::new(&bytes[done..])], begin + done as u64)?;
    }
    Ok(())
}

/// Opens the file, writes each second page of it, from the `first` on, after each of them the first again, which needs no more room, and
/// closes it. `may_fail`: another process may keep the file where it is, or its layout.
fn write_pages(inode: Arc<Inode>, known: &Known, first: usize, may_fail: bool) {
    let open = OpenInode::new(inode, true, false);
    for page in (first..PAGES).step_by(2).flat_map(|page| [page, first]) {
        if let Err(error) = known.write(page, |version| write_page(&open, page, version)) {
            assert!(may_fail && error.errno() == Errno::NOSPC, "page {page}: {error}");
        }
    }
    open.release().expect("released");
}

/// Reads pages in their order, twice, so that what comes next may be fetched ahead, or at random.
fn read_pages(inode: Arc<Inode>, known: &Known) {
    let open = OpenInode::new(inode, false, false);
    let in_order = thread_rng().gen_bool(0.5);
    for number in 0..if in_order { 2 * PAGES } else { PAGES } {
        let page = if in_order { number % PAGES } else { thread_rng().gen_range(0..PAGES) };
        let least = known.least(page);
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
            known.assert_is(page * PAGE as usize + at, *byte, least);
        }
    }
}

/// Two threads write pages of a small file whose head finds less room on the metadata tier than it needs, in one process or in two; a third
/// reads it; a fourth may cut it or make it longer; a fifth may move it to the servers or back. No byte is lost, no byte that was cut off
/// comes back, and no write fails where one process alone uses the file and does not move it back.
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
    // A layout with a head that was asked for is no hint's: the file stays in it, and with it on the tier.
    let returns = moves_to.as_ref().is_some_and(|layout| layout.head_in_inode_bytes() > 0);
    let (known, may_fail) = (Arc::new(Known::new(cut_at)), file.inodes.len() > 1 || returns);
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
