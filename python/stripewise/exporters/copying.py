"""Files whose layout cannot be changed in place: a new one beside them gets their bytes, then their name."""

from __future__ import annotations

import posixpath

from stripewise.exporters.shell import Command, command


def new_name(path: str) -> str:
    """The file beside `path` that takes its bytes."""
    directory, name = posixpath.split(path)
    # A name has at most 255 bytes; a prefix of the old one tells which file it belongs to.
    kept = name.encode("utf-8", "surrogateescape")[:200].decode("utf-8", "ignore")
    return posixpath.join(directory, f".stripewise-new.{kept}")


def before_copy(path: str) -> Command:
    """Stops the script at a symbolic link, whose place the copy would take."""
    return command("test", "!", "-L", path)


def copied(path: str, new: str) -> list[Command]:
    """Copies `path` into the empty file `new`, compares, and renames it over `path`.

    No program may write the file meanwhile; further hard links and open descriptors keep the old bytes.
    """
    return [
        command("cp", "-p", path, new),
        command("cmp", path, new),
        command("mv", "-f", new, path),
    ]
