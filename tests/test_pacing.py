"""Data moves beside programs: it rests while the servers are busy for them, and keeps to a rate."""

import pytest

from stripewise.api import adapt as adapting
from stripewise.api import pacing
from stripewise.api.pacing import Pace, Pacer
from stripewise.pool import Pool

CHUNK = 1 << 20
STEP_S = 0.03


class Machine:
    """A clock, a server that others keep busy for a part of the time, and a mover that asks its pacer."""

    def __init__(self, share=0.0, of_all=False, hurries=None, **pace):
        self.now_s, self.own_s, self.others_s, self.share = 100.0, 0.0, 0.0, share
        self.goes_on = True
        of = (Pace(**pace), self.busy_s, lambda *_: self.goes_on, lambda: self.now_s)
        self.pacer = Pacer(*of, of_all=of_all, hurries=hurries)

    def busy_s(self):
        return {"hdd.0": self.own_s + self.others_s, "hdd.1": 0.0}

    def passes(self, seconds, own=0.0):
        self.now_s += seconds
        self.own_s += own
        self.others_s += self.share * seconds

    def move(self, chunks, path="f"):
        """The seconds in which the move has copied, and those in which it has rested."""
        moved_s = rested_s = 0.0
        for number in range(1, chunks + 1):
            self.passes(STEP_S, own=STEP_S)
            moved_s += STEP_S
            while (then := self.pacer(path, number * CHUNK, chunks * CHUNK)) == "rest":
                self.passes(0.01)
                rested_s += 0.01
            assert then is True
        return moved_s, rested_s


@pytest.mark.parametrize("share", [0.0, 0.05])
def test_a_move_on_idle_servers_stops_for_looks_alone(share):
    moved_s, rested_s = Machine(share).move(500)
    assert 0 < rested_s < 0.15 * moved_s


@pytest.mark.parametrize("share", [0.2, 1.0])
def test_a_move_beside_busy_servers_takes_its_share(share):
    moved_s, rested_s = Machine(share).move(200)
    assert moved_s / (moved_s + rested_s) < pacing.SHARE * 1.05


def test_a_move_notices_when_others_come_and_go():
    machine = Machine()
    machine.move(100)
    machine.share = 1.0
    machine.move(int(pacing.LOOK_S / STEP_S) + 2)
    moved_s, rested_s = machine.move(50)
    assert moved_s / (moved_s + rested_s) < pacing.SHARE * 1.05
    machine.share = 0.0
    machine.move(2)
    moved_s, rested_s = machine.move(200)
    assert rested_s < 0.15 * moved_s


def test_an_urgent_move_does_not_rest():
    assert Machine(1.0, urgent=True).move(100)[1] == 0


def test_a_move_that_hurries_rests_for_its_rate_alone():
    hurries = [True]
    machine = Machine(1.0, hurries=lambda: hurries[0])
    assert machine.move(100)[1] == 0
    hurries[0] = False
    assert machine.move(100)[1] > 0
    assert sum(Machine(1.0, hurries=lambda: True, rate_bytes_per_s=2 * CHUNK).move(120)) > 60 / 2 - 2


def test_it_knows_for_how_long_others_have_kept_the_servers_busy():
    machine = Machine()
    machine.move(100)
    assert machine.pacer.busy_for_s() == 0
    machine.share, began_s = 1.0, machine.now_s
    machine.move(100)
    passed_s = machine.now_s - began_s
    assert passed_s - 2 * pacing.LOOK_S < machine.pacer.busy_for_s() <= passed_s
    machine.share = 0.0
    machine.move(100)
    assert machine.pacer.busy_for_s() == 0


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_a_rate_is_kept_over_files(share):
    machine = Machine(share, rate_bytes_per_s=2 * CHUNK, urgent=True)
    moved = [machine.move(40, path) for path in ("a", "b", "c")]
    passed_s = sum(map(sum, moved))
    # Of 120 chunks half are read back. A second of a rest at the begin is not used up.
    assert 60 / 2 - 2 < passed_s < 60 / 2 + 2


def test_what_a_small_file_had_too_early_is_no_part_of_the_next_file():
    machine = Machine(rate_bytes_per_s=CHUNK, urgent=True)
    machine.move(39, "small")
    # The first word of a large file may come late: all of that counts.
    assert machine.pacer("large", 40 * CHUNK, 80 * CHUNK) == "rest"
    machine.passes(15.0)
    assert machine.pacer("large", 40 * CHUNK, 80 * CHUNK) == "rest"


def test_a_rate_is_kept_over_moves_that_are_done_before_they_are_asked(pool):
    """Promotions are moves of their own, each of which may be one step."""
    loaded, pace = Pool.load(pool.file), Pace(rate_bytes_per_s=CHUNK, urgent=True)
    assert Pacer.of(loaded, pace, None)("f", 200 * CHUNK, 200 * CHUNK) == "rest"
    assert Pacer.of(loaded, pace, None)("g", 1, 2) == "rest"
    assert Pacer.of(loaded, Pace(urgent=True), None)("h", 1, 2) is True


def test_a_rate_is_kept_where_the_bytes_of_all_files_are_counted_together():
    """As by a drain: what was done of the files before is no part of the next file."""
    machine = Machine(rate_bytes_per_s=2 * CHUNK, urgent=True, of_all=True)
    began_s = machine.now_s
    for number in range(1, 121):
        machine.passes(STEP_S)
        # Each third file cannot move, and is not counted.
        for done in (number * CHUNK, (number - (number % 3 == 0)) * CHUNK):
            while machine.pacer(f"f{number}", done, 120 * CHUNK) == "rest":
                machine.passes(0.01)
    assert 60 / 2 - 2 < machine.now_s - began_s < 4 / 3 * 60 / 2 + 2


def test_a_move_that_rests_can_be_stopped():
    machine = Machine(1.0)
    machine.passes(1.0)
    assert machine.pacer("f", 1, 2) == "rest"
    machine.goes_on = False
    assert machine.pacer("f", 1, 2) is False


def test_servers_of_which_nothing_is_known_are_idle():
    pacer = Pacer(Pace(), dict, lambda *_: True, lambda: 1.0)
    assert pacer._share({}, 0.1) == 0.0


@pytest.mark.parametrize(("share", "is_busy"), [(0.0, False), (0.05, False), (0.5, True)])
def test_a_look_before_a_move_tells_whether_others_are_busy(share, is_busy):
    machine = Machine(share)
    began_s = machine.now_s
    assert machine.pacer.finds_others_busy(machine.passes) is is_busy
    assert machine.now_s == pytest.approx(began_s + pacing.REST_S)


def test_what_adapts_a_pool_gives_a_turn_now_and_then_between_two_steps(hot, monkeypatch):
    """The lock was free for milliseconds between two steps: a command waited for as many as forty of them."""
    pool, now_s, waits, turns = Pool.load(hot[1]), [0.0], [], []
    monkeypatch.setattr(pacing, "_turns", {})

    def wait(pause_s):
        waits.append(now_s[0])
        now_s[0] += pause_s

    for _ in range(12):
        pacing.give_turn(pool, lambda: now_s[0], wait)
        now_s[0] += pacing.TURNS_S / 4
    first, second = waits
    assert first >= pacing.TURNS_S and second - first >= pacing.TURNS_S
    monkeypatch.setattr(adapting, "give_turn", turns.append)
    assert adapting.reconsider(pool, adapting.Limits(87_600 * 3600))["verdict"] == "moved"
    assert turns == [pool], "its one step"
