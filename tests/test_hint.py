"""`stripewise hint`: what is said, shown, removed and explained, and the page that lists what there is."""

import errno
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

import stripewise
from conftest import PATIENCE_S, TestPool
from stripewise import mounts
from stripewise.api import hinting, placing, pools
from stripewise.api.files import open_pool
from stripewise.api.pools import Pool
from stripewise.cli.hint import _print_why

ROOT = Path(__file__).parent.parent
BIN = Path(stripewise.__file__).parent / "_bin"


READ = """
import hashlib, sys
file = open(sys.argv[1] + "/a", "rb", 0)
print(hashlib.sha256(b"".join(iter(lambda: file.read(5000), b""))).hexdigest())
"""


def asked(pool, *arguments, check=True):
    return pool.stripewise("hint", "--pool", pool.file, *arguments, check=check)


def test_the_page_lists_the_table():
    cells = ("name", "least", "most", "multiple", "default")
    rows = [
        " | ".join([f"| {each['index']} | `{each['form']}`", *(of[cell] for cell in cells), each["does"] + " |"])
        for each in hinting.optimisations()
        for of in each["parameters"]
    ]
    page = (ROOT / "docs" / "hints.md").read_text()
    assert re.findall(r"^\| \d+ \|.*$", page, flags=re.MULTILINE) == rows


def test_the_help_lists_the_table(stripewise):
    """The words, ranges and defaults that the parser has, in its order, and no other."""
    printed = stripewise("hint", "--help").stdout
    listed = printed.partition("Optimisations:")[2].partition("layout=ROUND")[0]
    expected = []
    for each in hinting.optimisations():
        expected += [each["form"], each["does"]]
        for of in each["parameters"]:
            steps = f" in steps of {of['multiple']}" if of["multiple"] != "1" else ""
            expected.append(f"{of['name'].upper()}: {of['least']} to {of['most']}{steps}, {of['default']} if left out")
    assert " ".join(listed.split()) == " ".join(" ".join(expected).split())
    assert max(map(len, printed.splitlines())) <= 80


def test_hints_are_said_shown_and_removed(pool):
    asked(pool, ".", "small=64K")
    said = json.loads(asked(pool, ".", "small=8K", "--for", "*.h5", "--json").stdout)
    assert said == {
        "version": 2,
        "hints": [
            {"pattern": None, "optimisations": ["small=64KiB"]},
            {"pattern": "*.h5", "optimisations": ["small=8KiB"]},
        ],
        "layouts": [],
    }
    shown = asked(pool, ".", "--show").stdout
    assert shown == ".: version 2\n  all names: small=64KiB\n  *.h5: small=8KiB\n"
    assert json.loads(asked(pool, ".", "--show", "--json").stdout) == said
    both = asked(pool, ".", "readahead=1M").stdout
    assert both == ".: version 3\n  all names: small=64KiB, readahead=1MiB:2\n  *.h5: small=8KiB\n"
    one = asked(pool, ".", "--remove", "small").stdout
    assert one == ".: version 4\n  all names: readahead=1MiB:2\n  *.h5: small=8KiB\n"
    assert asked(pool, ".", "--remove").stdout == ".: version 5\n  *.h5: small=8KiB\n"
    assert asked(pool, ".", "--remove", "--all").stdout == ".: no hints\n"


WRONG = [
    (["small=1K"], "small: size=1KiB: it must be 4KiB to 1GiB, a multiple of 4KiB", 1),
    (
        ["smal=4K"],
        "there is no optimisation 'smal': write one of small=SIZE, readahead=WINDOW:DEPTH, writebehind=SIZE:DELAY, "
        "cached=MOST",
        1,
    ),
    (["readahead=8M:9"], "readahead: depth=9: it must be 1 to 8, a multiple of 1", 1),
    (["layout=hdd.9:64K"], "layout=hdd.9:64K: 'hdd.9:64K': there is no server hdd.9; the tier has", 1),
    (
        ["small=8K", "layout=hdd.0:64K"],
        "a layout says where every byte is: write what is to be in the inode into it",
        1,
    ),
    (["small=4K", "--for", "a/*"], "pattern 'a/*' has a '/': a hint is of names in its directory", 1),
    (
        ["small=4K", "--for", "*.[ch]"],
        "pattern '*.[ch]' has a '[', and only '*' and '?' stand for other characters: give a hint for each name that "
        "it stands for, or write '\\[' where names have it",
        1,
    ),
    (["layout=hdd.0:64K", "--for", "{a,b}"], "pattern '{a,b}' has a '{', and only '*' and '?' stand for", 1),
    (["small=4K", "--for", os.fsdecode(b"\xff*")], "'\\udcff*' is not UTF-8, as patterns and optimisations are", 1),
    (["--remove", "--for", os.fsdecode(b"\xfe*")], "'\\udcfe*' is not UTF-8, as patterns and optimisations are", 1),
    ([os.fsdecode(b"\xfe=3")], "'\\udcfe=3' is not UTF-8, as patterns and optimisations are", 1),
    (["--remove", os.fsdecode(b"\xfe")], "'\\udcfe' is not UTF-8, as patterns and optimisations are", 1),
    (["--remove", "cached", "cached"], ". has no hint cached for all names; `stripewise hint DIR --show`", 1),
    (["--remove", "--for", "*.c"], ". has no hint for '*.c'; `stripewise hint DIR --show` lists what it has", 1),
    (["--remove", "small", "cached"], ". has no hint small and cached for all names; `stripewise hint DIR --show`", 1),
    (["--remove", "layout"], ". has no hint layout for all names; `stripewise hint DIR --show` lists", 1),
    (["--remove", "smal"], "there is no optimisation 'smal': write one of small=SIZE", 1),
    (["--remove", "--all", "small"], "give optimisations, or one of --show, --remove and --why", 2),
    ([], "give optimisations, as in small=64K, or one of --show, --remove and --why", 2),
    (["small=4K", "--show"], "give optimisations, or one of --show, --remove and --why", 2),
    (["--show", "--all"], "give optimisations, or one of --show, --remove and --why", 2),
]


def test_what_is_wrong_is_named_and_changes_nothing(pool):
    place = placing.place_of(Path(), Pool.load(pool.file))
    before = hinting.hint(place, ["small=64K"])
    for arguments, said, code in WRONG:
        refused = asked(pool, ".", *arguments, check=False)
        words = " ".join(re.sub(r"[│╭╮╰╯─]", " ", refused.stderr).split())
        assert (refused.returncode, said in words) == (code, True), f"{arguments}: {words}"
        assert hinting.hints(place) == before


def test_a_layout_is_a_rule_for_what_is_made_in_the_directory_and_below(pool):
    pool.stripewise("mount", pool.file)
    try:
        directory = pool.mount / "runs"
        (directory / "below").mkdir(parents=True)
        line = "meta:4KiB/4KiB@hdd.0:64KiB"
        assert pool.stripewise("hint", directory, f"layout={line}", "readahead=1M").stdout == (
            "runs: version 1\n  all names: readahead=1MiB:2\n  **/*: layout=meta:4KiB/4KiB@hdd.0:64KiB\n"
        )
        said = pool.stripewise("hint", directory, "layout=hdd.1:8K", "--for", "*.h5", "--json").stdout
        assert json.loads(said)["layouts"] == [
            {"pattern": "**/*", "layout": line},
            {"pattern": "**/*.h5", "layout": "hdd.1:8KiB"},
        ]
        for name, offsets in {"runs/a": [0, 4096], "runs/below/b": [0, 4096], "runs/below/c.h5": [0], "d": [0]}.items():
            (pool.mount / name).write_bytes(b"x" * 10_000)
            found = json.loads(pool.stripewise("stat", pool.mount / name, "--json").stdout)
            assert [region["offset"] for region in found["regions"]] == offsets, name
        why = pool.stripewise("hint", directory / "a", "--why").stdout
        assert "a new file of its name gets the layout of the rule 'runs/**/*', by `apply` or a hint" in why
        # What `apply` sets for files to come stands beside it.
        pool.apply(
            f'version = 1\npool = "{Pool.load(pool.file).name}"\n[[file]]\npath = "runs/e"\n'
            '[[file.region]]\noffset = "0"\nround = ["hdd.0:4KiB"]\n'
        )
        assert "  e: layout=hdd.0:4KiB\n" in pool.stripewise("hint", directory, "--show").stdout
        left = pool.stripewise("hint", directory, "--remove").stdout
        assert left == "runs: version 2\n  **/*.h5: layout=hdd.1:8KiB\n  e: layout=hdd.0:4KiB\n"
        left = pool.stripewise("hint", directory, "--remove", "--all").stdout
        assert left == "runs: version 3\n  e: layout=hdd.0:4KiB\n"
        # It is a rule of the directory as those of hints are, and is removed as they are: alone, or not at all.
        refused = pool.stripewise("hint", directory, "--remove", "layout", "class", "--for", "e", check=False)
        assert (refused.returncode, "runs has no hint layout and class for 'e'" in refused.stderr) == (1, True)
        assert pool.stripewise("hint", directory, "--show").stdout == left
        assert pool.stripewise("hint", directory, "--remove", "layout", "--for", "e").stdout == "runs: no hints\n"
        again = pool.stripewise("hint", directory, "--remove", "layout", "--for", "e", check=False)
        assert (again.returncode, "runs has no hint layout for 'e'" in again.stderr) == (1, True)
        # What was said of one name in both ways goes together.
        pool.apply(
            f'version = 1\npool = "{Pool.load(pool.file).name}"\n[[file]]\npath = "runs/g"\n'
            '[[file.region]]\noffset = "0"\nround = ["hdd.0:4KiB"]\n'
        )
        said = pool.stripewise("hint", directory, "layout=hdd.1:8K", "class=1", "--for", "g").stdout
        assert said == "runs: version 4\n  g: class=1\n  g: layout=hdd.0:4KiB\n  **/g: layout=hdd.1:8KiB\n"
        assert pool.stripewise("hint", directory, "--remove", "--for", "g").stdout == "runs: no hints\n"
    finally:
        pool.stripewise("umount", "--lazy", pool.mount)


def test_what_a_file_has_is_changed_by_itself(pool):
    pool.stripewise("mount", pool.file)
    try:
        (pool.mount / "a").write_bytes(data := os.urandom(300_000))
        given = pool.stripewise("hint", pool.mount / "a", "readahead=64K", "class=2").stdout
        assert given == "a: version 2\n  readahead=64KiB:2, class=2\n"
        why = pool.stripewise("hint", pool.mount / "a", "--why").stdout
        assert "because it has readahead=64KiB:2, class=2, from when it was made or by `hint` or `adapt` since" in why
        assert "what is open for reading alone is read ahead" in why
        digest = hashlib.sha256(data).hexdigest()
        assert [pool.python(READ, preload=preload).stdout.strip() for preload in (False, True)] == [digest] * 2
        for arguments, said in [
            (["small=4K"], "`small` says where its bytes are"),
            (["layout=hdd.0:64K"], "a file gets another layout by `stripewise apply`"),
            (["class=9"], "class: rank=9: it must be 1 to 7"),
            (["--remove", "cached", "class"], "a has no cached and class; `stripewise hint FILE --show` lists"),
            (["class=3", "--for", "*"], "--for PATTERN is for the names of a directory"),
        ]:
            refused = pool.stripewise("hint", pool.mount / "a", *arguments, check=False)
            words = " ".join(re.sub(r"[│╭╮╰╯─]", " ", refused.stderr).split())
            assert (refused.returncode > 0, said in words) == (True, True), words
        # A program that has it open, on the mount and past it, sees what another writes once it has lost them.
        elsewhere = open_pool(pool.file).open("a", "rb", buffering=0)
        with (pool.mount / "a").open("rb", buffering=0) as reader, elsewhere as other:
            assert reader.read(20_000) + reader.read(20_000) == data[:40_000] == other.read(40_000)
            assert pool.stripewise("hint", pool.mount / "a", "--show").stdout == given
            left = pool.stripewise("hint", pool.mount / "a", "--remove", "class").stdout
            assert left == "a: version 3\n  readahead=64KiB:2\n"
            assert pool.stripewise("hint", pool.mount / "a", "--remove").stdout == "a: version 4\n  no optimisation\n"
            with (pool.mount / "a").open("r+b", buffering=0) as writer:
                busy = pool.stripewise("hint", pool.mount / "a", "cached", check=False)
                assert (busy.returncode, "a is open for writing" in busy.stderr) == (1, True)
                writer.seek(60_000)
                writer.write(b"new")
                for file in (reader, other):
                    file.seek(60_000)
                    assert file.read(3) == b"new"
            other.close()
        pool.stripewise("hint", pool.mount / "a", "cached")
        with (pool.mount / "a").open("rb", buffering=0) as reader:
            assert reader.read(3) == data[:3]
            now = pool.stripewise("hint", pool.mount / "a", "--why").stdout
            assert "a kernel keeps what was read of it for an open of this moment" in now
            kept = pool.stripewise("hint", pool.mount / "a", "--remove", check=False)
            assert (kept.returncode, "whose kernel keeps what it has read" in kept.stderr) == (1, True)
    finally:
        pool.stripewise("umount", "--lazy", pool.mount)
    assert pool.stripewise("fsck", pool.file).returncode == 0


def test_a_directory_whose_path_is_not_utf_8_is_hinted_shown_and_left(pool):
    pool.stripewise("mount", pool.file)
    try:
        directory = pool.mount / os.fsdecode(b"u\xff")
        directory.mkdir()
        said = pool.stripewise("hint", directory, "readahead=8M").stdout
        assert said == "u\\udcff: version 1\n  all names: readahead=8MiB:2\n"
        refused = pool.stripewise("hint", directory, "class=1", "layout=hdd.0:64K", check=False)
        assert (refused.returncode, "cannot give a layout: its path is not UTF-8" in refused.stderr) == (1, True)
        assert pool.stripewise("hint", directory, "--show").stdout == said
        (directory / "a").write_bytes(b"x")
        assert pool.stripewise("hint", directory / "a", "class=1").stdout.endswith("readahead=8MiB:2, class=1\n")
        why = pool.stripewise("hint", directory / "a", "--why").stdout
        assert "a new file of its name gets readahead=8MiB:2 by the hints of its directory, version 1" in why
        assert pool.stripewise("hint", directory, "--remove").stdout == "u\\udcff: no hints\n"
        pool.stripewise("hint", directory, "readahead=8M")
        assert pool.stripewise("hint", directory, "--remove", "--all").stdout == "u\\udcff: no hints\n"
    finally:
        pool.stripewise("umount", "--lazy", pool.mount)


def test_a_file_is_hinted_and_shown_whatever_the_hints_of_its_directory_are(pool):
    pool.stripewise("mount", pool.file)
    try:
        directory, file = pool.mount / "z", pool.mount / "z" / "f"
        directory.mkdir()
        file.write_bytes(b"x")
        pool.stripewise("hint", directory, "layout=hdd.0:64K", "--for", "*.raw")
        own = Pool.load(pool.file).namespace / "tree" / "z"
        os.setxattr(own, "user.stripewise.hints", b"SWDH\x02 of a later release")
        given = pool.stripewise("hint", file, "readahead=8M").stdout
        assert given == "z/f: version 2\n  readahead=8MiB:2\n"
        assert pool.stripewise("hint", file, "--show").stdout == given
        why = pool.stripewise("hint", file, "--why").stdout
        assert "gets nothing by the hints of its directory: hints of z: they have format 2" in why
        assert pool.stripewise("hint", file, "--remove").stdout == "z/f: version 3\n  no optimisation\n"
        # Of the directory, what cannot be told afterwards is not set, and what is removed is removed.
        for arguments in (["--show"], ["small=4K"], ["layout=hdd.1:64K"], ["--remove"]):
            refused = pool.stripewise("hint", directory, *arguments, check=False)
            assert (refused.returncode, "hints of z: they have format 2" in refused.stderr) == (1, True)
        rules = (Pool.load(pool.file).namespace / "rules.toml").read_text()
        assert rules.count("[[rule]]") == 1
        left = pool.stripewise("hint", directory, "--remove", "layout", "--for", "*.raw")
        assert left.stdout == ""
        assert "z is changed, and what it has now cannot be shown: hints of z" in left.stderr
        assert "[[rule]]" not in (Pool.load(pool.file).namespace / "rules.toml").read_text()
        assert pool.stripewise("hint", directory, "--remove", "--all").stdout == "z: no hints\n"
    finally:
        pool.stripewise("umount", "--lazy", pool.mount)


def test_why_names_the_rule_that_gives_a_layout_and_a_rule_stays_with_its_path(pool):
    pool.stripewise("mount", pool.file)
    try:
        directory = pool.mount / "r"
        directory.mkdir()
        (directory / "before.raw").write_bytes(b"x")
        said = pool.stripewise("hint", directory, "layout=hdd.0-1:64K", "--for", "*.raw").stdout
        for name in ("a.raw", "b"):
            (directory / name).write_bytes(b"x")
        why = {
            name: pool.stripewise("hint", directory / name, "--why").stdout.splitlines()[1]
            for name in ("a.raw", "b", "before.raw")
        }
        plain = "  because that is its layout; its handle has no optimisation"
        rule = "; files of its path get this layout by the rule 'r/**/*.raw', of `apply` or a hint"
        assert why == {"a.raw": plain + rule, "b": plain, "before.raw": plain}
        given = pool.stripewise("hint", directory / "a.raw", "class=1", "--json").stdout
        assert json.loads(given)["has_layout_of_rule"]
        assert rule in pool.stripewise("hint", directory / "a.raw", "--why").stdout
        # As a rule is of a path: the directory has lost it, and the next one of that name has it, and says so.
        directory.rename(pool.mount / "r2")
        directory.mkdir()
        assert pool.stripewise("hint", pool.mount / "r2", "--show").stdout == "r2: no hints\n"
        assert pool.stripewise("hint", directory, "--show").stdout == said
        assert "  r/**/*.raw: layout=hdd.0-1:64KiB\n" in pool.stripewise("hint", pool.mount, "--show").stdout
        assert "by the rule" not in pool.stripewise("hint", pool.mount / "r2" / "a.raw", "--why").stdout
        left = pool.stripewise("hint", directory, "--remove", "layout", "--for", "*.raw").stdout
        assert left == "r: no hints\n"
    finally:
        pool.stripewise("umount", "--lazy", pool.mount)


def test_a_bracket_in_a_pattern_is_written_with_a_backslash_and_one_of_before_is_removed(pool):
    pool.stripewise("mount", pool.file)
    try:
        pool.stripewise("hint", pool.mount, "class=2", "layout=hdd.0:8K", "--for", r"\[a].\{b}")
        (pool.mount / "[a].{b}").write_bytes(b"x")
        found = json.loads(pool.stripewise("hint", pool.mount / "[a].{b}", "--why", "--json").stdout)
        assert (found["made_with"], found["has_layout_of_rule"]) == (["class=2"], True)
        pool.apply(
            f'version = 1\npool = "{Pool.load(pool.file).name}"\n[[file]]\npath = "**/*.[ch]"\n'
            '[[file.region]]\noffset = "0"\nround = ["hdd.0:4KiB"]\n'
        )
        left = pool.stripewise("hint", pool.mount, "--remove", "--for", "*.[ch]").stdout
        assert left.splitlines()[1:] == [r"  \[a].\{b}: class=2", r"  **/\[a].\{b}: layout=hdd.0:8KiB"]
    finally:
        pool.stripewise("umount", "--lazy", pool.mount)


def test_a_link_is_followed_in_its_pool_and_what_has_no_hints_is_refused(pool):
    pool.stripewise("mount", pool.file)
    try:
        directory = pool.mount / "e"
        directory.mkdir()
        (directory / "f").write_bytes(b"x")
        links = {"dl": ".", "again": "dl", "whole": directory, "fl": "f", "out": "/dev", "round": "round", "gone": "x"}
        for name, target in links.items():
            (directory / name).symlink_to(target)
        os.mkfifo(directory / "pipe")
        for link in ("dl", "again", "whole"):
            said = pool.stripewise("hint", directory / link, "small=64K").stdout
            assert said.splitlines()[1] == "  all names: small=64KiB"
            assert pool.stripewise("hint", directory, "--show").stdout == said
        given = pool.stripewise("hint", directory / "fl", "class=1").stdout
        assert given == "e/f: version 2\n  class=1\n"
        refused = {
            "out": "e/out is a link to /dev, which is not in pool",
            "round": "e/round is a link that leads to itself",
            "gone": "cannot open e/x: No such file or directory",
            "pipe": "e/pipe is a FIFO: hints are of directories and regular files",
        }
        for name, reason in refused.items():
            for arguments in (["--show"], ["small=64K"]):
                done = pool.stripewise("hint", directory / name, *arguments, check=False)
                assert (done.returncode, reason in done.stderr) == (1, True), done.stderr
    finally:
        pool.stripewise("umount", "--lazy", pool.mount)
    for link in ("e/dl", "e/again", "e/whole"):
        assert asked(pool, link, "--show").stdout == said
    # What is named twice is removed once.
    assert asked(pool, "e", "--remove", "small", "small", "small=4K").stdout == "e: no hints\n"


def last_opens(pool, name):
    """What `--why` says of the last opens of a file, on the one mount of the pool; its words and its JSON agree."""
    found = json.loads(pool.stripewise("hint", pool.mount / name, "--why", "--json").stdout)["opens"]
    said = pool.stripewise("hint", pool.mount / name, "--why").stdout
    (opens,) = found
    assert opens["mount"] == str(pool.mount)
    for last in filter(None, (opens["read"], opens["written"])):
        assert all(f"not {each['path']}: {each['because']}" in said for each in last["not_taken"])
        assert " and ".join(last["taken"]) in said
    return opens


def refused_by(last):
    return {each["path"]: each["reason"] for each in last["not_taken"]}


def test_why_tells_which_paths_the_last_opens_took_and_why_not_the_others(pool):
    pool.stripewise("mount", pool.file)
    try:
        pool.stripewise("hint", pool.mount, "readahead=64K", "writebehind=128M:60s", "cached")
        path = pool.mount / "a"
        path.write_bytes(data := os.urandom(300_000))
        opens = last_opens(pool, "a")
        assert (opens["opens"], opens["writing"], opens["read"]) == (0, 0, None), "it is closed, and was not read"
        assert opens["written"]["taken"] == ["striped", "writebehind"]
        assert refused_by(opens["written"]) == {"readahead": "for-writing", "cached": "for-writing"}
        with path.open("rb", buffering=0) as reader:
            reader.read(10)
            opens = last_opens(pool, "a")
            assert (opens["opens"], opens["writing"]) == (1, 0)
            assert opens["read"]["taken"] == ["striped", "cached"]
            # The kernel's requests for its pages are as long as the window.
            assert refused_by(opens["read"]) == {"writebehind": "for-reading", "readahead": "not-yet"}
        # A writer keeps an open from both: what the next one would take is not what this one has taken.
        with path.open("r+b", buffering=0), path.open("rb", buffering=0) as reader:
            assert b"".join(reader.read(2048) for _ in range(50)) == data[: 50 * 2048]
            opens = last_opens(pool, "a")
            assert (opens["opens"], opens["writing"]) == (2, 1)
            assert refused_by(opens["read"]) == {
                "writebehind": "for-reading",
                "readahead": "writer",
                "cached": "writer",
            }
        # It is closed, and would be read ahead again: the mount remembers what was.
        assert refused_by(last_opens(pool, "a")["read"])["readahead"] == "writer"
        # Before the first fetch it is not known whether there is a writer; here it has gone by then.
        with path.open("r+b", buffering=0) as writer, path.open("rb", buffering=0) as reader:
            assert refused_by(last_opens(pool, "a")["read"])["readahead"] == "not-yet"
            writer.close()
            assert b"".join(reader.read(2048) for _ in range(50)) == data[: 50 * 2048]
            assert last_opens(pool, "a")["read"]["taken"] == ["striped", "readahead"]
        # Four files take the memory that a mount keeps writes back in, so that the fifth gets none of it.
        writers = [(pool.mount / f"w{number}").open("wb", buffering=0) for number in range(5)]
        for writer in writers:
            writer.write(b"x" * 1000)
        assert [last_opens(pool, f"w{number}")["written"]["taken"][1:] for number in range(5)] == [
            *([["writebehind"]] * 4),
            [],
        ]
        assert refused_by(last_opens(pool, "w4")["written"])["writebehind"] == "memory"
        writers[0].close()
        writers[4].write(b"y" * 1000)
        assert last_opens(pool, "w4")["written"]["taken"] == ["striped", "writebehind"]
        for writer in writers[1:]:
            writer.close()
        assert (pool.mount / "w4").read_bytes() == b"x" * 1000 + b"y" * 1000
    finally:
        pool.stripewise("umount", "--lazy", pool.mount)
    gone = asked(pool, "a", "--why").stdout
    assert "programs that use `import stripewise` alone know what they have opened" in gone
    assert "no mount of its pool is here that could say which paths its last opens took" in gone
    pool.stripewise("mount", pool.file)
    try:
        opens = last_opens(pool, "a")
        assert (opens["read"], opens["written"]) == (None, None)
        said = pool.stripewise("hint", path, "--why").stdout
        assert "which paths its last opens took is not remembered there" in said
    finally:
        pool.stripewise("umount", "--lazy", pool.mount)


def test_why_tells_of_a_program_that_goes_past_the_mount(pool):
    pool.stripewise("mount", pool.file)
    try:
        (pool.mount / "a").write_bytes(os.urandom(300_000))
        pool.python(READ, preload=True)
        assert last_opens(pool, "a")["read"] == {
            "taken": ["striped"],
            "not_taken": [],
            "past_the_mount": True,
            "served_by_kernel": False,
        }
        assert "took striped, past the mount by its program itself" in asked(pool, "a", "--why").stdout
        pool.python(READ, preload=False)
        assert not last_opens(pool, "a")["read"]["past_the_mount"]
    finally:
        pool.stripewise("umount", "--lazy", pool.mount)


@pytest.mark.skipif(os.geteuid() != 0, reason="only for root's mounts a kernel serves files by itself")
def test_why_tells_of_a_file_that_the_kernel_serves(stripewise, tmp_path):
    """A file on one server, without any hint: its last open took `striped`, and no request of it came to the mount."""
    disk, file, mount = tmp_path / "disk", tmp_path / "pool.toml", tmp_path / "mount"
    disk.mkdir()
    pools.make(file, "test", pools.real_tiers({"hdd": [disk]}, "test"), mount=mount)
    pool = TestPool(tmp_path, file, mount, stripewise)
    for options, serves in ((["-o", "nopassthrough"], False), ([], True)):
        subprocess.run([BIN / "stripewise-mount", file, mount, *options], check=True, timeout=60)
        try:
            (mount / "a").write_bytes(b"x" * 5000)
            assert (mount / "a").read_bytes() == b"x" * 5000
            opens = last_opens(pool, "a")
            if serves and not opens["read"]["served_by_kernel"]:
                pytest.skip("this kernel serves no files of FUSE file systems by itself")
            for last in (opens["read"], opens["written"]):
                assert (last["served_by_kernel"], last["taken"]) == (serves, ["striped"])
            assert ("took striped, by the kernel itself" in asked(pool, "a", "--why").stdout) == serves
        finally:
            pool.stripewise("umount", "--lazy", mount)


OPENS_AS_ANOTHER_USER = """
import os, sys
os.setgid(65534)
os.setuid(65534)
for name in ("a", "b"):
    try:
        print(os.getxattr(name, "system.stripewise.opens").split()[0].decode())
    except PermissionError:
        print("refused")
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user")
def test_opens_are_told_to_users_who_may_read_the_file(pool):
    subprocess.run(
        [BIN / "stripewise-mount", pool.file, pool.mount, "-o", "allow_other"], check=True, timeout=PATIENCE_S
    )
    try:
        for name, mode in (("a", 0o600), ("b", 0o644)):
            (pool.mount / name).write_bytes(b"x")
            (pool.mount / name).chmod(mode)
        command = [sys.executable, "-I", "-c", OPENS_AS_ANOTHER_USER]
        told = subprocess.run(command, cwd=pool.mount, check=True, timeout=PATIENCE_S, capture_output=True, text=True)
        assert told.stdout.split() == ["refused", "opens=0"]
    finally:
        pool.stripewise("umount", "--lazy", pool.mount)


OF_ANOTHER_USER = """
set -e
printf 'user_allow_other\\n' > "$BASE/fuse.conf"
mount --make-rprivate /
mount --bind "$BASE/fuse.conf" /etc/fuse.conf
mkdir "$BASE/dev"
mount -t tmpfs -o mode=0755 none "$BASE/dev"
mknod -m 0666 "$BASE/dev/fuse" c 10 229
mount --bind "$BASE/dev/fuse" /dev/fuse
owner() { setpriv --reuid=65534 --regid=65534 --clear-groups "$@"; }
owner "$BIN/stripewise-mount" "$BASE/pool.toml" "$BASE/mount" -o allow_other
trap 'umount --lazy "$BASE/mount"' EXIT
owner sh -c 'umask 022; echo x > "$1/open"; echo x > "$1/closed"; chmod 600 "$1/closed"' - "$BASE/mount"
cd "$BASE/mount"
owner "$PYTHON" -I -c "$ASK"
"$PYTHON" -I -c "$ASK"
# This user may read one of the files, as the kernel says.
setpriv --reuid=62102 --regid=62102 --clear-groups sh -c 'cat open; cat closed 2> /dev/null || echo unread'
setpriv --reuid=62102 --regid=62102 --clear-groups "$PYTHON" -I -c "$ASK"
"""
"""In a mount namespace of its own, where any user may mount and give that to all. $ASK says who is told of opens."""

ASK = """
import os
for name in ("open", "closed"):
    try:
        print(os.getxattr(name, "system.stripewise.opens").split()[0].decode())
    except PermissionError:
        print("refused")
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user")
def test_a_mount_that_a_user_gives_to_all_tells_of_opens_its_owner_and_root():
    """It could not tell what others may read: the process has no right to ask as another user."""
    if any(shutil.which(program) is None for program in ("fusermount3", "setpriv", "unshare")):
        pytest.skip("it needs fusermount3, setpriv and unshare")
    # Below a directory that all users may enter, as those of the other tests are not.
    with tempfile.TemporaryDirectory() as base:
        Path(base).chmod(0o755)
        disks = [Path(base) / f"d{number}" for number in range(2)]
        for disk in disks:
            disk.mkdir()
        pools.make(
            Path(base) / "pool.toml", "test", pools.real_tiers({"hdd": disks}, "test"), mount=Path(base) / "mount"
        )
        (Path(base) / "mount").mkdir(exist_ok=True)
        subprocess.run(["chown", "-R", "65534:65534", base], check=True)
        environment = {**os.environ, "BASE": base, "BIN": str(BIN), "PYTHON": sys.executable, "ASK": ASK}
        told = subprocess.run(
            ["unshare", "--mount", "sh", "-c", OF_ANOTHER_USER],
            env=environment, timeout=120, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert told.returncode == 0, told.stderr
        owner, root, reads = ["opens=0"] * 2, ["opens=0"] * 2, ["x", "unread"]
        assert told.stdout.split() == [*owner, *root, *reads, "refused", "refused"]


def test_why_says_who_is_told_of_opens_to_one_who_may_not_read_the_file(pool, monkeypatch, capsys):
    """As a user of root's mount: what a mount refuses is not what it has not."""
    pool.stripewise("mount", pool.file)
    try:
        (pool.mount / "a").write_bytes(b"x")
        place, ask = placing.place_of(pool.mount / "a", None), os.getxattr
        assert (hinting.refusing(place), len(hinting.why(place)["opens"])) == ([], 1)

        def refuses(file, name, **how):
            if name == mounts.OPENS:
                raise PermissionError(errno.EACCES, "Permission denied")
            return ask(file, name, **how)

        monkeypatch.setattr(mounts.os, "getxattr", refuses)
        assert (hinting.refusing(place), hinting.why(place)["opens"]) == ([str(pool.mount)], [])
        _print_why(place, as_json=False)
        said = capsys.readouterr().out
        assert f"at {pool.mount}: only users who may read the file are told of its opens" in said
        assert "no mount of its pool is here" not in said
        _print_why(place, as_json=True)
        assert json.loads(capsys.readouterr().out)["opens_refused"] == [str(pool.mount)]
    finally:
        pool.stripewise("umount", "--lazy", pool.mount)


def test_what_is_no_directory_is_named(pool):
    refused = asked(pool, "none", "small=64K", check=False)
    assert (refused.returncode, "none" in refused.stderr) == (1, True)


def test_a_file_that_is_read_ahead_has_its_bytes_and_says_so(pool):
    pool.stripewise("mount", pool.file)
    try:
        pool.stripewise("hint", pool.mount, "readahead=1M:3")
        data = os.urandom(3_000_000)
        (pool.mount / "a").write_bytes(data)
        pool.stripewise("hint", pool.mount, "--remove")
        assert "made with readahead=1MiB:3" in pool.stripewise("stat", pool.mount / "a").stdout
        why = pool.stripewise("hint", pool.mount / "a", "--why").stdout
        assert "what is open for reading alone is read ahead, as long as the file has no writer" in why
        digest = hashlib.sha256(data).hexdigest()
        assert [pool.python(READ, preload=preload).stdout.strip() for preload in (False, True)] == [digest] * 2
        with open_pool(pool.file).open("a", "rb", buffering=0) as file:
            assert b"".join(file.read(5000) for _ in range(20)) == data[:100_000]
            with (pool.mount / "a").open("r+b") as other:
                other.write(b"new")
            file.seek(0)
            assert file.read(5) == b"new" + data[3:5]
    finally:
        pool.stripewise("umount", "--lazy", pool.mount)


WRITE = """
import hashlib, os, sys
data = os.urandom(1_000_003)
file = open(sys.argv[1] + "/b", "wb", 0)
for at in range(0, len(data), 4001):
    assert file.write(data[at : at + 4001]) == len(data[at : at + 4001])
assert os.fstat(file.fileno()).st_size == len(data)
os.fsync(file.fileno())
file.close()
print(hashlib.sha256(data).hexdigest())
"""


def test_a_file_whose_writes_are_gathered_has_its_bytes_and_says_so(pool):
    pool.stripewise("mount", pool.file)
    try:
        pool.stripewise("hint", pool.mount, "writebehind=256K:60s")
        for preload in (False, True):
            digest = pool.python(WRITE, preload=preload).stdout.strip()
            with open_pool(pool.file).open("b", "rb") as file:
                assert hashlib.sha256(file.read()).hexdigest() == digest, "another process sees it after the sync"
        why = pool.stripewise("hint", pool.mount / "b", "--why").stdout
        assert "small writes one behind the other are gathered" in why
        with open_pool(pool.file).open("c", "wb", buffering=0) as file:
            assert [file.write(b"piece") for _ in range(10)] == [5] * 10
        assert (pool.mount / "c").read_bytes() == b"piece" * 10
    finally:
        pool.stripewise("umount", "--lazy", pool.mount)


def test_programs_of_a_mount_make_small_files_and_it_is_told_why(pool):
    pool.stripewise("mount", pool.file)
    try:
        # By the path on the mount, as people do.
        pool.stripewise("hint", pool.mount, "small=64K")
        (pool.mount / "sub").mkdir()
        pool.stripewise("hint", pool.mount / "sub", "small=8K", "--for", "*.h5")
        data = os.urandom(200_000)
        for name, size in {"a": 65536, "b": 200_000, "sub/c": 5, "sub/d.h5": 9000}.items():
            (pool.mount / name).write_bytes(data[:size])
            assert (pool.mount / name).read_bytes() == data[:size]
        with (pool.mount / "e").open("wb", buffering=0) as file:
            file.write(data[:100])
            file.write(data[100:])
        assert (pool.mount / "e").read_bytes() == data
        found = {
            name: json.loads(pool.stripewise("stat", pool.mount / name, "--json").stdout) for name in ("a", "b", "e")
        }
        assert [len(found[name]["datafiles"]) for name in found] == [0, 4, 3]
        assert [found[name]["made_with"] for name in found] == [["small=64KiB"]] * 3
        assert [region["offset"] for region in found["e"]["regions"]] == [0, 65536]
        assert [region["offset"] for region in found["b"]["regions"]] == [0]
        names = ("a", "b", "e", "sub/c", "sub/d.h5")
        why = {name: pool.stripewise("hint", pool.mount / name, "--why").stdout for name in names}
        assert why["a"].startswith(
            "a: its inode: it is not larger than 64KiB\n  because it was made with small=64KiB\n"
        )
        assert why["e"].startswith("e: its inode up to 64KiB, and the servers behind that\n")
        beyond = "the servers: it was longer than what its inode was to hold; cut shorter, it may come back\n"
        assert why["b"].startswith(f"b: {beyond}  because it was made with small=64KiB\n")
        assert why["sub/d.h5"].startswith(f"sub/d.h5: {beyond}  because it was made with small=8KiB\n")
        assert "a new file of its name gets small=64KiB by the hints of its directory, version 2" in why["sub/c"]
        assert "made with small=64KiB" in pool.stripewise("stat", pool.mount / "a").stdout
        locks = next(pool.servers()[3].glob(".*-names")) / "locks"
        with (pool.mount / "a").open("r+b", buffering=0) as file:
            file.write(b"a" * 100)
            assert list(locks.iterdir()) == [], "a writer of the head needs no lock file"
            file.seek(65536)
            file.write(b"b")
            assert len(list(locks.iterdir())) == 1
        assert (pool.mount / "a").read_bytes() == b"a" * 100 + data[100:65536] + b"b"
        pool.stripewise("hint", pool.mount, "--remove")
        (pool.mount / "after").write_bytes(b"bytes")
        plain = pool.stripewise("hint", pool.mount / "after", "--why").stdout
        assert plain.startswith("after: the servers: no byte is in its inode\n  because that is its layout")
    finally:
        pool.stripewise("umount", "--lazy", pool.mount)
    assert pool.stripewise("fsck", pool.file).returncode == 0
