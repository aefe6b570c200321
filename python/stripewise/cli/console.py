"""The voice of the command line: results to stdout, everything else to stderr, colour only where it is wanted.

Names come from files, traces and pools that others may have written. A name is shown as it is: it has no markup, and
nothing in it commands the terminal.
"""

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from threading import Lock
from typing import IO, Any, NoReturn, Protocol, TypeVar

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

from stripewise.terminal import name, plain

T = TypeVar("T")

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


class _Plain(Console):
    """A console to which strings are plain text, wherever they stand: in tables, titles and lines."""

    def __init__(
        self,
        *,
        stderr: bool = False,
        soft_wrap: bool = False,
        width: int | None = None,
        file: IO[str] | None = None,
        force_terminal: bool | None = None,
    ) -> None:
        super().__init__(
            stderr=stderr,
            soft_wrap=soft_wrap,
            width=width,
            file=file,
            force_terminal=force_terminal,
            highlight=False,
            markup=False,
            emoji=False,
        )

    def render_str(self, text: str, **options: Any) -> Text:  # noqa: ANN401
        return super().render_str(plain(text), **options)


out = _Plain(soft_wrap=False, width=_width(sys.stdout.isatty()))
err = _Plain(stderr=True, soft_wrap=True)


def say(message: str) -> None:
    """Logs one line of what is being done, to stderr."""
    err.print(message)


def warn(message: str) -> None:
    """Logs a warning to stderr."""
    err.print(Text.assemble(("warning", "bold yellow"), ": ", plain(message)))


def hint(message: str) -> None:
    """Logs a remedy to stderr."""
    err.print(Text.assemble(("hint", "bold cyan"), ": ", plain(message)))


def fail(message: str, code: int = EXIT_FAILED) -> NoReturn:
    """Says what went wrong on stderr and ends the command with `code`."""
    err.print(Text.assemble(("error", "bold red"), ": ", plain(message)))
    raise SystemExit(code)


def result(line: str) -> None:
    """Prints one line of the result, to stdout, without wrapping."""
    out.print(line, soft_wrap=True)


def script(lines: str) -> None:
    """Prints a script that is the result, to stdout; byte for byte where a program may read it."""
    if out.is_terminal:
        result(lines)
    else:
        sys.stdout.write(lines + "\n")
        sys.stdout.flush()


def document(content: object) -> None:
    """Prints the result as JSON, to stdout, past the console: it would go through megabytes letter by letter."""
    sys.stdout.write(json.dumps(content, indent=2) + "\n")
    sys.stdout.flush()


SHOWN_FILES = 20
"""Files that a command lists one by one unless it is asked for all."""


def shown(rows: Sequence[T], *, everything: bool) -> Sequence[T]:
    """The rows that a person reads: the first ones, or all."""
    return rows if everything else rows[:SHOWN_FILES]


def say_more(rows: Sequence[object], what: str, *, everything: bool, otherwise: str = "") -> None:
    """Says how many `shown` has left out, and how to see them."""
    if not everything and len(rows) > SHOWN_FILES:
        say(f"and {len(rows) - SHOWN_FILES:,} more {what}: --all lists them{otherwise}")


def table(columns: Iterable[str], *, title: str | None = None, right: Iterable[str] = ()) -> Table:
    """An empty table in the house style; columns named in `right` are right-aligned.

    On a narrow terminal a cell goes on in the next line: a path or a layout that is cut is none.
    """
    grid = Table(title=title, title_justify="left", title_style="bold", box=None, header_style="bold", pad_edge=False)
    right_aligned = set(right)
    for column in columns:
        is_right = column in right_aligned
        grid.add_column(column, justify="right" if is_right else "left", no_wrap=is_right, overflow="fold")
    return grid


@contextmanager
def moving() -> Iterator[Callable[[str, int, int], bool]]:
    """A progress bar for files that are moved, as the callback that the mover takes."""
    columns = (
        TextColumn("moving {task.description}", markup=False),
        BarColumn(bar_width=30),
        DownloadColumn(binary_units=True),
    )
    with _progress(*columns) as bar:
        tasks: dict[str, TaskID] = {}

        def update(path: str, done: int, total: int) -> bool:
            if path not in tasks:
                tasks[path] = bar.add_task(name(path))
            bar.update(tasks[path], completed=done, total=total)
            return True

        yield update


@contextmanager
def reading(what: str) -> Iterator[Callable[[int, int], None]]:
    """A progress bar with rate and time left for bytes that are read, as a callback with bytes done and in all."""
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=30),
        DownloadColumn(binary_units=True),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with _progress(*columns) as bar:
        task = bar.add_task(plain(what), total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


class Begin(Protocol):
    """Begins a step of `steps`; of one that counts bytes, their rate is shown."""

    def __call__(self, step: str, in_bytes: bool = False, /) -> Callable[[int, int], None]:
        """The callback for the progress of `step`."""
        ...


class _ByteRateColumn(TransferSpeedColumn):
    """Bytes a second, of steps that count bytes."""

    def render(self, task: Task) -> Text:
        return super().render(task) if task.fields.get("in_bytes") else Text("")


class _RateColumn(ProgressColumn):
    """What is done a second."""

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text("" if speed is None else f"{speed:,.0f}/s")


@contextmanager
def writing(what: str) -> Iterator[Callable[[int, int], None]]:
    """A progress bar with rate and time left for rows that are written, as a callback with rows done and in all."""
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=30),
        MofNCompleteColumn(),
        TextColumn("rows"),
        _RateColumn(),
        TimeRemainingColumn(),
    )
    with _progress(*columns) as bar:
        task = bar.add_task(plain(what), total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


@contextmanager
def counting(what: str) -> Iterator[Callable[[int, int], None]]:
    """A progress bar for steps that are counted, as a callback with steps done and steps in all."""
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=30),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with _progress(*columns) as bar:
        task = bar.add_task(plain(what))
        yield lambda done, total: bar.update(task, completed=done, total=total)


@contextmanager
def working(what: str) -> Iterator[Callable[[int, int], None]]:
    """As `counting`, with the time left, for records of which there are too many to watch them one by one."""
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=30),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with _progress(*columns) as bar:
        task = bar.add_task(plain(what), total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


@contextmanager
def steps() -> Iterator[Begin]:
    """A progress bar for work of several steps: a step begins with its name, and has a callback for its progress.

    Threads may begin steps and tell of earlier ones in any order: the step that began last is shown.
    """
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=30),
        _ByteRateColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with _progress(*columns) as bar:
        begun: list[TaskID] = []
        alone = Lock()

        def begin(step: str, in_bytes: bool = False) -> Callable[[int, int], None]:
            with alone:
                for earlier in begun:
                    bar.remove_task(earlier)
                task = bar.add_task(plain(step), total=None, in_bytes=in_bytes)
                begun[:] = [task]

            def update(done: int, total: int) -> None:
                with alone:
                    if task in begun:
                        bar.update(task, completed=done, total=total)

            return update

        yield begin


def _progress(*columns: ProgressColumn) -> Progress:
    # Only a terminal shows progress: a log would only get the last state.
    return Progress(*columns, console=err, transient=True, disable=not err.is_terminal)
