"""Gets the bytes of a pool back with nothing but Python: the whole of docs/format.md in one short script.

    python3 recover.py POOL.toml DESTINATION

Stop everything that uses the pool first. Files are written to DESTINATION; the pool is only read. What cannot be read
is named, the rest goes on, and the exit code is 1.
"""

import os
import stat
import struct
import sys
import tomllib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

Regions = list[tuple[int, list[tuple[int, int]]]]
"""Offset, and the round as (server, width), of each region."""

META = 0xFFFF
END = 1 << 63
PIECE = 1 << 20


class Stripe(NamedTuple):
    """One server's part of the rounds of a region [start, end), or of what is left of one in its place."""

    start: int
    end: int
    origin: int
    """From where the places in the datafile count."""
    first: int
    """Where the stripe begins in its round."""
    width: int
    length: int
    """Of the round."""


class Handle(NamedTuple):
    """What the inode says about where the bytes are."""

    logical: int
    layout: str
    generations: list[tuple[int, int, int | None]]
    """(offset, generation, origin): which generation has the bytes from there on, and where their places count from."""
    present: bytes
    """A bit for each datafile, in order of first appearance in the layout."""
    truncating_to: int
    """No byte from here on is the file's."""


def varints(data: bytes) -> Iterator[int]:
    """The LEB128 numbers of a layout after its version byte."""
    number = shift = 0
    for byte in data:
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            yield number
            number = shift = 0


def read_layout(data: bytes) -> Regions:
    """The layout in its binary form."""
    if data[0] != 1:
        raise ValueError(f"layout of form {data[0]}, this script reads form 1")
    numbers = varints(data[1:])
    rounds = []
    for _ in range(next(numbers)):
        stripes = []
        for _ in range(next(numbers)):
            first, servers, width = next(numbers), next(numbers), next(numbers)
            stripes += [(first + i, width) for i in range(servers)]
        rounds.append(stripes)
    regions, offset = [], 0
    for _ in range(next(numbers)):
        offset += next(numbers)
        regions.append((offset, rounds[next(numbers)]))
    return regions


def read_handle(data: bytes) -> Handle:
    """The handle of a file."""
    if data[:4] != b"SWEH" or data[4] != 1:
        raise ValueError("its handle is damaged, or of a later format than 1")
    logical, _inode, _version, types = struct.unpack_from(">QQII", data, 6)
    at = 30 + 8 * types.bit_count()
    layout = data[at : at + 32].hex()
    (count,) = struct.unpack_from(">H", data, at + 32)
    at += 34
    generations = []
    for _ in range(count):
        offset, generation = struct.unpack_from(">QI", data, at)
        has_origin = offset >> 63
        origin = struct.unpack_from(">Q", data, at + 12)[0] if has_origin else None
        generations.append((offset % END, generation, origin))
        at += 20 if has_origin else 12
    (length,) = struct.unpack_from(">H", data, at)
    present = data[at + 2 : at + 2 + length]
    truncating_to = struct.unpack_from(">Q", data, at + 2 + length)[0] if data[5] & 1 else END
    return Handle(logical, layout, generations, present, truncating_to)


def parts_of(regions: Regions, handle: Handle) -> Iterator[tuple[int, int, int, int, list[tuple[int, int]]]]:
    """Start, end, origin, generation and round: the regions, cut where a generation begins within one."""
    starts = {start for start, _ in regions} | {offset for offset, _, _ in handle.generations}
    for start, end in zip(sorted(starts), [*sorted(starts)[1:], END], strict=True):
        stripes = [stripes for offset, stripes in regions if offset <= start][-1]
        _, generation, origin = [entry for entry in handle.generations if entry[0] <= start][-1]
        yield start, end, start if origin is None else origin, generation, stripes


def before(offset: int, stripe: Stripe) -> int:
    """Bytes of [0, offset) on the stripe."""
    into = min(max(offset % stripe.length - stripe.first, 0), stripe.width)
    return offset // stripe.length * stripe.width + into


def place(offset: int, stripe: Stripe) -> int:
    """Where the byte at `offset` of the file stands in the datafile."""
    return stripe.origin + before(offset, stripe) - before(stripe.origin, stripe)


def reach(size: int, stripe: Stripe) -> int:
    """Where the file ends at least, if the datafile of this stripe is `size` bytes long."""
    held = min(size, place(stripe.end, stripe)) - place(stripe.start, stripe)
    last = before(stripe.start, stripe) + held - 1
    return last // stripe.width * stripe.length + stripe.first + last % stripe.width + 1 if held > 0 else 0


def recover(inode: Path, servers: list[Path], layouts: Path, out: BinaryIO) -> None:
    """Writes the bytes of the file at `inode` to the open file `out`."""
    handle = read_handle(os.getxattr(inode, "user.stripewise"))
    owner, size = inode.stat().st_uid, inode.stat().st_size
    # In a shared pool the copy of another user may be gone or worth nothing, and there is one of root's or the owner's.
    copies = [copy for copy in sorted(layouts.glob(f"{handle.layout}.*")) if copy.stat().st_uid in (0, owner)]
    regions = read_layout([*copies, layouts / handle.layout][0].read_bytes())
    table: list[tuple[int, int]] = []
    parts = []
    for start, end, origin, generation, stripes in parts_of(regions, handle):
        length = sum(width for _, width in stripes)
        position = 0
        for server, width in stripes:
            stripe = Stripe(start, end, origin, position, width, length)
            position += width
            if server == META:
                parts.append((inode, stripe))
                continue
            if (server, generation) not in table:
                table.append((server, generation))
            index = table.index((server, generation))
            if index // 8 >= len(handle.present) or not handle.present[index // 8] >> index % 8 & 1:
                continue  # never written: a hole, whatever stands under its name
            name = f"{handle.logical & 0xFF:02x}/{handle.logical:016x}.{generation:08x}"
            datafile = servers[server] / name
            if datafile.is_symlink() or datafile.stat().st_uid != owner:
                raise ValueError(f"{datafile} is not its owner's: the handle may name another user's bytes")
            # Who wrote it may have been killed before the inode had its size.
            size = max(size, reach(datafile.stat().st_size, stripe))
            parts.append((datafile, stripe))
    size = min(size, handle.truncating_to)
    for datafile, stripe in parts:
        copy(datafile, stripe._replace(end=min(stripe.end, size)), out)
    out.truncate(size)


def copy(datafile: Path, stripe: Stripe, out: BinaryIO) -> None:
    """Writes the bytes that a stripe has; zeros are left out, as holes."""
    start, end, _, first, width, length = stripe
    with datafile.open("rb") as source:
        for turn in range(start // length * length + first, end, length):
            a, b = max(turn, start), min(turn + width, end)
            for at in range(a, b, PIECE):
                source.seek(place(at, stripe))
                piece = source.read(min(PIECE, b - at))
                if piece.strip(b"\0"):
                    out.seek(at)
                    out.write(piece)
                if not piece:
                    return  # nothing but holes behind its end


def servers_of(pool: dict[str, Any], base: Path) -> list[Path]:
    """The servers by number: those that name none are counted in order, in front of those that do."""
    entries = [entry for tier in pool["tier"] for entry in tier["servers"]]
    tables = [entry if isinstance(entry, dict) else {"path": entry} for entry in entries]
    unnamed = iter(range(len(tables)))
    numbered = {table["id"] if "id" in table else next(unnamed): base / table["path"] for table in tables}
    return [numbered[number] for number in range(len(numbered))]


def main() -> None:
    """Walks the names and recovers every file."""
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    pool_file, destination = Path(sys.argv[1]).absolute(), Path(sys.argv[2])
    pool = tomllib.loads(pool_file.read_text())
    namespace = pool_file.parent / pool["namespace"]
    servers = servers_of(pool, pool_file.parent)
    tree, failed = namespace / "tree", False
    known: dict[int, Path] = {}
    waiting = [Path()]
    while waiting:
        directory = waiting.pop()
        try:
            (destination / directory).mkdir(parents=True, exist_ok=True)
            entries = list(os.scandir(tree / directory))
        except OSError as error:  # of a path that is too long, too
            failed = tell(tree / directory, error)
            continue
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                waiting.append(directory / entry.name)
                continue
            inode, target = tree / directory / entry.name, destination / directory / entry.name
            try:
                recover_name(inode, target, known, servers, namespace / "layouts")
            except (OSError, ValueError, LookupError, struct.error) as error:
                failed = tell(inode, error)
    sys.exit(failed)


def tell(path: Path, error: Exception) -> bool:
    """Names what is left out; nothing in a name commands the terminal."""
    print(f"{str(path)!a}: {str(error)!a}", file=sys.stderr)
    return True


def recover_name(inode: Path, target: Path, known: dict[int, Path], servers: list[Path], layouts: Path) -> None:
    """Makes `target` what `inode` is: a file or a symbolic link. FIFOs, sockets and devices are left out."""
    status = inode.lstat()
    if stat.S_ISLNK(status.st_mode):
        return target.symlink_to(inode.readlink())
    if not stat.S_ISREG(status.st_mode):
        return None
    if status.st_ino in known:
        return target.hardlink_to(known[status.st_ino])
    try:
        with target.open("wb") as out:
            if "user.stripewise" in os.listxattr(inode):
                recover(inode, servers, layouts, out)
            else:
                copy(inode, Stripe(0, status.st_size, 0, 0, PIECE, PIECE), out)
                out.truncate(status.st_size)
    except (OSError, ValueError, LookupError, struct.error):
        with suppress(OSError):  # its name may be too long
            target.unlink()
        raise
    target.chmod(stat.S_IMODE(status.st_mode))
    os.utime(target, ns=(status.st_atime_ns, status.st_mtime_ns))
    known[status.st_ino] = target
    return None


if __name__ == "__main__":
    main()
