"""The voice of the command line: results to stdout, everything else to stderr, colour only where it is wanted.

Names come from files, traces and pools that others may have written. A name is shown as it is: it has no markup, and
nothing in it commands the terminal.
"""

import signal
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from threading import Lock, current_thread, main_thread
from typing import IO, Any, NoReturn, Protocol, TypeVar

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
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

from stripewise import StripewiseError
from stripewise.api.json_text import json_text
from stripewise.terminal import middle, name, plain

T = TypeVar("T")

EXIT_FAILED = 1
"""Something went wrong; the message says what."""
EXIT_USAGE = 2
"""The command line itself is wrong."""
EXIT_TAKEN_BACK = 3
"""`optimize`: the new layout was not faster beyond noise, the old one is back."""
EXIT_INVALID = 4
"""The emulated devices could not keep their times (error above 10 % median): no figure."""
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


FOREVER = 1 << 16
"""Columns of no end, to measure what a cell would like to have."""
NARROWEST = 10
"""Columns that a cell of words has at least."""
NARROWEST_PATH = 16
"""Columns that a path has at least; a shorter one has what it needs."""


class _Path:
    """A name in a cell: it loses its middle where the cell is narrow."""

    def __init__(self, text: str) -> None:
        self.text = name(text)

    def __rich_console__(self, _: Console, options: ConsoleOptions) -> Iterator[Text]:
        yield Text(middle(self.text, options.max_width), no_wrap=True, overflow="ellipsis")

    def __rich_measure__(self, _: Console, options: ConsoleOptions) -> Measurement:
        length = cell_len(self.text)
        return Measurement(min(length, NARROWEST_PATH), min(length, options.max_width))


class Grid(Table):
    """A table in the house style: see `table`. One that does not fit is printed as a list of its rows."""

    def __init__(self, paths: Iterable[str], title: str | None) -> None:
        """An empty one; names in the columns `paths` may lose their middle."""
        super().__init__(
            title=title, title_justify="left", title_style="bold", box=None, header_style="bold", pad_edge=False
        )
        self.paths = set(paths)

    def add_row(self, *cells: Any, **options: Any) -> None:  # noqa: ANN401
        """As of rich; names in columns of paths may lose their middle."""
        of_paths = [column.header in self.paths for column in self.columns]
        named = [
            _Path(cell) if is_path and isinstance(cell, str) else cell
            for cell, is_path in zip(cells, of_paths, strict=False)
        ]
        super().add_row(*named, **options)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        fitting = _fitting(self, console)
        if fitting is self:
            yield from super().__rich_console__(console, options)
        else:
            yield fitting


def _fitting(grid: Grid, console: Console) -> RenderableType:
    """The table, or each of its rows as a list of names and values where its columns would have no room."""
    options = console.options.update(max_width=FOREVER)
    widths = [
        max(Measurement.get(console, options, thing).maximum for thing in (column.header, *column.cells))
        for column in grid.columns
    ]
    least = sum(
        width if column.no_wrap else min(width, NARROWEST_PATH if column.header in grid.paths else NARROWEST)
        for column, width in zip(grid.columns, widths, strict=True)
    )
    if least + 2 * (len(widths) - 1) <= console.width:
        return grid
    names = [str(column.header).replace("-\n", "-").replace("\n", " ") for column in grid.columns]
    longest = max(map(cell_len, names))
    rows: list[RenderableType] = [] if grid.title is None else [Text(plain(str(grid.title)), "bold")]
    for cells in zip(*(column.cells for column in grid.columns), strict=True):
        if not _is_empty(cells[0]):
            rows.append(cells[0])
        of_row = Table.grid(padding=(0, 2, 0, 0))
        of_row.add_column(style="bold", min_width=longest + 2, no_wrap=True)
        of_row.add_column(overflow="fold")
        for header, cell in zip(names[1:], cells[1:], strict=True):
            if not _is_empty(cell):
                of_row.add_row(Text(f"  {header}"), cell)
        rows.append(of_row)
    return Group(*rows)


def _is_empty(cell: object) -> bool:
    return not (cell.text if isinstance(cell, _Path) else str(cell) if isinstance(cell, str | Text) else cell)


out = _Plain(soft_wrap=False, width=_width(sys.stdout.isatty()))
err = _Plain(stderr=True, soft_wrap=True)


def say(message: str) -> None:
    """Logs one line of what is being done, to stderr."""
    for line in _folded(message, err, 0):
        err.print(line)


_later: dict[tuple[str, ...], list[str]] = {}


def say_later(about: str, what: str, lines: Sequence[str]) -> None:
    """Logs what is to be known about a thing to stderr when the command ends, below its results.

    Things of which the same is to be known are told of together.
    """
    _later.setdefault((what, *lines), []).append(about)


def say_now() -> None:
    """Logs what was kept for later."""
    for (what, *lines), things in _later.items():
        say(f"{' and '.join(map(short, things))} {'is' if len(things) == 1 else 'are each'} {what}:")
        for line in lines:
            say(f"  {line}")
    _later.clear()


def warn(message: str) -> None:
    """Logs a warning to stderr."""
    err.print(Text.assemble(("warning", "bold yellow"), ": ", plain(message)))


def hint(message: str) -> None:
    """Logs a remedy to stderr."""
    err.print(Text.assemble(("hint", "bold cyan"), ": ", plain(message)))


class UsageError(StripewiseError):
    """The command line is wrong: an option has a value that it cannot have."""


def fail(message: str, code: int = EXIT_FAILED) -> NoReturn:
    """Says what went wrong on stderr and ends the command with `code`."""
    err.print(Text.assemble(("error", "bold red"), ": ", plain(message)))
    raise SystemExit(code)


def short(path: str, beside: int | None = None) -> str:
    """A path in a sentence: on a terminal it has half of the width at most, and loses its middle.

    Where the rest of the line has `beside` letters, all others are the path's.
    """
    width = out.width // 2 if beside is None else out.width - beside
    return middle(name(path), max(width, NARROWEST_PATH)) if out.is_terminal else name(path)


def result(line: str, indent: int = 0, style: str | None = None) -> None:
    """Prints one line of the result, to stdout, `indent` columns in; on a terminal it goes on below at a word."""
    for part in _folded(line, out, indent):
        out.print(part, soft_wrap=True, style=style)


def _folded(text: str, of: Console, indent: int) -> Iterator[str]:
    """The lines of a text as they fit a terminal; a file or a pipe gets them as they are."""
    for line in text.split("\n"):
        if not of.is_terminal or len(line) + indent <= of.width:
            yield " " * indent + line
            continue
        margin = " " * (indent + len(line) - len(line.lstrip()))
        yield from textwrap.wrap(
            line.strip(), of.width, initial_indent=margin, subsequent_indent=margin + "  ", break_on_hyphens=False
        )


def command(text: str) -> None:
    """Prints a command as part of a result: it is there to be copied, and goes on below behind a backslash."""
    for line in text.split("\n"):
        rest, margin = line, "    "
        while out.is_terminal and len(margin) + len(rest) > out.width:
            at = _last_gap(rest, out.width - len(margin) - 2)
            if at is None:
                break
            out.print(f"{margin}{rest[:at]} \\", soft_wrap=True)
            rest, margin = rest[at + 1 :], "        "
        out.print(margin + rest, soft_wrap=True)


def _last_gap(line: str, most: int) -> int | None:
    """The last blank of a command within `most` letters, or else the first, that stands between two of its words."""
    quote, gaps = "", []
    escaped = False
    for at, letter in enumerate(line):
        if escaped:
            escaped = False
        elif quote:
            quote = "" if letter == quote else quote
        elif letter in "\"'":
            quote = letter
        elif letter == "\\":
            escaped = True
        elif letter == "#" and (at == 0 or line[at - 1] == " "):
            break  # what follows is a comment: it ends with its line
        elif letter == " " and line[:at].strip():
            gaps.append(at)
    within = [at for at in gaps if at <= most]
    return within[-1] if within else gaps[0] if gaps else None


def script(lines: str) -> None:
    """Prints a script that is the result, to stdout; byte for byte where a program may read it."""
    if out.is_terminal:
        out.print(lines, soft_wrap=True)
    else:
        sys.stdout.write(lines + "\n")
        sys.stdout.flush()


def document(content: object) -> None:
    """Prints the result as JSON, to stdout, past the console: it would go through megabytes letter by letter."""
    sys.stdout.write(json_text(content, indent=2) + "\n")
    sys.stdout.flush()


def record(content: object) -> None:
    """Prints one of several results as a line of JSON, to stdout, past the console: it is whole, however long."""
    sys.stdout.write(json_text(content) + "\n")
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


def table(
    columns: Iterable[str], *, title: str | None = None, right: Iterable[str] = (), paths: Iterable[str] = ()
) -> Grid:
    """An empty table in the house style; columns named in `right` are right-aligned.

    On a narrow terminal a cell goes on in the next line, and one of the columns `paths` loses its middle. Where that
    does not do, rows are printed as lists.
    """
    grid = Grid(paths, title)
    right_aligned = set(right)
    for column in columns:
        is_right = column in right_aligned
        grid.add_column(column, justify="right" if is_right else "left", no_wrap=is_right, overflow="fold")
    return grid


def how_many(path: str, files: int) -> str:
    """A path in a table, with how many files it stands for where these are several."""
    return path if files == 1 else f"{path} ({files:,})"


def named(counts: Iterable[int]) -> str:
    """The heading of a column of such paths."""
    return "file" if all(count == 1 for count in counts) else "files"


PAUSES = (signal.SIGTSTP, signal.SIGTTOU)
"""What a terminal stops a process by: Ctrl-Z, and output of one in the background after `stty tostop`."""


@contextmanager
def unpaused() -> Iterator[None]:
    """The terminal stops no process in here, which can be ended by Ctrl-C all the same.

    A program that opens a file for writing waits for the step of its move: for a process that is stopped, for good.
    """
    if current_thread() is not main_thread():
        yield
        return
    before = [signal.signal(number, signal.SIG_IGN) for number in PAUSES]
    try:
        yield
    finally:
        for number, handler in zip(PAUSES, before, strict=True):
            signal.signal(number, handler)


@contextmanager
def moving() -> Iterator[Callable[[str, int, int], bool]]:
    """A progress bar for files that are moved, as the callback that the mover takes; Ctrl-Z does not stop the move.

    It names the file of now, and has the bytes of all that was planned, or of the file where nothing was. A mover tells
    of each byte twice, when it is copied and when it is read back: what is shown is half of that.
    """
    columns = (
        TextColumn("moving {task.description}", markup=False),
        BarColumn(bar_width=30),
        DownloadColumn(binary_units=True),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with unpaused(), _progress(*columns) as bar:
        tasks: list[TaskID] = []
        # The other columns take that much.
        most = max(16, err.width - 80)

        def update(path: str, done: int, total: int) -> bool:
            if not tasks:
                tasks.append(bar.add_task(""))
            bar.update(tasks[0], description=middle(name(path), most), completed=done // 2, total=total // 2)
            return True

        yield update


class Moving(Protocol):
    """What a bar is drawn by of a move of another process."""

    @property
    def path(self) -> str:
        """The file."""
        ...

    @property
    def copied_bytes(self) -> float:
        """That are done."""
        ...

    @property
    def all_bytes(self) -> float:
        """That are to be done."""
        ...


@contextmanager
def others_move() -> Iterator[Callable[[Moving | None], None]]:
    """A progress bar for what another process moves, as a callback with its move, or `None` while there is none."""
    with steps() as begin:
        bars: dict[str, Callable[[int, int], None]] = {}

        def show(move: Moving | None) -> None:
            if move is None:
                return
            if move.path not in bars:
                bars.clear()
                bars[move.path] = begin(f"moving {name(move.path)}", True)
            bars[move.path](int(move.copied_bytes), int(move.all_bytes))

        yield show


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
