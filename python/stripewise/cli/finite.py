"""Options that take a number: what is none, or has no end, is refused before a command begins."""

from __future__ import annotations

import math

import typer

__all__ = ["finite"]


def finite(value: float | None) -> float | None:
    """The number of an option, for its `callback`: every option that takes a `float` has it.

    Raises `typer.BadParameter` for `nan` and `inf`: no bound of an option refuses the one, and few the other.
    """
    if value is not None and not math.isfinite(value):
        raise typer.BadParameter(f"{value} is no finite number: write one in digits, such as 10 or 0.5")
    return value
