"""Parts of files change places between tiers where each pays for its own move."""

import pytest

from conftest import Stripewise, with_a_file_beside_an_ssd
from stripewise.api import swaps

MIB = 1 << 20
HDD, SSD = ["hdd.0-1:64KiB"], ["ssd.0:64KiB"]
FIRST = """version = 1
pool = "p"
[[file]]
path = "f"
[[file.region]]
offset = "0"
round = ["hdd.0-1:64KiB"]
[[file.region]]
offset = "8MiB"
round = ["ssd.0:64KiB"]
[[file.region]]
offset = "12MiB"
round = ["hdd.0-1:64KiB"]
"""
WARM = {8: 50_000, 9: 50_000, 10: 50_000, 11: 50_000}
"""What is on the SSD: six requests of 8 ms each MiB."""


@pytest.fixture(scope="module")
def full(tmp_path_factory):
    """A file of 64 MiB, 4 MiB of which fill the SSD but for a stripe."""
    return with_a_file_beside_an_ssd(tmp_path_factory.mktemp("swaps"), FIRST)


def swapped(pool, costs, *, periods=1000.0, size=64 * MIB):
    blocks = [list(block) for block in sorted(costs.items())]
    file = {"path": "f", "size_bytes": size, "cost_us": sum(costs.values()), "blocks": blocks}
    heat = {"block_bytes": MIB, "period_s": 600, "missed": 0, "files": [file]}
    found = swaps.find(pool, heat, swaps.Pays(periods, 1e-8), FIRST)
    return {offset / MIB: stripes for offset, stripes in found["f"]} if found else {}


def test_the_hottest_part_comes_for_the_coldest_and_all_else_stays(full):
    expected = {0: HDD, 8: SSD, 11: HDD, 20: SSD, 21: HDD}
    assert swapped(full, {**WARM, 20: 900_000}) == expected
    # What is hot beside it stays: it is not hot enough for what would leave then.
    assert swapped(full, {**WARM, 20: 900_000, 30: 52_000}) == expected


def test_what_nothing_is_asked_of_leaves_first_and_goes_on_in_one_region(full):
    assert swapped(full, {8: 50_000, 11: 50_000, 20: 400_000, 21: 400_000}) == {
        0: HDD,
        8: SSD,
        9: HDD,
        11: SSD,
        12: HDD,
        20: SSD,
        22: HDD,
    }


def test_the_end_of_a_file_has_its_heat_in_the_bytes_that_are_there_and_takes_no_more_room(full):
    expected = {0: HDD, 8: SSD, 11.75: HDD, 63: SSD, 63.25: HDD}
    assert swapped(full, {**WARM, 63: 60_000}, size=63 * MIB + MIB // 4) == expected


def test_one_that_does_not_pay_keeps_no_colder_one_from_it_that_has_more_heat_in_all(full):
    size = 63 * MIB + MIB // 16
    warm = {8: 3_000, 9: 3_000, 10: 3_000, 11: 3_000}
    # The last 64 KiB are the hottest for a byte, but one request may be chance.
    assert 20 in swapped(full, {**warm, 63: 7_000, 20: 80_000}, size=size)
    assert 63 not in swapped(full, {**warm, 63: 7_000, 20: 80_000}, size=size)


@pytest.mark.parametrize(
    ("cost_us", "periods"),
    [
        (54_000, 1000.0),  # Not hotter by a tenth.
        (70_000, 1000.0),  # Two requests more of nine may be chance.
        (900_000, 0.01),  # 0.4 s in a period that counts for a hundredth; 2 MiB have to move.
    ],
)
def test_what_does_not_pay_for_its_own_move_does_not_come(full, cost_us, periods):
    assert swapped(full, {**WARM, 20: cost_us}, periods=periods) == {}


def test_a_file_that_is_gone_has_no_part(full):
    file = {"path": "gone", "size_bytes": MIB, "cost_us": 1 << 30, "blocks": [(0, 1 << 30)]}
    heat = {"block_bytes": MIB, "period_s": 600, "missed": 0, "files": [file]}
    assert swaps.find(full, heat, swaps.Pays(1000.0, 1e-8), FIRST) == {}


def test_a_dead_disk_whose_mount_point_is_left_takes_nothing(tmp_path):
    pool = with_a_file_beside_an_ssd(tmp_path, FIRST.partition('[[file.region]]\noffset = "8MiB"')[0], ssds=2)
    (ssd,) = (server.path for server in pool.servers if server.name == "ssd.1")
    ssd.rename(ssd.with_name("away"))
    ssd.mkdir()
    assert [of.name for tier in pool.tiers for of in swaps.usable(tier)] == ["hdd.0", "hdd.1", "ssd.0"]
    assert swapped(pool, {20: 900_000}) == {0: HDD, 20: SSD, 21: HDD}


HOLES = """
[[file]]
path = "holes"
[[file.region]]
offset = "0"
round = ["ssd.0:64KiB"]
"""
MAKE_HOLES = "import os, sys; os.truncate(os.open(sys.argv[1] + '/holes', os.O_RDWR | os.O_CREAT), int(sys.argv[2]))"
"""It has no byte."""
MAKE_ENDS = """
import os, sys
file = os.open(sys.argv[1] + "/holes", os.O_RDWR | os.O_CREAT)
for at in (0, int(sys.argv[2]) - 4096):
    os.pwrite(file, b"x" * 4096, at)
"""


def full_with_holes(directory, make, size):
    pool = with_a_file_beside_an_ssd(directory, FIRST + HOLES)
    Stripewise(directory)(
        "run", "--quiet", "--pool", pool.file, "--", "python3", "-c", make, pool.file.parent / "mount", size
    )
    return pool


def test_a_file_of_holes_on_a_full_tier_frees_no_room(tmp_path):
    pool = full_with_holes(tmp_path, MAKE_HOLES, 1 << 30)
    expected = {0: HDD, 8: SSD, 11: HDD, 20: SSD, 21: HDD}
    assert swapped(pool, {**WARM, 20: 900_000}) == expected


def test_a_file_of_holes_is_looked_at_in_as_many_steps_as_it_holds_blocks(tmp_path, monkeypatch):
    pool = full_with_holes(tmp_path, MAKE_ENDS, 8 << 40)
    steps = []

    def counted(*of):
        steps.append(len(range(*of)))
        return range(*of)

    monkeypatch.setattr(swaps, "range", counted, raising=False)
    assert swapped(pool, {**WARM, 20: 900_000})[20] == SSD
    assert len(steps) < 1000
    assert sum(steps) < 1000
