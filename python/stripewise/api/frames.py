"""Data frames of results. Polars takes longer to load than a command to run: it is loaded with the first frame."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from operator import itemgetter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import polars as pl

Schema = Mapping[str, str]
"""Names of columns, and of polars types: `UInt64`, `String`, `List(String)`."""


Columns = Mapping[str, tuple[str, Callable[[Any], Any]]]
"""Names of columns, each with its polars type and its value of a row's item."""


def frame(items: Iterable[Any], columns: Columns) -> pl.DataFrame:
    """A frame with a row for each item."""
    import polars as pl

    rows = [[value(item) for _, value in columns.values()] for item in items]
    return pl.DataFrame(rows, schema={name: _type(kind) for name, (kind, _) in columns.items()}, orient="row")


def of_records(records: Iterable[Mapping[str, Any]], schema: Schema) -> pl.DataFrame:
    """A frame of the values that records have under the columns' names."""
    return frame(records, {name: (kind, itemgetter(name)) for name, kind in schema.items()})


def _type(kind: str) -> Any:  # noqa: ANN401
    import polars as pl

    inner = re.fullmatch(r"List\((.*)\)", kind)
    return pl.List(_type(inner[1])) if inner else getattr(pl, kind)
