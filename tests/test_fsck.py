"""`stripewise fsck` and `stripewise export-tree`, as a person runs them; each kind of damage is tested in
crates/store/tests/fsck.rs."""

import json
import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest

from conftest import BIN
from stripewise.cli import console

OUTCOMES = {"mended", "would_mend", "left", "in_use", "notes"}


@pytest.fixture
def filled(pool):
    """A pool with two files and an orphan datafile."""
    pool.run(
        "sh", "-c", f"head -c 300000 /dev/urandom > {pool.mount}/a; mkdir {pool.mount}/d; echo b > {pool.mount}/d/b"
    )
    inner = pool.servers()[0] / ".test" / "0f"
    inner.mkdir(exist_ok=True)
    (inner / "000000000000000f.00000001").write_bytes(b"whose?")
    return pool


def test_exit_codes_are_those_of_fsck(filled):
    fsck = filled.stripewise
    dry = fsck("fsck", filled.file, "--dry-run", check=False)
    assert dry.returncode == 4
    assert "orphan-datafile" in dry.stdout and "1 to mend" in dry.stdout
    mended = fsck("fsck", filled.file, check=False)
    assert mended.returncode == 1, mended.stdout + mended.stderr
    kept = filled.servers()[0] / ".test" / "lost+found" / "orphan-000000000000000f.00000001"
    assert kept.read_bytes() == b"whose?"
    clean = fsck("fsck", filled.file)
    assert clean.stdout == "2 files, 2 of them placed, 5 datafiles; clean\n"
    shutil.move(filled.servers()[1], filled.base / "away")
    assert fsck("fsck", filled.file, check=False).returncode == 4
    shutil.move(filled.base / "away", filled.base / "disks" / "d1")
    missing = fsck("fsck", filled.base / "nothing.toml", check=False)
    assert missing.returncode == 8
    assert missing.stdout == "" and "nothing.toml" in missing.stderr


def test_json_has_the_documented_fields(filled):
    done = filled.stripewise("fsck", filled.file, "--json", check=False)
    *findings, last = map(json.loads, done.stdout.splitlines())
    (finding,) = findings
    assert set(finding) == {"kind", "outcome", "path", "server", "object", "lost", "lost_left_out", "what", "action"}
    assert (finding["kind"], finding["outcome"], finding["server"]) == ("orphan-datafile", "mended", "hdd.0")
    report = last["report"]
    assert report["exit_code"] == done.returncode == 1
    numbers = {"files", "placed_files", "files_in_use", "datafiles", "read_bytes"}
    assert set(report) == numbers | {"exit_code", "total", "kinds"}
    assert set(report["total"]) == OUTCOMES
    assert report["kinds"] == {"orphan-datafile": report["total"]}


def test_progress_of_several_threads_is_shown_in_any_order():
    """A check tells of its steps from several threads, and of an earlier one when the next has begun."""
    with console.steps() as begin:
        files, _datafiles = begin("files"), begin("datafiles")
        files(1, 2)

        def work(number):
            for round_ in range(50):
                begin(f"step {number}.{round_}")(round_, 50)

        with ThreadPoolExecutor(4) as threads:
            list(threads.map(work, range(4)))


def test_a_mounted_pool_is_checked_and_what_is_written_left_alone(filled):
    script = """
import os, subprocess, sys
mount, stripewise, pool = sys.argv[1:]
with open(f"{mount}/open", "wb") as file:
    file.write(b"x" * 100_000)
    file.flush()
    done = subprocess.run([stripewise, "fsck", pool, "--json"], capture_output=True, text=True)
    file.write(b"y" * 100_000)
print(done.stdout, done.stderr)
print("exit", done.returncode)
"""
    done = filled.python(script, BIN / "stripewise", filled.file)
    assert "in-use" in done.stdout and "exit 4" in done.stdout, done.stdout + done.stderr
    assert '"files_in_use": 1' in done.stdout
    assert filled.stripewise("fsck", filled.file, check=False).returncode == 1
    assert filled.stripewise("fsck", filled.file).returncode == 0
    filled.run("sh", "-c", f"test $(stat -c %s {filled.mount}/open) = 200000")


def test_a_copied_pool_is_taken_over(filled, tmp_path):
    """`cp -a` of everything, with a pool file of its own: the copy is another pool then, and both work."""
    filled.stripewise("fsck", filled.file, check=False)
    copy = tmp_path / "copy"
    copy.mkdir()
    text = filled.file.read_text().replace(str(tmp_path), str(copy))
    for name in ("disks", "mount"):
        subprocess.run(["cp", "-a", tmp_path / name, copy / name], check=True)
    (copy / "pool.toml").write_text(text)
    refused = filled.stripewise("fsck", copy / "pool.toml", check=False)
    assert refused.returncode == 4 and "--rebind" in refused.stdout, refused.stdout + refused.stderr
    taken = filled.stripewise("fsck", copy / "pool.toml", "--rebind", check=False)
    assert taken.returncode == 1, taken.stdout + taken.stderr
    assert filled.stripewise("fsck", copy / "pool.toml").returncode == 0
    for pool in (filled.file, copy / "pool.toml"):
        filled.stripewise("export-tree", pool, tmp_path / f"out-{pool.parent.name}")
    subprocess.run(["diff", "-r", tmp_path / f"out-{filled.file.parent.name}", tmp_path / "out-copy"], check=True)


def test_export_tree_copies_goes_on_and_compares(filled, tmp_path):
    out = tmp_path / "out"
    done = filled.stripewise("export-tree", filled.file, out)
    assert "2 files" in done.stdout and "copied and compared" in done.stdout
    filled.run("diff", "-r", filled.mount, out)
    again = filled.stripewise("export-tree", filled.file, out, check=False)
    assert again.returncode == 1 and "--verify-only" in again.stderr
    filled.stripewise("export-tree", filled.file, out, "--verify-only")
    (out / "d" / "b").write_text("c\n")
    differs = filled.stripewise("export-tree", filled.file, out, "--verify-only", check=False)
    assert differs.returncode == 1 and "d/b" in differs.stderr


def test_export_tree_without_a_server_lists_what_is_missing(filled, tmp_path):
    away = filled.base / "away"
    shutil.move(filled.servers()[1], away)
    done = filled.stripewise("export-tree", filled.file, tmp_path / "out", "--json", check=False)
    assert done.returncode == 1 and "hdd.1" in done.stderr
    report = json.loads(done.stdout)
    assert [failure["path"] for failure in report["failures"]] == ["a"] and report["failed"] == 1
    assert (tmp_path / "out" / "d" / "b").read_text() == "b\n"
    shutil.move(away, filled.base / "disks" / "d1")
    filled.stripewise("export-tree", filled.file, tmp_path / "out")
    filled.run("diff", "-r", filled.mount, tmp_path / "out")


def test_a_pool_is_named_by_its_directory_too(emulated):
    emulated.stripewise("fsck", emulated.base)
    emulated.stripewise("fsck", emulated.file, "--layouts-from", emulated.base)
    emulated.stripewise("export-tree", emulated.base, emulated.base.parent / "copy")


def test_a_scrub_reads_everything_and_a_cut_datafile_is_told_by_its_bytes(filled):
    done = filled.stripewise("fsck", filled.file, "--scrub", "--json", check=False)
    report = json.loads(done.stdout.splitlines()[-1])["report"]
    assert done.returncode == 1 and report["read_bytes"] >= 300_000
    again = filled.stripewise("fsck", filled.file, "--scrub")
    assert again.stdout.startswith("2 files, 2 of them placed, 5 datafiles; ") and " bytes read; clean" in again.stdout
    cut = max(
        (path for root in filled.servers() for path in (root / ".test").glob("??/*.00000001")),
        key=lambda path: path.stat().st_size,
    )
    os.truncate(cut, 1000)
    *findings, last = map(json.loads, filled.stripewise("fsck", filled.file, "--json", check=False).stdout.splitlines())
    (finding,) = findings
    assert (finding["kind"], finding["outcome"], finding["path"]) == ("short-datafile", "left", "a")
    assert finding["object"] == f"{cut.parent.name}/{cut.name}"
    assert sum(end - start for start, end in finding["lost"]) > 60_000
    assert last["report"]["exit_code"] == 4
    start = finding["lost"][0][0]
    read = filled.run("sh", "-c", f"dd if={filled.mount}/a bs=1 skip={start} count=1 of=/dev/null", check=False)
    assert read.returncode != 0 and "Input/output error" in read.stderr
