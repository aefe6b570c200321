"""What commands that advise on logs take: the servers that only a log shows, which files, which planner."""

from pathlib import Path
from typing import Annotated

import typer

ServersOption = Annotated[
    Path | None,
    typer.Option(
        "--cluster",
        metavar="C.toml",
        help="The servers: a cluster file or a pool file; else those that the log's Lustre layouts show.",
    ),
]
PresetOption = Annotated[
    str, typer.Option("--preset", metavar="NAME", help="What servers that only the log shows are taken for.")
]
PRESET = "hdd-7200"
RootOption = Annotated[
    Path | None,
    typer.Option(
        "--root",
        metavar="DIR",
        help="Only files below it; paths in the layout are relative to it. A pool's mount, else what all share.",
    ),
]
PlannerOption = Annotated[
    str | None,
    typer.Option("--planner", metavar="NAME", help="The planner: a name of `stripewise planners`; auto for few files."),
]
