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


def split(script: str) -> list[Command]:
    """The commands of a script made of `Command.text` lines and comments: what a reader of exports begins with.

    Raises `ValueError` where the text is not of that form.
    """
    commands: list[Command] = []
    lines = iter(script.splitlines(keepends=True))
    pending = ""
    for line in lines:
        if not pending and (line.startswith("#") or not line.strip()):
            continue
        pending += line
        body, _, here = pending.rstrip("\n").rpartition(f" <<'{_END}'")
        try:
            arguments = tuple(shlex.split(body if body and not here else pending))
        except ValueError:
            continue  # A quoted argument goes on in the next line.
        stdin = None
        if body and not here:
            stdin = ""
            for input_line in lines:
                if input_line == f"{_END}\n" or input_line == _END:
                    break
                stdin += input_line
        commands.append(Command(arguments, stdin))
        pending = ""
    if pending:
        raise ValueError(f"a quoted argument does not end: {pending!r}")
    return commands
