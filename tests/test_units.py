"""Quantities as people read them."""

import pytest

from stripewise import units


@pytest.mark.parametrize(
    ("bytes_per_s", "shown"), [(140e6, "140"), (3.25e6, "3.25"), (7e9, "7000"), (4e10, "40,000"), (9.9996e9, "10,000")]
)
def test_a_bandwidth_is_no_power_of_ten(bytes_per_s, shown):
    assert units.mb_per_s(bytes_per_s) == shown


def test_a_factor_has_three_digits_or_so():
    shown = {0: "0.00x", 1e-6: "under 0.001x", 0.0065: "0.0065x", 0.39: "0.39x", 1: "1.00x", 4.123: "4.12x"}
    shown |= {9.996: "10.0x", 32.42: "32.4x", 162.56: "163x", 12345.6: "12,346x"}
    assert {value: units.ratio(value) for value in shown} == shown


def test_plurals():
    assert [units.counted(1, "process"), units.counted(2, "process"), units.counted(1024, "file")] == [
        "1 process",
        "2 processes",
        "1,024 files",
    ]


@pytest.mark.parametrize(
    ("value", "shown"), [(0.0, "0.0 us"), (-1563.01, "-1563 s"), (-0.004, "-4.00 ms"), (-9e-5, "-90.0 us")]
)
def test_a_time_that_is_lost_has_the_unit_of_one_that_is_gained(value, shown):
    assert units.seconds(value) == shown
