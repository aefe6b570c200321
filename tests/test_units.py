"""Quantities as people read them."""

import pytest

from stripewise import units


@pytest.mark.parametrize(
    ("bytes_per_s", "shown"), [(140e6, "140"), (3.25e6, "3.25"), (7e9, "7000"), (4e10, "40,000"), (9.9996e9, "10,000")]
)
def test_a_bandwidth_is_no_power_of_ten(bytes_per_s, shown):
    assert units.mb_per_s(bytes_per_s) == shown
