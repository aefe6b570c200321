"""systemd units that run a command of Stripewise for a pool."""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path

from stripewise._native import StripewiseError
from stripewise.pool import Pool

AGAIN_S = 30
"""From a failure to the next try: a disk that comes late is there then, and the log has no line a second."""


def unit(
    pool: Pool, name: str, purpose: str, arguments: list[str], *, command: str = "", settings: str = ""
) -> tuple[Path, str]:
    """Where the unit `name` of the pool belongs, root's or this user's, and its text: `command` with `arguments`.

    It begins when the pool file and the namespace can be reached, behind all mounts of the machine, and again some time
    after it has failed. A server that is missing does not keep it back: the pool goes on without that, too. `settings`
    are lines of the section `[Service]`. Without a `command` it is this installation's. Raises `StripewiseError` for a
    word that no unit can have.
    """
    root = os.geteuid() == 0
    directory = Path("/etc/systemd/system") if root else _of_user()
    own = shutil.which("stripewise")
    program = [command] if command else [own] if own is not None else [sys.executable, "-m", "stripewise"]
    places = dict.fromkeys([pool.file.parent, *(server.path for server in pool.meta.servers)])
    # A command line has variables, too.
    started = " ".join(map(_program, program))
    words = " ".join(_quoted(word).replace("$", "$$") for word in arguments)
    text = (
        f"[Unit]\nDescription=Stripewise: {purpose}\n"
        f"RequiresMountsFor={' '.join(_quoted(str(place)) for place in places)}\n"
        f"After=local-fs.target remote-fs.target\n\n"
        f"[Service]\nExecStart={started} {words}\nRestart=on-failure\nRestartSec={AGAIN_S}\n{settings}\n"
        f"[Install]\nWantedBy={'multi-user' if root else 'default'}.target\n"
    )
    return directory / f"stripewise-{name}-{pool.name}.service", text


def _of_user() -> Path:
    """Where the units of this user are, as systemd has it."""
    configured = Path(os.environ.get("XDG_CONFIG_HOME", ""))
    return (configured if configured.is_absolute() else Path.home() / ".config") / "systemd/user"


def _quoted(word: str) -> str:
    """A word of a setting; systemd reads quotes, and % names things of its own."""
    if "\n" in word:
        raise StripewiseError(f"{word!r} has a line feed, which no systemd unit can have: rename it")
    return '"' + word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%") + '"'


def _program(word: str) -> str:
    """A word of what is started, in which systemd sees no variables: quoted only where it has to be."""
    return word if re.fullmatch(r"[\w/.+-]+", word, re.ASCII) else _quoted(word)


def install(file: Path, text: str) -> str:
    """Writes a unit; the command that starts it. Raises `StripewiseError` where there is one already."""
    file.parent.mkdir(parents=True, exist_ok=True)
    try:
        with file.open("x", encoding="utf-8") as unit_file:
            unit_file.write(text)
    except FileExistsError as error:
        raise StripewiseError(f"{file} exists; remove it first") from error
    return f"systemctl {'' if file.is_relative_to('/etc') else '--user '}enable --now {file.name}"
