"""Commands as lists of arguments, and the one place where they become text for a shell."""

from __future__ import annotations

import shlex
import string
from dataclasses import dataclass

_ENDS = ("STRIPEWISE_END", *(f"{letter}_STRIPEWISE_END" for letter in string.ascii_uppercase))
"""Markers of the end of an input: the first that fits is taken."""


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
        lines = self.stdin.split("\n")
        # dash 0.5.12 drops a byte that is no ASCII where a line has begun as the marker does.
        beyond = {text[:1] for text in lines if not text.isascii()}
        end = next((end for end in _ENDS if end not in lines and end[0] not in beyond), None)
        if end is None or not self.stdin.endswith("\n"):
            raise ValueError("what a program reads is whole lines, none of them the line that ends it")
        return f"{line} <<'{end}'\n{self.stdin}{end}"


def command(*arguments: str) -> Command:
    """A command without input."""
    return Command(arguments)


def comment(text: str) -> str:
    """A comment of one line, whatever stands in `text`: a line break in a path would end it."""
    return "# " + "".join(character if character.isprintable() else ascii(character)[1:-1] for character in text)


def file_argument(path: str) -> str:
    """The path as an argument that no program takes for an option, or for its standard input."""
    return f"./{path}" if path.startswith("-") else path
