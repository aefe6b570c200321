"""A file that no plan can be made with, as any user of a pool may have it, keeps no other from moving."""

import pytest

from stripewise import _native, layouts
from stripewise.api import adapt as adapting
from stripewise.pool import Pool

LONG_S = 1e9
"""A horizon in which a move pays."""

WRITES = """
import os, sys
file = os.open(f"{sys.argv[1]}/other", os.O_CREAT | os.O_RDWR)
os.ftruncate(file, int(sys.argv[2]))
os.pwrite(file, bytes(1 << 20), 0)
for number in range(200):
    os.pread(file, 65536, 0)
"""


def decided(hot, size_bytes, *, lose_layout=False):
    """What is decided beside another hot file of that size, of which all but a MiB are holes."""
    stripewise, file = hot
    for tier in ("hdd", "ssd"):
        file.write_text(file.read_text().replace(f'name = "{tier}"\n', f'name = "{tier}"\ncapacity = "1GiB"\n'))
    text = 'version = 1\npool = "p"\n[[file]]\npath = "other"\n[[file.region]]\noffset = "0"\nround = ["hdd.1:68KiB"]\n'
    layout = file.parent / "other.layout"
    layout.write_text(text)
    layouts.apply(layout, file)
    mount = file.parent / "mount"
    stripewise("run", "--quiet", "--pool", file, "--", "python3", "-c", WRITES, mount, size_bytes)
    pool = Pool.load(file)
    if lose_layout:
        known = _native.file_stat(str(file), "other")["layout_hash"]
        (pool.namespace / "layouts" / known).unlink()
    return adapting.reconsider(pool, adapting.Limits(LONG_S))


@pytest.mark.parametrize("way", ["sparse", "lost"])
def test_the_others_move_and_it_is_named(hot, way):
    size_bytes = 1 << 40 if way == "sparse" else 1 << 20
    done = decided(hot, size_bytes, lose_layout=way == "lost")
    assert done["verdict"] == "moved", done
    ((path, why),) = [(of["path"], of["why"]) for of in done["skipped"]]
    assert (path, ("holes" if way == "sparse" else "cannot be read") in why) == ("other", True)


def test_one_alone_is_named_and_nothing_moves(hot):
    _, file = hot
    (file.parent / "namespace" / "tree" / "f").unlink()
    done = decided(hot, 1 << 40)
    assert (done["verdict"], done["why"]) == ("kept", adapting.NONE_MOVES)
    assert [of["path"] for of in done["skipped"]] == ["other"]


def test_where_all_can_be_planned_the_error_is_said(hot, monkeypatch):
    def refused(*_, **__):
        raise adapting.StripewiseError("no planner")

    monkeypatch.setattr(adapting.planning, "plan", refused)
    with pytest.raises(adapting.StripewiseError, match="no planner"):
        adapting.reconsider(Pool.load(hot[1]), adapting.Limits(LONG_S))
