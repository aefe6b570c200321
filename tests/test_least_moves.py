"""A plan with fewer moves leaves what stays within its tier, and is still a layout of the whole file."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stripewise import _native, layouts
from stripewise.api import adapt, least_moves, parting
from stripewise.pool import Pool

MIB = 1 << 20
HDD, WIDE, SSD, BOTH = ["hdd.0-3:64KiB"], ["hdd.0-3:1MiB"], ["ssd.0-1:32KiB"], ["hdd.0-3:64KiB", "ssd.0-1:32KiB"]


def forecast(before, after, size_bytes, path="a"):
    """As an `apply` would be foretold."""

    def of(regions):
        return [{"offset": offset * MIB, "round": stripes} for offset, stripes in regions]

    return {
        "path": path,
        "before": of(before),
        "after": of(after),
        "copied_bytes": size_bytes,
        "kept_bytes": 0,
    }


def test_other_widths_on_the_tier_stay_and_other_tiers_do_not():
    file = forecast([(0, HDD), (8, SSD)], [(0, WIDE), (4, SSD), (8, HDD), (9, BOTH)], MIB)
    assert least_moves.regions(file) == [(0, HDD), (4 * MIB, SSD), (8 * MIB, HDD), (9 * MIB, BOTH)]


def test_cold_parts_between_are_as_they_were_and_one_region_where_they_adjoin():
    file = forecast([(0, HDD), (640, WIDE)], [(0, HDD), (96, SSD), (112, HDD), (300, WIDE), (640, HDD)], 1024 * MIB)
    assert least_moves.regions(file) == [(0, HDD), (96 * MIB, SSD), (112 * MIB, HDD), (640 * MIB, WIDE)]


ROUNDS = st.sampled_from([HDD, WIDE, SSD, BOTH])
REGIONS = st.dictionaries(st.integers(1, 200), ROUNDS, max_size=20)


@given(first=st.tuples(ROUNDS, ROUNDS), before=REGIONS, after=REGIONS, size=st.integers(1, 256))
def test_each_byte_is_where_it_was_on_its_tier_or_where_it_is_planned(first, before, after, size):
    sides = [(0, first[0]), *sorted(before.items())], [(0, first[1]), *sorted(after.items())]
    found = least_moves.regions(forecast(*sides, size * MIB))
    offsets = [offset for offset, _ in found]
    assert offsets[0] == 0 and offsets == sorted(set(offsets))
    for place in range(256):
        now, planned = (next(r for offset, r in reversed(side) if offset <= place) for side in sides)
        got = next(stripes for offset, stripes in reversed(found) if offset <= place * MIB)
        same_tier = {now[0][:3], planned[0][:3]} in ({"hdd"}, {"ssd"}) and len(now) == len(planned) == 1
        assert got == (now if same_tier else planned)
    assert all(one[1] != behind[1] for one, behind in pairwise(found))


def test_a_file_with_too_many_regions_is_as_planned():
    before = [(number, (HDD, SSD)[number % 2]) for number in range(300)]
    file = forecast(before, [(0, WIDE)], 300 * MIB)
    assert least_moves.regions(file) == [(0, WIDE)]


@pytest.mark.parametrize("path", ['a "b" \\ c', "tab\there", "é/ü"])
def test_its_text_is_a_layout_file(path):
    text = least_moves.text(forecast([(0, HDD)], [(0, HDD), (1, SSD)], MIB, path))
    (file,) = _native.layout_parse(f'version = 1\npool = "p"\n{text}')["files"]
    assert layouts.exact_path(file["path"]) == path
    assert [(region["offset"], region["round"]) for region in file["regions"]] == [(0, HDD), (MIB, SSD)]


def test_a_name_that_looks_like_a_pattern_is_that_of_one_file(emulated):
    """A user of a shared pool may call a file so that it stands for all the others."""
    names = ["*", "**", "q?x", "back\\slash", "aa", "qyx"]
    make = "import sys; [open(f'{sys.argv[1]}/{name}', 'wb').write(bytes(300_000)) for name in sys.argv[2:]]"
    emulated.stripewise(
        "run", "--quiet", "--pool", emulated.file, "--", "python3", "-c", make, emulated.file.parent / "mount", *names
    )
    for name in names:
        layout = emulated.file.parent / "one.layout"
        layout.write_text('version = 1\npool = "emulated"\n' + least_moves.text_of(name, [(0, ["ssd.0:64KiB"])]))
        found = _native.layout_forecast(str(layout), str(emulated.file))
        assert [file["path"] for file in found["files"]] == [name]


def test_adapting_moves_files_whose_names_look_like_patterns_and_no_others(hot):
    stripewise, file = hot
    rename = "import os, sys; os.chdir(sys.argv[1]); os.rename('f', '*'); open('cold', 'wb').write(bytes(900_000))"
    stripewise("run", "--quiet", "--pool", file, "--", "python3", "-c", rename, file.parent / "mount")
    pool = Pool.load(file)
    heat = _native.pool_heat(str(file), ".")
    heat["files"] = [of for of in heat["files"] if of["path"] == "*"]
    before = _native.file_stat(str(file), "cold")["layout_hash"]
    done = adapt.reconsider(pool, adapt.Limits(horizon_s=87_600 * 3600), heat=heat)
    assert (done["verdict"], done["skipped"]) == ("moved", [])
    assert _native.file_stat(str(file), "cold")["layout_hash"] == before
    assert done["copied_bytes"] <= 8 << 20


def test_steps_make_no_more_datafiles_than_lengths_are_recorded_of():
    size_bytes = 1 << 42
    for servers, most in ((1, 16), (9, 7), (40, 1)):
        steps = parting.steps(forecast([(0, SSD)], [(0, [f"hdd.0-{servers - 1}:64KiB"])], size_bytes), size_bytes)
        assert len(steps) <= most + 1 and len(steps) > most // 2
