"""What `export` gives back: commands, losses and prices for each layout, and all of it as a script."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from stripewise.exporters.exporter import Hashed, Rounds
from stripewise.exporters.shell import Command, comment


@dataclass(frozen=True)
class ExportedFile:
    """The translation of one layout of a layout file."""

    pattern: str
    """As the layout file has it."""
    path: str
    """As the commands have it."""
    is_directory: bool
    """Whether the layout becomes a directory's default for new files."""
    commands: tuple[Command, ...]
    losses: tuple[str, ...]
    """What of the layout is lost, in words."""
    loss_ratio: float | None
    """Predicted time of the native layout over that of the layout; `None` where it was not priced."""
    verify: tuple[Command, ...]
    native: Any
    """What the exporter's `read` makes of the commands."""
    placed: tuple[tuple[str, Rounds | Hashed], ...] = ()
    """Where that puts the bytes of each pattern of the layout file that it stands for; empty without commands."""
    refused: str | None = None
    """Why there are no commands."""


@dataclass(frozen=True)
class Exported:
    """A layout file in the commands of a file system."""

    to: str
    title: str
    pool: str
    """The layout file's."""
    files: tuple[ExportedFile, ...]
    workload: str | None
    """What was priced, in words; `None`: nothing."""

    @property
    def commands(self) -> list[Command]:
        """All commands, in the order in which they are to run."""
        return [command for file in self.files for command in file.commands]

    @property
    def verify(self) -> list[Command]:
        """The commands that show what was set."""
        return [command for file in self.files for command in file.verify]

    @property
    def losses(self) -> list[str]:
        """What is lost, each with its file."""
        return [f"{file.pattern}: {loss}" for file in self.files for loss in file.losses]

    @property
    def loss_ratio(self) -> float | None:
        """The worst of the files'."""
        return max((file.loss_ratio for file in self.files if file.loss_ratio is not None), default=None)

    @property
    def refused(self) -> list[str]:
        """What cannot be expressed, each with its file and why."""
        return [f"{file.pattern}: {file.refused}" for file in self.files if file.refused is not None]

    def layout_text(self) -> str | None:
        """What the commands set, as the text of a layout file; `None` where servers are chosen by a hash.

        A layout that is refused is not in it. A server that stands in a round several times stands there once, with all
        of its bytes.
        """
        lines = ["version = 1", f"pool = {_quoted(self.pool)}"]
        for pattern, placed in (one for file in self.files for one in file.placed):
            if isinstance(placed, Hashed):
                return None
            lines += ["[[file]]", f"path = {_quoted(pattern)}"]
            for offset, stripes in placed.regions:
                widths: dict[str, int] = {}
                for server, width in stripes:
                    widths[server] = widths.get(server, 0) + width
                entries = [f"{server}:{width}" for server, width in widths.items()]
                lines += ["[[file.region]]", f'offset = "{offset}"', f"round = {json.dumps(entries)}"]
        return "\n".join(lines) + "\n"

    def script(self) -> str:
        """A script for `sh` that stops at the first command that fails, and shows at last what was set."""
        lines = ["#!/bin/sh", comment(f"Layouts of pool '{self.pool}' for {self.title}, by stripewise export.")]
        if self.workload is not None:
            lines.append(comment(self.workload[0].upper() + self.workload[1:] + "."))
        lines.append("set -eu")
        for file in self.files:
            lines += ["", comment(file.pattern + (" (files to come)" if file.is_directory else ""))]
            if file.refused is not None:
                lines.append(comment(f"refused: {file.refused}"))
            if file.loss_ratio is not None:
                lines.append(comment(f"predicted: {file.loss_ratio:.3f} times the time of the layout"))
            lines += [comment(f"lost: {loss}") for loss in file.losses]
            lines += [command.text for command in file.commands]
        lines += ["", comment("What was set:"), *(command.text for command in self.verify)]
        return "\n".join(lines) + "\n"

    def as_dict(self) -> dict[str, Any]:
        """Plain values, as `--json` prints them."""
        return {
            "to": self.to,
            "pool": self.pool,
            "workload": self.workload,
            "loss_ratio": self.loss_ratio,
            "files": [
                {
                    "pattern": file.pattern,
                    "path": file.path,
                    "directory": file.is_directory,
                    "commands": [_plain(command) for command in file.commands],
                    "losses": list(file.losses),
                    "loss_ratio": file.loss_ratio,
                    "verify": [_plain(command) for command in file.verify],
                    "refused": file.refused,
                }
                for file in self.files
            ],
        }


def _plain(command: Command) -> dict[str, Any]:
    return {"arguments": list(command.arguments), "stdin": command.stdin, "shell": command.text}


def _quoted(text: str) -> str:
    """A string of TOML."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
