"""Parts of files change places between tiers where each pays for its own move."""

from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import Stripewise, with_a_file_beside_an_ssd
from stripewise import _native
from stripewise.api import shares, swaps, tier_room
from stripewise.pool import Pool

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


def test_a_tier_that_programs_have_filled_above_its_capacity_has_no_room(tmp_path):
    """Each file has a few bytes there, for which the disk takes a block."""
    Stripewise(tmp_path)(
        "pool", "init", tmp_path / "p", "--emulate", "--hdd", "2", "--ssd", "1", "--capacity", "ssd=64KiB"
    )
    file = tmp_path / "p/pool.toml"
    file.write_text(file.read_text().replace('width = "64KiB"', 'width = "4KiB"'))
    make = "import sys; [open(f'{sys.argv[1]}/{n}', 'xb').write(b'x' * 8200) for n in range(40)]"
    Stripewise(tmp_path)("run", "--quiet", "--pool", file, "--", "python3", "-c", make, tmp_path / "p/mount")
    pool = Pool.load(file)
    known = _native.pool_tier_parts(str(file), "ssd")
    (room,) = known["rooms"]
    assert room["used_bytes"] > 64 << 10 and room["free_bytes"] == 0
    assert tier_room.left_bytes(pool, "ssd", known) <= 0


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


SPANS, BOTH = ["hdd.0-1:64KiB", "ssd.0:64KiB"], {"hdd", "ssd"}
OVER_TIERS = FIRST.partition("[[file.region]]")[0] + (
    '[[file.region]]\noffset = "0"\nround = ["hdd.0-1:64KiB", "ssd.0:64KiB"]\n'
    '[[file.region]]\noffset = "12MiB"\nround = ["hdd.0-1:64KiB"]\n'
)
"""As many bytes fill the SSD."""
PAYS = swaps.Pays(1000.0, 1e-8)


@pytest.fixture(scope="module")
def spanned(tmp_path_factory):
    return with_a_file_beside_an_ssd(tmp_path_factory.mktemp("spans"), OVER_TIERS)


def heat_of(costs, size=64 * MIB):
    file = {"path": "f", "size_bytes": size, "cost_us": sum(costs.values()), "blocks": sorted(costs.items())}
    return {"block_bytes": MIB, "period_s": 600, "missed": 0, "files": [file] if costs else []}


def by_offset(found):
    return {at: {of.partition(".")[0] for of in stripes} for at, stripes in found["f"]} if found else {}


def on_the_ssd(regions, size=64 * MIB):
    ends = [offset for offset, _ in regions[1:]] + [size]
    return sum(shares.bytes_on("ssd", of, at, end) for (at, of), end in zip(regions, ends, strict=True))


def test_a_hot_part_over_tiers_comes_whole_for_the_coldest_that_are_over_tiers_too(spanned):
    heat = heat_of({4: 900_000})
    found = swaps.find(spanned, heat, PAYS, OVER_TIERS, swaps.Spans.ALL)
    places = by_offset(found)
    left = list(places)[-1]
    # All else stays, and what leaves is at the end, in one region.
    assert places == {0: BOTH, 4 * MIB: {"ssd"}, 5 * MIB: BOTH, left: {"hdd"}}
    assert 9 * MIB < left < 11 * MIB and 4 * MIB - 192 * 1024 < on_the_ssd(found["f"]) <= 4 * MIB
    assert swaps.find(spanned, heat, PAYS, OVER_TIERS) == {}, "a width over tiers may be planned: a model prices that"


def test_a_part_on_a_slower_tier_comes_for_what_is_over_tiers(spanned):
    found = by_offset(swaps.find(spanned, heat_of({30: 900_000}), PAYS, OVER_TIERS, swaps.Spans.ALL))
    assert found[30 * MIB] == {"ssd"} and found[31 * MIB] == {"hdd"} and BOTH in found.values()


@pytest.mark.parametrize(
    ("costs", "periods"),
    [
        # As hot: it would leave for itself.
        (dict.fromkeys(range(12), 100_000), 1000.0),
        # All are needed, and what is there of two is as hot as the rest of one.
        ({4: 120_000, **dict.fromkeys({*range(12)} - {4}, 100_000)}, 1000.0),
        ({4: 900_000}, 0.01),
    ],
)
def test_what_is_over_tiers_stays_where_it_does_not_pay(spanned, costs, periods):
    pays = swaps.Pays(periods, 1e-8)
    assert swaps.find(spanned, heat_of(costs), pays, OVER_TIERS, swaps.Spans.ALL) == {}


def test_without_a_model_what_is_over_tiers_leaves_only_without_any_heat(spanned):
    hot = heat_of({4: 900_000})

    def surely(warm):
        found = swaps.few(spanned, hot, PAYS, 64 * MIB, spans=swaps.Spans.SURE, warm=heat_of({4: 900_000, **warm}))
        return by_offset(found.regions)

    assert surely({})[4 * MIB] == {"ssd"}
    # Of late nothing came to them, but they have heat: their width may be planned.
    assert surely(dict.fromkeys(range(12), 9)) == {}
    found = surely(dict.fromkeys(range(8, 12), 9))
    assert found[4 * MIB] == {"ssd"} and {at: found[at] for at in (8 * MIB, 12 * MIB)} == {
        8 * MIB: BOTH,
        12 * MIB: {"hdd"},
    }


def test_no_more_is_copied_than_may_be_and_all_of_what_is_over_tiers_is(spanned):
    def copied(most_bytes):
        found = swaps.few(spanned, heat_of({4: 900_000}), PAYS, most_bytes, spans=swaps.Spans.SURE, warm=heat_of({}))
        return found.moved_bytes

    # 1 MiB comes and needs two thirds of it, for which three times as much leaves.
    needed = copied(64 * MIB)
    assert 2.5 * MIB < needed <= 3.5 * MIB
    assert (copied(needed), copied(needed - 1)) == (needed, 0)


def test_several_swaps_ask_once_for_each_file_and_each_plan(spanned, monkeypatch):
    """In a pool of thousands of files that is most of the time which a decision takes, and a look."""
    asked = []
    for name in ("file_stat", "layout_parse"):

        def counted(*words, ask=getattr(_native, name)):
            asked.append(words[-1])
            return ask(*words)

        monkeypatch.setattr(_native, name, counted)
    heat, present = heat_of({4: 900_000}), swaps.Present()
    kinds = (swaps.Spans.NONE, swaps.Spans.ALL)
    known = [swaps.find(spanned, heat, PAYS, OVER_TIERS, spans, present) for spans in kinds]
    few = swaps.few(spanned, heat, PAYS, 1 << 40, OVER_TIERS, spans=swaps.Spans.ALL, present=present)
    assert sorted(asked) == sorted(["f", OVER_TIERS])
    assert known == [swaps.find(spanned, heat, PAYS, OVER_TIERS, spans) for spans in kinds] and known[1]
    assert few.regions == known[1]


@pytest.mark.parametrize(("widths", "comes"), [(["hdd.0-1:64KiB", "ssd.0:64KiB"], True), (None, False)])
def test_without_a_model_a_width_that_balances_the_servers_stays(tmp_path, widths, comes):
    """The SSD takes a fiftieth of an HDD's time, and has fifty times as much of the round."""
    widths = widths or ["hdd.0-1:4KiB", "ssd.0:240KiB"]
    first = 'version = 1\npool = "p"\n[[file]]\npath = "f"\n[[file.region]]\noffset = "0"\nround = ["hdd.0-1:64KiB"]\n'
    rounds = ", ".join(f'"{of}"' for of in widths)
    layout = f'{first}[[file.region]]\noffset = "1MiB"\nround = [{rounds}]\n'
    layout += '[[file.region]]\noffset = "2MiB"\nround = ["hdd.0-1:64KiB"]\n'
    pool = with_a_file_beside_an_ssd(tmp_path, layout)
    heat = heat_of({1: 9_000_000})
    found = swaps.few(pool, heat, PAYS, 64 * MIB, spans=swaps.Spans.SURE, warm=heat)
    assert (by_offset(found.regions).get(MIB) == {"ssd"}) == comes
    assert by_offset(swaps.find(pool, heat, PAYS, layout, swaps.Spans.ALL))[MIB] == {"ssd"}


@settings(max_examples=60)
@given(
    costs=st.dictionaries(st.integers(0, 63), st.integers(1, 40).map(lambda of: of * 30_000), max_size=40),
    is_sure=st.booleans(),
)
def test_the_tier_is_never_overfull_and_looks_come_to_an_end(spanned, costs, is_sure):
    heat = heat_of(costs)
    spans = swaps.Spans.SURE if is_sure else swaps.Spans.ALL
    regions = [(0, SPANS), (12 * MIB, HDD)]

    def parts(_, tier):
        known = _native.pool_tier_parts(str(spanned.file), tier)
        ends = [offset for offset, _ in regions[1:]] + [64 * MIB]
        each = [(at, end, shares.bytes_on("ssd", of, at, end)) for (at, of), end in zip(regions, ends, strict=True)]
        one = {"path": "f", "has_landed": False}
        held = [{**one, "stretch": (at, end), "by_server": {"ssd.0": on}} for at, end, on in each if on]
        return {**known, "parts": held}

    stands = SimpleNamespace(
        file_stat=lambda *_: {"regions": [{"offset": at, "round": of} for at, of in regions]},
        pool_tier_parts=parts,
        layout_parse=_native.layout_parse,
    )
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(swaps, "_native", stands)
        for number in range(8):
            found = swaps.few(spanned, heat, PAYS, 1 << 40, OVER_TIERS, spans=spans, warm=heat).regions
            if not found:
                break
            assert is_sure or number == 0
            regions = found["f"]
            assert on_the_ssd(regions) <= 4160 * 1024
        else:
            pytest.fail(f"it moves to and fro: {regions}")


@given(
    widths=st.lists(st.tuples(st.sampled_from(["hdd.0", "ssd.0-1", "ssd.3"]), st.integers(1, 5)), min_size=1),
    begin=st.integers(0, 100),
    size=st.integers(0, 100),
)
def test_what_a_tier_has_of_a_stretch_is_what_a_count_of_its_bytes_says(widths, begin, size):
    stripes = [f"{server}:{width}B" for server, width in widths]
    tiers = [server[:3] for server, width in widths for _ in range(width * (2 if "-" in server else 1))]
    counted = sum(tiers[at % len(tiers)] == "ssd" for at in range(begin, begin + size))
    assert shares.bytes_on("ssd", stripes, begin, begin + size) == counted
    assert shares.round_bytes(stripes) == len(tiers)
