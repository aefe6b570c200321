"""Summaries as `show` and its workers make them: of any files of a trace, and put together."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from stripewise import _native


def summed(trace: _native.Trace) -> dict[str, Any]:
    """What a trace with the requests of some files tells of these."""
    summary = trace.summary()
    return {
        "duration_s": summary["duration_s"],
        "records": summary["records"],
        "files": [file for file in summary["files"] if file["records"]],
    }


def joined(index: _native.Trace, parts: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """The summary of a whole trace from those of its parts, in any order, and from a trace without requests."""
    summary = index.summary()
    files = {file["id"]: file for file in summary["files"]}
    for part in parts:
        summary["duration_s"] = max(summary["duration_s"], part["duration_s"])
        summary["records"] += part["records"]
        files.update((file["id"], file) for file in part["files"])
    summary["files"] = [files[file["id"]] for file in summary["files"]]
    return summary
