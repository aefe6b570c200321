"""The namespace of a pool, which has the names of all files: where its disk goes, no file is found."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from stripewise._native import StripewiseError
from stripewise.api import swaps

if TYPE_CHECKING:
    from stripewise.pool import Pool

__all__ = ["names_stay"]


@contextmanager
def names_stay(pool: Pool) -> Iterator[None]:
    """Raises `StripewiseError` where the names of the files have gone by the end: what is not found has not moved."""
    yield
    if not os.path.lexists(pool.namespace / swaps.MARKER):
        raise StripewiseError(
            f"the namespace {pool.namespace} of pool '{pool.name}' has gone while files moved: what has moved has "
            f"moved, and what else there is cannot be told; mount its disk, and the same command goes on"
        )
