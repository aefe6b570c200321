"""Which file of which pool a path is: by its mount, by the pool's own directories, by the pool file beside it."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from stripewise import mounts
from stripewise._native import StripewiseError
from stripewise.pool import Pool

TREE = "tree"
"""The directory of the names, in a pool's namespace."""


@dataclass(frozen=True)
class Place:
    """A path in a pool."""

    pool: Pool
    name: str
    """Relative to the pool's mount; `.` is the mount itself."""


def of(path: Path) -> Place:
    """The place of `path` in the pool that it is on, of all pools that this machine shows.

    A link is a file of its own where it is on a pool; else it is followed. Raises `StripewiseError` where the path is
    on no pool that is mounted, or whose pool file is in a directory above it.
    """
    place = _on_mount(path) or _in_own_directories(path, _pools_near(path)) or _behind_link(path, of)
    if place is None:
        raise StripewiseError(f"{path} is on no pool: {_known()}; name the pool with --pool if it is one's")
    return place


def within(pool: Pool, path: Path) -> Place:
    """The place of `path` in `pool`: below a mount of it, in its namespace, or relative to its mount.

    Raises `StripewiseError` for an absolute path elsewhere.
    """
    place = _on_mount(path, pool) or _in_own_directories(path, [pool])
    if place is None and path.is_absolute():
        place = _behind_link(path, lambda target: within(pool, target))
        if place is None:
            raise StripewiseError(f"{path} is not below {pool.mount}, the mount of pool '{pool.name}'")
    return place or Place(pool, os.path.normpath(path))


MOST_LINKS = 40
"""One behind the other, as the kernel follows them."""


def followed(place: Place) -> Place:
    """The place that a link of a pool leads to in that pool; the place itself where it is no link.

    Raises `StripewiseError` where it leads out of the pool, or to itself.
    """
    tree, found = place.pool.namespace / TREE, place
    for _ in range(MOST_LINKS):
        link = tree / found.name
        if not os.path.islink(link):  # noqa: PTH114 - what may not be looked at is no link here.
            return found
        target = _real(link)
        if target.is_relative_to(_real(tree)):
            found = Place(place.pool, str(target.relative_to(_real(tree))))
            continue
        try:
            found = within(place.pool, target)
        except StripewiseError:
            raise StripewiseError(
                f"{place.name} is a link to {link.readlink()}, which is not in pool '{place.pool.name}': name what "
                "it leads to"
            ) from None
    raise StripewiseError(f"{place.name} is a link that leads to itself: name a directory or file")


def _on_mount(path: Path, wanted: Pool | None = None) -> Place | None:
    """By the mount that really holds the path; with `wanted`, only a mount of that pool."""
    with _opened(path) as descriptor:
        mount = None if descriptor is None else mounts.holding(descriptor)
        if mount is None or mount.fs_type != mounts.OURS or (wanted is not None and not mount.is_trusted):
            return None
        file = mount.pool_file()
        if wanted is not None and not _is_same_file(wanted.file, file):
            return None
        pool = wanted or Pool.load(file)
        # The kernel's own name of the file: links in the path are resolved, and a bind mount shows a part of the pool.
        below = Path(f"/proc/self/fd/{descriptor}").readlink().relative_to(mount.point)
    return Place(pool, os.path.normpath(Path(mount.root.lstrip("/")) / below))


def _in_own_directories(path: Path, pools: list[Pool]) -> Place | None:
    """By the directories that the pool files name; the pools need not be mounted."""
    names = [Path(os.path.abspath(path)), _real(path)]
    for pool in pools:
        for name in names:
            tree = pool.namespace / TREE
            for directory in (pool.mount, tree, _real(tree)):
                if name.is_relative_to(directory):
                    return Place(pool, str(name.relative_to(directory)))
        for name in names:
            if name.is_relative_to(pool.namespace):
                raise StripewiseError(
                    f"{path} is of the book-keeping of pool '{pool.name}'; its files are below {pool.mount}"
                )
            for server in pool.servers:
                if name.is_relative_to(server.path):
                    raise StripewiseError(
                        f"{path} is of server {server.name} of pool '{pool.name}', not one of its files; those are "
                        f"below {pool.mount}, and `stripewise stat` of one names its datafiles"
                    )
    return None


def _behind_link(path: Path, find: Callable[[Path], Place]) -> Place | None:
    """The place of what a link points at, which itself is on no pool."""
    return find(_real(path)) if path.is_symlink() and _real(path) != Path(os.path.abspath(path)) else None


def _is_same_file(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:
        return False  # The pool file may have been moved since it was mounted.


def _real(path: Path) -> Path:
    return Path(os.path.realpath(path))


@contextmanager
def _opened(path: Path) -> Iterator[int | None]:
    """The file as a place only, a link not followed; `None` where there is none, as its pool may not be mounted.

    Raises `OSError` for a path that is there and cannot be reached.
    """
    try:
        descriptor = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        yield None
        return
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _pools_near(path: Path) -> list[Pool]:
    """The pools of pool files in directories above the path, then those that are mounted."""
    absolute = Path(os.path.abspath(path))
    files = [file for directory in absolute.parents for file in sorted(_toml_files(directory))]
    pools = [pool for file in files if (pool := _loaded(file)) is not None]
    return pools + _mounted_pools()


def _mounted_pools() -> list[Pool]:
    pools = []
    for mount in mounts.ours():
        try:
            pool = _loaded(mount.pool_file())
        except StripewiseError:
            continue  # It is named all the same where a path is on no pool.
        if pool is not None:
            pools.append(pool)
    return pools


def _toml_files(directory: Path) -> list[Path]:
    try:
        return [file for file in directory.glob("*.toml") if file.is_file()]
    except OSError:
        return []  # A directory that may be passed and not be listed.


def _loaded(file: Path) -> Pool | None:
    try:
        return Pool.load(file)
    except StripewiseError:
        return None  # Some other TOML file, or a pool file with a mistake: --pool says which.


def _known() -> str:
    """What pools are mounted, in words."""
    there = [f"'{mount.source}' at {mount.point}" for mount in mounts.ours()]
    if not there:
        return "no pool is mounted"
    return f"{'the pool that is mounted is' if len(there) == 1 else 'mounted are'} {', '.join(there)}"
