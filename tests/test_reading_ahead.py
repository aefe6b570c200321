"""`adapt` hints `readahead` where the last requests say that it gains, and leaves what people have hinted."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from stripewise import _native
from stripewise.api import adapt as adapting
from stripewise.api import kept_lines, reading_ahead
from stripewise.pool import Pool

BIN = Path(sys.executable).parent
WRITE = "import sys; open(sys.argv[1] + '/f', 'wb').write(bytes(range(256)) * 32768)"
READ = """
import os, sys
file = os.open(f"{sys.argv[1]}/f", os.O_RDONLY)
for piece in range(128):
    place = piece if sys.argv[2] == "in order" else (piece * piece * 31 + piece * 77) % 128
    assert len(os.pread(file, 65536, place * 65536)) == 65536
"""


@pytest.fixture
def read(tmp_path, stripewise):
    """A file on emulated HDDs that was read in order, in small pieces; times are a hundredth of the real ones."""
    base = tmp_path / "p"
    stripewise("pool", "init", base, "--emulate", "--hdd", "4", "--dilation", "0.01")
    file = base / "pool.toml"
    file.write_text(file.read_text() + '\n[heat]\nperiod = "31000000s"\n')
    run(stripewise, file, WRITE)
    run(stripewise, file, READ, "in order")
    return stripewise, file


def run(stripewise, file, script, *arguments):
    mount = file.parent / "mount"
    stripewise("run", "--quiet", "--pool", file, "--", "python3", "-c", script, mount, *arguments)


def hints(file, **how):
    return adapting.reconsider(Pool.load(file), adapting.Limits(), planner="fixed", **how).get("hints", [])


def said(file):
    return [hint["optimisations"] for hint in _native.hints_of(str(file), ".")["hints"]]


def made_with(file, path):
    return _native.path_taken(str(file), path, [])["made_with"]


def test_what_gains_in_two_decisions_is_hinted_for_new_files_and_for_those_that_are_read(read):
    stripewise, file = read
    (asked,) = hints(file, dry_run=True)
    (first,) = hints(file)
    assert (asked["verdict"], first["verdict"], said(file), made_with(file, "f")) == ("waits", "waits", [], [])
    assert asked["now_s"] > 1.2 * asked["then_s"] > 0
    (again,) = hints(file, dry_run=True)
    assert (again["verdict"], said(file)) == ("waits", [])
    told = stripewise("adapt", file, "--once").stdout
    assert f"{asked['optimisation']} for ." in told and "hinted, 1 file" in told
    assert said(file) == [[asked["optimisation"] + ":2"]] or said(file) == [[asked["optimisation"]]]
    assert made_with(file, "f") == said(file)[0]
    done = adapting.decisions(Pool.load(file))[-1]["hints"][0]
    assert (done["verdict"], done["files_hinted"]) == ("hinted", 1)
    (kept,) = hints(file)
    assert (kept["verdict"], kept["files_hinted"]) == ("kept", 0)
    run(stripewise, file, "import sys; open(sys.argv[1] + '/new', 'wb').write(b'1')")
    assert made_with(file, "new") == said(file)[0]
    # It is read so, and whole.
    run(stripewise, file, "import sys; assert open(sys.argv[1] + '/f', 'rb').read() == bytes(range(256)) * 32768")


def test_what_a_person_has_hinted_stays_and_what_was_removed_is_not_hinted_again(read):
    stripewise, file = read
    mount = file.parent / "mount"
    stripewise("hint", mount, "readahead=64K", "--for", "*.h5")
    before = said(file)
    for _ in range(3):
        (kept,) = hints(file)
        assert kept["verdict"] == "kept" and "as a hint says" in kept["why"]
    assert (said(file), made_with(file, "f")) == (before, [])
    stripewise("hint", mount, "--remove", "--for", "*.h5")
    assert [of["verdict"] for _ in range(2) for of in hints(file)] == ["hinted", "kept"]
    stripewise("hint", mount, "--remove")
    (kept,) = hints(file)
    assert (kept["verdict"], said(file)) == ("kept", []) and "was removed" in kept["why"]


def test_a_directory_whose_hints_are_damaged_keeps_no_other_from_being_hinted(read):
    stripewise, file = read
    mount, tree = file.parent / "mount", Pool.load(file).namespace / "tree"
    copies = WRITE.replace("/f'", "/d/f'") + READ.replace("/f", "/d/f")
    run(stripewise, file, "import os, sys; os.mkdir(sys.argv[1] + '/d'); " + copies, "in order")
    stripewise("hint", mount / "d", "class=1")
    (name,) = os.listxattr(tree / "d")
    os.setxattr(tree / "d", name, b"damaged")
    for verdict in ("waits", "hinted"):
        found = {of["directory"]: of for of in hints(file)}
        assert (found["d"]["verdict"], found[""]["verdict"]) == ("kept", verdict)
        assert "hints of d: damaged" in found["d"]["why"]


def test_what_was_removed_is_not_hinted_again_once_the_decision_that_set_it_is_no_longer_kept(read, monkeypatch):
    stripewise, file = read
    # Each line begins a file.
    monkeypatch.setattr(kept_lines, "MOST_BYTES", 1)
    assert [of["verdict"] for _ in range(5) for of in hints(file)] == ["waits", "hinted", "kept", "kept", "kept"]
    (kept,) = hints(file)
    assert (kept["verdict"], kept["why"]) == ("kept", "it is hinted already"), "it is known as one of its own"
    assert len(adapting.decisions(Pool.load(file))) == 2
    stripewise("hint", file.parent / "mount", "--remove")
    for _ in range(4):
        (kept,) = hints(file)
        assert (kept["verdict"], said(file)) == ("kept", []) and "was removed" in kept["why"]


def test_hints_that_are_remembered_are_bounded_and_what_is_none_is_left_out(monkeypatch):
    monkeypatch.setattr(reading_ahead, "MOST_SET", 2)
    keys = ("directory", "pattern", "optimisation")
    told = [("a", None, "readahead=1MiB:2"), ("b", "*.h5", "readahead=1MiB:2"), ("c", None, "readahead=1MiB:2")]
    hints = [{"verdict": "hinted", **dict(zip(keys, of, strict=True))} for of in told]
    newer = {**hints[0], "optimisation": "readahead=2MiB:2", "now_s": 1.0}
    lines = [{"hints": hints}, {"hints": 7}, {}, {"hints": [7, {"verdict": "hinted"}, {**hints[1], "verdict": "kept"}]}]
    assert reading_ahead.set_by(lines) == hints[1:]
    assert reading_ahead.set_by([*lines, {"hints": [newer]}]) == [
        hints[2],
        {**hints[0], "optimisation": "readahead=2MiB:2"},
    ]


def test_a_file_with_a_writer_gets_it_later(read):
    _, file = read
    hints(file)
    script = "import sys; f = open(sys.argv[1] + '/f', 'r+b', 0); f.write(b'0'); print('open', flush=True); input()"
    command = [BIN / "stripewise", "run", "--quiet", "--pool", file, "--", "python3", "-c", script]
    with subprocess.Popen(
        [*command, file.parent / "mount"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as writer:
        assert writer.stdout.readline() == "open\n"
        (waits,) = hints(file)
        assert waits["verdict"] == "hinted" and waits["files_hinted"] == 0 and waits["skipped"][0]["path"] == "f"
        assert made_with(file, "f") == []
        writer.stdin.write("\n")
        writer.stdin.close()
        assert writer.wait() == 0
    (done,) = hints(file)
    assert (done["verdict"], done["files_hinted"]) == ("hinted", 1)


def test_who_jumps_is_not_read_ahead_of(tmp_path, stripewise):
    base = tmp_path / "p"
    stripewise("pool", "init", base, "--emulate", "--hdd", "4", "--dilation", "0.01")
    file = base / "pool.toml"
    file.write_text(file.read_text() + '\n[heat]\nperiod = "31000000s"\n')
    run(stripewise, file, WRITE)
    run(stripewise, file, READ, "anywhere")
    assert [hints(file) for _ in range(2)] == [[], []]
