"""What adapting brings to the tier where files land fills it to its mark, and no further."""

import math

import pytest

from conftest import READ_HOT, Stripewise, with_a_file_beside_an_ssd
from stripewise import _native, layouts
from stripewise.api import adapt as adapting
from stripewise.api import filling, forecasts, landing, promotion, tier_room
from stripewise.api.files import open_pool
from stripewise.api.pacing import Pace
from stripewise.pool import Pool

MIB = 1 << 20
URGENT = Pace(urgent=True)
FIRST = """version = 1
pool = "p"
[[file]]
path = "f"
[[file.region]]
offset = "0"
round = ["hdd.0-1:64KiB"]
"""
COMES = """
[[file.region]]
offset = "20MiB"
round = ["ssd.0:64KiB"]
[[file.region]]
offset = "24MiB"
round = ["hdd.0-1:64KiB"]
"""


def lands_on_the_ssd(file):
    file.write_text(file.read_text().replace("[default]\n", '[default]\nland = "ssd"\n'))
    return Pool.load(file)


def on_ssd(pool, size_bytes):
    regions = _native.file_stat(str(pool.file), "f")["regions"]
    ends = [region["offset"] for region in regions[1:]] + [size_bytes]
    stretches = zip(regions, ends, strict=True)
    return sum(end - region["offset"] for region, end in stretches if region["round"][0].startswith("ssd"))


def test_a_hot_set_that_is_larger_than_the_mark_comes_as_far_as_that_and_nothing_moves_to_and_fro(hot):
    """It is 95 % of the tier."""
    file, now_s = hot[1], [0.0]
    file.write_text(file.read_text().replace('name = "ssd"\n', 'name = "ssd"\ncapacity = "1100KB"\n'))
    pool = lands_on_the_ssd(file)
    mark, limits = landing.Mark(URGENT, lambda: now_s[0]), adapting.Limits(87_600 * 3600)
    first = adapting.reconsider(pool, limits, pace=URGENT)
    assert first["verdict"] == "moved", first
    copied = adapting.copied_today(pool)
    for _ in range(2):
        now_s[0] += 60.0
        assert mark.look(pool, limits, lambda: 0) is None
        assert adapting.reconsider(pool, limits, pace=URGENT)["verdict"] == "kept"
    assert adapting.copied_today(pool) == copied
    assert 600_000 < on_ssd(pool, 8 * MIB) <= 880_000


def heat_of(costs):
    file = {"path": "f", "size_bytes": 64 * MIB, "cost_us": sum(costs.values()), "blocks": sorted(costs.items())}
    return {"block_bytes": MIB, "period_s": 600, "missed": 0, "files": [file]}


@pytest.fixture
def pool(tmp_path):
    """A file of 64 MiB on two HDDs, beside an SSD on which files land, with 4,160 KiB: the mark is 3,328 KiB."""
    return lands_on_the_ssd(with_a_file_beside_an_ssd(tmp_path, FIRST).file)


def test_promotions_keep_to_the_mark(pool):
    promoter, costs = promotion.Promoter(pool, 1.0, adapting.move_s_per_byte(pool), URGENT), {}
    promoter.look(heat_of(costs), 1.0)
    for _ in range(4):
        costs = {block: costs.get(block, 0) + 400_000 for block in range(20, 24)}
        promoter.look(heat_of(costs), 1.0)
    assert on_ssd(pool, 64 * MIB) == 3 * MIB


def test_of_a_plan_what_is_hottest_comes(pool, tmp_path):
    costs = {20: 400_000, 21: 100_000, 22: 400_000, 23: 400_000, 40: 9}
    plan = FIRST + COMES
    layout = tier_room.within(pool, heat_of(costs), plan, forecasts.of_layout(pool, plan))
    (file,) = _native.layout_parse(layout)["files"]
    places = {region["offset"] // MIB: region["round"] for region in file["regions"]}
    hdd, ssd = ["hdd.0-1:64KiB"], ["ssd.0:64KiB"]
    assert places == {0: hdd, 20: ssd, 21: hdd, 22: ssd, 24: hdd}
    # What fits comes as it is planned.
    assert tier_room.within(pool, heat_of({21: 1}), layout, forecasts.of_layout(pool, layout)) == layout


def test_a_file_with_its_begin_in_its_inode_comes_and_goes(tmp_path, stripewise):
    """`meta:64KiB` is a stripe of a round as any: each decision failed where such a file was to come."""
    base = tmp_path / "p"
    stripewise("pool", "init", base, "--emulate", "--hdd", "2", "--ssd", "1", "--dilation", "0.01")
    file = base / "pool.toml"
    file.write_text(file.read_text() + '\n[heat]\nperiod = "31000000s"\n')
    stripewise("hint", "--pool", file, ".", "layout=meta:64KiB/64KiB@hdd.0-1:64KiB")
    script = "import sys; open(f'{sys.argv[1]}/f', 'wb').write(bytes(range(256)) * 32768)" + READ_HOT
    stripewise("run", "--quiet", "--pool", file, "--", "python3", "-c", script, base / "mount")
    assert _native.file_stat(str(file), "f")["regions"][0]["round"] == ["meta:64KiB"]
    decision = adapting.reconsider(lands_on_the_ssd(file), adapting.Limits(87_600 * 3600), pace=URGENT)
    assert decision["verdict"] == "moved", decision
    assert on_ssd(Pool.load(file), 8 * MIB) > 0
    same = "import sys; assert open(f'{sys.argv[1]}/f', 'rb').read() == bytes(range(256)) * 32768"
    stripewise("run", "--quiet", "--pool", file, "--", "python3", "-c", same, base / "mount")


def test_what_leaves_without_heat_makes_room_for_what_comes(tmp_path):
    pool = lands_on_the_ssd(with_a_file_beside_an_ssd(tmp_path, FIRST + COMES.replace("24MiB", "23MiB")).file)
    layout = tmp_path / "other.layout"
    layout.write_text(FIRST.replace('"f"', '"g"'))
    layouts.apply(layout, pool.file)
    make = "import sys; open(sys.argv[1] + '/g', 'xb').write(b'x' * (4 << 20))"
    Stripewise(tmp_path)("run", "--quiet", "--pool", pool.file, "--", "python3", "-c", make, tmp_path / "p/mount")
    other = '\n[[file]]\npath = "g"\n[[file.region]]\noffset = "0"\nround = ["ssd.0:64KiB"]\n'
    other += '[[file.region]]\noffset = "2MiB"\nround = ["hdd.0-1:64KiB"]\n'
    heat = {**heat_of({}), "files": [{"path": "g", "size_bytes": 4 * MIB, "cost_us": 9, "blocks": [(0, 5), (1, 4)]}]}
    comes = FIRST.replace(FIRST[FIRST.index("\n[[file]]") :], other)
    assert tier_room.within(pool, heat, comes, forecasts.of_layout(pool, comes)).count("ssd.0") == 0
    swap = FIRST + other
    taken = _native.layout_parse(tier_room.within(pool, heat, swap, forecasts.of_layout(pool, swap)))["files"]
    places = {of["path"]: {region["offset"] // MIB: region["round"][0][:3] for region in of["regions"]} for of in taken}
    assert places == {"f": {0: "hdd"}, "g": {0: "ssd", 2: "hdd"}}


def test_a_plan_goes_on_where_room_was_scarce_while_the_tier_was_relieved(hot, monkeypatch):
    """It was told as scarce for the rest of the decision, so that nothing else moved."""
    monkeypatch.setattr(filling, "LOOK_S", 0.0)
    monkeypatch.setattr(filling, "LOOK_SHARE", math.inf)
    file, asked = hot[1], []
    file.write_text(file.read_text().replace('name = "ssd"\n', 'name = "ssd"\ncapacity = "16MiB"\n'))
    pool = lands_on_the_ssd(file)
    files = _native.PoolFiles(str(file))

    def write(name, size_bytes):
        with open_pool(file).open(name, "wb") as made:
            made.write(bytes(size_bytes))

    def progress(path, done, _total):
        asked.append((path, done))
        if len(asked) == 1:
            write("passing", 1_000_000)
        elif len(asked) == 2:
            files.unlink("passing")
        return True

    write("landed", 14_500_000)
    look, scarce = filling.Filling._look, []

    def noted(of, *copying):
        look(of, *copying)
        scarce.append(of._hurries)

    monkeypatch.setattr(filling.Filling, "_look", noted)
    decision = adapting.reconsider(pool, adapting.Limits(87_600 * 3600), progress=progress)
    assert any(scarce), "room was scarce for a moment"
    assert decision["relief"][0]["moved_files"] == 1, decision
    assert (decision["verdict"], decision.get("stopped")) == ("moved", None), decision
    assert on_ssd(pool, 8 * MIB) > 0
