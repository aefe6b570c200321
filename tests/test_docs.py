"""Every command that README.md and docs/ show is run here, and every pool file that they show is read.

A block with a title is a file: a path of the tree has to hold the excerpt, a plain name is a file that a reader writes.
The lines of a block with the title "output" are among those that the page's commands print.
"""

import os
import random
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import darshan
import pytest

from conftest import BIN

ROOT = Path(__file__).parent.parent
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])


def blocks(page, language):
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(), flags=re.MULTILINE | re.DOTALL)


def titled(page):
    """Title and text of each block that has a title."""
    return re.findall(r'^```\w+ title="(.*?)"\n(.*?)^```$', page.read_text(), flags=re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", [page for page in PAGES if titled(page)], ids=lambda page: page.name)
def test_excerpts_are_what_the_tree_has(page):
    for title, text in titled(page):
        if "/" in title:
            assert text in (ROOT / title).read_text(), f"{page.name}: {title} has changed, or never had:\n{text}"


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "sh")], ids=lambda page: page.name)
def test_shown_commands_run(page, tmp_path):
    """A page's files, its commands, then its Python, in one directory. `job.darshan`, the reader's, is PyDarshan's."""
    shutil.copy(Path(darshan.__file__).parent / "tests" / "input" / "sample-badost.darshan", tmp_path / "job.darshan")
    shown = []
    for title, text in titled(page):
        if title == "output":
            shown += text.splitlines()
        elif "/" not in title:
            (tmp_path / title).write_text(text)
    script = "set -euxo pipefail\n" + "\n".join(blocks(page, "sh"))
    python = tmp_path / "shown.py"
    python.write_text("\n".join(blocks(page, "python")))
    environment = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", "NO_COLOR": "1"}
    for command in (["bash", "-c", script], [BIN / "python", python]):
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=540)
        assert done.returncode == 0, done.stdout + done.stderr
        printed = done.stdout.splitlines()
        shown = [line for line in shown if line not in printed]
    assert not shown, f"{page.name}: its commands do not print {shown}"


def test_commands_for_the_reader_name_what_exists(stripewise):
    """The `text` blocks of the README need disks or a whole build; their commands must at least exist."""
    makefile = (ROOT / "Makefile").read_text()
    shown = "\n".join(blocks(ROOT / "README.md", "text"))
    targets = set(re.findall(r"^make (\w+)", shown, flags=re.MULTILINE))
    assert targets == {"demo", "test"}
    for target in targets:
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE)
    commands = set(re.findall(r"^stripewise ((?:pool )?\w+)", shown, flags=re.MULTILINE))
    assert commands == {"pool init", "pool calibrate", "optimize"}
    for command in commands:
        stripewise(*command.split(), "--help")


def test_the_pool_file_of_the_format_is_one(tmp_path, stripewise):
    text, emulate, names = blocks(ROOT / "docs" / "format.md", "toml")
    tomllib.loads(text)
    file = tmp_path / "pool.toml"
    for content in (text, f"{text}\n{names}", text.replace('name = "hdd"\n', f'name = "hdd"\n{emulate}')):
        file.write_text(content)
        shown = stripewise("pool", "show", file)
        for server in ("hdd.0", "hdd.1", "ssd.0"):
            assert server in shown.stdout
    assert "emulated" in shown.stdout


def test_the_bytes_come_back_without_stripewise(pool, tmp_path):
    """docs/recover.py against files of several layouts, moved files, holes and plain names."""
    rounds = ['"meta:4KiB"', '"hdd.0-2:4KiB", "ssd.0:12KiB"', '"ssd.0:64KiB"', '"hdd.1:1000", "hdd.0:3333"']
    regions = "".join(
        f'[[file.region]]\noffset = "{offset}"\nround = [{stripes}]\n'
        for offset, stripes in zip((0, 8192, 100_000, 1_234_567), rounds, strict=True)
    )
    pool.run("sh", "-c", f"head -c 3000000 /dev/urandom > {pool.mount}/moved; cp -r {ROOT / 'docs'} {pool.mount}/docs")
    pool.apply(f'version = 1\npool = "test"\n[[file]]\npath = "*.new"\n{regions}[[file]]\npath = "moved"\n{regions}')
    # Once more, by pieces: what was one region is cut, and stays in its place around them.
    other = ('"hdd.0-2:4KiB", "ssd.0:12KiB"', '"ssd.0:64KiB"', '"hdd.1:1000", "hdd.0:3333"', '"meta:4KiB"', rounds[2])
    again = "".join(
        f'[[file.region]]\noffset = "{offset}"\nround = [{stripes}]\n'
        for offset, stripes in zip((0, 50_000, 500_000, 1_500_000, 2_000_000), other, strict=True)
    )
    pool.apply(f'version = 1\npool = "test"\n[[file]]\npath = "moved"\n{again}')
    script = """
        cd "$0"; head -c 2000001 /dev/urandom > a.new; ln -s a.new link; truncate -s 5M hole; : > empty
        ln a.new docs/hard; chmod 640 a.new; touch -d 2001-02-03T04:05:06.123456789 a.new; mkfifo docs/fifo
        printf x | dd of=hole bs=1 seek=3000000 conv=notrunc status=none
    """
    pool.run("sh", "-ec", script, pool.mount)
    out = tmp_path / "out"
    subprocess.run([BIN / "python", ROOT / "docs" / "recover.py", pool.file, out], check=True)
    pool.run("rm", pool.mount / "docs" / "fifo")
    pool.run("diff", "-r", pool.mount, out)
    assert (out / "hole").stat().st_size == 5 << 20
    assert (out / "hole").stat().st_blocks * 512 < 1 << 20
    file = (out / "a.new").stat()
    assert (file.st_nlink, file.st_mode & 0o777, file.st_mtime_ns) == (2, 0o640, 981_173_106_123_456_789)


def test_the_bytes_come_back_from_a_pool_that_nobody_put_in_order(pool, tmp_path):
    """docs/recover.py after a killed writer, an unfinished truncation and leftovers; and what is lost is named."""
    bytes_of = {name: random.Random(name).randbytes(500_000) for name in ("killed", "cut", "leftover", "lost")}
    bytes_of["leftover"] = bytes_of["leftover"][:1000]
    for name, content in bytes_of.items():
        (tmp_path / name).write_bytes(content)
        pool.run("cp", tmp_path / name, pool.mount / name)
    namespace = (pool.file.parent / tomllib.loads(pool.file.read_text())["namespace"]).resolve()
    tree = namespace / "tree"

    def datafile(name, server):
        handle = os.getxattr(tree / name, "user.stripewise")
        logical = int.from_bytes(handle[6:14])
        return pool.servers()[server] / ".test" / f"{logical & 0xFF:02x}" / f"{logical:016x}.00000001"

    os.truncate(tree / "killed", 100_000)
    handle = os.getxattr(tree / "cut", "user.stripewise")
    handle = handle[:5] + b"\1" + handle[6:-4] + (123_456).to_bytes(8) + handle[-4:]
    os.setxattr(tree / "cut", "user.stripewise", handle)
    leftover = datafile("leftover", 1)
    leftover.parent.mkdir(exist_ok=True)
    leftover.write_bytes(b"of no file" * 50_000)
    datafile("lost", 2).unlink()
    out = tmp_path / "out"
    command = [BIN / "python", ROOT / "docs" / "recover.py", pool.file, out]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1 and "lost" in done.stderr
    assert not (out / "lost").exists()
    assert (out / "killed").read_bytes() == bytes_of["killed"]
    assert (out / "cut").read_bytes() == bytes_of["cut"][:123_456]
    assert (out / "leftover").read_bytes() == bytes_of["leftover"]


def test_what_no_path_leads_to_is_named_and_the_rest_comes_back(pool, tmp_path):
    """docs/recover.py goes on over a tree of 4,000 levels."""
    pool.run("sh", "-c", f"echo whole > {pool.mount}/file")
    namespace = (pool.file.parent / tomllib.loads(pool.file.read_text())["namespace"]).resolve()
    at = os.open(namespace / "tree", os.O_RDONLY)
    for _ in range(4000):
        os.mkdir("d", dir_fd=at)
        below = os.open("d", os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = below
        os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=at))
    os.close(at)
    out = tmp_path / "out"
    command = [BIN / "python", ROOT / "docs" / "recover.py", pool.file, out]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    levels = sum(1 for line in done.stderr.splitlines() if "File name too long" in line)
    assert (done.returncode, levels) == (1, done.stderr.count("\n"))
    assert (out / "file").read_text() == "whole\n"
    assert (out / ("d/" * 1000) / "file").exists()
    subprocess.run(["rm", "-rf", namespace / "tree" / "d", out], check=True)


def test_every_promise_names_a_test_that_exists():
    page = (ROOT / "docs" / "semantics.md").read_text()
    named = re.findall(r"`((?:crates|tests)/[\w/.]+)(?:: (\w+))?`", page)
    assert len(named) > 10
    for file, test in named:
        text = (ROOT / file).read_text() if (ROOT / file).is_file() else ""
        assert text, f"{file} does not exist"
        assert not test or re.search(rf"\b(fn|def) {test}\b", text), f"{file} has no test {test}"
