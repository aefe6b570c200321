"""systemd units that run a command of Stripewise for a pool."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from stripewise._native import StripewiseError
from stripewise.pool import Pool


def unit(
    pool: Pool, name: str, purpose: str, arguments: list[str], *, command: str = "", settings: str = ""
) -> tuple[Path, str]:
    """Where the unit `name` of the pool belongs, root's or this user's, and its text: `command` with `arguments`.

    `settings` are lines of the section `[Service]`. Without a `command` it is this installation's.
    """
    root = os.geteuid() == 0
    directory = Path("/etc/systemd/system") if root else Path.home() / ".config/systemd/user"
    command = command or shutil.which("stripewise") or f"{sys.executable} -m stripewise"
    # systemd reads %, $ and quotes.
    words = " ".join(
        '"' + word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$") + '"'
        for word in arguments
    )
    text = (
        f"[Unit]\nDescription=Stripewise: {purpose}\n\n"
        f"[Service]\nExecStart={command} {words}\nRestart=on-failure\n{settings}\n"
        f"[Install]\nWantedBy={'multi-user' if root else 'default'}.target\n"
    )
    return directory / f"stripewise-{name}-{pool.name}.service", text


def install(file: Path, text: str) -> str:
    """Writes a unit; the command that starts it. Raises `StripewiseError` where there is one already."""
    file.parent.mkdir(parents=True, exist_ok=True)
    try:
        with file.open("x", encoding="utf-8") as unit_file:
            unit_file.write(text)
    except FileExistsError as error:
        raise StripewiseError(f"{file} exists; remove it first") from error
    return f"systemctl {'' if file.is_relative_to('/etc') else '--user '}enable --now {file.name}"
