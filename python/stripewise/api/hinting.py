"""Hints of a pool's directories: what files get that are made there; and what a file has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stripewise import _native, mounts, places
from stripewise._native import StripewiseError
from stripewise.api import placing
from stripewise.places import Place
from stripewise.terminal import name

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from stripewise._native import (
        Hints,
        MountOpens,
        OpenTaken,
        Optimisation,
        OptimisationParameter,
        PathTaken,
    )
    from stripewise.pool import Pool

__all__ = [
    "MountOpens",
    "OpenTaken",
    "Optimisation",
    "OptimisationParameter",
    "PathTaken",
    "Place",
    "hint",
    "hint_file",
    "hints",
    "is_file",
    "optimisations",
    "place_of",
    "reason",
    "refusing",
    "remove",
    "remove_all",
    "remove_from_file",
    "why",
]


def optimisations() -> list[Optimisation]:
    """All optimisations that a hint can name."""
    return _native.optimisation_table()


def place_of(path: Path, pool: Pool | None = None) -> Place:
    """The pool that a directory or file is on, and the path in it; with `pool` also a path in that one.

    Of a link what it leads to. Raises `StripewiseError` where that is on no pool, or on another one.
    """
    return places.followed(placing.place_of(path, pool))


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
    asked = list(dict.fromkeys(names))
    if not _native.hint_remove(str(directory.pool.file), directory.name, pattern, asked):
        of = "all names" if pattern is None else f"'{pattern}'"
        what = f"no hint {' and '.join(asked)}" if asked else "no hint"
        raise StripewiseError(f"{directory.name} has {what} for {of}; `stripewise hint DIR --show` lists what it has")


def remove_all(directory: Place) -> None:
    """Removes all hints of a directory, damaged ones too."""
    _native.hints_remove_all(str(directory.pool.file), directory.name)


def is_file(place: Place) -> bool:
    """Whether there is a regular file, and no directory.

    Raises `StripewiseError` where there is neither, as links, pipes and devices have no hints.
    """
    return _native.is_file(str(place.pool.file), place.name)


def hint_file(file: Place, settings: Iterable[str]) -> None:
    """Gives a file optimisations from its next open on, as in `["readahead=8M"]`, also over those that it has.

    No byte of it moves. Raises `StripewiseError`, and nothing is changed, where a setting is unknown, out of its range
    or one that says where bytes are, or the file is open for writing.
    """
    _native.file_hint(str(file.pool.file), file.name, list(settings))


def remove_from_file(file: Place, names: Iterable[str] = ()) -> None:
    """Takes optimisations from a file, as in `["readahead"]`, or all but `small`.

    Raises `StripewiseError`, and nothing is changed, where it does not have one of them; and as `hint_file` does.
    """
    asked = list(dict.fromkeys(names))
    if not _native.file_unhint(str(file.pool.file), file.name, asked):
        what = " and ".join(asked) or "optimisation that can be taken from it"
        raise StripewiseError(f"{file.name} has no {what}; `stripewise hint FILE --show` lists what it has")


def why(file: Place) -> PathTaken:
    """Why the requests on a file go where they go: those of its next open, and in `opens` those of the last ones.

    A mount tells of its own opens, to users who may read the file: `refusing` names those that do not tell this one.
    Those of the library are known to their processes alone. Raises `StripewiseError` where the file's handle cannot be
    read, as by one who may not read the file.
    """
    told, refused = _asked(file)
    try:
        return _native.path_taken(str(file.pool.file), file.name, told)
    except StripewiseError as error:
        if not refused:
            raise
        raise StripewiseError(
            f"{file.name}: only users who may read the file are told which path it takes and its opens took: {error}"
        ) from error


def refusing(file: Place) -> list[str]:
    """The mounts that tell of the file's opens, and not to this user, who may not read it."""
    _, refused = _asked(file)
    return refused


def _asked(file: Place) -> tuple[list[tuple[str, str]], list[str]]:
    """What each mount says of the file's opens, and those that refuse to."""
    told: list[tuple[str, str]] = []
    refused: list[str] = []
    for mount in mounts.of_pool(file.pool.file):
        try:
            words = mount.opens(file.name)
        except PermissionError:
            refused.append(str(mount.point))
            continue
        if words is not None:
            told.append((str(mount.point), words))
    return told, refused


def reason(taken: PathTaken) -> str:
    """Who has given a file its path, as far as its handle tells, and the rule whose layout it has."""
    if not taken["has_handle"]:
        return "it has no handle: it was made beside the mount"
    reason = _reason_by_handle(taken)
    if taken["rule"] is None or not taken["has_layout_of_rule"]:
        return reason
    return f"{reason}; files of its path get this layout by the rule '{name(taken['rule'])}', of `apply` or a hint"


def _reason_by_handle(taken: PathTaken) -> str:
    given = ", ".join(taken["made_with"])
    is_as_made = taken["version"] == 1
    if given and (is_as_made or all(each.startswith("small=") for each in taken["made_with"])):
        return f"it was made with {given}"
    if given:
        return f"it has {given}, from when it was made or by `hint` or `adapt` since"
    if is_as_made:
        return "that is its layout; its handle has no optimisation"
    return "that is its layout by now: its layout or hints were changed since it was made, as `apply` and `adapt` do"
