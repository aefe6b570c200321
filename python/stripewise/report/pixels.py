"""Heat maps as small images: one pixel a cell."""

from __future__ import annotations

import struct
import zlib
from typing import Any

import numpy as np
import numpy.typing as npt

READ, WRITTEN = (47, 129, 247), (219, 109, 40)
"""Blue and orange: also told apart by the colour-blind, and clear on white and on black."""

Plane = npt.NDArray[np.unsignedinteger[Any]]


def png(reads: Plane, writes: Plane) -> bytes:
    """Rows x columns of amounts, first row at the bottom: hue by the share of reads, the fuller the more.

    Where nothing happened the image is clear, so it is right on any background. Fullness goes by the square root: a
    cell with a hundredth of the most is still seen.
    """
    total = reads.astype(np.float64) + writes
    most = total.max(initial=0.0)
    share = np.divide(reads, total, out=np.zeros_like(total), where=total > 0)[..., None]
    colour = share * np.array(READ) + (1 - share) * np.array(WRITTEN)
    fullness = np.where(total > 0, 0.3 + 0.7 * np.sqrt(total / most if most else total), 0.0)[..., None]
    pixels = np.rint(np.concatenate([colour, fullness * 255], axis=2)).astype(np.uint8)[::-1]
    height, width, _ = pixels.shape
    # Each row begins with the number of its filter: none.
    rows = np.zeros((height, 1 + 4 * width), np.uint8)
    rows[:, 1:] = pixels.reshape(height, 4 * width)
    header = struct.pack(">IIBBBBB", width, height, 8, 6, 0, 0, 0)
    chunks = (_chunk(b"IHDR", header), _chunk(b"IDAT", zlib.compress(rows.tobytes(), 9)), _chunk(b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def coarse(plane: Plane, rows: int, columns: int) -> Plane:
    """The same amounts in at most `rows` x `columns` cells, for a table."""

    def starts(length: int, most: int) -> npt.NDArray[np.intp]:
        return np.arange(0, length, -(-length // most))

    by_row = np.add.reduceat(plane, starts(plane.shape[0], rows), axis=0)
    summed: Plane = np.add.reduceat(by_row, starts(plane.shape[1], columns), axis=1)
    return summed


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
