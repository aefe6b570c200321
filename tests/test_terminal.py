"""What others have named reaches a terminal as text: it is no markup, and commands nothing."""

import functools
import io
import os
import re
import shlex
import signal
import subprocess
import sys
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import rich.console

from stripewise.api.progress import told
from stripewise.cli import console, draining, fsck, show
from stripewise.terminal import middle, plain

NASTY = "[/red]:smile:\x1b[35;5m\x1b]0;owned\x07\x9b2J\u202etxt\r\udcff"
SHOWN = r"[/red]:smile:\x1b[35;5m\x1b]0;owned\x07\x9b2J\u202etxt\r\udcff"


def in_table():
    grid = console.table(["file", NASTY], title=NASTY, right=["file"])
    grid.add_row(NASTY, "1")
    console.out.print(grid)


def failing():
    with pytest.raises(SystemExit):
        console.fail(NASTY)


def moving():
    with console.moving() as progress:
        progress(NASTY, 1, 2)


def step():
    with console.steps() as begin:
        begin(NASTY)(1, 2)


def counted(bar):
    with bar(NASTY) as progress:
        progress(1, 2)


WAYS = {
    "table": in_table,
    "fail": failing,
    "moving": moving,
    "steps": step,
    **{way.__name__: lambda way=way: way(NASTY) for way in (console.say, console.warn, console.hint, console.result)},
    "script": lambda: console.script(NASTY),
    **{
        bar.__name__: lambda bar=bar: counted(bar)
        for bar in (console.reading, console.writing, console.counting, console.working)
    },
}


@pytest.mark.parametrize("way", WAYS)
def test_names_are_text_on_a_terminal(way, monkeypatch):
    terminal = io.StringIO()
    for stream in ("out", "err"):
        there = type(getattr(console, stream))(file=terminal, force_terminal=True, width=1000)
        monkeypatch.setattr(console, stream, there)
    WAYS[way]()
    shown = terminal.getvalue()
    assert SHOWN in shown
    for command in ("\x1b[35;5m", "\x1b]0", "\x07", "\x9b", "\u202e", "\udcff"):
        assert command not in shown


def test_moves_of_many_files_take_one_line_of_a_terminal(monkeypatch):
    terminal = io.StringIO()
    monkeypatch.setattr(console, "err", type(console.err)(file=terminal, force_terminal=True, width=100))
    with console.moving() as progress:
        for number in range(50):
            for done in (0, 100, 200):
                progress(f"f{number:02}", done, 200)
    shown = terminal.getvalue()
    assert "moving f49" in shown
    assert not re.search(r"moving f\d\d[^\n]*\n[^\n]*moving f", shown), "no picture has two files"


@pytest.mark.parametrize("letter", ["\u200b", "\u00ad", "\u2060", "\ufeff", "\u3164", "\ufe0f", "\U000e0041"])
def test_names_that_differ_by_what_is_shown_as_nothing_look_different(letter):
    shown = plain(f"run{letter}.dat")
    assert shown == f"run{letter.encode('unicode_escape').decode()}.dat"
    for kept in ("\u00e9", "e\u0301", "\u65e5\u672c", "\U0001f600", "\u0646\u0627\u0645", "a b"):
        assert plain(kept) == kept


def test_names_are_text_in_the_bar_of_a_notebook(monkeypatch):
    terminal = io.StringIO()
    made = functools.partial(rich.console.Console, file=terminal, force_terminal=True, width=1000)
    monkeypatch.setattr(rich.console, "Console", lambda **_: made())
    with told(progress=True, what=f"reading {NASTY}") as progress:
        progress(1, 2)
    shown = terminal.getvalue()
    assert f"reading {SHOWN}" in shown
    for command in ("\x1b[35;5m", "\x1b]0", "\x07", "\x9b", "\u202e", "\udcff"):
        assert command not in shown


def test_a_script_that_is_read_by_a_program_is_kept(capsys):
    console.script("lfs setstripe 'a\x1bb\rc'")
    assert capsys.readouterr().out == "lfs setstripe 'a\x1bb\rc'\n"


def test_a_script_keeps_its_lines_on_a_narrow_terminal(monkeypatch):
    terminal = io.StringIO()
    monkeypatch.setattr(console, "out", type(console.out)(file=terminal, force_terminal=True, width=20))
    script = "set -e\nlfs migrate -c 4 -S 1M /data/a\nlfs migrate -c 4 -S 1M /data/b"
    console.script(script)
    assert terminal.getvalue() == script + "\n"


@pytest.mark.parametrize("width", [40, 80, 200])
def test_a_heat_map_is_as_wide_as_there_is_room_and_shows_both_ends(width, monkeypatch):
    parts = [{"length": 4096, "read_bytes": 4096 * (number in (0, 63)), "write_bytes": 0} for number in range(64)]
    row = {"path": PATH, "files": 1, "heat": parts, "extent_bytes": 64 * 4096, "operations": {}, "ranks": [0]}
    op = {"requests": 2, "bytes": 8192, "common_sizes": [(4096, 2)], "rate_bytes_per_s": 1e6, "mean_concurrency": 1.0}
    terminal = io.StringIO()
    monkeypatch.setattr(console, "out", type(console.out)(file=terminal, width=width))
    show._show_files([{**row, "reads": op, "writes": {"requests": 0}}], all_files=False)
    lines = terminal.getvalue().splitlines()
    assert max(len(line) for line in lines) <= width
    at = next(line.index("heat") for line in lines if "heat" in line)
    (bars,) = (line[at:] for line in lines if "█" in line)
    # A letter may stand for several parts, of which one was read.
    assert bars[0] > " " and not bars.rstrip()[1:-1].strip()
    assert len(bars.rstrip()) == min(64, width - at)


def test_a_name_stays_on_the_line_of_its_finding():
    finding = {
        "outcome": "note",
        "kind": "kind",
        "path": "a\nLEFT     forged",
        "server": None,
        "object": "b\tc",
        "what": "it says 'x\ny'",
        "action": "none",
    }
    assert fsck.line(finding) == rf"note     kind{' ' * 17}a\nLEFT     forged, b\tc: it says 'x\ny' -- none"


def test_a_narrow_terminal_folds_and_cuts_nothing(monkeypatch):
    terminal = io.StringIO()
    monkeypatch.setattr(console, "out", type(console.out)(file=terminal, width=40))
    path, layout = "/data/scratch/" + "long" * 12, "hdd.0-5:64KiB ssd.0-1:192KiB"
    grid = console.table(["datafile", "round", "size"], right=["size"])
    grid.add_row(path, layout, "640 KiB")
    console.out.print(grid)
    lines = terminal.getvalue().splitlines()
    assert max(len(line) for line in lines) <= 40
    assert "…" not in terminal.getvalue()
    columns = [lines[0].index(name) for name in ("datafile", "round")]
    assert "".join(line[columns[0] : columns[1]].strip() for line in lines[1:]) == path
    assert "640 KiB" in lines[1]


PATH = "/scratch/project_465000123/user/run_0042/output/plt00010/Level_2/of_all_levels/Cell_D_00731.h5"


def wide_table():
    figures = ["requests", "bytes", "MiB/s", "in flight", "ranks"]
    grid = console.table(["file", "op", "sizes", *figures], title="A title", right=figures, paths=["file"])
    grid.add_row(PATH, "write", "1MiBx123456 64KiBx12 47Bx3", "123,471", "120 GiB", "1996", "512.0", "1,024")
    grid.add_row("", "read", "1MiBx2", "2", "2.0 MiB", "61.3", "1.0", "1")
    return grid


@pytest.mark.parametrize("width", [40, 60, 80, 120, 200])
def test_a_table_keeps_to_the_width_and_every_figure_is_whole(width, monkeypatch):
    terminal = io.StringIO()
    monkeypatch.setattr(console, "out", type(console.out)(file=terminal, width=width))
    console.out.print(wide_table())
    lines = terminal.getvalue().splitlines()
    assert max(len(line) for line in lines) <= width
    shown = terminal.getvalue()
    for figure in ("123,471", "120 GiB", "1996", "512.0", "1,024", "2.0 MiB", "61.3"):
        assert figure in shown
    together = shown.replace("\n", " ")
    assert all(word in " ".join(together.split()) for word in ("1MiBx123456", "64KiBx12", "47Bx3"))
    # A path is whole, or has lost its middle: its end, in which files differ, is there.
    assert PATH in shown or ("…" in shown and "_00731.h5" in shown and "/scr" in shown)
    assert (PATH in shown) == (width == 200)


@pytest.mark.parametrize(
    ("path", "width", "shown"),
    [
        ("/a/b/c.h5", 9, "/a/b/c.h5"),
        ("/scratch/run/c.h5", 10, "/sc…n/c.h5"),
        ("abc", 2, "…c"),
        ("abc", 1, "…"),
        ("abc", 0, ""),
    ],
)
def test_what_is_too_long_loses_its_middle(path, width, shown):
    assert middle(path, width) == shown
    assert len(shown) <= max(width, 0)


@pytest.mark.parametrize("width", [40, 60, 80])
def test_a_command_is_continued_behind_backslashes_and_stays_the_same_command(width, monkeypatch):
    terminal = io.StringIO()
    monkeypatch.setattr(console, "out", type(console.out)(file=terminal, width=width, force_terminal=True))
    command = "lfs migrate -c 4 -S 1M -p fast '/data/a name with blanks' /data/x\\ y # it's said here and nowhere else"
    console.command(command)
    shown = terminal.getvalue()
    assert shlex.split(shown.replace("\\\n", ""), comments=True) == shlex.split(command, comments=True)
    code = shown.split("#")[0].splitlines()
    assert all(len(line) <= width for line in code)


def test_a_line_of_a_result_goes_on_at_a_word_on_a_terminal_alone(monkeypatch):
    line = "wrong: " + "many words " * 20
    for force, most in ((True, 60), (False, len(line))):
        terminal = io.StringIO()
        monkeypatch.setattr(console, "out", type(console.out)(file=terminal, width=60, force_terminal=force))
        console.result(line, 2)
        lines = terminal.getvalue().splitlines()
        assert max(map(len, lines)) <= most + 2
        assert (len(lines) > 1) == force
        assert " ".join(terminal.getvalue().split()) == line.strip()


def test_a_word_of_the_command_line_that_is_not_utf_8_is_named(pool):
    refused = pool.stripewise("pool", "drain", pool.file, os.fsdecode(b"hdd.\xff"), check=False)
    assert (refused.returncode, "error: 'hdd.\\udcff' is not UTF-8; write it in UTF-8\n" in refused.stderr) == (1, True)


def test_a_table_within_a_group_is_a_list_of_rows_where_it_has_no_room():
    """As in `stripewise top`."""
    written = io.StringIO()
    narrow = console._Plain(file=written, width=30, force_terminal=True)
    grid = console.table(["server", "requests", "time/request"], right=["requests", "time/request"])
    grid.add_row("hdd.0", "1,234,567", "1.23 ms")
    narrow.print(rich.console.Group("a title", grid))
    lines = [line.split() for line in written.getvalue().splitlines()]
    assert ["hdd.0"] in lines and len(lines) == 4
    assert "1,234,567" in written.getvalue() and "1.23 ms" in written.getvalue()


def test_bars_of_moves_show_bytes_that_are_copied(monkeypatch):
    """A mover tells of each byte twice, as copied and as read back; `--rate` and `top` count it once."""
    shown = []
    bar = SimpleNamespace(add_task=lambda *_, **__: 0, update=lambda _task, **of: shown.append(of))
    monkeypatch.setattr(console, "_progress", lambda *_: nullcontext(bar))
    with console.moving() as progress:
        assert progress("f", 600, 2000)
    with draining.moving("draining hdd.0") as progress:
        assert progress("f", 600, 2000)
    assert [(of["completed"], of["total"]) for of in shown] == [(300, 1000)] * 2


def test_ctrl_c_while_a_command_is_loaded_leaves_no_traceback(tmp_path):
    """A module that is loaded for it gets the signal, in the place of a person's Ctrl-C."""
    (tmp_path / "typer.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\nraise SystemExit(9)\n")
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    # Where this runs in the background of a shell the signal may be ignored.
    begin = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    command = [sys.executable, "-c", f"{begin}; from stripewise.cli import main; main()"]
    done = subprocess.run(command, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (-signal.SIGINT, "")
