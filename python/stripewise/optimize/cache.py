"""The page cache between measured runs on real devices."""

import os
import stat
from pathlib import Path

from stripewise.pool import Pool

DROP_CACHES = Path("/proc/sys/vm/drop_caches")


def drop(pool: Pool) -> str:
    """Empties the page cache of the pool's datafiles and says how.

    Each datafile is synced and dropped with posix_fadvise, which needs no rights beyond reading it; as root the whole
    page cache is dropped as well, which also covers names and small files.
    """
    if all(tier.emulated for tier in pool.tiers):
        return "emulated servers charge every request its time, whatever the page cache holds"
    files = 0
    for tier in pool.tiers:
        if not tier.emulated:
            files += sum(_drop_server(server.path) for server in tier.servers)
    how = f"posix_fadvise(DONTNEED) on {files} datafiles"
    if os.geteuid() == 0:
        try:
            DROP_CACHES.write_text("3\n", encoding="ascii")
            how += " and drop_caches"
        except OSError:
            how += " (drop_caches is not writable here)"
    return f"page cache emptied before each run: {how}"


def _drop_server(directory: Path) -> int:
    count = 0
    for shelf in directory.iterdir():
        for file in shelf.iterdir() if shelf.is_dir() and not shelf.is_symlink() else ():
            try:
                # The owner of the server may have put a FIFO there, which is not waited for.
                descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            except OSError:
                continue  # another user's, or removed since it was listed
            try:
                if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                    continue
                os.fsync(descriptor)
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
                count += 1
            finally:
                os.close(descriptor)
    return count
