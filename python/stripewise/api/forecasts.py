"""What a layout file would do to each of its files by itself: one that cannot move keeps no other from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from stripewise import _native, layouts
from stripewise.api.least_moves import FILE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from stripewise._native import ForecastFile
    from stripewise.pool import Pool

__all__ = ["Forecast", "of_each", "of_layout"]


@dataclass(frozen=True)
class Forecast:
    """Of one file."""

    path: str
    text: str
    """A layout file for it alone."""
    file: ForecastFile | None
    """`None`: no file is there any more, or it cannot move."""
    why: str | None
    """It cannot move."""

    @property
    def block(self) -> str:
        """Its part of a layout file."""
        return "".join(self.text.partition(FILE)[1:])


def of_layout(pool: Pool, layout: str) -> list[Forecast]:
    """Of each file of the layout file with this text. O(text, and files)."""
    head, *blocks = layout.split(FILE)
    return of_each(pool, (f"{head}{FILE}{block}" for block in blocks))


def of_each(pool: Pool, texts: Iterable[str]) -> list[Forecast]:
    """Of layout files with one file each, by their texts. Raises `StripewiseError` where one is none of this pool."""
    known = list(texts)
    if not known:
        return []
    found = _native.layout_forecasts(known, str(pool.file))
    return [
        Forecast(layouts.exact_path(of["path"]), text, of["file"], of["why"])
        for text, of in zip(known, found, strict=True)
    ]
