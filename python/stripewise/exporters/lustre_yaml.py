"""Templates of `lfs setstripe --yaml`: written, and read as `lfs` reads them (a flat walk over keys in order)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from stripewise.exporters.exporter import RefusedError
from stripewise.exporters.lustre_layout import Component


def write(components: Sequence[Component]) -> str:
    """The template, in the form of `component0:` that all versions read.

    Raises `RefusedError` for lists of OSTs: `lfs` keeps those of neighbouring components in one place, where the later
    overwrites the earlier, and for pools that it would read as a number.
    """
    for component in components:
        if component.osts:
            raise RefusedError("a list of OSTs cannot be told safely in YAML: leave out --yaml, or the --targets")
        if component.pool is not None and not re.match(r"[A-Za-z_]", component.pool):
            raise RefusedError(f"pool {component.pool!r} begins as a number does, which YAML templates take it for")
        if component.pool in ("null", "true", "True", "false", "False"):
            raise RefusedError(f"pool {component.pool!r} is no text in a YAML template")
    if len(components) == 1:
        return "".join(f"{key}: {value}\n" for key, value in _stripes(components[0]))
    lines = []
    for number, component in enumerate(components):
        lines += [
            f"component{number}:",
            f"  lcme_id: {number + 1}",
            f"  lcme_extent.e_start: {component.start}",
            f"  lcme_extent.e_end: {'EOF' if component.end is None else component.end}",
            "  sub_layout:",
            *(f"    {key}: {value}" for key, value in _stripes(component)),
        ]
    return "\n".join(lines) + "\n"


def _stripes(component: Component) -> list[tuple[str, Any]]:
    keys: list[tuple[str, Any]] = [
        ("lmm_stripe_count", component.count),
        ("lmm_stripe_size", component.unit),
        ("lmm_pattern", "mdt" if component.is_mdt else "raid0"),
    ]
    return keys if component.pool is None else [*keys, ("lmm_pool", component.pool)]


def read(text: str) -> tuple[Component, ...]:
    """The components of a template.

    Raises `RefusedError` where `lfs` would not take it.
    """
    blocks: list[dict[str, str]] = [{}]
    for line in text.splitlines():
        key, separator, value = line.strip().partition(":")
        if not separator:
            raise RefusedError(f"{line!r} is no line of a template")
        value = value.strip()
        # A component begins at its id once there is a stripe count to close the one before.
        if key == "lcme_id" and "stripe_count" in blocks[-1]:
            blocks.append({})
        if value:
            blocks[-1][key.removeprefix("lmm_")] = value
    start = 0
    components = []
    for block in blocks:
        if not int(block.get("stripe_size", "0")) or "stripe_count" not in block:
            raise RefusedError("every component of a template needs a stripe_count and a stripe_size")
        if int(block.get("lcme_extent.e_start", "0")) != start:
            raise RefusedError("components of a template follow each other")
        text_end = block.get("lcme_extent.e_end", "EOF")
        end = None if text_end in ("EOF", "eof", "-1") else int(text_end)
        is_mdt = block.get("pattern") == "mdt"
        pool = block.get("pool")
        size, count = int(block["stripe_size"]), int(block["stripe_count"])
        components.append(Component(start, end, size, count, pool, (), is_mdt))
        start = end if end is not None else start
    return tuple(components)
