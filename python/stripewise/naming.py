"""Names of files that are named alike."""

from __future__ import annotations

import re
from collections.abc import Sequence

_NUMBERS = re.compile("([0-9]+)")


def common_pattern(paths: Sequence[str]) -> str:
    """What paths that differ by numbers alone have in common, with `*` for each number in which they differ."""
    parts = list(zip(*(_NUMBERS.split(path) for path in paths), strict=True))
    return "".join(part[0] if len(set(part)) == 1 else "*" for part in parts)
