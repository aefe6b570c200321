"""`stripewise reproduce`."""

from __future__ import annotations

import os
import platform
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stripewise import __version__
from stripewise.cli import console

if TYPE_CHECKING:
    from stripewise.reproduce.experiment import Result


def reproduce(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME", help="Experiments, or all.", show_default=False)
    ] = None,
    listed: Annotated[bool, typer.Option("--list", help="List the experiments.")] = False,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="DIR", help="Where the document and the plots are written.")
    ] = Path("stripewise-reproduce"),
    simulate_only: Annotated[bool, typer.Option("--simulate-only", help="Measure nothing.")] = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="1/256 of the bytes, and one run: does it all run? No figures to quote.")
    ] = False,
    seed: Annotated[
        int,
        typer.Option("--seed", metavar="N", help="Of random offsets and startup times."),
    ] = 1,
    directory: Annotated[
        Path | None,
        typer.Option("--dir", metavar="DIR", help="Make the emulated pools there; in memory, where there is room."),
    ] = None,
    plots: Annotated[bool, typer.Option("--plots/--no-plots", help="Draw the plots.")] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print the results as JSON.")] = False,
) -> None:
    """Do the papers' experiments again: the paper's figure, simulated, and measured where that is possible.

    Simulated is at the paper's own scale, on devices that the output names. Measured is real processes on a pool of
    emulated servers, at a reduced size: five runs of each layout in turn, every byte checked, medians with the least
    and the greatest; a run with an emulation error above 10 % (median) is repeated and in the end gives no figure.
    Where ours differs from the paper's, the table says by how much and what is known of why.

    DIR gets `reproduce.html` with everything in it, `reproduce.md`, and each plot as NAME.svg.

    \b
    Examples:
      stripewise reproduce --list
      stripewise reproduce harl-fig7
      stripewise reproduce song-table2 --simulate-only --json
      stripewise reproduce all -o papers
    """
    # The experiments need numpy and the plots a renderer: not for every other command.
    from stripewise.reproduce import document, measure, papers, words
    from stripewise.reproduce.experiment import Context

    if listed:
        _list()
        return
    chosen = papers.named(names or [])
    if not chosen:
        console.fail("name an experiment, or all; --list shows them", console.EXIT_USAGE)
    if plots:
        from stripewise.reproduce import plot
    pages = []
    began = time.strftime("%Y-%m-%d %H:%M")
    with measure.directory(directory) as made:
        context = Context(made, console.say, simulate_only, quick, seed)
        for experiment in chosen:
            start = time.monotonic()
            result = experiment.run(experiment, context)
            result.seconds = time.monotonic() - start
            svg = plot.svg(plot.chart(result)) if plots else None
            pages.append(document.Page(result, svg))
            if not as_json:
                _print(result)
    head = [
        f"Made on {began} by stripewise {__version__} with seed {seed} on {platform.system()} {platform.release()}, "
        f"{os.cpu_count()} processors."
    ]
    if quick:
        head.append("QUICK: 1/256 of the bytes and single runs; these are no figures to quote.")
    file = document.write(output, pages, head)
    if as_json:
        console.document({"seed": seed, "quick": quick, "results": [words.as_json(p.result) for p in pages]})
    console.say(f"wrote {file}")


def _list() -> None:
    from stripewise.reproduce import papers

    grid = console.table(["name", "paper", "figure", "measured", "what"])
    for experiment in papers.EXPERIMENTS:
        measured = "emulated" if experiment.emulated else ""
        grid.add_row(experiment.name, experiment.paper, experiment.figure, measured, experiment.title)
    console.out.print(grid)


def _print(result: Result) -> None:
    from stripewise.reproduce import words

    experiment = result.experiment
    console.result(f"{experiment.name}: {experiment.paper}, {experiment.figure}: {experiment.title}")
    for line in result.setup:
        console.result(f"  {line}")
    columns = words.used(result)
    why = len(words.HEADINGS) - 1
    headings = [words.HEADINGS[column] for column in columns if column != why]
    grid = console.table(headings, right=headings[1:])
    for row in result.rows:
        cells = words.cells_of(row)
        grid.add_row(*(cells[column] for column in columns if column != why))
    console.out.print(grid)
    for row in result.rows:
        if row.why:
            console.result(f"  {row.what}: {row.why}")
    for line in words.remarks(result):
        console.result(f"  {line}")
    console.result(f"  ({result.seconds:.0f} s)\n")
