"""Opening a trace or a log, as every command that takes one does."""

from pathlib import Path

from stripewise.api import trace as api
from stripewise.api.trace import Trace
from stripewise.cli import console


def opened(path: Path, *, files: list[int] | None = None) -> Trace:
    """The trace, or the log of another tool as one; says on stderr what such a log lacks.

    With `files` only their requests are read, of a data set.
    """
    with console.reading(f"reading {path.name}") as progress:
        trace = api.read(path, progress=progress, files=files)
    about = trace.about
    if about["lacks"] or about["notes"]:
        console.say(f"{path} is a log of {about['format']}:")
    for lack in about["lacks"]:
        console.say(f"  {lack['words']}")
    for note in about["notes"]:
        console.say(f"  note: {note}")
    return trace
