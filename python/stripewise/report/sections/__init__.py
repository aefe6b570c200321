"""The sections of the page in their order: each a module with `NAME`, `TITLE` and `draw`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from stripewise.report.facts import Facts
from stripewise.report.markup import Markup
from stripewise.report.sections import (
    adapted,
    advice,
    commands,
    files,
    heat,
    lacks,
    layout_map,
    overview,
    processes,
    servers,
    sizes,
    small_files,
)


@dataclass(frozen=True)
class Section:
    """One idea of the page."""

    name: str
    """Its anchor."""
    title: str
    """Its heading, and its entry in the navigation."""
    draw: Callable[[Facts], Markup]
    """The section, or nothing where there is nothing to say."""


MODULES = (overview, advice, commands, layout_map, servers, adapted, small_files, heat, sizes, processes, files, lacks)
SECTIONS = tuple(Section(module.NAME, module.TITLE, module.draw) for module in MODULES)
