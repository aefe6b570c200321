"""Data frames of results. Polars takes longer to load than a command to run: it is loaded with the first frame."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import polars as pl

Schema = Mapping[str, str]
"""Names of columns, and of polars types: `UInt64`, `String`, `List(String)`."""


def frame(rows: Iterable[Sequence[Any]], schema: Schema) -> pl.DataFrame:
    """A frame of rows that have a value for each column."""
    import polars as pl

    return pl.DataFrame(list(rows), schema={name: _type(kind) for name, kind in schema.items()}, orient="row")


def of_records(records: Iterable[Mapping[str, Any]], schema: Schema) -> pl.DataFrame:
    """A frame of the values that records have under the columns' names."""
    return frame(([record[name] for name in schema] for record in records), schema)


def _type(kind: str) -> Any:  # noqa: ANN401
    import polars as pl

    inner = re.fullmatch(r"List\((.*)\)", kind)
    return pl.List(_type(inner[1])) if inner else getattr(pl, kind)
