"""What the commands say that move files from a server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from stripewise.cli import console
from stripewise.terminal import name
from stripewise.units import about_bytes, counted

if TYPE_CHECKING:
    from stripewise.api.pool_life import Drained, Progress, StayingFile

SHOWN_STRETCHES = 4
"""Ranges of bytes that are named of a file; --json has all."""


@contextmanager
def moving(what: str) -> Iterator[Progress]:
    """A progress bar with rate and time left; Ctrl-C says that the same command goes on."""
    try:
        with console.steps() as begin:
            advance = begin(what, True)

            def update(_path: str, done: int, total: int) -> bool:
                advance(done, total)
                return True

            yield update
    except KeyboardInterrupt:
        console.say("stopped; files that were moved have moved, the others are as they were: the same command goes on")
        raise


def report(done: Drained, server: str, *, everything: bool) -> None:
    """Says what was moved, and lists what stays."""
    staying = done["staying"]
    for file in console.shown(staying, everything=everything):
        console.result(f"{name(file['path'])}: stays on {server}{_stretches(file)}: {file['why']}")
    console.say_more(staying, "files stay", everything=everything)
    console.result(
        f"moved {counted(done['moved_files'], 'file')} from {server}, copied {about_bytes(done['copied_bytes'])}, "
        f"changed {counted(done['rules'], 'rule')} for files to come; {counted(len(staying), 'file')} "
        f"{'stays' if len(staying) == 1 else 'stay'}"
    )


def _stretches(file: StayingFile) -> str:
    if not file["bytes"]:
        return ""
    named = ", ".join(f"{begin}-{end - 1}" for begin, end in file["stretches"][:SHOWN_STRETCHES])
    more = len(file["stretches"]) - SHOWN_STRETCHES
    return f" with {about_bytes(file['bytes'])}, bytes {named}{' and more' if more > 0 else ''}"
