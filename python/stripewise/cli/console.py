"""The voice of the command line: results to stdout, everything else to stderr, colour only where it is wanted."""

import json
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import NoReturn

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.table import Table
from rich.text import Text

EXIT_FAILED = 1
"""Something went wrong; the message says what."""
EXIT_USAGE = 2
"""The command line itself is wrong."""
EXIT_TAKEN_BACK = 3
"""`optimize`: the new layout was not faster beyond noise, the old one is back."""
EXIT_INVALID = 4
"""The emulated devices could not keep their times (error above 10 % median): no figure."""
EXIT_NOT_EXECUTABLE = 126
"""The program was found but cannot be executed."""
EXIT_NOT_FOUND = 127
"""The program does not exist."""
EXIT_INTERRUPTED = 130
"""Ended by Ctrl-C."""


def _width(stream_is_terminal: bool) -> int | None:
    """Columns of a table: the terminal's, or as many as it takes: in a file or a pipe nothing is cut or folded."""
    return None if stream_is_terminal else 1000


out = Console(highlight=False, soft_wrap=False, width=_width(sys.stdout.isatty()))
err = Console(stderr=True, highlight=False, soft_wrap=True)


def say(message: str) -> None:
    """Logs one line of what is being done, to stderr."""
    err.print(Text(message))


def warn(message: str) -> None:
    """Logs a warning to stderr."""
    err.print(Text.assemble(("warning", "bold yellow"), ": ", message))


def hint(message: str) -> None:
    """Logs a remedy to stderr."""
    err.print(Text.assemble(("hint", "bold cyan"), ": ", message))


def fail(message: str, code: int = EXIT_FAILED) -> NoReturn:
    """Says what went wrong on stderr and ends the command with `code`."""
    err.print(Text.assemble(("error", "bold red"), ": ", message))
    raise SystemExit(code)


def result(line: str) -> None:
    """Prints one line of the result, to stdout, as it is (no wrapping, no markup)."""
    out.print(Text(line), soft_wrap=True)


def document(content: object) -> None:
    """Prints the result as JSON, to stdout, past the console: it would go through megabytes letter by letter."""
    sys.stdout.write(json.dumps(content, indent=2) + "\n")
    sys.stdout.flush()


def table(columns: Iterable[str], *, title: str | None = None, right: Iterable[str] = ()) -> Table:
    """An empty table in the house style; columns named in `right` are right-aligned."""
    grid = Table(title=title, title_justify="left", title_style="bold", box=None, header_style="bold", pad_edge=False)
    right_aligned = set(right)
    for name in columns:
        grid.add_column(name, justify="right" if name in right_aligned else "left", no_wrap=name in right_aligned)
    return grid


@contextmanager
def moving() -> Iterator[Callable[[str, int, int], bool]]:
    """A progress bar for files that are moved, as the callback that the mover takes."""
    columns = (TextColumn("moving {task.description}"), BarColumn(bar_width=30), DownloadColumn(binary_units=True))
    with _progress(*columns) as bar:
        tasks: dict[str, TaskID] = {}

        def update(name: str, done: int, total: int) -> bool:
            if name not in tasks:
                tasks[name] = bar.add_task(name)
            bar.update(tasks[name], completed=done, total=total)
            return True

        yield update


@contextmanager
def reading(what: str) -> Iterator[Callable[[int, int], None]]:
    """A progress bar with rate and time left for bytes that are read, as a callback with bytes done and in all."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=30),
        DownloadColumn(binary_units=True),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with _progress(*columns) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


class _RateColumn(ProgressColumn):
    """What is done a second."""

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text("" if speed is None else f"{speed:,.0f}/s")


@contextmanager
def writing(what: str) -> Iterator[Callable[[int, int], None]]:
    """A progress bar with rate and time left for rows that are written, as a callback with rows done and in all."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=30),
        MofNCompleteColumn(),
        TextColumn("rows"),
        _RateColumn(),
        TimeRemainingColumn(),
    )
    with _progress(*columns) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


@contextmanager
def counting(what: str) -> Iterator[Callable[[int, int], None]]:
    """A progress bar for steps that are counted, as a callback with steps done and steps in all."""
    columns = (TextColumn("{task.description}"), BarColumn(bar_width=30), MofNCompleteColumn(), TimeElapsedColumn())
    with _progress(*columns) as bar:
        task = bar.add_task(what)
        yield lambda done, total: bar.update(task, completed=done, total=total)


@contextmanager
def working(what: str) -> Iterator[Callable[[int, int], None]]:
    """As `counting`, with the time left, for records of which there are too many to watch them one by one."""
    columns = (TextColumn("{task.description}"), BarColumn(bar_width=30), MofNCompleteColumn(), TimeRemainingColumn())
    with _progress(*columns) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


@contextmanager
def steps() -> Iterator[Callable[[str], Callable[[int, int], None]]]:
    """A progress bar for work of several steps: a step begins with its name, and has a callback for its progress.

    Threads may begin steps and tell of earlier ones in any order: the step that began last is shown.
    """
    columns = (TextColumn("{task.description}"), BarColumn(bar_width=30), TimeElapsedColumn(), TimeRemainingColumn())
    with _progress(*columns) as bar:
        begun: list[TaskID] = []
        alone = Lock()

        def begin(name: str) -> Callable[[int, int], None]:
            with alone:
                for earlier in begun:
                    bar.remove_task(earlier)
                task = bar.add_task(name, total=None)
                begun[:] = [task]

            def update(done: int, total: int) -> None:
                with alone:
                    if task in begun:
                        bar.update(task, completed=done, total=total)

            return update

        yield begin


def _progress(*columns: ProgressColumn) -> Progress:
    # Where stderr is no terminal there is nobody to watch: a log would only get the last state.
    return Progress(*columns, console=err, transient=True, disable=not err.is_terminal)
