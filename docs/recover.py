"""Gets the bytes of a pool back with nothing but Python: the whole of docs/format.md in one short script.

    python3 recover.py POOL.toml DESTINATION

Stop everything that uses the pool first. Files are written to DESTINATION; the pool is only read.
"""

import os
import struct
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

Regions = list[tuple[int, list[tuple[int, int]]]]
"""Offset, and the round as (server, width), of each region."""

META = 0xFFFF


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
        sys.exit(f"layout of form {data[0]}, this script reads form 1")
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


def read_handle(data: bytes) -> tuple[int, str, list[tuple[int, int]]]:
    """Logical handle, layout hash, and [(offset, generation)]: which generation holds the bytes from there on."""
    if data[:4] != b"SWEH" or data[4] != 1:
        sys.exit("not a handle of format 1")
    logical, _inode, _version, types = struct.unpack_from(">QQII", data, 6)
    at = 30 + 8 * types.bit_count()
    layout = data[at : at + 32].hex()
    (count,) = struct.unpack_from(">H", data, at + 32)
    generations = [struct.unpack_from(">QI", data, at + 34 + 12 * i) for i in range(count)]
    return logical, layout, generations


def before(offset: int, first: int, width: int, length: int) -> int:
    """Bytes of [0, offset) on the stripe at `first` in rounds of `length` bytes."""
    return offset // length * width + min(max(offset % length - first, 0), width)


def recover(inode: Path, servers: list[Path], layouts: Path, out: BinaryIO) -> None:
    """Writes the bytes of the file at `inode` to the open file `out`."""
    logical, layout, generations = read_handle(os.getxattr(inode, "user.stripewise"))
    owner, size = inode.stat().st_uid, inode.stat().st_size
    # In a shared pool the copy of another user may be gone or worth nothing, and there is one of root's or the owner's.
    copies = [copy for copy in sorted(layouts.glob(f"{layout}.*")) if copy.stat().st_uid in (0, owner)]
    regions = read_layout([*copies, layouts / layout][0].read_bytes())
    for index, (start, stripes) in enumerate(regions):
        end = min(size, regions[index + 1][0] if index + 1 < len(regions) else size)
        generation = [number for offset, number in generations if offset <= start][-1]
        length = sum(width for _, width in stripes)
        position = 0
        for server, width in stripes:
            if server == META:
                datafile = inode
            else:
                datafile = servers[server] / f"{logical & 0xFF:02x}" / f"{logical:016x}.{generation:08x}"
            stripe = (position, width, length)
            first, position = position, position + width
            if not datafile.exists():
                continue  # never written: a hole
            if server != META and (datafile.is_symlink() or datafile.stat().st_uid != owner):
                sys.exit(f"{inode}: {datafile} is not its owner's: the handle may name another user's bytes")
            with datafile.open("rb") as source:
                for turn in range(start // length * length + first, end, length):
                    a, b = max(turn, start), min(turn + width, end)
                    if a < b:
                        source.seek(start + before(a, *stripe) - before(start, *stripe))
                        out.seek(a)
                        out.write(source.read(b - a))
    out.truncate(size)


def main() -> None:
    """Walks the names and recovers every file."""
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    pool_file, destination = Path(sys.argv[1]).absolute(), Path(sys.argv[2])
    pool = tomllib.loads(pool_file.read_text())
    namespace = pool_file.parent / pool["namespace"]
    servers = [pool_file.parent / root for tier in pool["tier"] for root in tier["servers"]]
    for directory, directories, names in os.walk(namespace / "tree"):
        target = destination / Path(directory).relative_to(namespace / "tree")
        target.mkdir(parents=True, exist_ok=True)
        for name in names + directories:
            inode = Path(directory) / name
            if inode.is_symlink():
                (target / name).symlink_to(inode.readlink())
            if inode.is_symlink() or not inode.is_file():
                continue
            with (target / name).open("wb") as out:
                if "user.stripewise" in os.listxattr(inode):
                    recover(inode, servers, namespace / "layouts", out)
                else:
                    out.write(inode.read_bytes())


if __name__ == "__main__":
    main()
