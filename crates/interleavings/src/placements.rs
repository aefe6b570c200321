//! Holders of a file's placement, as the preload is one, while the file changes.

use crate::lock;
use crate::pools::{NAME, TestFile, TestPool, WIDTH, layout, read, rests, small, write};
use rustix::fs::{Mode, Timespec, Timestamps};
use shuttle::rand::{Rng, thread_rng};
use shuttle::sync::Mutex;
use shuttle::sync::atomic::{AtomicU8, Ordering};
use shuttle::thread;
use std::convert::Infallible;
use std::io::{IoSlice, IoSliceMut};
use std::sync::Arc;
use stripewise_control::{Sender, Way};
use stripewise_layout::Layout;
use stripewise_store::placements::{self, Placements};
use stripewise_store::surplus::Surplus;
use stripewise_store::{Error, Inode, PlacedFile, Result, Store};
use stripewise_switching::switching;

/// Bytes of the file: three stripes and a part.
const BYTES: usize = 3 * WIDTH as usize + 7;

/// A process that goes past the mount: it asks `mount` for placements, and has one version of the file for all its
/// threads.
struct Past {
    store: Arc<Store>,
    mount: Arc<Inode>,
    held: Mutex<Arc<PlacedFile>>,
}

impl Past {
    fn new(store: &Arc<Store>, mount: &Arc<Inode>) -> Arc<Self> {
        let placement = mount.placement().expect("a placement");
        let file = PlacedFile::new(store.plane().clone(), placement, None).expect("a file");
        Arc::new(Self { store: store.clone(), mount: mount.clone(), held: Mutex::new(Arc::new(file)) })
    }

    fn held(&self) -> Arc<PlacedFile> {
        lock(&self.held).clone()
    }

    /// Reads from the beginning of the file; how much.
    fn read(&self, into: &mut [u8]) -> usize {
        match placements::read(self, &mut [IoSliceMut::new(into)], 0) {
            Err(Error::Elsewhere) => read(&self.mount, into),
            count => count.expect("read"),
        }
    }

    /// Writes one stripe. The mount has registered a writer.
    fn write(&self, bytes: &[u8], offset: u64) {
        match placements::write(self, &[IoSlice::new(bytes)], offset) {
            // The preload leaves the request to the mount.
            Err(Error::Elsewhere) => write(&self.mount, bytes, offset),
            count => assert_eq!(count.expect("written"), bytes.len()),
        }
    }
}

/// As the preload's.
impl Placements for Past {
    type Found = Arc<PlacedFile>;
    type Alone = Infallible;

    fn current(&self) -> Result<Arc<PlacedFile>> {
        Ok(self.held())
    }

    fn renew(&self, known: &PlacedFile) -> Result<()> {
        let placement = self.mount.placement().expect("a placement");
        if !placement.bypass {
            return Err(Error::Elsewhere);
        }
        if known.refresh(&placement) {
            return Ok(());
        }
        let newer = PlacedFile::new(self.store.plane().clone(), placement, None).expect("a file");
        let mut held = lock(&self.held);
        if std::ptr::eq(&**held, known) {
            *held = Arc::new(newer);
        }
        Ok(())
    }

    fn make(&self, file: &PlacedFile, indexes: &[u16]) -> Result<()> {
        self.mount.ensure_datafiles(file.placement().version, indexes).expect("datafiles");
        self.renew(file)
    }

    fn size_bytes(&self) -> Result<u64> {
        self.mount.certain_size_bytes()
    }

    fn check_hole(&self, _file: &PlacedFile, _index: u16, _position: u64) -> Result<()> {
        Ok(())
    }

    fn cut_back(&self, _surplus: &Surplus) -> Result<()> {
        panic!("no server of this scenario fails")
    }

    fn alone(&self) -> Result<Infallible> {
        Err(Error::Elsewhere)
    }

    fn sender(&self) -> Sender {
        Sender::this_process(Way::Preload)
    }
}

fn draw_layout() -> Layout {
    let (first, servers) = [(0, 2), (0, 1), (1, 1)][thread_rng().gen_range(0..3)];
    layout(first, servers)
}

/// Moves the file, unless it has a writer, or as often as not one comes.
fn try_to_move(inode: &Arc<Inode>, layout: &Layout) {
    match inode.move_watched(layout, NAME, thread_rng().gen_bool(0.5), &mut |_, _| rests()) {
        Ok(_) => {}
        Err(error) if matches!(error.cause(), Error::Busy { .. }) => {}
        Err(error) => panic!("a move: {error}"),
    }
}

/// What readers may count on.
#[derive(Default)]
struct Published {
    /// All bytes are of this version or a later one,
    version: AtomicU8,
    /// unless the file was cut meanwhile.
    cuts: AtomicU8,
}

impl Published {
    fn check(&self, read: impl FnOnce(&mut [u8]) -> usize) {
        let cuts = self.cuts.load(Ordering::SeqCst);
        let version = self.version.load(Ordering::SeqCst);
        let mut bytes = [0xff; BYTES];
        let count = read(&mut bytes);
        if self.cuts.load(Ordering::SeqCst) == cuts && version > 0 {
            assert_eq!(count, BYTES, "a file is shorter than it was before");
            assert!(bytes.iter().all(|byte| *byte >= version), "bytes from before version {version}: {bytes:?}");
        }
    }
}

/// The file moves, is cut and written again, under one reader through the mount and two past it.
///
/// # Panics
/// A reader fails, or reads what was no longer the file's when it began.
pub fn readers_of_a_file_that_changes(pool: &TestPool) {
    let file = TestFile::make(pool, &draw_layout(), 2);
    file.fill(&[1; BYTES]);
    let published = Arc::new(Published::default());
    published.version.store(1, Ordering::SeqCst);
    let past = Past::new(&file.stores[1], &file.inodes[0]);
    // Some have the datafiles open, others will find them gone.
    if thread_rng().gen_bool(0.5) {
        past.read(&mut [0; BYTES]);
    }
    switching(|| {
        let mut threads: Vec<_> = (0..2)
            .map(|_| {
                let (past, published) = (past.clone(), published.clone());
                thread::spawn(move || (0..2).for_each(|_| published.check(|bytes| past.read(bytes))))
            })
            .collect();
        let (inode, watched) = (file.inodes[0].clone(), published.clone());
        threads.push(thread::spawn(move || watched.check(|bytes| read(&inode, bytes))));
        // The tool that moves files is a process of its own.
        let inode = file.inodes[thread_rng().gen_range(0..2)].clone();
        threads.push(thread::spawn(move || changes(&inode, &published)));
        threads.into_iter().for_each(|thread| thread.join().expect("a thread"));
    });
    assert_eq!(file.end(), [3; BYTES]);
}

fn changes(inode: &Arc<Inode>, published: &Published) {
    for version in 2..4 {
        match thread_rng().gen_range(0..4) {
            0 => {
                published.version.store(0, Ordering::SeqCst);
                published.cuts.fetch_add(1, Ordering::SeqCst);
                inode.truncate(thread_rng().gen_range(0..BYTES as u64)).expect("a size");
            }
            _ => try_to_move(inode, &draw_layout()),
        }
        inode.register_writer().expect("a writer");
        write(inode, &[version; BYTES], 0);
        published.version.store(version, Ordering::SeqCst);
        inode.release_writer().expect("released");
    }
}

/// Two processes write past the mount, with placements of before; the first datafiles are made for them, and a
/// third moves the file as soon as it has no writer.
///
/// # Panics
/// A write is lost, or a later reader with an older placement does not see it.
pub fn writers_past_the_mount(pool: &TestPool) {
    let file = TestFile::make(pool, &draw_layout(), 3);
    if thread_rng().gen_bool(0.5) {
        file.fill(&[9; WIDTH as usize]);
    }
    let mount = &file.inodes[0];
    let stripes = 4;
    switching(|| {
        let mut threads: Vec<_> = (1..3)
            .map(|process| {
                let (past, mount) = (Past::new(&file.stores[process], mount), mount.clone());
                thread::spawn(move || {
                    for stripe in (0..stripes).filter(|stripe| stripe % 2 == process - 1) {
                        mount.register_writer().expect("a writer");
                        past.write(&[stripe as u8 + 1; WIDTH as usize], stripe as u64 * WIDTH);
                        let mut bytes = vec![0; (stripe + 1) * WIDTH as usize];
                        assert_eq!(past.read(&mut bytes), bytes.len(), "the file is shorter than what was written");
                        let own = &bytes[stripe * WIDTH as usize..];
                        assert!(own.iter().all(|byte| *byte == stripe as u8 + 1), "a write is lost: {bytes:?}");
                        mount.release_writer().expect("released");
                    }
                })
            })
            .collect();
        let mover = file.inodes[thread_rng().gen_range(0..3)].clone();
        threads.push(thread::spawn(move || (0..2).for_each(|_| try_to_move(&mover, &draw_layout()))));
        threads.into_iter().for_each(|thread| thread.join().expect("a thread"));
    });
    let expected: Vec<u8> = (0..stripes * WIDTH as usize).map(|at| (at / WIDTH as usize) as u8 + 1).collect();
    assert_eq!(file.end(), expected);
}

/// Three processes, one of which goes past the mount, write and append all the time that the file is moved again and again.
///
/// # Panics
/// A write is lost, or does not count at once.
pub fn writers_beside_moves(pool: &TestPool) {
    const RECORD: usize = 5;
    let file = TestFile::make(pool, &draw_layout(), 3);
    let width = WIDTH as usize;
    file.fill(&[9; 3 * WIDTH as usize]);
    let appends = thread_rng().gen_bool(0.5);
    switching(|| {
        let mut threads = Vec::new();
        for stripe in 0..3 {
            let (past, inode) = (Past::new(&file.stores[0], &file.inodes[0]), file.inodes[stripe].clone());
            threads.push(thread::spawn(move || {
                inode.register_writer().expect("a writer");
                for round in 1..3 {
                    let young = [10 * round + stripe as u8; WIDTH as usize];
                    match stripe {
                        0 => past.write(&young, 0),
                        2 if appends => assert_eq!(inode.append(&[7; RECORD]).expect("appended").1, RECORD),
                        _ => write(&inode, &young, (stripe * width) as u64),
                    }
                    let mut bytes = [0; 3 * WIDTH as usize];
                    assert_eq!(read(&inode, &mut bytes), 3 * width, "the file is shorter than it was");
                    let is_own = bytes[stripe * width..][..width].iter().all(|byte| *byte == young[0]);
                    assert!(is_own || (stripe == 2 && appends), "a write is lost: {bytes:?}");
                }
                inode.release_writer().expect("released");
            }));
        }
        // It reads the places again for the writer of its process.
        let reader = file.inodes[thread_rng().gen_range(0..3)].clone();
        threads.push(thread::spawn(move || {
            (0..3).for_each(|_| assert!(read(&reader, &mut [0; 3 * WIDTH as usize]) > 0, "the file is empty"));
        }));
        let mover = file.inodes[thread_rng().gen_range(0..3)].clone();
        threads.push(thread::spawn(move || (0..2).for_each(|_| try_to_move(&mover, &draw_layout()))));
        threads.into_iter().for_each(|thread| thread.join().expect("a thread"));
    });
    let last = if appends { [20, 21, 9] } else { [20, 21, 22] };
    let mut expected: Vec<u8> = last.iter().flat_map(|byte| [*byte; WIDTH as usize]).collect();
    expected.extend(vec![7; if appends { 2 * RECORD } else { 0 }]);
    assert_eq!(file.end(), expected);
}

/// Bytes come to where there was a hole, which a holder of an older placement takes for one no longer.
///
/// # Panics
/// It does.
pub fn readers_of_a_hole_that_is_filled(pool: &TestPool) {
    let file = TestFile::make(pool, &layout(0, 3), 2);
    file.inodes[0].truncate(BYTES as u64).expect("a size");
    let published = Arc::new(Published::default());
    switching(|| {
        let past = Past::new(&file.stores[1], &file.inodes[0]);
        let mut threads: Vec<_> = (0..2)
            .map(|_| {
                let (past, published) = (past.clone(), published.clone());
                thread::spawn(move || (0..2).for_each(|_| published.check(|bytes| past.read(bytes))))
            })
            .collect();
        let (inode, published) = (file.inodes[thread_rng().gen_range(0..2)].clone(), published.clone());
        threads.push(thread::spawn(move || {
            inode.register_writer().expect("a writer");
            // One datafile after the other.
            let width = WIDTH as usize;
            (0..BYTES).step_by(width).for_each(|at| write(&inode, &[1; BYTES][at..BYTES.min(at + width)], at as u64));
            published.version.store(1, Ordering::SeqCst);
            inode.release_writer().expect("released");
        }));
        threads.into_iter().for_each(|thread| thread.join().expect("a thread"));
    });
    assert_eq!(file.end(), [1; BYTES]);
}

/// While the file is moved again and again, one process sets its times and another its mode; at times a third is a writer that writes
/// nothing.
///
/// # Panics
/// A time or a mode is lost.
pub fn times_and_modes_beside_moves(pool: &TestPool) {
    const MODES: [u32; 3] = [0o600, 0o644, 0o660];
    let draw = || if thread_rng().gen_bool(0.3) { small() } else { draw_layout() };
    let file = TestFile::make(pool, &draw(), 3);
    file.fill(&[1; BYTES]);
    let fd = Arc::new(file.descriptor().try_clone_to_owned().expect("a descriptor"));
    switching(|| {
        let mut threads = Vec::new();
        let inode = file.inodes[0].clone();
        // Also such as are before the last write, which a time that was read before would hide.
        threads.push(thread::spawn(move || {
            for tv_sec in [1_000_000_000, 500_000_000] {
                let time = Timespec { tv_sec, tv_nsec: 0 };
                inode.set_times(&Timestamps { last_access: time, last_modification: time }).expect("the time");
                assert_eq!(inode.attributes().expect("attributes").mtime, time, "a time is lost");
            }
        }));
        let inode = file.inodes[1].clone();
        let fd = fd.clone();
        threads.push(thread::spawn(move || {
            let (first, last) = (thread_rng().gen_range(0..3), thread_rng().gen_range(0..3));
            for mode in [MODES[first], MODES[last]] {
                let set = |mode| stripewise_switching::fs::fchmod(&*fd, Mode::from_raw_mode(mode));
                inode.change_mode(Some(mode), || set(mode), || set(0o600)).expect("the mode");
            }
        }));
        if thread_rng().gen_bool(0.5) {
            let inode = file.inodes[2].clone();
            threads.push(thread::spawn(move || {
                inode.register_writer().expect("a writer");
                inode.release_writer().expect("released");
            }));
        }
        let mover = file.inodes[2].clone();
        let layouts = [draw(), draw()];
        threads.push(thread::spawn(move || layouts.iter().for_each(|layout| try_to_move(&mover, layout))));
        threads.into_iter().for_each(|thread| thread.join().expect("a thread"));
    });
    let stat = rustix::fs::fstat(file.descriptor()).expect("attributes");
    assert_eq!(
        (file.inodes[0].attributes().expect("attributes").mtime.tv_sec, stat.st_mtime, stat.st_atime),
        (500_000_000, 500_000_000, 500_000_000),
        "a time is lost"
    );
    file.assert_rights();
    assert_eq!(file.end(), [1; BYTES]);
}
