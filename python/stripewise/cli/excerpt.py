"""`--file`, `--rank` and `--app`: a part of a log, as the commands that look at logs take it."""

from typing import Annotated

import typer

FileOption = Annotated[
    list[str] | None,
    typer.Option("--file", "-f", metavar="PATTERN", help="Only these files: a path, its end, or a pattern with *."),
]
RankOption = Annotated[list[int] | None, typer.Option("--rank", "-r", metavar="N", min=0, help="Only this rank.")]
AppOption = Annotated[
    list[str] | None,
    typer.Option("--app", metavar="NAME", help="Only this program: its name, or a pattern with *."),
]


def options(file: list[str] | None, rank: list[int] | None, app: list[str] | None) -> list[str]:
    """The options again, as words of a command."""
    words = [("--file", value) for value in file or ()]
    words += [("--rank", str(value)) for value in rank or ()]
    words += [("--app", value) for value in app or ()]
    return [word for pair in words for word in pair]
