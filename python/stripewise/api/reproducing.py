"""The papers' experiments, done again: which there are, running them, and the document of their results."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from stripewise._native import __version__
from stripewise.reproduce import document, measure, papers, words
from stripewise.reproduce.experiment import Context, Experiment, Result

__all__ = ["Experiment", "Result", "experiments", "remarks", "reproduce", "table"]

experiments = papers.EXPERIMENTS
remarks = words.remarks


def reproduce(
    chosen: Sequence[str],
    output: Path,
    *,
    simulate_only: bool = False,
    quick: bool = False,
    seed: int = 1,
    directory: Path | None = None,
    plots: bool = True,
    say: Callable[[str], None],
    done: Callable[[Result], None],
) -> tuple[Path, list[dict[str, Any]]] | None:
    """Runs the experiments of these names (`all` is every one), and writes their document into the directory `output`.

    `say` is told what is being done; `done` is called with each result. The document's path and the results for JSON;
    `None` where no experiment is named. Raises `StripewiseError` for an unknown name.
    """
    named = papers.named(chosen)
    if not named:
        return None
    if plots:
        from stripewise.reproduce import plot
    pages = []
    began = time.strftime("%Y-%m-%d %H:%M")
    with measure.directory(directory) as made:
        context = Context(made, say, simulate_only, quick, seed)
        for experiment in named:
            start = time.monotonic()
            result = experiment.run(experiment, context)
            result.seconds = time.monotonic() - start
            svg = plot.svg(plot.chart(result)) if plots else None
            pages.append(document.Page(result, svg))
            done(result)
    head = [
        f"Made on {began} by stripewise {__version__} with seed {seed} on {platform.system()} {platform.release()}, "
        f"{os.cpu_count()} processors."
    ]
    if quick:
        head.append("QUICK: 1/256 of the bytes and single runs; these are no figures to quote.")
    return document.write(output, pages, head), [words.as_json(page.result) for page in pages]


def table(result: Result) -> tuple[list[str], list[list[str]]]:
    """Headings and rows of a result, without the column of reasons."""
    columns = [column for column in words.used(result) if column != len(words.HEADINGS) - 1]
    rows = [[cells[column] for column in columns] for cells in map(words.cells_of, result.rows)]
    return [words.HEADINGS[column] for column in columns], rows
