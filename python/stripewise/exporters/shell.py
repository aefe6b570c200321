"""Commands as lists of arguments, and the one place where they become text for a shell."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

_END = "STRIPEWISE_END"


@dataclass(frozen=True)
class Command:
    """A program with its arguments, and what it reads from its standard input."""

    arguments: tuple[str, ...]
    stdin: str | None = None

    @property
    def text(self) -> str:
        """As a POSIX shell takes it. Nothing in an argument is anything but that argument.

        Raises `ValueError` for what cannot be told to a program: a NUL byte.
        """
        if any("\0" in argument for argument in self.arguments):
            raise ValueError(f"an argument of {self.arguments[0]} has a NUL byte in it")
        line = " ".join(map(shlex.quote, self.arguments))
        if self.stdin is None:
            return line
        if _END in self.stdin.split("\n") or not self.stdin.endswith("\n"):
            raise ValueError("what a program reads is whole lines, none of them the line that ends it")
        return f"{line} <<'{_END}'\n{self.stdin}{_END}"


def command(*arguments: str) -> Command:
    """A command without input."""
    return Command(arguments)


def comment(text: str) -> str:
    """A comment of one line, whatever stands in `text`: a line break in a path would end it."""
    return "# " + "".join(character if character.isprintable() else ascii(character)[1:-1] for character in text)


def file_argument(path: str) -> str:
    """The path as an argument that no program takes for an option, or for its standard input."""
    return f"./{path}" if path.startswith("-") else path
