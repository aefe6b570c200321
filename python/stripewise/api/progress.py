"""Progress of long calls, for people in notebooks and scripts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from stripewise.terminal import name

Progress = bool | Callable[[int, int], object]
"""True for a bar, or a function that is called with what is done and all there is to do."""


@contextmanager
def told(progress: Progress, what: str) -> Iterator[Callable[[int, int], object] | None]:
    """The callback that the compiled part takes; a bar is gone when the work is done."""
    if progress is not True:
        yield progress or None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    # What is read may have any name: it is no markup, and commands nothing.
    label = TextColumn("{task.description}", markup=False)
    columns = (label, BarColumn(bar_width=30), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(name(what), total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
