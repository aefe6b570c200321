"""Hints that plans and advice propose for a pool's directories, as commands."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stripewise.units import counted, ratio, seconds

if TYPE_CHECKING:
    from stripewise._native import ProposedHint


def command(mount: Path, hint: ProposedHint) -> str:
    """What sets it, for a shell."""
    words = ["stripewise", "hint", str(mount / hint["directory"]), hint["optimisation"]]
    return shlex.join(words if hint["pattern"] is None else [*words, "--for", hint["pattern"]])


def commands(mount: Path, hints: Sequence[ProposedHint]) -> list[dict[str, Any]]:
    """Each hint with its command, for programs."""
    return [{**hint, "command": command(mount, hint)} for hint in hints]


def lines(mount: Path, hints: Sequence[ProposedHint]) -> list[str]:
    """Each hint with what the model says of it, and its command, for people; none where there is none."""
    told = []
    for hint in hints:
        name, now_s, then_s = hint["optimisation"].partition("=")[0], hint["now_s"], hint["then_s"]
        told.append(
            f"new files like {counted(hint['files'], 'file')} of {mount / hint['directory']} gain by the hint {name}: "
            f"their requests take {seconds(then_s)} in place of {seconds(now_s)} by the model, {ratio(now_s / then_s)}"
        )
        told.append(f"  {command(mount, hint)}")
    return told
