"""Templates of `lfs setstripe --yaml`, which `lfs` reads by a flat walk over keys in order."""

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
