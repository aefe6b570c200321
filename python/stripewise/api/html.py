"""How results look in a notebook."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import polars as pl

ROWS = 20
"""Rows of a table that are shown."""


def shown(headline: str, frame: pl.DataFrame, job: Sequence[str] = ()) -> str:
    """Lines on the job and a line of text above a table, of which the first rows are shown."""
    import polars as pl

    with pl.Config(tbl_rows=ROWS, fmt_str_lengths=200):
        return f"<p>{'<br>'.join(map(escape, (*job, headline)))}</p>{frame._repr_html_()}"
