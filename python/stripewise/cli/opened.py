"""Opening a trace or a log, as every command that takes one does."""

from collections.abc import Sequence
from pathlib import Path

from stripewise import StripewiseError
from stripewise.api import trace as api
from stripewise.api.trace import Trace
from stripewise.cli import console


def opened(
    path: Path,
    *,
    index: bool = False,
    files: Sequence[str] | None = None,
    ranks: Sequence[int] | None = None,
    apps: Sequence[str] | None = None,
) -> Trace:
    """The trace, or the log of another tool as one; what such a log lacks is said on stderr when the command ends.

    With `index` no requests are read, of a data set: others have them. With `files`, `ranks` or `apps` it is the part
    of the log that these name.
    """
    if index and (files or ranks or apps):
        raise StripewiseError("--file, --rank and --app choose from the requests that this command reads: omit --dask")
    with console.reading(f"reading {path.name}") as progress:
        trace = api.read(path, progress=progress, files=[] if index else None)
    trace = trace.excerpt(files=files or (), ranks=ranks or (), apps=apps or ())
    about = trace.about
    lines = [lack["words"] for lack in about["lacks"]] + [f"note: {note}" for note in about["notes"]]
    if lines:
        console.say_later(str(path), f"a log of {about['format']}", lines)
    return trace
