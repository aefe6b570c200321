"""Of many files a command lists the first ones, says how many there are, and lists all when it is asked for that."""

import io
from pathlib import Path
from types import SimpleNamespace

import pytest

from stripewise.api import optimizing as report
from stripewise.cli import console, optimize

FILES = 25
NAMES = [f"f{chr(97 + number)}" for number in range(FILES)]
MAKE = f"for n in {' '.join(NAMES)}; do head -c 300000 /dev/zero > MOUNT/$n; cat MOUNT/$n > /dev/null; done"


def test_plan(emulated):
    trace, layout = emulated.base / "t", emulated.base / "l"
    script = MAKE.replace("MOUNT", str(emulated.mount))
    emulated.stripewise("trace", "--pool", emulated.file, "-o", trace, "--", "sh", "-c", script)
    command = ("plan", trace, "--pool", emulated.file, "-o", layout, "--planner", "regions")
    few = emulated.stripewise(*command)
    assert [line.strip() for line in few.stdout.splitlines() if line.strip() in NAMES] == NAMES[:20]
    assert "and 5 more rows of files: --all lists them" in few.stderr
    every = emulated.stripewise(*command, "--all")
    assert [line.strip() for line in every.stdout.splitlines() if line.strip() in NAMES] == NAMES
    assert "more rows" not in every.stderr


@pytest.mark.parametrize("everything", [False, True])
def test_optimize(monkeypatch, everything):
    """Reads and writes of a region are lines of one entry."""
    rows = [
        report.Row(f"f{chr(97 + number)}", 0, None, ["old"], ["new"], op, 1, 1, 1.0, 2.0, 1.0, None)
        for number in range(FILES)
        for op in report.OPS
    ]
    streams = {name: io.StringIO() for name in ("out", "err")}
    for name, stream in streams.items():
        monkeypatch.setattr(console, name, type(console.out)(file=stream, width=1000))
    monkeypatch.setattr(report, "rows", lambda _: rows)
    outcome = SimpleNamespace(
        plan={"changes": True, "hints": []},
        predicted=None,
        io_gain=None,
        why="no reason",
        cache="",
        pool=SimpleNamespace(tiers=[SimpleNamespace(emulated=True)], label="emulated servers", mount=Path("mount")),
        before=[],
        after=[],
        directory=Path("kept"),
        kept=False,
        placement=None,
    )
    optimize._print(outcome, everything=everything)
    listed = [line.split()[0] for line in streams["out"].getvalue().splitlines() if line.startswith("f")]
    assert listed == [f"f{chr(97 + number)}" for number in range(FILES if everything else 20)]
    said = "and 5 more regions: --all lists them, kept/report.json has everything"
    assert (said in streams["err"].getvalue()) != everything


def test_optimize_shows_files_that_are_named_and_laid_out_alike_as_one():
    """The sum of their requests and bytes, the median of their throughputs; the largest first."""
    few = report.Row("log", 0, None, ["old"], ["new"], "write", 1, 10, 1.0, 2.0, 1.0, 4.0)
    many = [
        report.Row(f"out.{number}", 0, None, ["old"], ["new"], "write", 2, 100, 1.0, number, 1.0, number)
        for number in (3, 20, 4)
    ]
    other = report.Row("out.5", 0, None, ["old"], ["newer"], "write", 2, 1, 1.0, 2.0, 1.0, None)
    together, alone, least = report.grouped([few, *many, other])
    assert (together.path, together.files, together.requests, together.bytes) == ("out.*", 3, 6, 300)
    assert (together.predicted_after, together.measured_after, together.measured_ratio) == (4, 4, 4)
    assert (alone, least) == (few, other)
    assert {row.path for row in report.grouped(many[:1])} == {"out.3"}
