"""`stripewise reproduce`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stripewise.cli import console

if TYPE_CHECKING:
    from stripewise.api.reproducing import Result


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
    from stripewise.api import reproducing

    if listed:
        _list()
        return
    made = reproducing.reproduce(
        names or [],
        output,
        simulate_only=simulate_only,
        quick=quick,
        seed=seed,
        directory=directory,
        plots=plots,
        say=console.say,
        done=(lambda _: None) if as_json else _print,
    )
    if made is None:
        console.fail("name an experiment, or all; --list shows them", console.EXIT_USAGE)
    file, results = made
    if as_json:
        console.document({"seed": seed, "quick": quick, "results": results})
    console.say(f"wrote {file}")


def _list() -> None:
    from stripewise.api import reproducing

    grid = console.table(["name", "paper", "figure", "measured", "what"])
    for experiment in reproducing.experiments:
        measured = "emulated" if experiment.emulated else ""
        grid.add_row(experiment.name, experiment.paper, experiment.figure, measured, experiment.title)
    console.out.print(grid)


def _print(result: Result) -> None:
    from stripewise.api import reproducing

    experiment = result.experiment
    console.result(f"{experiment.name}: {experiment.paper}, {experiment.figure}: {experiment.title}")
    for line in result.setup:
        console.result(f"  {line}")
    headings, rows = reproducing.table(result)
    grid = console.table(headings, right=headings[1:])
    for cells in rows:
        grid.add_row(*cells)
    console.out.print(grid)
    for row in result.rows:
        if row.why:
            console.result(f"  {row.what}: {row.why}")
    for line in reproducing.remarks(result):
        console.result(f"  {line}")
    console.result(f"  ({result.seconds:.0f} s)\n")
