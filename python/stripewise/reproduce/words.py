"""Results as words, the same in the terminal, in HTML and in Markdown."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from stripewise.reproduce.experiment import Result, Row, Sample

HEADINGS = ("figure", "the paper", "simulated", "measured", "simulated as measured", "ours and the paper's")


def number(value: float, unit: str) -> str:
    """`+61 %`, `3.54 x`, `142 MiB/s`."""
    if unit == "%":
        return f"{value:+.0f} %" if abs(value) >= 10 else f"{value:+.1f} %"
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 20 else 2
    return f"{value:.{digits}f} {unit}".rstrip()


def of(value: float | str | None, unit: str) -> str:
    """A figure or its words; nothing where there is none."""
    if value is None:
        return ""
    return value if isinstance(value, str) else number(value, unit)


def sample(value: Sample | str | None, unit: str) -> str:
    """`+58 % (+57 to +60)`."""
    if not isinstance(value, Sample):
        return value or ""
    if value.runs == 1:
        return f"{number(value.median, unit)} (one run)"
    low, high = (number(bound, unit).removesuffix(unit).strip() for bound in (value.low, value.high))
    return f"{number(value.median, unit)} ({low} to {high})"


def paper(row: Row) -> str:
    """With the digits that the paper has."""
    if isinstance(row.paper, float | int):
        return f"{row.paper:+g} %" if row.unit == "%" else f"{row.paper:g} {row.unit}"
    return row.paper or ""


def cells_of(row: Row) -> tuple[str, ...]:
    """One for each of `HEADINGS`."""
    return (
        row.what,
        paper(row),
        of(row.simulated, row.unit),
        sample(row.measured, row.unit),
        of(row.expected, row.unit),
        row.why,
    )


def used(result: Result) -> list[int]:
    """Numbers of the columns that any row has something in."""
    rows = [cells_of(row) for row in result.rows]
    return [number for number in range(len(HEADINGS)) if any(row[number] for row in rows)]


def remarks(result: Result) -> list[str]:
    """What is said below the table."""
    return [*(f"INVALID, no figure: {text}" for text in result.invalid), *result.remarks]


def as_json(result: Result) -> dict[str, Any]:
    """Everything, for programs."""
    experiment = result.experiment
    return {
        "name": experiment.name,
        "paper": experiment.paper,
        "figure": experiment.figure,
        "title": experiment.title,
        "axis": result.axis,
        "seconds": round(result.seconds, 1),
        "setup": result.setup,
        "rows": [asdict(row) for row in result.rows],
        "cells": [asdict(cell) for cell in result.cells],
        "remarks": result.remarks,
        "invalid": result.invalid,
    }
