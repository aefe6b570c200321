"""Options of `lfs setstripe` and `lfs migrate`."""

from __future__ import annotations

from collections.abc import Sequence

from stripewise.exporters.lustre_layout import Component

_SUFFIXES = {"": 0, "K": 10, "M": 20, "G": 30, "T": 40, "P": 50, "E": 60}


def write(components: Sequence[Component]) -> list[str]:
    """The options. Sizes always have a suffix: a number below 4096 without one is read as KiB."""
    options: list[str] = []
    pool: str | None = None
    is_plain = len(components) == 1
    for component in components:
        if not is_plain:
            options += ["-E", "eof" if component.end is None else size(component.end)]
        if component.is_mdt:
            options += ["-L", "mdt"]
            continue
        # All of them every time: what is left out is inherited from the component before.
        options += ["-c", str(component.count), "-S", size(component.unit)]
        if component.osts:
            options += ["-o", ",".join(map(str, component.osts))]
        if component.pool is not None:
            options += ["-p", component.pool]
        elif pool is not None or component.osts:
            options += ["-p", "ignore"]
        pool = component.pool
    return options


def size(count: int) -> str:
    """With the largest suffix that leaves a whole number: `64K`, `1G`."""
    suffix = max(
        (suffix for suffix, shift in _SUFFIXES.items() if count % (1 << shift) == 0), key=_SUFFIXES.__getitem__
    )
    return f"{count >> _SUFFIXES[suffix]}{suffix}"
