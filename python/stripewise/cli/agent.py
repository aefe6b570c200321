"""`stripewise agent`."""

import os
from typing import Annotated

import typer

from stripewise.api import orchestrating


def agent(
    arguments: Annotated[list[str] | None, typer.Argument(metavar="ARGUMENTS", show_default=False)] = None,
) -> None:
    """Let the programs of this node take turns with those of other nodes.

    Everything after `agent` goes to `stripewise-agent`; its own help says what it takes.

    \b
    Examples:
      stripewise agent new-key node17
      stripewise agent join p/pool.toml --orchestrator head:7077 --keys key
    """
    program = str(orchestrating.agent_program())
    os.execv(program, ["stripewise agent", *(arguments or [])])
