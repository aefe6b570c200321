"""Traces and layouts as tables (polars data frames)."""

from __future__ import annotations

import polars as pl

from stripewise import _native


def of_trace(trace: _native.Trace) -> pl.DataFrame:
    """One row a record: program, rank, pid, tid, file, api, op, offset and size in bytes, start and end in ns."""
    names = trace.names()
    frame = pl.DataFrame(trace.columns())

    def named(column: str, values: dict[int, str]) -> pl.Expr:
        return pl.col(column).replace_strict(list(values), list(values.values()), return_dtype=pl.String)

    files = {number: str(path) for number, path in enumerate(trace.files())}
    programs = dict(enumerate(trace.programs()))
    return frame.select(
        named("program", programs),
        "rank",
        "pid",
        "tid",
        named("file", files),
        named("api", names["api"]),
        named("op", names["op"]),
        "offset",
        "size",
        "start_ns",
        "end_ns",
        "flags",
    )


def of_layout(document: _native.LayoutDocument) -> pl.DataFrame:
    """One row a stripe: file, region, offset of the region, place in the round, server, width in bytes."""
    rows = [
        {
            "file": file["path"],
            "region": number,
            "offset": region["offset"],
            "slot": slot,
            "server": stripe["server"],
            "width": stripe["width_bytes"],
        }
        for file in document["files"]
        for number, region in enumerate(file["regions"])
        for slot, stripe in enumerate(region["stripes"])
    ]
    schema = {
        "file": pl.String,
        "region": pl.UInt32,
        "offset": pl.UInt64,
        "slot": pl.UInt32,
        "server": pl.String,
        "width": pl.UInt64,
    }
    return pl.DataFrame(rows, schema=schema)
