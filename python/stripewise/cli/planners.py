"""`stripewise planners`."""

from __future__ import annotations

from typing import Annotated

import typer

from stripewise.api.plan import planners as known_planners
from stripewise.cli import console


def planners(as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False) -> None:
    """List the planners: what each makes of a trace, and where it comes from.

    `plan` and `optimize` take their names with --planner.

    \b
    Examples:
      stripewise planners
      stripewise planners --json
    """
    known = known_planners()
    if as_json:
        console.document(known)
        return
    grid = console.table(["planner", "what it does", "source"])
    for planner in known:
        grid.add_row(planner["name"], planner["summary"], planner["source"])
    console.out.print(grid)
