"""`stripewise signature`."""

from __future__ import annotations

import json
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from stripewise import _native
from stripewise._native import StripewiseError
from stripewise.cli import console
from stripewise.cli.opened import opened
from stripewise.units import about_bytes, seconds

SHOWN_PARTS = 4
"""Parts of a trace signature in the table; what has more is cut."""
JSON_PARTS = 10_000
"""Parts up to which a trace signature is in the JSON."""


def signature(
    log: Annotated[Path, typer.Argument(metavar="LOG", help="A trace, or a log of another tool.")],
    file: Annotated[
        list[str] | None,
        typer.Option(
            "--file", "-f", metavar="PATTERN", help="Look closer at these files: a path, its end, or a pattern with *."
        ),
    ] = None,
    rank: Annotated[
        list[int] | None, typer.Option("--rank", "-r", metavar="N", min=0, help="Look closer at this rank.")
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Compare every request with what the signatures expand to.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print everything as JSON, every process's signature.")
    ] = False,
) -> None:
    """Tell how each file is used: a signature that rebuilds its requests, its pattern, and one line of plain words.

    The trace signature of a process is its requests to one file as nested loops, in order of their start. Its pattern
    is five factors: operation, place in the file, repetition, size, time. The ratio is that of numbers: an offset and a
    size a request, to those that the signature has. With --file or --rank the signature of every process is shown, and
    the phases of the file. docs/signature.md explains the notation.

    \b
    Examples:
      stripewise signature run.trace
      stripewise signature job.darshan --file '*.h5'
      stripewise signature job.darshan --file out.h5 --rank 3
      stripewise signature run.trace --check
    """
    trace = opened(log)
    with console.working("signing") as progress:
        signed = trace.signature(progress)
    files = _matching(signed.files(), file or [], log)
    closer = bool(file or rank)
    processes = signed.processes() if closer or as_json else []
    kept = {row["file"] for row in files}
    processes = [row for row in processes if row["file"] in kept and (not rank or row["rank"] in rank)]
    if rank:
        if not processes:
            raise StripewiseError(f"no process of rank {', '.join(map(str, rank))} read or wrote these files in {log}")
        acted = {row["file"] for row in processes}
        files = [row for row in files if row["file"] in acted]
    if as_json:
        _print_json(trace, signed, files, processes)
    elif not files:
        console.result(f"no file of {log} was read or written, as far as it says: there is nothing to sign")
    elif closer:
        for row in files:
            _print_closer(signed, row, [process for process in processes if process["file"] == row["file"]])
    else:
        _print_files(trace, signed, files)
    unknown = sum(row["unknown_offsets"] for row in files)
    if unknown:
        console.warn(f"{unknown:,} requests are left out, since {log} does not have their offsets")
    if check:
        with console.working("checking") as progress:
            checked = signed.check(progress)
        console.say(f"checked: the signatures expand to exactly the {checked:,} requests of {log}")


def _matching(files: list[_native.FileSignature], patterns: list[str], log: Path) -> list[_native.FileSignature]:
    if not patterns:
        return files

    def fits(path: str, pattern: str) -> bool:
        return path == pattern or path.endswith(f"/{pattern}") or fnmatchcase(path, pattern)

    for pattern in patterns:
        if not any(fits(row["path"], pattern) for row in files):
            known = ", ".join(row["path"] for row in files[:3]) or "none"
            more = ", ..." if len(files) > 3 else ""
            raise StripewiseError(
                f"--file {pattern}: no file of {log} that was read or written has this path; those are {known}{more}"
            )
    return [row for row in files if any(fits(row["path"], pattern) for pattern in patterns)]


def _print_files(trace: _native.Trace, signed: _native.TraceSignature, files: list[_native.FileSignature]) -> None:
    right = ["processes", "requests", "bytes", "phases", "ratio"]
    grid = console.table(["file", *right], right=right)
    for row in files:
        grid.add_row(
            row["path"],
            f"{row['processes']:,}",
            f"{row['requests']:,}",
            about_bytes(row["read_bytes"] + row["written_bytes"]),
            str(len(row["phases"])),
            _ratio(row["ratio"]),
        )
    console.out.print(grid)
    console.out.print()
    for row in files:
        console.result(f"{row['path']}: {row['words']}")
        console.out.print(Text(f"  {row['pattern']}", "dim"))
    console.out.print()
    programs = console.table(["program", "files", *right[:3], "ratio", "pattern"], right=["files", *right])
    for program in signed.programs():
        programs.add_row(
            program["program"],
            f"{program['files']:,}",
            f"{program['processes']:,}",
            f"{program['requests']:,}",
            about_bytes(program["read_bytes"] + program["written_bytes"]),
            _ratio(program["ratio"]),
            program["pattern"],
        )
    console.out.print(programs)
    without = len(trace.files()) - len(files)
    if without:
        console.say(f"{without:,} other files were opened or asked about, and neither read nor written")


def _print_closer(
    signed: _native.TraceSignature, file: _native.FileSignature, processes: list[_native.ProcessSignature]
) -> None:
    console.result(f"{file['path']}: {file['words']}")
    console.result(f"  {file['pattern']}; {file['requests']:,} requests, numbers {_ratio(file['ratio'])}")
    if len(file["phases"]) > 1:
        right = ["phase", "from", "to", "requests", "read", "written"]
        grid = console.table(right, right=right)
        for number, phase in enumerate(file["phases"]):
            grid.add_row(
                str(number),
                seconds(phase["start_s"]),
                seconds(phase["end_s"]),
                f"{phase['requests']:,}",
                about_bytes(phase["read_bytes"]),
                about_bytes(phase["written_bytes"]),
            )
        console.out.print(grid)
    right = ["rank", "process", "requests", "phases", "ratio"]
    grid = console.table([*right, "trace signature, and its pattern"], right=right)
    grid.columns[-1].overflow = "fold"
    for row in processes:
        text = signed.text(row["file"], row["process"], SHOWN_PARTS)
        more = f"; ... ({row['parts']:,} parts)" if row["parts"] > SHOWN_PARTS else ""
        grid.add_row(
            str(row["rank"]),
            str(row["pid"] or "-"),
            f"{row['requests']:,}",
            str(len(row["phases"])),
            _ratio(row["ratio"]),
            _told(text + more, row["pattern"]),
        )
    console.out.print(grid)


def _print_json(
    trace: _native.Trace,
    signed: _native.TraceSignature,
    files: list[_native.FileSignature],
    processes: list[_native.ProcessSignature],
) -> None:
    def text(row: _native.ProcessSignature) -> str | None:
        return signed.text(row["file"], row["process"]) if row["parts"] <= JSON_PARTS else None

    document = {
        "about": trace.about(),
        "files": files,
        "programs": signed.programs(),
        "processes": [{**row, "signature": text(row)} for row in processes],
    }
    console.result(json.dumps(document, indent=2))


def _told(words: str, pattern: str) -> Text:
    return Text.assemble(words, "\n", (pattern, "dim"))


def _ratio(ratio: float) -> str:
    return f"{ratio:,.0f}:1" if ratio >= 10 else f"{ratio:.1f}:1"
