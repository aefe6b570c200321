"""What adapt moves are the files with heat, whatever their names are: a name is no pattern of others."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stripewise import _native, layouts
from stripewise.api import adapt as adapting
from stripewise.api import least_moves
from stripewise.optimize.place import Placement
from stripewise.pool import Pool

LONG_S = 1e9
"""A horizon in which a move pays."""

RENAMES = """
import os, sys
mount, name = map(os.fsencode, sys.argv[1:])
os.rename(mount + b"/f", mount + b"/" + name)
for other in (b"/cold", b"/colder"):
    os.truncate(os.open(mount + other, os.O_CREAT | os.O_RDWR), 8 << 20)
"""

READS = """
import os, sys
name = os.path.join(os.fsencode(sys.argv[1]), b"\\xff")
open(name, "wb").write(bytes(1 << 20))
file = os.open(name, os.O_RDONLY)
for number in range(200):
    os.pread(file, 65536, 0)
"""


def run(hot, script, *arguments):
    stripewise, file = hot
    mount = file.parent / "mount"
    stripewise("run", "--quiet", "--pool", file, "--", "python3", "-c", script, mount, *arguments)
    return Pool.load(file)


def regions(pool, name):
    return [region["round"] for region in _native.file_stat(str(pool.file), name)["regions"]]


@given(st.text(st.sampled_from('a*?\\[é\n"'), min_size=1, max_size=6))
def test_a_layout_file_names_one_file_whatever_its_name_is(path):
    text = f'version = 1\npool = "p"\n{least_moves.text_of(path, [(0, ["hdd.0:64KiB"])])}'
    (file,) = _native.layout_parse(text)["files"]
    assert layouts.exact_path(file["path"]) == path
    assert _native.pattern_matches(file["path"], path)
    assert not _native.pattern_matches(file["path"], "another")


@pytest.mark.parametrize("limit", [None, 600_000])
@pytest.mark.parametrize("name", ["*", "c?ld", "b\\", 'x\n[[file]]\npath = "cold"\n'])
def test_a_name_that_could_be_a_pattern_moves_its_own_file_alone(hot, name, limit):
    pool = run(hot, RENAMES, name)
    before = [regions(pool, of) for of in ("cold", "colder")]
    done = adapting.reconsider(pool, adapting.Limits(LONG_S, day_bytes=limit))
    assert (done["verdict"], done["skipped"]) == ("moved", []), done
    assert any("ssd.0" in stripe for stripes in regions(pool, name) for stripe in stripes)
    assert [regions(pool, of) for of in ("cold", "colder")] == before


def test_a_file_whose_name_is_no_text_stays_is_named_and_gains_nothing(hot):
    pool = run(hot, READS)
    done = adapting.reconsider(pool, adapting.Limits(LONG_S))
    assert done["verdict"] == "moved"
    assert [(of["path"], "rename it" in of["why"]) for of in done["skipped"]] == [("\ufffd", True)]
    (pool.namespace / "tree" / "f").unlink()
    alone = adapting.reconsider(pool, adapting.Limits(LONG_S), dry_run=True)
    assert (alone["verdict"], alone["why"]) == ("kept", adapting.NONE_MOVES)
    assert len(alone["skipped"]) == 1 and "ratio" not in alone


def test_optimize_takes_back_the_layout_of_a_file_whose_name_could_be_a_pattern(hot, tmp_path):
    pool = run(hot, RENAMES, "a*b")
    before = regions(pool, "a*b")
    layout = tmp_path / "new.layout"
    layout.write_text(f'version = 1\npool = "p"\n{least_moves.text_of("a*b", [(0, ["ssd.0:64KiB"])])}')
    placed = Placement(pool, tmp_path, layout, lambda *_: True)
    placed.apply()
    assert regions(pool, "a*b") == [["ssd.0:64KiB"]]
    placed.take_back()
    assert regions(pool, "a*b") == before
