"""No more is copied in a day than the limit says, also of a file that is written while it moves."""

from functools import partial

import pytest

from stripewise.api import adapt as adapting
from stripewise.api import kept_lines, moved, relief
from stripewise.api.files import open_pool
from stripewise.api.pacing import Pace
from stripewise.pool import Pool

BYTES = bytes(range(256)) * (8 << 12)


def test_a_pass_that_is_above_the_limit_is_stopped_by_its_first_word(pool):
    loaded = Pool.load(pool.file)
    limits = adapting.Limits(day_bytes=100)
    watched = moved.Watched(loaded, None, None, partial(limits.left_bytes, partial(adapting.copied_today, loaded)))
    # The first pass copies 60 bytes, the next one 30 again, and a third would copy 20: each is read back.
    assert all(watched("f", done, total) for done, total in ((10, 120), (60, 120), (120, 120), (125, 180), (180, 180)))
    assert watched("f", 181, 220) is False and watched.why == moved.ABOVE
    watched.close()
    assert adapting.copied_today(loaded) == 91, "what it has copied counts, and nothing else"
    assert moved.halves(loaded) == {"f": 30}
    assert watched("g", 2, 18) and watched.why is None, "another one that fits moves"
    assert not watched("h", 1, 16), "what g has copied counts"


class Writer:
    """A program that writes all of the file again as soon as it is copied: once while it moves, or each time."""

    def __init__(self, pool, *, always):
        self.file = open_pool(pool.file).open("f", "r+b", buffering=0)
        self.always, self.done, self.has_written = always, 0, False

    def __call__(self, _, done, total):
        self.has_written &= done >= self.done
        self.done = done
        if done >= total and (self.always or not self.has_written):
            self.has_written = True
            self.file.seek(0)
            self.file.write(BYTES)
        return True


def day(pool, writer):
    """What leaves the tier where the file has landed, by a limit that has 9 MiB left."""
    limits = adapting.Limits(day_bytes=adapting.copied_today(pool) + (9 << 20))
    return adapting.reconsider(pool, limits, planner="fixed", pace=Pace(urgent=True), progress=writer)["relief"][0]


@pytest.fixture
def landed(pool):
    """A file of 8 MiB that has landed on the SSD, and is to leave it; the pool was never calibrated."""
    pool.file.write_text(pool.file.read_text().replace("[default]\n", '[default]\nland = "ssd"\n'))
    with open_pool(pool.file).open("f", "wb") as file:
        file.write(BYTES)
    return Pool.load(pool.file)


def check_whole(pool):
    with open_pool(pool.file).open("f", "rb") as file:
        assert file.read() == BYTES


def test_a_file_that_is_written_while_it_moves_is_not_copied_beyond_the_limit(landed):
    writer = Writer(landed, always=True)
    step = day(landed, writer)
    assert step["why"] == moved.ABOVE and "moved_files" not in step
    # The second pass copies the file once again at most before its first word.
    assert 8 << 20 <= adapting.copied_today(landed) == step["copied_bytes"] <= 16 << 20
    check_whole(landed)
    writer.file.close()


def test_a_file_that_the_limit_has_stopped_moves_in_smaller_parts(landed):
    """All of it would be copied twice, which is above the limit of each day; half of it is not."""
    writer = Writer(landed, always=False)
    assert day(landed, writer)["why"] == moved.ABOVE
    assert moved.halves(landed) == {"f": 4 << 20}
    steps = [day(landed, writer), day(landed, writer)]
    assert [of["copied_bytes"] for of in steps] == [8 << 20, 8 << 20]
    assert [of["moved_files"] for of in steps] == [0, 1]
    assert relief.landed(landed, None).leaving == ()
    check_whole(landed)
    writer.file.close()


def test_what_the_limit_has_stopped_goes_last(landed):
    """Other files would have nothing left of the limit else."""
    with open_pool(landed.file).open("g", "wb") as file:
        file.write(BYTES)
    moved.record(landed, {"what": moved.STOPPED, "path": "f", "planned_bytes": 8 << 20})
    step = day(landed, None)
    assert step["moved_files"] == 1 and step["copied_bytes"] <= 9 << 20
    assert [of.part["path"] for of in relief.landed(landed, None).leaving] == ["f"]


def test_a_clock_that_jumps_makes_no_byte_forgotten_and_keeps_none_for_longer_than_a_day(pool, monkeypatch):
    loaded, now_s, day_s = Pool.load(pool.file), [1e9], 86_400.0
    monkeypatch.setattr(moved.time, "time", lambda: now_s[0])
    monkeypatch.setattr(moved, "now_in_boot", lambda: ("", now_s[0]))
    moved.record(loaded, {"what": "copied", "path": "f", "copied_bytes": 100})
    now_s[0] += 10 * day_s
    assert adapting.copied_today(loaded) == 0
    moved.record(loaded, {"what": "copied", "path": "f", "copied_bytes": 10})
    moved.see_clock(loaded)
    now_s[0] -= 10 * day_s
    for _ in range(2):
        assert adapting.copied_today(loaded) == 110, "what is dated ahead was copied by now"
        moved._known.clear()
    moved.see_clock(loaded)
    moved.see_clock(loaded)
    assert [line["what"] for line in moved.records(loaded)] == ["copied", "copied", "put back"]
    now_s[0] += 0.9 * day_s
    assert adapting.copied_today(loaded) == 110
    now_s[0] += 0.2 * day_s
    assert adapting.copied_today(loaded) == 0


@pytest.mark.parametrize("jump_days", [-10_000, -2, 2, 10_000])
def test_within_a_boot_of_the_machine_a_day_is_one_whatever_the_clock_says(pool, monkeypatch, jump_days):
    """As where it starts in 1970 and is put right later, or is put ahead."""
    loaded, now_s, boot, day_s = Pool.load(pool.file), [1e9], ["one", 1000.0], 86_400.0
    monkeypatch.setattr(moved.time, "time", lambda: now_s[0])
    monkeypatch.setattr(moved, "now_in_boot", lambda: tuple(boot))
    now_s[0] -= max(0, -jump_days) * day_s
    for copied_bytes in (60, 40):
        moved.record(loaded, {"what": "copied", "path": "f", "copied_bytes": copied_bytes})
    now_s[0] += abs(jump_days) * day_s
    moved._known.clear()
    assert adapting.copied_today(loaded) == 100
    boot[1] += 0.9 * day_s
    assert adapting.copied_today(loaded) == 100
    boot[1] += 0.2 * day_s
    assert adapting.copied_today(loaded) == 0, "that was copied more than a day ago"
    boot[:] = ["two", 1000.0]
    moved._known.clear()
    assert adapting.copied_today(loaded) == 0, "of another boot the clock tells alone"


def test_what_lines_that_go_have_copied_is_of_the_boot_in_which_it_was(pool, monkeypatch):
    loaded, now_s = Pool.load(pool.file), [1e9]
    monkeypatch.setattr(moved.time, "time", lambda: now_s[0])
    monkeypatch.setattr(moved, "now_in_boot", lambda: ("one", 1000.0))
    moved.record(loaded, {"what": "copied", "path": "f", "copied_bytes": 100})
    monkeypatch.setattr(kept_lines, "MOST_BYTES", 10)
    now_s[0] += 10 * 86_400
    for _ in range(3):
        moved.record(loaded, {"what": "planned"})
    assert adapting.copied_today(loaded) == 100
