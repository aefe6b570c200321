"""Hints of a pool's directories: what files get that are made there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stripewise import _native
from stripewise._native import StripewiseError
from stripewise.places import Place

if TYPE_CHECKING:
    from collections.abc import Iterable

    from stripewise._native import Hints, Optimisation, OptimisationParameter, PathTaken

__all__ = [
    "Optimisation",
    "OptimisationParameter",
    "Place",
    "hint",
    "hints",
    "optimisations",
    "remove",
    "remove_all",
    "why",
]


def optimisations() -> list[Optimisation]:
    """All optimisations that a hint can name."""
    return _native.optimisation_table()


def hints(directory: Place) -> Hints:
    """What is said of files that are made in a directory.

    Raises `StripewiseError` where it is no directory, or its hints are damaged.
    """
    return _native.hints_of(str(directory.pool.file), directory.name)


def hint(directory: Place, settings: Iterable[str], *, pattern: str | None = None) -> Hints:
    """Says what files get that are made in a directory from now on, as in `["small=64K"]`.

    What else was said of exactly that pattern stays. Directories that are made there from now on take all hints over.
    `layout=` is a rule, as `apply` sets them: it reaches what is below the directory, too. Raises `StripewiseError`,
    and nothing is changed, where a setting is unknown or out of its range.
    """
    return _native.hint_set(str(directory.pool.file), directory.name, pattern, list(settings))


def remove(directory: Place, names: Iterable[str] = (), *, pattern: str | None = None) -> None:
    """Removes what was said of exactly that pattern: those optimisations, as in `["small"]`, or all of it.

    Raises `StripewiseError`, and nothing is changed, where one of them was not said of it.
    """
    asked = list(names)
    if not _native.hint_remove(str(directory.pool.file), directory.name, pattern, asked):
        of = "all names" if pattern is None else f"'{pattern}'"
        what = f"no hint {' and '.join(asked)}" if asked else "no hint"
        raise StripewiseError(f"{directory.name} has {what} for {of}; `stripewise hint DIR --show` lists what it has")


def remove_all(directory: Place) -> None:
    """Removes all hints of a directory, damaged ones too."""
    _native.hints_remove_all(str(directory.pool.file), directory.name)


def why(file: Place) -> PathTaken:
    """Why the requests on a file go where they go."""
    return _native.path_taken(str(file.pool.file), file.name)
