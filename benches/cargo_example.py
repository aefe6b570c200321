"""Figures that a compiled example of a crate prints."""

from collections.abc import Sequence

from benches.frame import ROOT, checked


def output_of(package: str, example: str, arguments: Sequence[str] = (), *, accept: Sequence[int] = (0,)) -> list[str]:
    """Builds and runs an example in release; the lines that it printed."""
    command = ["cargo", "run", "--quiet", "--release", "--package", package, "--example", example, "--"]
    return checked([*command, *arguments], cwd=ROOT, accept=accept).splitlines()
