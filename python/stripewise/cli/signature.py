"""`stripewise signature`."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from stripewise import StripewiseError
from stripewise.api.job import job_of
from stripewise.api.signing import Wanted, grouped, matching, programs_of, sign
from stripewise.cli import console
from stripewise.cli.opened import opened
from stripewise.cli.opening import show_job
from stripewise.terminal import plain
from stripewise.units import about_bytes, seconds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stripewise.api.documents import FileSignature, ProcessSignature, ProgramSignature
    from stripewise.api.signing import SignedAlike

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
    everything: Annotated[bool, typer.Option("--all", help="List every file, however many.")] = False,
    dask: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Sign an imported log on the workers of this Dask scheduler."),
    ] = None,
) -> None:
    """Tell how each file is used: a signature that rebuilds its requests, its pattern, and one line of plain words.

    The trace signature of a process is its requests to one file as nested loops, in order of their start. Its pattern
    is five factors: operation, place in the file, repetition, size, time. The ratio is that of numbers: an offset and a
    size a request, to those that the signature has. With --file or --rank the signature of every process is shown, and
    the phases of the file. Files that are named alike but for numbers and used alike are one row, the largest first.
    `stripewise help signature` explains the notation.

    \b
    Examples:
      stripewise signature run.trace
      stripewise signature job.darshan --file '*.h5'
      stripewise signature job.darshan --file out.h5 --rank 3
      stripewise signature run.trace --check
      stripewise signature run.imported --dask tcp://node1:8786
    """
    closer = bool(file or rank)
    wanted = Wanted(
        processes=closer or as_json,
        patterns=tuple(file or ()),
        ranks=tuple(rank or ()),
        parts=JSON_PARTS if as_json else SHOWN_PARTS,
        cut=not as_json,
        check=check,
    )
    trace = opened(log, index=dask is not None)
    with console.working("signing and checking" if check else "signing") as progress:
        signed = sign(trace, wanted, progress, dask=dask)
    files = matching(signed.files, file or [], log)
    if rank:
        if not signed.processes:
            raise StripewiseError(f"no process of rank {', '.join(map(str, rank))} read or wrote these files in {log}")
        acted = {row["file"] for row, _ in signed.processes}
        files = [row for row in files if row["file"] in acted]
    programs, job = programs_of(signed, trace), job_of(trace, dask, console.working)
    if as_json:
        document = {
            "about": trace.about,
            "job": job,
            "files": files,
            "programs": programs,
            "processes": [{**row, "signature": text} for row, text in signed.processes],
        }
        console.document(document)
    elif not files:
        console.result(f"no file of {log} was read or written, as far as it says: there is nothing to sign")
    elif closer:
        show_job(job)
        by_file = groupby(signed.processes, key=lambda process: process[0]["file"])
        of_file = {number: list(group) for number, group in by_file}
        for row in files:
            _print_closer(row, of_file.get(row["file"], []))
    else:
        show_job(job)
        _print_files(len(trace.paths) - len(files), files, programs, everything)
    unknown = sum(row["unknown_offsets"] for row in files)
    if unknown:
        console.warn(f"{unknown:,} requests are left out, since {log} does not have their offsets")
    if check:
        console.say(f"checked: the signatures expand to exactly the {signed.checked:,} requests of {log}")


def _print_files(without: int, files: list[FileSignature], programs: list[ProgramSignature], everything: bool) -> None:
    right = ["processes", "requests", "bytes", "phases", "ratio"]
    # `--all` lists each file by itself, largest first as well.
    rows = [group for row in files for group in grouped([row])] if everything else grouped(files)
    rows.sort(key=lambda row: -row.bytes)
    if len(rows) > 1:
        _mostly(rows)
    named = console.named([len(row.files) for row in rows])
    grid = console.table([named, *right], right=right, paths=[named])
    for row in console.shown(rows, everything=everything):
        grid.add_row(
            console.how_many(row.path, len(row.files)),
            f"{row.processes:,}",
            f"{row.requests:,}",
            about_bytes(row.bytes),
            str(row.phases),
            _ratio(row.ratio),
        )
    console.out.print(grid)
    console.out.print()
    for row in console.shown(rows, everything=everything):
        console.result(f"{console.short(row.path)}: {row.words}")
        if row.files[0]["pattern"]:
            console.result(row.files[0]["pattern"], 2, "dim")
    console.say_more(rows, "rows of files", everything=everything, otherwise=", --json has everything")
    console.out.print()
    of_program = ["files", *right[:3], "ratio"]
    by_program = console.table(["program", *of_program], right=of_program, paths=["program"])
    for program in console.shown(programs, everything=everything):
        by_program.add_row(
            program["program"],
            f"{program['files']:,}",
            f"{program['processes']:,}",
            f"{program['requests']:,}",
            about_bytes(program["read_bytes"] + program["written_bytes"]),
            _ratio(program["ratio"]),
        )
    console.out.print(by_program)
    for program in console.shown(programs, everything=everything):
        console.result(f"{program['program']}: {program['pattern']}", 2, "dim")
    console.say_more(programs, "programs", everything=everything, otherwise=", --json has everything")
    if without:
        console.say(f"{without:,} other files were opened or asked about, and neither read nor written")


def _mostly(rows: Sequence[SignedAlike]) -> None:
    """What most of the bytes are: the row that moves most."""
    most, total = rows[0], sum(row.bytes for row in rows)
    if total:
        name = console.how_many(console.short(most.path), len(most.files))
        console.result(
            f"{100 * most.bytes / total:.0f} % of {about_bytes(total)} are of {name}: {most.files[0]['words']}"
        )
        console.out.print()


def _print_closer(file: FileSignature, processes: list[tuple[ProcessSignature, str | None]]) -> None:
    console.result(f"{file['path']}: {file['words']}")
    if not processes:
        # No offset of it is known.
        return
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
    for row, text in processes:
        more = f"; ... ({row['parts']:,} parts)" if row["parts"] > SHOWN_PARTS else ""
        grid.add_row(
            str(row["rank"]),
            str(row["pid"] or "-"),
            f"{row['requests']:,}",
            str(len(row["phases"])),
            _ratio(row["ratio"]),
            _told(f"{text}{more}", row["pattern"]),
        )
    console.out.print(grid)


def _told(words: str, pattern: str) -> Text:
    return Text.assemble(plain(words), "\n", (plain(pattern), "dim"))


def _ratio(ratio: float) -> str:
    return f"{ratio:,.0f}:1" if ratio >= 10 else f"{ratio:.1f}:1"
