"""`readahead` where it gains: what `adapt` hints by itself.

A pool that keeps heat keeps its last requests, too. They are priced as `plan` and `advise` price those of a trace. What
gains in two decisions, one after the other, is hinted: for new files of the directory, and for those that were read.

What a person has hinted stays, and what was removed is not hinted again.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stripewise import _native
from stripewise._native import StripewiseError
from stripewise.api import ending
from stripewise.api import trace as traces

if TYPE_CHECKING:
    from stripewise._native import PoolHeat, ProposedHint
    from stripewise.pool import Pool

__all__ = ["hinted", "set_by", "take"]

NAME = "readahead"
"""`writebehind` is for people to hint: it changes when other mounts see what was written."""

MOST_SET = 1000
"""Hints that are remembered of decisions which are no longer kept: the last ones that were set."""

Proposal = dict[str, Any]
"""A hint with its numbers, and what became of it: as a decision keeps them in `hints`."""


def hinted(pool: Pool, heat: PoolHeat) -> list[ProposedHint]:
    """The hints that gain for requests like the last ones. O(4,096 requests), beside windows to try."""
    paths = {file["id"]: file["path"] for file in heat["files"] if "id" in file}
    with ending.scratch_directory() as scratch:
        log = scratch / "recent.csv"
        if not _write_requests(pool, paths, log):
            return []
        trace = traces.read(log).native
        found = ending.heeding(lambda: _native.hints_for(trace, str(pool.file), str(pool.mount)))
    return [hint for hint in found if hint["optimisation"].startswith(f"{NAME}=")]


def set_by(decisions: Iterable[Mapping[str, Any]]) -> list[Proposal]:
    """The hints that decisions have set, as they were set last, the oldest first; what is no hint is left out."""
    found: dict[tuple[str, str | None], Proposal] = {}
    for of in (of for decision in decisions for of in _proposals(decision)):
        match of:
            case {
                "verdict": "hinted",
                "directory": str(directory),
                "pattern": None | str() as pattern,
                "optimisation": str(optimisation),
            }:
                found.pop((directory, pattern), None)
                found[directory, pattern] = {
                    "verdict": "hinted",
                    "directory": directory,
                    "pattern": pattern,
                    "optimisation": optimisation,
                }
    return list(found.values())[-MOST_SET:]


def take(
    pool: Pool, heat: PoolHeat, decisions: Iterable[Mapping[str, Any]], *, dry_run: bool = False
) -> list[Proposal]:
    """Hints what gained in the last of the `decisions`, too; each proposal with its numbers and what was done.

    The first of them may be one that stands for those that have gone: it has what `set_by` says of them.
    """
    before = list(decisions)
    asked = hinted(pool, heat)
    return [_tried(pool, heat, hint, before, dry_run=dry_run) for hint in asked]


def _tried(
    pool: Pool, heat: PoolHeat, hint: ProposedHint, before: list[Mapping[str, Any]], *, dry_run: bool
) -> Proposal:
    """As `_taken`; a directory that cannot be hinted, as its hints are damaged, keeps no other from being hinted."""
    try:
        return _taken(pool, heat, hint, before, dry_run=dry_run)
    except StripewiseError as error:
        return {**hint, "verdict": "kept", "files_hinted": 0, "skipped": [], "why": str(error)}


def _taken(
    pool: Pool, heat: PoolHeat, hint: ProposedHint, before: list[Mapping[str, Any]], *, dry_run: bool
) -> Proposal:
    directory, pattern, setting = hint["directory"] or ".", hint["pattern"], hint["optimisation"]
    said = _said(pool, directory)
    own = set_by({"hints": _of(decision, hint)} for decision in before)
    is_own = bool(own) and said == [(pattern, own[-1]["optimisation"])]
    found: Proposal = {**hint, "verdict": "kept", "files_hinted": 0, "skipped": []}
    if is_own:
        found["optimisation"] = setting = said[0][1]
    elif said:
        return {**found, "why": f"{directory} has {said[0][1]} already, as a hint says"}
    elif own:
        return {**found, "why": f"the hint of {directory} was removed"}
    elif not before or not _of(before[-1], hint):
        return {**found, "verdict": "waits", "why": "it has to gain in two decisions, one after the other"}
    if dry_run:
        return {**found, "verdict": "waits", "why": "only asked what would be done"}
    if not is_own:
        _native.hint_set(str(pool.file), directory, pattern, [setting])
    for path in _files(heat, hint):
        try:
            found["files_hinted"] += _native.file_optimise(str(pool.file), path, setting)
        except StripewiseError as error:
            found["skipped"].append({"path": path, "why": str(error)})
    if is_own and not found["files_hinted"] and not found["skipped"]:
        return {**found, "why": "it is hinted already"}
    return {**found, "verdict": "hinted"}


def _of(decision: Mapping[str, Any], hint: ProposedHint) -> list[Proposal]:
    """What a decision says of that hint, whatever its window; what is no proposal in its line is not believed."""
    proposals = _proposals(decision)
    return [of for of in proposals if all(of.get(key) == hint[key] for key in ("directory", "pattern"))]


def _proposals(decision: Mapping[str, Any]) -> list[Proposal]:
    known = decision.get("hints")
    return [of for of in known if isinstance(of, dict)] if isinstance(known, list) else []


def _said(pool: Pool, directory: str) -> list[tuple[str | None, str]]:
    """What hints of a directory say of reading ahead: of which names, and how far."""
    hints = _native.hints_of(str(pool.file), directory)["hints"]
    return [(of["pattern"], said) for of in hints for said in of["optimisations"] if said.startswith(f"{NAME}=")]


def _files(heat: PoolHeat, hint: ProposedHint) -> list[str]:
    """The files of the directory that are hot, of the names that the hint is for."""
    found = []
    for file in heat["files"]:
        directory, _, name = file["path"].rpartition("/")
        ending = (hint["pattern"] or "*").removeprefix("*")
        if directory == hint["directory"] and name.endswith(ending):
            found.append(file["path"])
    return found


def _write_requests(pool: Pool, paths: Mapping[int, str], log: Path) -> bool:
    """Those of files that are there; whether there are any. Each thread is a process."""
    requests = _native.pool_recent(str(pool.file))
    known = [of for of in requests if of[0] in paths]
    with log.open("w", newline="", encoding="utf-8") as out:
        rows = csv.writer(out)
        rows.writerow(["rank", "file", "op", "offset", "size", "start_ns"])
        begin_ms = known[0][5] if known else 0
        for number, (file, offset, size, is_write, thread, time_ms) in enumerate(known):
            # The clock is coarse: those of one tick stay in their order.
            start_ns = (time_ms - begin_ms) % (1 << 32) * 1_000_000 + number
            op = "write" if is_write else "read"
            rows.writerow([thread, pool.mount / paths[file], op, offset, size, start_ns])
    return bool(known)
