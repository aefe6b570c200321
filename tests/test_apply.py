"""`apply` before it is done, and two of them at once."""

import json
import os
import subprocess
import sys

import pytest

from conftest import PATIENCE_S
from stripewise.api import adapt
from stripewise.api.pools import Pool

LAYOUT = """version = 1
pool = "test"

[[file]]
path = "*.dat"

[[file.region]]
offset = "0"
round = ["ROUND"]
"""
FILES = 12
FILE_BYTES = 300_000
BEFORE = ["hdd.0-2:64KiB", "ssd.0:64KiB"]

HOLDER = """
import sys
from stripewise import _native
def progress(*_):
    # Once: the rest goes on.
    if not begun:
        begun.append(True)
        print("begun", flush=True)
        sys.stdin.readline()
    return True
begun = []
layout, pool, waits = sys.argv[1:]
_native.layout_apply(layout, pool, rules=True, waits=waits == "waits", gives_way=False, progress=progress)
print("done", flush=True)
"""


@pytest.fixture
def filled(pool):
    file = "open(f'{sys.argv[1]}/{n}.dat', 'wb')"
    script = f"import sys\nfor n in range({FILES}): {file}.write(bytes([n]) * {FILE_BYTES})"
    pool.python(script)
    for name, entry in (("a", "hdd.0:64KiB"), ("b", "hdd.1:64KiB")):
        (pool.base / f"{name}.layout").write_text(LAYOUT.replace("ROUND", entry))
    return pool


ADAPTS = """
from pathlib import Path
from stripewise.api import adapt
from stripewise.pool import Pool
adapting = adapt.alone(Pool.load(Path(sys.argv[2])))
adapting.__enter__()
"""


def held(pool, name, *, waits=False, adapts=False):
    """A process that applies a layout, and waits in the middle of the first file that it moves for a line."""
    script = HOLDER.replace("def progress", f"{ADAPTS}def progress") if adapts else HOLDER
    arguments = [sys.executable, "-c", script, pool.base / f"{name}.layout", pool.file, "waits" if waits else "no"]
    return subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def go_on(process):
    out, _ = process.communicate("\n", timeout=PATIENCE_S)
    return out


def apply(pool, name, *options, check=True):
    return pool.stripewise("apply", pool.base / f"{name}.layout", "--pool", pool.file, *options, check=check)


def rounds(pool):
    """The rounds of all files, of one region each."""
    found = []
    for number in range(FILES):
        shown = json.loads(pool.stripewise("stat", "--pool", pool.file, f"{number}.dat", "--json").stdout)
        found += [region["round"] for region in shown["regions"]]
    return found


def locks(pool):
    return pool.base / "disks" / "d3" / ".test-names" / "locks"


def contents_are_whole(pool):
    check = (
        f"for n in range({FILES}): assert open(f'{{sys.argv[1]}}/{{n}}.dat', 'rb').read() == bytes([n]) * {FILE_BYTES}"
    )
    pool.python(f"import sys\n{check}")


def standing(pool):
    """Everything of the pool on the disks: names, sizes, times of change and status.

    But for what is touched whenever a pool is opened or a mount ends: the page of counters, journals of mounts.
    """
    names = pool.base / "disks" / "d3" / ".test-names"
    kept = [names / name for name in ("tree", "layouts", "locks", "rules.toml")]
    found = {}
    for path in (pool.base / "disks").rglob("*"):
        if names in (path, *path.parents) and not any(of in (path, *path.parents) for of in kept):
            continue
        stat = path.stat()
        found[path] = (stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns)
    return found


def test_a_dry_run_changes_nothing_and_says_what_apply_does(filled):
    before = standing(filled)
    would = json.loads(apply(filled, "a", "--dry-run", "--json").stdout)
    printed = apply(filled, "a", "--dry-run").stdout
    assert standing(filled) == before
    assert would["dry_run"] and would["rules"] == ["*.dat"] and len(would["files"]) == FILES
    for file in would["files"]:
        assert file["before"] == [{"offset": 0, "round": BEFORE}]
        assert file["after"] == [{"offset": 0, "round": ["hdd.0:64KiB"]}]
    assert {server["server"] for server in would["servers"]} == {"hdd.0", "hdd.1", "hdd.2", "ssd.0"}
    # Of one disk that all of them are on: what is copied and what goes are the same but for blocks that are not full.
    for server in would["servers"]:
        assert abs(server["free_after_bytes"] - server["free_bytes"]) < FILES * FILE_BYTES
    assert "would move 3.4 MiB of 12 files, leave 0 files as they are, and set 1 rule for files to come" in printed
    assert "nothing was changed" in printed
    assert "hdd.0-2:64KiB ssd.0:64KiB" in printed and "free after" in printed

    done = json.loads(apply(filled, "a", "--json").stdout)
    assert not done["dry_run"] and done["rules"] == would["rules"]
    said = [(file["path"], file["copied_bytes"], file["kept_bytes"]) for file in would["files"]]
    assert [(file["path"], file["copied_bytes"], file["kept_bytes"]) for file in done["files"]] == said
    assert "would move 0 B of 0 files, leave 12 files as they are" in apply(filled, "a", "--dry-run").stdout
    contents_are_whole(filled)


def test_more_files_move_than_a_program_may_have_open_at_first(filled):
    files = ["a", "b"]
    for name, option in zip(files, ["--dry-run", None], strict=True):
        command = f"ulimit -S -n 32; exec stripewise apply {filled.base}/{name}.layout --pool {filled.file}"
        done = subprocess.run(["sh", "-c", f"{command} {option or ''}"], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    assert rounds(filled) == [["hdd.1:64KiB"]] * FILES
    contents_are_whole(filled)


def test_a_dry_run_refuses_what_apply_refuses(filled):
    wrong = filled.base / "wrong.layout"
    wrong.write_text(LAYOUT.replace("ROUND", "hdd.7:64KiB"))
    ended = [apply(filled, "wrong", *options, check=False) for options in ([], ["--dry-run"], ["--dry-run", "--json"])]
    assert [(done.returncode, done.stderr, done.stdout) for done in ended] == [(1, ended[0].stderr, "")] * 3
    assert "no server hdd.7" in ended[0].stderr
    # What is kept in the inode does not move beside a writer.
    (filled.base / "inode.layout").write_text(LAYOUT.replace("ROUND", "meta:64KiB"))
    script = f"""
        exec 3>> {filled.mount}/3.dat
        printf x >&3
        stripewise apply {filled.base}/inode.layout --pool {filled.file} --dry-run; echo "exit $?"
    """
    done = filled.run("sh", "-c", script)
    assert done.stdout == "exit 1\n"
    assert "3.dat is open for writing" in done.stderr
    assert rounds(filled) == [BEFORE] * FILES


def test_a_second_apply_is_told_who_is_at_it(filled):
    first = held(filled, "a")
    try:
        assert first.stdout.readline() == "begun\n"
        done = apply(filled, "b", check=False)
        said = " ".join(done.stderr.split())
        assert done.returncode == 1 and done.stdout == ""
        assert f"another command that moves files is under way in pool 'test': process {first.pid}, for " in said
        assert "Wait until it has ended" in said and "Nothing was changed by this one" in said
        # One that waits has its turn afterwards.
        later = held(filled, "b", waits=True)
        assert go_on(first).endswith("done\n") and first.returncode == 0
        assert go_on(later).endswith("done\n") and later.returncode == 0
    finally:
        first.kill()
    assert rounds(filled) == [["hdd.1:64KiB"]] * FILES
    contents_are_whole(filled)
    assert not list(locks(filled).iterdir())


def test_commands_wait_for_their_turn_while_the_service_that_adapts_the_pool_moves_files(filled):
    service = held(filled, "a", adapts=True)
    assert service.stdout.readline() == "begun\n"
    command = ["stripewise", "pool", "drain", filled.file, "hdd.1", "--urgent"]
    drain = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    said = drain.stderr.readline()
    assert f"process {service.pid}, which adapts the pool, moves files now" in said
    assert drain.poll() is None
    assert go_on(service) == "done\n"
    out, errors = drain.communicate(timeout=PATIENCE_S)
    assert drain.returncode == 0, errors
    assert "0 files stay" in out
    contents_are_whole(filled)


def test_a_command_is_refused_while_another_one_moves_files_also_beside_a_service(filled):
    with adapt.alone(Pool.load(filled.file)):
        other = held(filled, "a")
        assert other.stdout.readline() == "begun\n"
        refused = filled.stripewise("pool", "drain", filled.file, "hdd.1", check=False)
        assert refused.returncode == 1 and f"process {other.pid}, for " in " ".join(refused.stderr.split())
        go_on(other)


def test_one_that_was_killed_hinders_no_other(filled):
    first = held(filled, "a")
    assert first.stdout.readline() == "begun\n"
    first.kill()
    first.wait()
    apply(filled, "b")
    assert rounds(filled) == [["hdd.1:64KiB"]] * FILES
    contents_are_whole(filled)
    # What one leaves that was killed after its last file.
    (locks(filled) / f"apply.{os.geteuid()}").touch()
    assert filled.stripewise("fsck", filled.file).stdout.endswith("; clean\n")
    apply(filled, "a")
    assert not list(locks(filled).iterdir())


def test_two_at_once_are_one_after_the_other_or_one(filled):
    command = [sys.executable, "-m", "stripewise", "apply", "--pool", str(filled.file)]
    both = [
        subprocess.Popen([*command, str(filled.base / f"{name}.layout")], stderr=subprocess.PIPE, text=True)
        for name in ("a", "b")
    ]
    said = [process.communicate(timeout=PATIENCE_S)[1] for process in both]
    for process, words in zip(both, said, strict=True):
        assert process.returncode == 0 or "another command that moves files is under way" in " ".join(words.split())
    assert any(process.returncode == 0 for process in both)
    found = rounds(filled)
    assert found in ([["hdd.0:64KiB"]] * FILES, [["hdd.1:64KiB"]] * FILES)
    # Those to come get what those that are there have.
    filled.run("touch", f"{filled.mount}/later.dat")
    shown = json.loads(filled.stripewise("stat", "--pool", filled.file, "later.dat", "--json").stdout)
    assert shown["regions"][0]["round"] == found[0]
    contents_are_whole(filled)
