"""systemd units that run a command of Stripewise for a pool."""

from __future__ import annotations

import os
import re
import shutil
import sys
from contextlib import suppress
from pathlib import Path

from stripewise._native import StripewiseError
from stripewise.pool import Pool

AGAIN_S = 30
"""From a failure to the next try: a disk that comes late is there then, and the log has no line a second."""

NOT_IN_A_UNIT = re.compile("[\\x00-\\x08\\x0b-\\x1f\\x7f\\ud800-\\udfff]")
"""Of such a letter systemd makes the end of a line, or refuses the line."""


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
    started = " ".join(map(_program, [command] if command else _own_command()))
    # systemd overlooks a place that is not normalised.
    named = [pool.file.parent, *(server.path for server in pool.meta.servers)]
    places = dict.fromkeys(os.path.normpath(place) for place in named)
    # A command line has variables, too.
    words = " ".join(_quoted(word).replace("$", "$$") for word in arguments)
    text = (
        f"[Unit]\nDescription=Stripewise: {purpose}\n"
        f"RequiresMountsFor={' '.join(map(_quoted, places))}\n"
        f"After=local-fs.target remote-fs.target\n\n"
        f"[Service]\nExecStart={started} {words}\nRestart=on-failure\nRestartSec={AGAIN_S}\n{settings}\n"
        f"[Install]\nWantedBy={'multi-user' if root else 'default'}.target\n"
    )
    return directory / f"stripewise-{name}-{pool.name}.service", text


def _own_command() -> list[str]:
    """This installation's: systemd takes an absolute path alone."""
    found = shutil.which("stripewise")
    return [os.path.abspath(found)] if found is not None else [sys.executable, "-m", "stripewise"]


def _of_user() -> Path:
    """Where the units of this user are, as systemd has it."""
    configured = Path(os.environ.get("XDG_CONFIG_HOME", ""))
    return (configured if configured.is_absolute() else Path.home() / ".config") / "systemd/user"


def _quoted(word: str) -> str:
    """A word of a setting; systemd reads quotes, and % names things of its own."""
    if "\n" in word:
        raise StripewiseError(f"{word!r} has a line feed, which no systemd unit can have: rename it")
    if NOT_IN_A_UNIT.search(word):
        raise StripewiseError(
            f"{word!r} has a letter that commands a terminal, or is not UTF-8, "
            "which no systemd unit can have: rename it"
        )
    return '"' + word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%") + '"'


def _program(word: str) -> str:
    """A word of what is started, in which systemd sees no variables: quoted only where it has to be."""
    return word if re.fullmatch(r"[\w/.+-]+", word, re.ASCII) else _quoted(word)


def install(file: Path, text: str) -> str:
    """Writes a unit; the command that starts it.

    Raises `StripewiseError` where there is one already, and where it cannot be written: then nothing of it stays.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    try:
        unit_file = file.open("x", encoding="utf-8")
    except FileExistsError as error:
        raise StripewiseError(f"{file} exists; remove it first") from error
    try:
        with unit_file:
            unit_file.write(text)
    except OSError as error:
        with suppress(OSError):
            file.unlink()
        raise StripewiseError(f"{file} cannot be written: {error.strerror}; make room there, and call again") from error
    return f"systemctl {'' if file.is_relative_to('/etc') else '--user '}enable --now {file.name}"
