"""Options of `lfs setstripe` and `lfs migrate`: written, and read as `lfs` reads them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from stripewise.exporters.exporter import KIB64, RefusedError
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


def read(options: Sequence[str]) -> tuple[Component, ...]:
    """The components that `lfs` makes of its options, with what a component inherits from the one before.

    Raises `RefusedError` for what it does not take.
    """
    components: list[Component] = []
    inherited: dict[str, str] = {}
    start = 0
    for end, given in _components(options):
        is_mdt = given.get("-L") == "mdt"
        if is_mdt and set(given) != {"-L"}:
            raise RefusedError("-L mdt stands with no other option")
        values = {**inherited, **given}
        osts = tuple(_osts(values["-o"])) if "-o" in given else ()
        unit = end if is_mdt else _bytes(values.get("-S", ""))
        if unit is None or unit % KIB64 or (end is not None and end % KIB64):
            raise RefusedError("-S and -E are multiples of 64KiB")
        pool = None if is_mdt else values.get("-p")
        count = 0 if is_mdt else int(values.get("-c", "1"))
        if osts and "-c" in values and count != len(osts):
            raise RefusedError(f"stripe_count({count}) != nr_tgts({len(osts)})")
        components.append(Component(start, end, unit, count, None if pool == "ignore" else pool, osts, is_mdt))
        inherited = {} if is_mdt else {key: value for key, value in values.items() if key in ("-S", "-c", "-p")}
        start = end if end is not None else start
    return tuple(components)


def _components(options: Sequence[str]) -> Iterator[tuple[int | None, dict[str, str]]]:
    """End and own options of each component."""
    given: dict[str, str] = {}
    end: int | None = None
    ends = 0
    rest = iter(options)
    for option, value in zip(rest, rest, strict=True):
        if option not in ("-E", "-L", "-c", "-S", "-o", "-p"):
            raise RefusedError(f"lfs setstripe: {option} is not known here")
        if option == "-E":
            if ends:
                yield end, given
            elif given:
                raise RefusedError("-E stands before the options of its component")
            ends, end, given = ends + 1, None if value == "eof" else _bytes(value), {}
        else:
            given[option] = value
    yield end, given


def _osts(text: str) -> list[int]:
    return [int(index) for index in text.split(",")]


def size(count: int) -> str:
    """With the largest suffix that leaves a whole number: `64K`, `1G`."""
    suffix = max(
        (suffix for suffix, shift in _SUFFIXES.items() if count % (1 << shift) == 0), key=_SUFFIXES.__getitem__
    )
    return f"{count >> _SUFFIXES[suffix]}{suffix}"


def _bytes(text: str) -> int:
    """As `llapi_parse_size`, and as `lfs` takes small numbers."""
    match = re.fullmatch(r"(\d+)([KMGTPE]?)", text)
    if match is None:
        raise RefusedError(f"{text!r} is no size")
    count = int(match[1]) << _SUFFIXES[match[2]]
    return count * 1024 if count < 4096 else count
