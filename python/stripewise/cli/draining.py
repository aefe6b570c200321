"""What the commands say that move files from a server."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from stripewise import StripewiseError
from stripewise.api.pacing import Pace
from stripewise.cli import console
from stripewise.cli.limits import size_of
from stripewise.terminal import name
from stripewise.units import about_bytes, counted

if TYPE_CHECKING:
    from stripewise.api.pacing import Progress
    from stripewise.api.pool_life import Drained, Rebalanced, StayingFile
    from stripewise.api.pools import Pool

SHOWN_STRETCHES = 4
"""Ranges of bytes that are named of a file; --json has 4096, and how many it leaves out."""

GOES_ON = "what was done stays, and the same command goes on"
"""What `in_turn` says of a command that has several steps."""
TURN_S = 0.05
"""Between two tries, while the process that adapts the pool is at work: it has the lock for one file, or one step, and
gives a turn between two of these (`pacing.give_turn`)."""
TRIES = 4
"""In a row that are refused, of which none tells that it is that process: then it is another command."""
T = TypeVar("T")

Rate = Annotated[str | None, typer.Option("--rate", metavar="SIZE", help="Most bytes copied in a second, as 50MB.")]
Urgent = Annotated[bool, typer.Option("--urgent", help="Do not rest while the servers are busy for programs.")]
Everything = Annotated[bool, typer.Option("--all", help="List every file that stays, however many.")]


def disk(text: str) -> Path:
    """The directory of a disk, for the `parser` of an argument.

    Raises `typer.BadParameter` for an empty word, as of a variable of a shell that is not set: it is the working
    directory as a path.
    """
    if not text:
        raise typer.BadParameter("the name of the directory is empty: name one on the disk, or . for this one")
    return Path(text)


def pace(rate: str | None, urgent: bool) -> Pace:
    """The pace that the options ask for. Raises `UsageError` for a rate that is none."""
    bytes_per_s = None if rate is None else size_of("--rate", rate)
    if bytes_per_s == 0:
        raise console.UsageError(f"--rate {rate}: nothing would be copied; name at least 1B")
    return Pace(bytes_per_s, urgent)


@contextmanager
def moving(what: str, besides: str = "") -> Iterator[Progress]:
    """A progress bar with rate and time left; Ctrl-C says that the same command goes on, and what holds `besides`.

    Ctrl-Z does not stop it. A mover tells of each byte twice, when it is copied and when it is read back.
    """
    try:
        with console.unpaused(), console.steps() as begin:
            advance = begin(what, True)

            def update(_path: str, done: int, total: int) -> bool:
                advance(done // 2, total // 2)
                return True

            yield update
    except KeyboardInterrupt:
        console.say(
            f"stopped; files that were moved have moved, the others are as they were: the same command goes on{besides}"
        )
        raise


def in_turn(pool: Pool, work: Callable[[], T], so_far: str = "nothing was changed") -> T:
    """Does what moves files of the pool; while the process that adapts it moves some, it waits for a turn.

    While another command moves files, it is refused. `work` is refused before it changes anything, or goes on when it
    is called again: then Ctrl-C tells what was done `so_far`.
    """
    from stripewise.api import adapt

    said, tries = False, TRIES
    while True:
        try:
            return work()
        except StripewiseError as error:
            process = adapt.moves_now(pool, error)
            tries = TRIES if process is not None else tries - 1
            # Which process it was is asked after the refusal: it may have given the lock back by then.
            if not str(error).startswith(adapt.OTHERS_MOVE) or tries == 0:
                raise
            if process is not None and not said:
                console.say(
                    f"process {process}, which adapts the pool, moves files now: this waits until what it is at is "
                    f"done; Ctrl-C ends the wait"
                )
                said = True
        try:
            time.sleep(TURN_S)
        except KeyboardInterrupt:
            console.fail(f"interrupted while it waited; {so_far}", console.EXIT_INTERRUPTED)


def end(
    done: Drained, server: str, said: str, *, everything: bool, document: dict[str, Any] | None, lost: bool = False
) -> None:
    """Says what was done, or prints it as a `document` with more in it; exits with a failure where files stay.

    With `lost` the server is gone, and what files have there, too.
    """
    if document is not None:
        console.document({**document, **done})
    else:
        if done["moved_files"] or done["staying"]:
            (_report_lost if lost else report)(done, server, everything=everything)
        console.result(said)
    if done["staying"]:
        raise SystemExit(console.EXIT_FAILED)


def report(done: Drained, server: str, *, everything: bool) -> None:
    """Says what was moved, and lists what stays."""
    staying = done["staying"]
    list_staying(done, server, everything=everything)
    console.result(
        f"moved {counted(done['moved_files'], 'file')} from {server}, copied {about_bytes(done['copied_bytes'])}, "
        f"changed {counted(done['rules'], 'rule')} for files to come; {counted(len(staying), 'file')} "
        f"{'stays' if len(staying) == 1 else 'stay'}"
    )


def _report_lost(done: Drained, server: str, *, everything: bool) -> None:
    """Says what was moved, and lists what is lost; a file with no byte there that could not be moved stays."""
    staying = done["staying"]
    for file in console.shown(staying, everything=everything):
        what = (
            f"has lost{_stretches(file)}, but for holes" if file["bytes"] else f"stays on {server}: {name(file['why'])}"
        )
        console.result(f"{name(file['path'])}: {what}")
    console.say_more(staying, "files have lost bytes, or stay", everything=everything)
    losers = sum(file["bytes"] > 0 for file in staying)
    console.result(
        f"moved {counted(done['moved_files'], 'file')} from {server}; {counted(losers, 'file')} "
        f"{'has' if losers == 1 else 'have'} lost bytes, {counted(len(staying) - losers, 'file')} "
        f"{'stays' if len(staying) - losers == 1 else 'stay'}"
    )
    if losers:
        console.hint("restore such files from a backup: remove each first, as nothing can be written in its place")


def hint_at_names(pool: Pool) -> None:
    """Says that the disk of a server that was removed has to stay."""
    console.hint(f"the names of the pool are still on that disk, in {name(str(pool.namespace))}: leave it mounted")


def list_staying(done: Drained, server: str, *, everything: bool) -> None:
    """Lists what stays."""
    for file in console.shown(done["staying"], everything=everything):
        console.result(f"{name(file['path'])}: stays on {server}{_held(file)}: {name(file['why'])}")
    console.say_more(done["staying"], "files stay", everything=everything)


def _held(file: StayingFile) -> str:
    return f" with{_stretches(file)}" if file["bytes"] else ""


def _stretches(file: StayingFile) -> str:
    named = ", ".join(f"{begin}-{end - 1}" for begin, end in file["stretches"][:SHOWN_STRETCHES])
    more = max(0, len(file["stretches"]) - SHOWN_STRETCHES) + file["left_out"]
    rest = f" and {counted(more, 'more range')}" if more else ""
    return f" {about_bytes(file['bytes'])}, bytes {named}{rest}"


def report_rebalanced(done: Rebalanced, *, dry_run: bool, everything: bool) -> None:
    """Says how full servers are, what was moved, or would be, and what stays."""
    grid = console.table(["server", "full before", "full after"], right=["full before", "full after"])
    for server in done["servers"]:
        before, after = (server[when] / max(1, server["size_bytes"]) for when in ("before_bytes", "after_bytes"))
        grid.add_row(server["server"], f"{before:.1%}", f"{after:.1%}")
    console.out.print(grid)
    for file in console.shown(done["staying"], everything=everything):
        console.result(f"{name(file['path'])}: stays where it was: {name(file['why'])}")
    console.say_more(done["staying"], "files stay", everything=everything)
    moved, copied = counted(done["moved_files"], "file"), about_bytes(done["copied_bytes"])
    console.result(f"would move {moved}, copy {copied}" if dry_run else f"moved {moved}, copied {copied}")
