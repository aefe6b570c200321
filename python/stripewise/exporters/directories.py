"""Many new files of a directory with one native layout: the directory's default, in place of a command a file."""

from __future__ import annotations

import posixpath
from collections.abc import Sequence
from typing import Any

from stripewise.exporters.exported import ExportedFile
from stripewise.exporters.exporter import Exporter, Place, Present, RefusedError, Source
from stripewise.exporters.shell import file_argument

MOST_ALONE = 8
"""Files of a directory up to which each gets a command of its own: a default is for all that comes into it."""


def together(
    exporter: Exporter[Any],
    sources: Sequence[Source],
    files: Sequence[ExportedFile],
    root: str,
    present: Present | None,
) -> tuple[ExportedFile, ...]:
    """`files`, the translations of `sources`, with those of a directory as one where they are many and all agree.

    A directory stays as it is where one of its files has another layout or none, and where it has a default already.
    """
    members: dict[str, list[int]] = {}
    apart: set[str] = set()
    for at, (source, file) in enumerate(zip(sources, files, strict=True)):
        directory = source.path if source.is_directory else posixpath.dirname(source.path)
        if source.is_directory or file.refused is not None:
            apart.add(directory)
        members.setdefault(directory, []).append(at)
    merged: dict[int, ExportedFile | None] = {}
    for directory, places in members.items():
        of = [files[at] for at in places]
        if directory in apart or len(of) <= MOST_ALONE or any(file.native != of[0].native for file in of):
            continue
        default = _default(exporter, directory, of, root, present)
        if default is not None:
            merged.update(dict.fromkeys(places))
            merged[places[0]] = default
    kept = (merged.get(at, file) for at, file in enumerate(files))
    return tuple(file for file in kept if file is not None)


def _default(
    exporter: Exporter[Any], directory: str, of: Sequence[ExportedFile], root: str, present: Present | None
) -> ExportedFile | None:
    path = posixpath.join(root, directory) if directory else root or "."
    place = Place(file_argument(path), True, False, present)
    try:
        commands = exporter.commands(of[0].native, place)
        verify = exporter.verify(of[0].native, place)
    except RefusedError:
        return None
    losses = dict.fromkeys(loss for file in of for loss in file.losses)
    losses[
        f"the default of directory {directory or '.'}: all new files, not only those {len(of):,}, get it; files and "
        "directories in it keep what they have"
    ] = None
    ratios = [file.loss_ratio for file in of if file.loss_ratio is not None]
    return ExportedFile(
        pattern=f"{directory}/*" if directory else "*",
        path=place.path,
        is_directory=True,
        commands=tuple(commands),
        losses=tuple(losses),
        loss_ratio=max(ratios, default=None),
        verify=tuple(verify),
        native=of[0].native,
        placed=tuple(one for file in of for one in file.placed),
    )
