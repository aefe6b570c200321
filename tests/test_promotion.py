"""Promotion: what has become hot since the last look comes to a faster tier, and a scan does not."""

import subprocess
import sys
from functools import partial
from types import SimpleNamespace

import pytest

from conftest import BIN, PATIENCE_S, Stripewise, with_a_file_beside_an_ssd
from stripewise import _native, decided, layouts
from stripewise._native import StripewiseError
from stripewise.api import adapt, between, heat, least_moves, moved, promotion
from stripewise.api.pacing import Pace
from stripewise.pool import Pool

MIB = 1 << 20
FIRST = """version = 1
pool = "p"
[[file]]
path = "f"
[[file.region]]
offset = "0"
round = ["hdd.0-1:64KiB"]
"""
ONCE_US = 22_000
"""What a scan costs in a block of 1 MiB: no more than one read of all of it."""


@pytest.fixture
def pool(tmp_path):
    """A file of 64 MiB on two HDDs, beside an SSD with room for 4 MiB and a stripe."""
    return with_a_file_beside_an_ssd(tmp_path, FIRST)


class Looks:
    """Looks at a heat that is made up, one second apart."""

    def __init__(self, pool):
        self.promoter = promotion.Promoter(pool, 1.0, adapt.move_s_per_byte(pool), Pace(urgent=True))
        self.costs = {}
        self.look({})

    def look(self, came, passed_s=1.0, **options):
        for block, cost in came.items():
            self.costs[block] = self.costs.get(block, 0) + cost
        return self.promoter.look(heat_of(self.costs), passed_s, **options)


def heat_of(costs):
    file = {"path": "f", "size_bytes": 64 * MIB, "cost_us": sum(costs.values()), "blocks": sorted(costs.items())}
    return {"block_bytes": MIB, "period_s": 600, "missed": 0, "files": [file]}


def fast(pool):
    """The MiB of the file that are on the SSD."""
    regions = _native.file_stat(str(pool.file), "f")["regions"]
    ends = [region["offset"] for region in regions[1:]] + [64 * MIB]
    found = set()
    for region, end in zip(regions, ends, strict=True):
        if "ssd" in region["round"][0]:
            found |= set(range(region["offset"] // MIB, end // MIB))
    return found


def test_a_look_asks_once_for_each_file_however_many_sizes_of_a_move_it_weighs(pool, monkeypatch):
    looks, asked, ask = Looks(pool), [], _native.file_stat
    monkeypatch.setattr(_native, "file_stat", lambda *words: asked.append(words[-1]) or ask(*words))
    assert len(promotion.PARTS) > 1 and looks.look({20: 400_000})["files"] == 1
    assert asked == ["f"]


def test_what_is_hot_since_the_last_look_comes_at_once_and_then_for_what_has_cooled(pool):
    looks = Looks(pool)
    first = looks.look({20: 400_000, 21: 400_000, 22: 400_000, 23: 400_000})
    assert (first["verdict"], first["files"], first["copied_bytes"]) == ("promoted", 1, 4 * MIB)
    assert first["gain_s"] > first["move_s"] > 0
    assert fast(pool) == {20, 21, 22, 23}
    assert (first["came_bytes"], first["left_bytes"]) == (4 * MIB, 0)
    assert first["moved_heat_s"] > first["gain_s"] / promotion.PAYS_WITHIN_S and first["took_s"] > 0
    for _ in range(12):
        looks.look({40: 400_000, 41: 400_000})
    assert {40, 41} <= fast(pool)
    # Each has a line of its own, beside those of the bytes that count for the limit of a day.
    lines = [line for line in moved.records(pool) if line["what"] == "promoted"]
    assert len(lines) >= 2 and {**lines[0], "time_s": 0} == {**first, "time_s": 0, "what": "promoted"}
    later = lines[1:]
    assert sum(line["came_bytes"] for line in later) == sum(line["left_bytes"] for line in later) >= 2 * MIB
    copied = sum(line["copied_bytes"] for line in moved.records(pool) if line["what"] == "copied")
    assert copied == sum(line["copied_bytes"] for line in lines)
    kept = looks.promoter.promoted()
    assert kept["copied_bytes"] >= 8 * MIB and looks.promoter.promoted() == {}
    assert decided.copied_bytes({"verdict": "kept", "promoted": kept}) == kept["copied_bytes"]


def test_what_is_so_hot_that_its_counters_have_stopped_does_not_cool(pool):
    looks = Looks(pool)
    looks.look({20: 400_000, 21: 400_000, 22: 400_000, 23: 400_000})
    assert fast(pool) == {20, 21, 22, 23}
    looks.costs = dict.fromkeys(looks.costs, heat.FULL_US)
    for _ in range(12):
        looks.look({40: 100_000, 41: 100_000})
    assert fast(pool) == {20, 21, 22, 23}


def test_what_stays_is_in_no_number_of_a_promotion(pool, tmp_path, monkeypatch):
    layout = tmp_path / "second.layout"
    layout.write_text(FIRST.replace('"f"', '"g"'))
    layouts.apply(layout, pool.file)
    make = "import sys; open(sys.argv[1] + '/g', 'xb').write(b'x' * (64 << 20))"
    Stripewise(tmp_path)("run", "--quiet", "--pool", pool.file, "--", "python3", "-c", make, pool.mount)
    promoter = promotion.Promoter(pool, 1.0, adapt.move_s_per_byte(pool), Pace(urgent=True))
    apply, kept, planned = layouts.apply, {"f", "g"}, []

    def stays(one, *arguments, **options):
        if any(f'path = "{path}"' in one.read_text() for path in kept):
            raise StripewiseError("a program keeps it where it is")
        return apply(one, *arguments, **options)

    move = promotion.Promoter._move
    monkeypatch.setattr(promotion.layouts, "apply", stays)
    monkeypatch.setattr(promotion.Promoter, "_move", lambda *of: planned.append(of[1]) or move(*of))

    def look(number):
        file = heat_of({20: number * 400_000, 21: number * 400_000})["files"][0]
        return promoter.look({**heat_of({}), "files": [file, {**file, "path": "g"}]}, 1.0)

    assert look(0) is None and look(1) is None
    assert len(planned) == 1, "something would have paid"
    assert promoter.promoted() == {} and not [line for line in moved.records(pool) if line["what"] == "promoted"]
    kept.remove("f")
    done = look(2)
    whole = planned[-1]
    assert (done["files"], [file["path"] for file in done["skipped"]]) == (1, ["g"])
    assert done["came_bytes"] == done["copied_bytes"] == whole.copied_bytes / 2 == 2 * MIB
    assert done["gain_s"] == pytest.approx(whole.gain_s / 2) and done["move_s"] == pytest.approx(whole.move_s / 2)
    sums = promoter.promoted()
    assert (sums["times"], sums["files"], sums["gain_s"]) == (1, 1, done["gain_s"])


def test_a_copy_that_was_thrown_away_is_nothing_that_the_servers_have_served(pool, monkeypatch):
    looks = Looks(pool)

    def gives_way(*_, progress, **__):
        progress("f", 2 * MIB, 4 * MIB)
        raise StripewiseError("a program has opened it for writing")

    monkeypatch.setattr(promotion.layouts, "apply", gives_way)
    assert looks.look({20: 400_000, 21: 400_000}) is None
    promoted = looks.promoter.promoted()
    assert promoted == {"times": 0, "recorded_bytes": 2 * MIB}
    assert adapt.reconsider(pool, adapt.Limits(), heat=heat_of({}) | {"files": []}, promoted=promoted)["promoted"]


def test_a_file_that_is_removed_as_it_moves_is_not_promoted(pool, monkeypatch):
    apply, looks = layouts.apply, Looks(pool)

    def removes(*words, progress, **options):
        def then(path, *counts):
            (pool.namespace / "tree" / path).unlink(missing_ok=True)
            return progress(path, *counts)

        return apply(*words, progress=then, **options)

    monkeypatch.setattr(promotion.layouts, "apply", removes)
    assert looks.look({20: 400_000, 21: 400_000}) is None
    assert not (pool.namespace / "tree/f").exists()


def test_what_is_read_once_stays_and_so_does_what_does_not_pay(pool):
    looks = Looks(pool)
    for begin in range(0, 60, 10):
        assert looks.look(dict.fromkeys(range(begin, begin + 10), ONCE_US)) is None
    assert fast(pool) == set()


def test_the_first_look_and_one_at_nothing_new_move_nothing(pool):
    promoter = promotion.Promoter(pool, 1.0, adapt.move_s_per_byte(pool), Pace(urgent=True))
    file = {"path": "f", "size_bytes": 64 * MIB, "cost_us": 10**7, "blocks": [(3, 10**7)]}
    heat = {"block_bytes": MIB, "period_s": 600, "missed": 0, "files": [file]}
    assert promoter.look(heat, 1.0) is None, "this may have been long ago"
    assert promoter.look(heat, 1.0) is None
    assert fast(pool) == set()


def test_no_more_is_copied_than_may_be(pool):
    looks = Looks(pool)
    hot = dict.fromkeys(range(20, 24), 400_000)
    assert looks.look(hot, most_bytes=0) is None
    assert looks.look(hot, most_bytes=2 * MIB)["copied_bytes"] <= 2 * MIB


def test_counters_that_were_halved_between_two_looks_tell_what_is_certain():
    before = {("f", 0): 1000.0, ("f", 1): 800.0, ("f", 2): 10.0}
    now = {("f", 0): 900.0, ("f", 1): 400.0, ("f", 2): 10.0, ("g", 0): 5.0}
    assert promotion.came_since(before, now) == {("f", 0): 400.0, ("g", 0): 5.0}


def test_the_forecast_counts_that_would_have_had_most_of_what_came(pool):
    looks = Looks(pool)
    for number in range(10, 58, 4):
        # Four that are always warm, and others for one look: who forgets soon takes the wrong ones.
        looks.look(dict.fromkeys(range(4), 100_000) | dict.fromkeys(range(number, number + 4), 190_000))
    scores = {of.decay: of.score_us for of in looks.promoter.forecasts}
    assert scores[0.95] > scores[0.3]
    assert fast(pool) == set(range(4))


def test_looks_that_do_not_wait_are_few_in_a_row(pool):
    promoter = promotion.Promoter(pool, 1.0, adapt.move_s_per_byte(pool), Pace(urgent=True))
    after = [promoter.wait_s(0.0, 0.05) for _ in range(6)]
    assert after == [pytest.approx(0.15)] * promotion.MOST_SOON + [1.0, pytest.approx(0.15)]
    assert promoter.wait_s(0.0, 3.0) == 0.0, "the move took long enough"
    # In a pool of many files a look takes long, and is made less often all the same.
    assert promoter.wait_s(0.5, 0.0) == pytest.approx(4.5)


def test_while_there_is_room_looks_do_not_wait_until_they_were_few_in_vain(pool):
    looks = Looks(pool)
    waited = []
    for number in range(6):
        assert looks.look({40 + number: ONCE_US}) is None
        waited.append(looks.promoter.wait_s(0.0, None))
    assert waited == [0.2] * promotion.MOST_SOON + [1.0, 1.0]
    assert looks.look({}) is None
    assert looks.promoter.wait_s(0.0, None) == 1.0, "nothing came"
    assert looks.look({3: ONCE_US}) is None
    assert looks.promoter.wait_s(0.0, None) == 0.2
    full = Looks(pool)
    assert full.look(dict.fromkeys(range(20, 24), 400_000))["copied_bytes"] == 4 * MIB
    assert full.look({30: ONCE_US}) is None
    assert full.promoter.wait_s(0.0, None) == 1.0, "no room"


def test_blocks_of_another_size_are_compared_with_none_of_before(pool):
    looks = Looks(pool)
    looks.look({20: ONCE_US})
    joined = heat_of({10: 4 * ONCE_US}) | {"block_bytes": 2 * MIB}
    assert looks.promoter.look(joined, 1.0) is None
    assert not any(forecast.heat for forecast in looks.promoter.forecasts)
    more = heat_of({10: 40 * ONCE_US}) | {"block_bytes": 2 * MIB}
    assert looks.promoter.look(more, 1.0)["came_bytes"] == 2 * MIB
    assert fast(pool) == {20, 21}


def test_a_look_that_follows_soon_counts_as_the_share_of_one_that_it_is(pool):
    once, often = (promotion.Promoter(pool, 1.0, 1e-8) for _ in range(2))
    once.look(heat_of({3: 0}), 1.0)
    often.look(heat_of({3: 0}), 1.0)
    once.look(heat_of({3: 9_000}), 1.0)
    for number in range(1, 6):
        often.look(heat_of({3: 1_800 * number}), 0.2)
    for one, other in zip(once.forecasts, often.forecasts, strict=True):
        assert other.heat[("f", 3)] / other.known == pytest.approx(one.heat[("f", 3)] / one.known)
    # A scan of a block within several such looks is one read of it, and no more.
    looks = Looks(pool)
    for number in range(40):
        assert looks.look({10 + number // 5: ONCE_US // 5}, passed_s=0.2) is None
    assert fast(pool) == set()


def test_after_a_promotion_the_next_look_is_at_once_also_in_the_next_run(pool, monkeypatch):
    looked_s, now_s = [], [100.0]
    costs = {20: 0, 21: 0, 22: 0, 23: 0}

    def look(*_):
        looked_s.append(round(now_s[0] - 100.0, 6))
        if len(looked_s) == 2:
            costs.update(dict.fromkeys(costs, 400_000))
        return heat_of(costs)

    clock = SimpleNamespace(monotonic=lambda: now_s[0], time=lambda: 0.0, sleep=lambda s: now_s.append(now_s.pop() + s))
    monkeypatch.setattr(promotion, "time", clock)
    monkeypatch.setattr(promotion, "_native", SimpleNamespace(**vars(_native) | {"pool_heat": look}))
    pool.file.write_text(pool.file.read_text() + "\n[heat]\n")
    promoter = promotion.Promoter(Pool.load(pool.file), 1.0, adapt.move_s_per_byte(pool), Pace(urgent=True))
    # The move takes no time by this clock.
    done = [of for _ in range(4) for of in promoter.run(1.0, adapt.Limits(), lambda: 0)]
    assert [of["verdict"] for of in done] == ["promoted"]
    assert looked_s == [1.0, 2.0, 2.2, 3.2]
    assert fast(pool) == {20, 21, 22, 23}


def test_what_is_hot_is_taken_to_last_as_long_as_it_has(pool):
    looks = Looks(pool)
    lasted_s = []
    for number in range(6):
        looks.look(dict.fromkeys(range(20, 24), 100_000) if number < 3 else {number * 4: 100_000})
        lasted_s.append(looks.promoter.lasts_s(10.0))
    assert lasted_s[:3] == [10.0, 20.0, 30.0], "nothing has changed, and it has been watched for that long"
    assert lasted_s[3] == 20.0, (
        "all has changed once in a while: the last period counts for a quarter, and the mean for a half"
    )
    assert 5 < lasted_s[5] < lasted_s[4] < lasted_s[3]


def test_a_short_period_counts_for_the_share_of_one_that_it_is(pool):
    looks = Looks(pool)
    for _ in range(4):
        looks.look(dict.fromkeys(range(20, 24), 100_000))
        looks.promoter.lasts_s(10.0)
    looks.look(dict.fromkeys(range(40, 44), 100_000))
    # A quarter of all changes within a mean of 8 s, and not within the 2 s of the last period.
    assert looks.promoter.lasts_s(2.0) == 16.0


def test_a_load_in_other_places_is_no_change_within_one(pool, monkeypatch):
    now_s = [100.0]
    monkeypatch.setattr(between, "time", SimpleNamespace(monotonic=lambda: now_s[0]))
    horizons_s = []
    monkeypatch.setattr(between.adapt, "reconsider", lambda _, limits, **__: horizons_s.append(limits.horizon_s))
    rounds = between.Rounds(pool, 1.0)
    looks, places, shifts = Looks(pool), [20], [False]
    monkeypatch.setattr(rounds, "_promoter", looks.promoter)
    monkeypatch.setattr(
        rounds, "_watch", SimpleNamespace(lasted_s=None, has_shifted=lambda: shifts[0], heat=lambda: None)
    )

    def look(seconds, *_):
        now_s[0] += seconds
        looks.look(dict.fromkeys(range(places[0], places[0] + 4), 100_000), seconds)
        return iter(())

    monkeypatch.setattr(looks.promoter, "run", look)
    limits = adapt.Limits()
    for _ in range(4):
        rounds.decide(pool, limits)
        list(rounds.until_due(10.0, limits))
    assert horizons_s == [limits.horizon_s, 10.0, 20.0, 30.0], "it has watched for that long"
    rounds.decide(pool, limits)
    # The next look finds the load elsewhere, and is the last one before the next decision.
    places[0], shifts[0] = 40, True
    list(rounds.until_due(10.0, limits))
    rounds.decide(pool, limits)
    assert horizons_s[4:] == [40.0, 41.0], "what is hot has not changed within either load"
    shifts[0] = False
    list(rounds.until_due(10.0, limits))
    rounds.decide(pool, limits)
    assert horizons_s[6:] == [51.0]
    # What is hot changes within a load: no shift, and the horizon is short.
    places[0] = 10
    list(rounds.until_due(10.0, limits))
    rounds.decide(pool, limits)
    assert horizons_s[7] < 30.0


def test_what_was_hot_before_a_shift_does_not_come_back_for_what_a_decision_has_moved(pool, tmp_path):
    looks = Looks(pool)
    for _ in range(4):
        looks.look(dict.fromkeys(range(20, 24), 4_000_000))
    assert fast(pool) == set(range(20, 24))
    looks.promoter.has_shifted()
    layout = tmp_path / "new.layout"
    begins = {0: "hdd.0-1:64KiB", 40: "ssd.0:64KiB", 44: "hdd.0-1:64KiB"}
    found = [(offset * MIB, [stripe]) for offset, stripe in begins.items()]
    layout.write_text('version = 1\npool = "p"\n' + least_moves.text_of("f", found))
    layouts.apply(layout, pool.file)
    for _ in range(4):
        looks.look(dict.fromkeys(range(40, 44), 400_000))
        assert fast(pool) == set(range(40, 44))


@pytest.mark.parametrize(
    ("decision", "is_settled"),
    [
        ({"verdict": "moved"}, False),
        # Hours or a limit keep it.
        ({"verdict": "kept", "ratio": 2.0, "gain_s": 2.0, "move_s": 1.0}, False),
        ({"verdict": "kept", "ratio": 1.0, "gain_s": 2.0, "move_s": 1.0}, True),
        ({"verdict": "kept", "ratio": 2.0, "gain_s": 1.0, "move_s": 1.0}, True),
        ({"verdict": "kept", "why": "the layouts are as the planner would have them"}, True),
    ],
)
def test_where_nothing_pays_by_the_new_load_alone_all_heat_comes_to_count(pool, monkeypatch, decision, is_settled):
    rounds, settled = between.Rounds(pool, 1.0), []
    monkeypatch.setattr(between.adapt, "reconsider", lambda *_, **__: decision)
    for known in (None, {"files": []}):
        watch = SimpleNamespace(
            lasted_s=9.0, heat=partial(dict.get, {"": known}, ""), settled=lambda: settled.append(1)
        )
        monkeypatch.setattr(rounds, "_watch", watch)
        rounds.decide(pool, adapt.Limits())
    assert len(settled) == is_settled, "without a new load all heat counts anyway"


def test_adapt_promotes_between_two_decisions_and_says_so_in_the_next(tmp_path, stripewise):
    base = tmp_path / "p"
    stripewise("pool", "init", base, "--emulate", "--hdd", "2", "--ssd", "1", "--dilation", "0.01")
    file = base / "pool.toml"
    file.write_text(file.read_text() + '\n[heat]\nperiod = "31000000s"\n')
    layout = tmp_path / "first.layout"
    layout.write_text(FIRST)
    layouts.apply(layout, file)
    pool = Pool.load(file)
    promoter = promotion.Promoter(pool, 0.2, adapt.move_s_per_byte(pool) / 100, Pace(urgent=True))
    script = (
        "import os, sys\nmount, over = sys.argv[1:]\nopen(f'{mount}/f', 'wb').write(bytes(1 << 23))\n"
        "file = os.open(f'{mount}/f', os.O_RDONLY)\n"
        "while not os.path.exists(over):\n"
        "    for n in range(16): os.pread(file, 65536, (2 << 20) + n * 65536)\n"
    )
    over = tmp_path / "over"
    command = [
        BIN / "stripewise",
        "run",
        "--quiet",
        "--pool",
        file,
        "--",
        sys.executable,
        "-c",
        script,
        base / "mount",
        over,
    ]
    with subprocess.Popen([*map(str, command)]) as load:
        done = next(promoter.run(PATIENCE_S, adapt.Limits(), lambda: 0), None)
        over.touch()
        assert load.wait(timeout=PATIENCE_S) == 0
    assert done is not None, "nothing was promoted"
    assert done["copied_bytes"] > 0
    promoted = promoter.promoted()
    decision = adapt.reconsider(pool, adapt.Limits(), promoted=promoted)
    assert decision["promoted"] == promoted
    assert adapt.copied_today(pool) >= promoted["copied_bytes"]
    assert list(promoter.run(0.0, adapt.Limits(), lambda: 0)) == []
