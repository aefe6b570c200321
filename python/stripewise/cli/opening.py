"""The first lines of what a command says of a log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stripewise.api.job import job_heading
from stripewise.cli import console

if TYPE_CHECKING:
    from collections.abc import Iterable

    from stripewise.api.documents import AdviseJob


def show_job(job: AdviseJob) -> None:
    """The job, what it moved and how fast, its share of the run time, and a line that is empty."""
    show_lines(job_heading(job))


def show_lines(lines: Iterable[str]) -> None:
    """Lines of an opening, and one that is empty."""
    for line in lines:
        console.result(line)
    console.result("")
