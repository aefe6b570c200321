"""`optimize`: trace, plan, apply, run again, compare; and what it tells afterwards."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from stripewise.api.json_text import json_text
from stripewise.optimize.cycle import InvalidRunError, Outcome, ProgramFailedError, Settings, new_directory
from stripewise.optimize.cycle import optimize as run_cycle
from stripewise.optimize.place import Progress
from stripewise.optimize.report import OPS, Row, document, grouped, hint_lines, last_line, regions, rows
from stripewise.pool import Pool

__all__ = [
    "OPS",
    "InvalidRunError",
    "Outcome",
    "ProgramFailedError",
    "Row",
    "Settings",
    "document",
    "grouped",
    "hint_lines",
    "last_line",
    "new_directory",
    "optimize",
    "regions",
    "report_file",
    "rows",
]


def report_file(outcome: Outcome) -> Path:
    """Where everything that was found stands as JSON."""
    return outcome.directory / "report.json"


def optimize(
    pool: Pool,
    command: Sequence[str],
    directory: Path,
    settings: Settings,
    say: Callable[[str], None],
    progress: Progress,
) -> Outcome:
    """Finds, places and verifies a better layout for the files of a program, and keeps it if it measured faster.

    Traces, layouts, the way back and the report are kept in `directory`. `say` is told what is being done, `progress`
    the moves. Raises `ProgramFailedError` where the program fails, and `InvalidRunError` where emulated servers do not
    keep their times.
    """
    outcome = run_cycle(pool, command, directory, settings, say, progress)
    report_file(outcome).write_text(json_text(document(outcome), indent=2) + "\n", encoding="utf-8")
    return outcome
