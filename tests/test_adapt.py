"""Data moves to where it is hot, where that pays, and each decision is kept with its numbers."""

import errno
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

import pytest

from conftest import READ_HOT
from stripewise import _native, layouts
from stripewise._native import StripewiseError
from stripewise.api import adapt as adapting
from stripewise.api import kept_lines, measured, moved, parting, promotion, relief
from stripewise.api.activity import Done
from stripewise.cli import adapt as printed
from stripewise.cli import console
from stripewise.pool import Pool
from stripewise.usage import Usage

LONG_S = 87_600 * 3600
"""Heat is halved once a year here: the horizon has to be as long for a gain to count."""


def decided(pool, *, dry_run=False, **limits):
    allowed = adapting.Limits(**{"horizon_s": LONG_S, **limits})
    return adapting.reconsider(Pool.load(pool[1]), allowed, dry_run=dry_run)


def rounds(pool):
    regions = _native.file_stat(str(pool[1]), "f")["regions"]
    return {region["offset"]: " ".join(region["round"]) for region in regions}


def test_what_is_hot_moves_once_and_the_rest_is_whole(hot):
    stripewise, file = hot
    before = rounds(hot)
    asked = decided(hot, dry_run=True)
    assert (asked["verdict"], rounds(hot)) == ("kept", before)
    assert asked["ratio"] > adapting.HYSTERESIS and asked["gain_s"] > asked["move_s"] > 0
    said = stripewise("adapt", file, "--once", "--horizon", LONG_S // 3600).stdout
    assert "moved, copied" in said and "by the model" in said
    assert any("ssd.0" in found for found in rounds(hot).values())
    again = decided(hot)
    assert again["verdict"] == "kept", again
    read = "import sys; assert open(sys.argv[1] + '/f', 'rb').read() == bytes(range(256)) * 32768"
    stripewise("run", "--quiet", "--pool", file, "--", "python3", "-c", read, file.parent / "mount")
    moved, kept = adapting.decisions(Pool.load(file))
    assert (moved["verdict"], kept["verdict"]) == ("moved", "kept")
    assert moved["copied_bytes"] == asked["moved_bytes"] > 0


@pytest.mark.parametrize("number", range(1, 7))
@pytest.mark.parametrize("limit", [None, 600_000])
def test_a_file_that_a_program_removes_while_a_decision_is_made_keeps_nothing_else(hot, monkeypatch, number, limit):
    """It is removed before the call of this number that asks what would be done with it, or before the move."""
    stripewise, file = hot
    write = "import sys; open(f'{sys.argv[1]}/other', 'wb').write(bytes(range(256)) * 8192)"
    read = READ_HOT.replace("/f", "/other").replace("(2 << 20)", "0")
    stripewise("run", "--quiet", "--pool", file, "--", "python3", "-c", write + read, file.parent / "mount")
    asked, forecast = 0, _native.layout_forecasts

    def counted(*arguments):
        nonlocal asked
        asked += 1
        if asked == number:
            (file.parent / "namespace/tree/f").unlink()
        return forecast(*arguments)

    monkeypatch.setattr(_native, "layout_forecasts", counted)
    decision = decided(hot, day_bytes=limit)
    assert asked >= number, "there are no more such calls: the range is too long"
    assert decision["verdict"] in ("moved", "kept"), decision
    if limit is None:
        assert decision["verdict"] == "moved", decision


def test_what_a_drain_has_left_on_its_server_is_priced_there(hot):
    """A drain that goes on for days, or that programs keep from its end, keeps nothing else from moving."""
    stripewise, file = hot
    command = [sys.executable, "-m", "stripewise", "pool", "drain", str(file), "hdd.1", "--rate", "25KB"]
    drain = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until_s = time.monotonic() + 120
    while '"draining"' not in stripewise("pool", "show", file, "--json").stdout:
        assert drain.poll() is None and time.monotonic() < until_s
    meanwhile = decided(hot)
    assert meanwhile["verdict"] == "kept" and meanwhile["why"].startswith(adapting.OTHERS_MOVE), meanwhile
    assert meanwhile["skipped"] == [], "that it is not the turn of any file is no word on each"
    assert drain.poll() is None
    drain.kill()
    drain.wait()
    assert any("hdd.1" in found or "hdd.0-1" in found for found in rounds(hot).values())
    decision = decided(hot)
    assert decision["verdict"] == "moved", decision
    assert any("ssd.0" in found for found in rounds(hot).values())


def test_what_is_lost_with_its_server_keeps_nothing_else(hot):
    stripewise, file = hot
    write = "import sys; open(f'{sys.argv[1]}/other', 'wb').write(bytes(range(256)) * 8192)"
    read = READ_HOT.replace("/f", "/other").replace("(2 << 20)", "0")
    root = file.parent / "servers/hdd.1"
    root.rename(root.with_name("broken"))
    stripewise("pool", "remove", file, "hdd.1", "--lost", check=False)
    stripewise("run", "--quiet", "--pool", file, "--", "python3", "-c", write + read, file.parent / "mount")
    decision = decided(hot)
    assert decision["verdict"] == "moved", decision
    regions = _native.file_stat(str(file), "other")["regions"]
    assert any("ssd.0" in " ".join(region["round"]) for region in regions)


def test_a_tier_that_is_full_to_its_capacity_has_not_reached_its_limit_while_its_disk_has_room(hot):
    """Plans fill it: `adapt` would empty in one period what it has filled in the one before."""
    _, file = hot
    file.write_text(file.read_text().replace('name = "ssd"\n', 'name = "ssd"\ncapacity = "1MiB"\n'))
    assert decided(hot)["verdict"] == "moved"
    pool = Pool.load(file)
    assert relief.steps(pool, _native.pool_heat(str(file), ".")) == []
    assert any("ssd.0" in found for found in rounds(hot).values())


EACH = "import sys\nfor of in 'abcdf': "
MAKE_FILES = EACH + "open(f'{sys.argv[1]}/{of}', 'wb').write(bytes(range(250)) * 10000)"
ARE_WHOLE = EACH + "assert open(f'{sys.argv[1]}/{of}', 'rb').read() == bytes(range(250)) * 10000"


@pytest.fixture
def over_tiers(tmp_path, stripewise):
    """The SSD is full of stripes of five files over all servers, as new files are, of which `f` alone has heat."""
    base = tmp_path / "p"
    options = ("--hdd", "2", "--ssd", "1", "--dilation", "0.01", "--capacity", "ssd=4MiB")
    stripewise("pool", "init", base, "--emulate", *options)
    file = base / "pool.toml"
    stripewise("run", "--quiet", "--pool", file, "--", "python3", "-c", MAKE_FILES, base / "mount")
    file.write_text(file.read_text() + '\n[heat]\nperiod = "31000000s"\n')
    read = READ_HOT.replace("(2 << 20) + number % 16", "number % 32")
    stripewise("run", "--quiet", "--pool", file, "--", "python3", "-c", read, base / "mount")
    return stripewise, file


def test_a_file_over_tiers_comes_for_stripes_without_heat_on_a_full_tier_and_then_all_stays(over_tiers):
    stripewise, file = over_tiers
    first = decided(over_tiers, dry_run=True)
    assert (first["by"], first["ratio"] > adapting.HYSTERESIS) == (adapting.OVER_TIERS, True), first
    decision = decided(over_tiers, day_bytes=first["moved_bytes"])
    assert decision["verdict"] == "moved" and decision["copied_bytes"] == first["moved_bytes"], decision
    (_, hot), (end, _), *_ = rounds(over_tiers).items()
    assert hot.startswith("ssd.0:") and end >= 1900 << 10
    again = decided(over_tiers)
    assert again["verdict"] == "kept", again
    assert measured.state(Pool.load(file))["used_bytes"]["ssd.0"] <= 4 << 20
    stripewise("run", "--quiet", "--pool", file, "--", "python3", "-c", ARE_WHOLE, file.parent / "mount")


def test_the_limit_takes_a_part_of_what_comes_over_tiers(over_tiers):
    decision = decided(over_tiers, day_bytes=2_500_000)
    assert decision["verdict"] == "moved" and decision["is_part"], decision
    assert 0 < decision["copied_bytes"] <= 2_500_000


SONG_LOOP = """
import os, sys
path = f"{sys.argv[1]}/f"
open(path, "wb").write(bytes(1 << 20))
file = os.open(path, os.O_RDONLY)
for loop in [*range(0, 1 << 20, 1 << 18)] * 4:
    for number in range(192):
        os.pread(file, 1024, loop + number * 1024)
    os.pread(file, 65536, loop + (192 << 10))
"""


def test_blocks_that_differ_by_less_than_a_request_get_widths_that_balance_the_servers(tmp_path, stripewise):
    base = tmp_path / "p"
    stripewise("pool", "init", base, "--emulate", "--hdd", "4")
    file = base / "pool.toml"
    # The paper's servers: 0.2 ms a request, and 85 MB/s.
    costs = '{ startup = ["200us", "200us"], bandwidth = "85MB/s" }'
    servers = file.read_text().replace('emulate = "hdd-7200"', f"emulate = {{ read = {costs}, write = {costs} }}")
    file.write_text(servers + '\n[heat]\nblock = "4KiB"\nperiod = "31000000s"\n')
    stripewise("run", "--quiet", "--pool", file, "--", "python3", "-c", SONG_LOOP, base / "mount")
    decision = adapting.reconsider(
        Pool.load(file), adapting.Limits(horizon_s=100 * LONG_S), planner="equal-depth-paper"
    )
    assert decision["verdict"] == "moved", str(decision)
    # Song et al., Table II: the fourth server gets the large request beside its share of the small ones.
    assert rounds((stripewise, file)) == {0: "hdd.0-2:48KiB hdd.3:112KiB"}


def read_again(pool):
    stripewise, file = pool
    stripewise("run", "--quiet", "--pool", file, "--", "python3", "-c", READ_HOT, file.parent / "mount")


def test_a_gain_is_measured_once_when_there_was_something_to_do_before_and_after(hot):
    """Emulated servers count the times that they have drawn: how loaded this machine is does not matter."""
    stripewise, file = hot
    assert decided(hot, horizon_s=1.0)["served_bytes_per_s"] > 0, "since the pool was first used"
    read_again(hot)
    moved = decided(hot)
    assert moved["verdict"] == "moved" and moved["served_bytes_per_s"] > 0 and "measured" not in moved
    assert "measured" not in decided(hot), "nothing much was read since"
    # The file is hinted by now: what is fetched ahead takes fewer requests, and less than 100 say nothing.
    for _ in range(4):
        read_again(hot)
    said = stripewise("adapt", file, "--once", "--horizon", LONG_S // 3600).stdout
    assert "measured since the last move" in said
    gain = adapting.decisions(Pool.load(file))[-1]["measured"]
    assert gain["before_bytes_per_s"] == moved["served_bytes_per_s"] and gain["ratio"] > adapting.HYSTERESIS
    assert gain["predicted_ratio"] == moved["ratio"]
    read_again(hot)
    assert "measured" not in decided(hot)
    assert f"adapt: {gain['ratio']:.2f}x measured" in stripewise("top", "--pool", file, "--once").stdout


def test_the_gain_of_a_move_by_the_first_decision_of_a_pool_is_measured(hot):
    """What the servers had done is known from the first use of the pool on."""
    _, file = hot
    pool = Pool.load(file)
    assert adapting.decisions(pool) == [] and adapting.totals(adapting.kept(pool).lines()).verdicts == {}
    moved = decided(hot)
    assert moved["verdict"] == "moved" and moved["served_bytes_per_s"] > 0
    for _ in range(4):
        read_again(hot)
    gain = decided(hot)["measured"]
    assert gain["before_bytes_per_s"] == moved["served_bytes_per_s"] and gain["predicted_ratio"] == moved["ratio"]
    assert [line["verdict"] for line in adapting.decisions(pool)] == ["moved", "kept"]


def test_what_servers_had_done_is_kept_once_and_by_none_who_may_not(pool):
    loaded = Pool.load(pool.file)
    measured.begin(loaded)
    assert adapting.kept(loaded).lines() == [], "without heat no gain is measured"
    heated = replace(loaded, keeps_heat=True)
    for _ in range(2):
        measured.begin(heated)
    (line,) = adapting.kept(loaded).lines()
    assert line["what"] == measured.BEGUN and line["done"] and adapting.decisions(loaded) == []
    adapting.state_file(loaded).unlink()
    adapting.state_file(loaded).mkdir()
    measured.begin(heated)


def test_the_report_shows_heat_plans_and_gains(hot):
    stripewise, file = hot
    base = file.parent
    decided(hot, horizon_s=1.0)
    read_again(hot)
    moved = decided(hot)
    assert len(moved["plans"]) > 3 and moved["planner"] in [plan["planner"] for plan in moved["plans"]]
    read_again(hot)
    gain = decided(hot)["measured"]
    # What else stands in the state file is not believed.
    with adapting.state_file(Pool.load(file)).open("a") as state:
        state.write(
            '{"time_s": 1e99, "verdict": "<b>", "plans": [7, {"planner": 3, "predicted_s": "x"}], "relief": 1}\n'
        )
    stripewise("trace", "--pool", file, "-o", base / "t", "--", "python3", "-c", READ_HOT, base / "mount")
    stripewise("report", base / "t", "--pool", file, "-o", base / "page.html")
    page = (base / "page.html").read_text()
    section = page[page.index('<section id="adapted"') :]
    section = section[: section.index("</section>")]
    assert "What is hot" in section and "plans considered" in section and "&lt;b&gt;" in section
    assert f"{gain['predicted_ratio']:.2f} times as fast predicted, {gain['ratio']:.2f} measured" in section
    assert f"{moved['planner']} " in section and "<b>" not in section


def test_limits_keep_data_where_it_is_and_say_why(hot):
    before = rounds(hot)
    why = decided(hot, day_bytes=1000)["why"]
    assert "1,000 bytes are left of the limit of 1,000 in 24 hours" in why and "the smallest has 65,536" in why
    now = datetime.now().hour
    assert "at this hour" in decided(hot, hours=((now + 2) % 24, (now + 3) % 24))["why"]
    assert "s for moving" in decided(hot, horizon_s=1.0)["why"]
    assert rounds(hot) == before


def on_ssd(pool):
    """Bytes of the file that are on the SSD."""
    regions = _native.file_stat(str(pool[1]), "f")["regions"]
    ends = [region["offset"] for region in regions[1:]] + [8 << 20]
    stretches = zip(regions, ends, strict=True)
    return sum(end - region["offset"] for region, end in stretches if "ssd.0" in region["round"][0])


def test_a_plan_above_the_limit_moves_the_part_that_fits_and_the_rest_another_day(hot, monkeypatch):
    stripewise, file = hot
    (full, limit) = (decided(hot, dry_run=True)["moved_bytes"], 300_000)
    assert full > 3 * limit
    first = decided(hot, day_bytes=limit)
    assert first["verdict"] == "moved" and first["is_part"] and first["planned_bytes"] == full, first
    assert 0 < first["copied_bytes"] <= limit and on_ssd(hot) == first["copied_bytes"]
    assert first["gain_s"] > first["move_s"]
    assert "above the limit" in decided(hot, day_bytes=limit)["why"]
    # What was copied is a day old: the rest moves, part by part, also where it gets servers less than a tenth faster.
    monkeypatch.setattr(moved, "DAY_S", 0)
    monkeypatch.setattr(adapting, "DAY_S", 0)
    for _ in range(6):
        if decided(hot, day_bytes=limit)["verdict"] != "moved":
            break
    assert on_ssd(hot) >= full - limit
    read = "import sys; assert open(sys.argv[1] + '/f', 'rb').read() == bytes(range(256)) * 32768"
    stripewise("run", "--quiet", "--pool", file, "--", "python3", "-c", read, file.parent / "mount")


@dataclass(frozen=True)
class Until(adapting.Limits):
    """Hours that end when something is so."""

    over: Callable[[], bool] = lambda: False

    def allows(self, _):
        return not self.over()


def test_a_move_stops_where_the_hours_end_and_goes_on_in_the_next(hot, monkeypatch):
    stripewise, file = hot
    pool = Pool.load(file)
    monkeypatch.setattr(parting, "STEP_BYTES", 256 << 10)
    monkeypatch.setattr(parting, "MOST_STEPS", 1 << 10)
    before, asked = rounds(hot), []
    none = adapting.reconsider(pool, Until(LONG_S, over=lambda: asked.append(0) or len(asked) > 1))
    assert (none["verdict"], none["why"], rounds(hot)) == ("kept", moved.OVER, before)
    first = adapting.reconsider(pool, Until(LONG_S, over=lambda: on_ssd(hot) > 0))
    assert (first["verdict"], first["stopped"], first["is_part"]) == ("moved", moved.OVER, True)
    assert 0 < first["copied_bytes"] < first["planned_bytes"] and on_ssd(hot) == first["copied_bytes"]
    said = stripewise("adapt", file, "--once", "--horizon", LONG_S // 3600).stdout
    assert "moved, copied" in said
    assert on_ssd(hot) >= first["planned_bytes"] and decided(hot)["verdict"] == "kept"
    read = "import sys; assert open(sys.argv[1] + '/f', 'rb').read() == bytes(range(256)) * 32768"
    stripewise("run", "--quiet", "--pool", file, "--", "python3", "-c", read, file.parent / "mount")


def test_what_moved_of_a_plan_is_measured_by_what_the_model_says_of_that(hot, monkeypatch):
    """Where the hours end, the gain of a plan is not that of the part which moved."""
    _, file = hot
    pool = Pool.load(file)
    decided(hot, horizon_s=1.0)
    read_again(hot)
    monkeypatch.setattr(parting, "STEP_BYTES", 256 << 10)
    monkeypatch.setattr(parting, "MOST_STEPS", 1 << 10)
    plan = decided(hot, dry_run=True)
    part = adapting.reconsider(pool, Until(LONG_S, over=lambda: on_ssd(hot) > 0))
    assert part["stopped"] and part["moved_bytes"] == part["copied_bytes"] < plan["moved_bytes"]
    assert 1 < part["ratio"] < plan["ratio"] and 0 < part["gain_s"] < plan["gain_s"] and part["move_s"] < plan["move_s"]
    assert part["before_bytes_per_s"] == plan["before_bytes_per_s"]
    # No heat has come since: what the next decision finds is what this one has left.
    assert decided(hot, dry_run=True)["before_bytes_per_s"] == pytest.approx(part["after_bytes_per_s"])
    for _ in range(4):
        read_again(hot)
    assert decided(hot, horizon_s=1.0)["measured"]["predicted_ratio"] == part["ratio"]


def with_another_hot_file(pool):
    """Makes the file `other`, a MiB of which is as hot as that of `f`."""
    stripewise, file = pool
    write = "import sys; open(f'{sys.argv[1]}/other', 'wb').write(bytes(range(256)) * 8192)"
    read = READ_HOT.replace("/f", "/other").replace("(2 << 20)", "0")
    stripewise("run", "--quiet", "--pool", file, "--", "python3", "-c", write + read, file.parent / "mount")


def keep_other(monkeypatch):
    """Has a program keep the file `other` where it is."""
    apply = layouts.apply

    def kept(layout, *arguments, **options):
        if 'path = "other"' in layout.read_text():
            raise StripewiseError("a program keeps it where it is")
        return apply(layout, *arguments, **options)

    monkeypatch.setattr(layouts, "apply", kept)


def test_a_file_that_stays_is_in_no_number_of_what_moved(hot, monkeypatch):
    with_another_hot_file(hot)
    plan = decided(hot, dry_run=True)
    keep_other(monkeypatch)
    part = decided(hot)
    assert part["verdict"] == "moved" and [file["path"] for file in part["skipped"]] == ["other"], part
    assert part["moved_bytes"] == part["copied_bytes"] < plan["moved_bytes"] == part["planned_bytes"]
    assert part["ratio"] < plan["ratio"] and part["gain_s"] < plan["gain_s"]
    assert decided(hot, dry_run=True)["before_bytes_per_s"] == pytest.approx(part["after_bytes_per_s"])


GAINS_AS_A_WHOLE = """version = 1
pool = "p"
[[file]]
path = "f"
[[file.region]]
offset = "0"
round = ["hdd.0-1:64KiB"]
[[file.region]]
offset = "2MiB"
round = ["ssd.0:64KiB"]
[[file.region]]
offset = "3MiB"
round = ["hdd.0-1:64KiB"]
[[file]]
path = "other"
[[file.region]]
offset = "0"
round = ["hdd.0:64KiB"]
"""


@pytest.mark.parametrize("stays", ["f", "other", None])
def test_what_can_move_has_to_pay_without_what_stays(hot, monkeypatch, capsys, stays):
    """By itself the move of `other` to one disk loses, and that of the hot part of `f` to the SSD gains."""
    stripewise, file = hot
    write = "import sys; open(f'{sys.argv[1]}/other', 'wb').write(bytes(range(256)) * 1024)"
    stripewise("run", "--quiet", "--pool", file, "--", "python3", "-c", write, file.parent / "mount")
    planned, forecast = adapting._planned, _native.layout_forecasts

    def gains_as_a_whole(*arguments):
        found = planned(*arguments)
        found[-1].document["layout"] = GAINS_AS_A_WHOLE
        return found

    def kept(*arguments):
        why = f"{stays} is open for writing by a program that keeps it where it is"
        return [{**of, "file": None, "why": why} if of["path"] == stays else of for of in forecast(*arguments)]

    monkeypatch.setattr(adapting, "_planned", gains_as_a_whole)
    monkeypatch.setattr(adapting.swaps, "find", lambda *_, **__: {})
    monkeypatch.setattr(_native, "layout_forecasts", kept)
    decision = decided(hot)
    printed._print(decision)
    said = capsys.readouterr().out
    assert [of["path"] for of in decision["skipped"]] == ([] if stays is None else [stays])
    assert ("without 1 file that cannot move now" in " ".join(said.split())) is (stays is not None)
    if stays == "f":
        assert decision["verdict"] == "kept" and decision["gain_s"] < 0 < decision["moved_bytes"], decision
        assert not adapting.pays(decision) and not on_ssd(hot)
        assert decision["why"].startswith(f"the servers would get {decision['ratio']:.2f} times as fast")
    else:
        assert decision["verdict"] == "moved" and decision["gain_s"] > decision["move_s"], decision
        assert decision["ratio"] >= adapting.HYSTERESIS and on_ssd(hot)


def test_what_has_moved_and_cannot_be_priced_is_not_measured(hot, monkeypatch, capsys):
    with_another_hot_file(hot)
    decided(hot, horizon_s=1.0)
    read_again(hot)
    keep_other(monkeypatch)
    predict = _native.predict

    def of_what_has_not_moved(*arguments):
        if on_ssd(hot):
            raise StripewiseError("it cannot be priced")
        return predict(*arguments)

    monkeypatch.setattr(_native, "predict", of_what_has_not_moved)
    part = decided(hot)
    assert part["verdict"] == "moved" and part["unpriced"] == "it cannot be priced", part
    assert not {"ratio", "gain_s", "after_bytes_per_s"} & part.keys()
    printed._print(part)
    assert "what has moved cannot be priced, so that its gain is not measured" in capsys.readouterr().out
    monkeypatch.undo()
    for _ in range(4):
        read_again(hot)
    assert "measured" not in decided(hot, horizon_s=1.0)
    assert measured.gain_of_last_move(adapting.decisions(Pool.load(hot[1]))) is None


def test_a_move_that_is_killed_counts_for_the_limit_with_what_it_had_copied(hot):
    _, file = hot
    pool = Pool.load(file)
    with pytest.raises(KeyboardInterrupt):
        adapting.reconsider(pool, adapting.Limits(LONG_S), progress=lambda _, done, total: 4 * done < total)
    assert adapting.decisions(pool) == []
    copied = adapting.copied_today(pool)
    assert copied > 0
    whole = decided(hot)
    assert adapting.copied_today(pool) == copied + whole["copied_bytes"], "nothing counts twice"
    # As a process that is killed leaves it: large files have a line for each 64 MiB.
    watched = moved.Watched(pool, None, None)
    for done in (0, 100 << 20, 300 << 20):
        watched("large", done, 1 << 40)
    assert adapting.copied_today(pool) == copied + whole["copied_bytes"] + (300 << 20)
    with (pool.namespace / moved.FILE).open("a") as file:
        file.write('{"time_s": 1, "what": "copied", "copied_bytes": "x"}\n[1]\n{"time_s": 9e9, "what": "cop')
    assert adapting.copied_today(pool) == copied + whole["copied_bytes"] + (300 << 20)


KILLED = """
import os, sys
from pathlib import Path
from stripewise.api import adapt, parting
from stripewise.pool import Pool
parting.STEP_BYTES, parting.MOST_STEPS = 256 << 10, 1 << 10
file, log, after = sys.argv[1:]
chunks = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
copied, last = 0, 0
def progress(path, done, total):
    global copied, last
    # Of all that the decision moves; each byte is copied and read back.
    more, last = done // 2 - last, done // 2
    copied += more
    os.write(chunks, f"{more}\\n".encode())
    if copied >= int(after):
        os.kill(os.getpid(), 9)
    return True
pool = Pool.load(Path(file))
with adapt.alone(pool):
    adapt.reconsider(pool, adapt.Limits(float(HORIZON)), progress=progress)
"""


def test_a_plan_that_is_killed_again_and_again_copies_a_step_more_for_each_kill_at_most(hot, tmp_path):
    """The rest of it goes on, also where that gets the servers less than a tenth faster, and nothing moves back."""
    stripewise, file = hot
    pool, log = Pool.load(file), tmp_path / "copied"
    plan_bytes, kills = decided(hot, dry_run=True)["moved_bytes"], 0
    script = KILLED.replace("HORIZON", str(LONG_S))
    while kills < 20:
        done = subprocess.run([sys.executable, "-c", script, file, log, str(400_000)], check=False)
        assert done.returncode in {0, -signal.SIGKILL}
        if done.returncode == 0 and adapting.decisions(pool)[-1]["verdict"] == "kept":
            break
        kills += done.returncode != 0
    copied = sum(map(int, log.read_text().split()))
    assert kills >= 3 and on_ssd(hot) >= plan_bytes - (64 << 10), adapting.decisions(pool)[-1]
    assert copied <= plan_bytes + kills * (256 << 10)
    read = "import sys; assert open(sys.argv[1] + '/f', 'rb').read() == bytes(range(256)) * 32768"
    stripewise("run", "--quiet", "--pool", file, "--", "python3", "-c", read, file.parent / "mount")


def test_what_a_kill_has_left_of_a_plan_is_dropped_with_the_horizon(hot):
    pool = Pool.load(hot[1])
    with pytest.raises(KeyboardInterrupt):
        adapting.reconsider(pool, adapting.Limits(LONG_S), progress=lambda _, done, total: 4 * done < total)
    assert adapting._has_more_to_move(pool, LONG_S) and not adapting._has_more_to_move(pool, 0.0)
    assert decided(hot)["verdict"] == "moved" and not adapting._has_more_to_move(pool, LONG_S)


def test_the_rest_of_a_plan_is_not_forgotten_by_a_decision_that_was_stopped_before_it_moved(hot, monkeypatch):
    pool = Pool.load(hot[1])
    with pytest.raises(KeyboardInterrupt):
        adapting.reconsider(pool, adapting.Limits(LONG_S), progress=lambda _, done, total: 4 * done < total)

    def others_move(*_):
        raise StripewiseError(f"{adapting.OTHERS_MOVE} in pool 'test'")

    with monkeypatch.context() as patched:
        patched.setattr(adapting, "_steps_done", others_move)
        decision = adapting.reconsider(pool, adapting.Limits(LONG_S))
    assert decision["verdict"] == "kept" and decision["why"].startswith(adapting.OTHERS_MOVE)
    assert adapting._has_more_to_move(pool, LONG_S)
    assert decided(hot)["verdict"] == "moved" and not adapting._has_more_to_move(pool, LONG_S)


def test_lines_are_bounded_and_what_goes_still_counts(pool, monkeypatch):
    """Bytes of a day count for the limit, and decisions for the metrics, whatever lines are kept of them."""
    loaded = Pool.load(pool.file)
    monkeypatch.setattr(kept_lines, "MOST_BYTES", 400)
    decision = {"verdict": "kept", "small_files": {"copied_bytes": 7}, "moved_heat_s": 0.5}
    for number in range(100):
        moved.record(loaded, {"what": "copied", "path": "f" * 20, "copied_bytes": 1})
        adapting.kept(loaded).append({**decision, "verdict": "moved" if number % 4 == 0 else "kept"})
        assert adapting.copied_today(loaded) == number + 1 + 7 * len(adapting.decisions(loaded))
        assert sum(adapting.totals(adapting.kept(loaded).lines()).verdicts.values()) == number + 1
    names = [moved.FILE, adapting.STATE]
    sizes = {file.name: file.stat().st_size for of in names for file in loaded.namespace.glob(f"{of}*")}
    assert sorted(sizes) == sorted([*names, *(f"{name}.old" for name in names)])
    assert all(size < 800 for size in sizes.values()), sizes
    totals = adapting.totals(adapting.kept(loaded).lines())
    assert totals == adapting.Totals({"moved": 25, "kept": 75}, 700, 50.0)
    assert 0 < len(adapting.decisions(loaded)) < 20 and len(moved.records(loaded)) < 20
    # Another process reads all of it anew.
    moved._known.clear()
    assert adapting.copied_today(loaded) >= 100


@pytest.mark.parametrize("has_old", [False, True])
@pytest.mark.parametrize("when", ["before the newest is known", "before the newest is read"])
def test_lines_that_are_read_while_a_file_becomes_the_old_one_are_all_there(pool, monkeypatch, when, has_old):
    """As metrics are asked for while a service decides: a counter that falls back is taken for a start."""
    loaded, newest, rotated = Pool.load(pool.file), kept_lines.Kept.newest, []

    def append():
        adapting.kept(loaded).append({"verdict": "kept"})

    def rotates(of):
        found = newest(of)
        if not rotated:
            rotated.append(True)
            monkeypatch.setattr(kept_lines, "MOST_BYTES", 1)
            append()
        return newest(of) if when == "before the newest is known" else found

    for number in range(9):
        monkeypatch.setattr(kept_lines, "MOST_BYTES", 1 if has_old and number == 4 else 1 << 20)
        append()
    assert adapting.kept(loaded).old.exists() is has_old
    monkeypatch.setattr(kept_lines.Kept, "newest", rotates)
    lines = adapting.kept(loaded).lines()
    assert adapting.totals(lines).verdicts == {"kept": 10} and rotated == [True]
    assert len([of for of in lines if of.get("what") != adapting.GONE]) == (6 if has_old else 10)


@pytest.mark.parametrize("steps", range(3))
def test_a_kill_while_lines_go_loses_no_other(pool, monkeypatch, steps):
    """Each step of it is a rename, or the file that is to get a name: after `steps` of them the process is gone."""
    loaded, done = Pool.load(pool.file), []
    monkeypatch.setattr(kept_lines, "MOST_BYTES", 200)
    for _ in range(9):
        moved.record(loaded, {"what": "copied", "path": "f", "copied_bytes": 1})
    while (loaded.namespace / moved.FILE).stat().st_size < 200:
        moved.record(loaded, {"what": "copied", "path": "f", "copied_bytes": 1})
    before, rename = adapting.copied_today(loaded), Path.rename

    def killed(file, to):
        if len(done) >= steps:
            raise KeyboardInterrupt
        done.append(file)
        return rename(file, to)

    monkeypatch.setattr(Path, "rename", killed)
    with suppress(KeyboardInterrupt):
        moved.record(loaded, {"what": "copied", "path": "f", "copied_bytes": 1})
    monkeypatch.setattr(Path, "rename", rename)
    before += len(done) == 2
    for more in range(5):
        moved._known.clear()
        assert adapting.copied_today(loaded) == before + more
        moved.record(loaded, {"what": "copied", "path": "f", "copied_bytes": 1})


def test_a_decision_that_names_many_files_is_a_line_that_is_bounded(pool, monkeypatch):
    loaded = Pool.load(pool.file)
    monkeypatch.setattr(kept_lines, "MOST_NAMED", 2)
    files = [{"path": str(number), "why": "it is open"} for number in range(5)]
    adapting.kept(loaded).append({"verdict": "kept", "skipped": files, "relief": [{"staying": files[:3]}]})
    (line,) = adapting.decisions(loaded)
    assert (line["skipped"], line["left_out"]) == (files[:2], 3)
    assert line["relief"] == [{"staying": files[:2], "left_out": 1}]


@pytest.mark.parametrize("goes", ["drains", "dies"])
def test_a_fast_tier_without_a_usable_server_is_no_target(hot, goes):
    stripewise, file = hot
    if goes == "drains":
        stripewise("pool", "drain", file, "ssd.0", "--to", "hdd")
    else:
        (ssd,) = (server.path for server in Pool.load(file).servers if server.name == "ssd.0")
        ssd.rename(ssd.with_name("away"))
    before = rounds(hot)
    assert decided(hot)["verdict"] == "kept"
    pool = Pool.load(file)
    heat = _native.pool_heat(str(file), ".")
    promoter = promotion.Promoter(pool, 1.0, adapting.move_s_per_byte(pool))
    cold = {**heat, "files": [{**of, "blocks": [(block, 0) for block, _ in of["blocks"]]} for of in heat["files"]]}
    assert promoter.look(cold, 1.0) is None and promoter.look(heat, 1.0) is None
    assert rounds(hot) == before


def test_hours_may_go_over_midnight():
    night = adapting.Limits(hours=(22, 6))
    allowed = [hour for hour in range(24) if night.allows(datetime(2026, 1, 1, hour))]
    assert allowed == [0, 1, 2, 3, 4, 5, 22, 23]
    assert not adapting.Limits(hours=(9, 17)).allows(datetime(2026, 1, 1, 17))


def test_bad_options_and_pools_without_heat_are_named(pool):
    refused = pool.stripewise("adapt", pool.file, "--once", check=False)
    assert refused.returncode == 1 and "has no profile" in refused.stderr
    for option, value, said in (
        ("--hours", "22", "write two hours"),
        ("--hours", "3-3", "nothing would ever move"),
        ("--limit", "0", "nothing would ever move"),
        ("--limit", "-1", "--limit -1: '-1' is not a number of bytes"),
        ("--rate", "nan", "--rate nan: 'nan' is not a number of bytes"),
        ("--planner", "none", "--planner none: no planner 'none'; there is auto, "),
    ):
        # A service that could never move anything does not begin.
        refused = pool.stripewise("adapt", pool.file, option, value, check=False)
        assert refused.returncode == console.EXIT_USAGE and said in refused.stderr


@pytest.mark.parametrize(
    ("number", "remedy"),
    [
        (errno.EROFS, "writable"),
        (errno.ENOSPC, "free space"),
        (errno.EDQUOT, "quota"),
        (errno.EIO, "its disk fails"),
        (errno.ENOENT, "mount the disk of the pool's namespace"),
        (errno.EACCES, "run this as its owner"),
    ],
)
def test_what_keeps_a_pool_from_being_adapted_is_told_with_its_remedy(pool, monkeypatch, number, remedy):
    def refused(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(adapting.owned, "opened", refused)
    told = f"adapt.lock cannot be written: .*; .*{remedy}"
    with pytest.raises(StripewiseError, match=told), adapting.alone(Pool.load(pool.file)):
        pass


def test_a_unit_runs_the_command_with_its_options(pool, tmp_path):
    file, text = adapting.unit(Pool.load(pool.file), ["adapt", "a b%", "--hours", "22-6"], "/bin/stripewise")
    assert file.name == "stripewise-adapt-test.service"
    assert 'ExecStart=/bin/stripewise "adapt" "a b%%" "--hours" "22-6"' in text


def kept(used, ended_s):
    return {"ended_s": ended_s, "used_bytes": used}


def full(pool, decisions, now, now_s):
    return measured.full(Pool.load(pool.file), decisions, now, now_s)


def test_a_server_that_gets_fuller_is_full_in_the_time_that_is_left(pool):
    now = {
        "hdd.0": Usage(300, 1000, None),
        "hdd.1": Usage(50, 10, None),
        "hdd.2": Usage(9, 9, "directory missing"),
        "ssd.0": Usage(9, 9, None),
    }
    before = {"hdd.0": 100, "hdd.1": 50, "hdd.2": 1}
    week = [kept({"hdd.0": 0}, 0), kept(before, 1e6), kept({"hdd.0": 299, "hdd.1": 50}, 1e6 + 1000)]
    # 200 bytes in 7200 s: the decision of more than a week ago does not count.
    found = full(pool, week, now, 1e6 + 7200)
    assert (found.span_s, found.servers_s) == (7200, {"hdd.0": 36_000})
    # The servers of a tier have what both of them have left, and all of them what is left in all.
    assert found.tiers_s == {"hdd": 1010 / 200 * 7200} and found.pool_s == 1019 / 200 * 7200
    assert full(pool, week[1:], now, 1e6 + 3000) is None
    for wrong in ({}, {"ended_s": "x"}, {"ended_s": 1e6}, {"ended_s": 1e6, "used_bytes": {"hdd.0": "x"}}):
        assert full(pool, [wrong], now, 1e6 + 7200) is None


def test_what_was_moved_between_servers_fills_none_of_them(pool):
    """Whether a decision has moved it, or what was promoted before it; programs wrote 30 bytes to the HDD meanwhile."""

    def asked(line):
        first = kept({"hdd.0": 900, "ssd.0": 0}, 1e6)
        then = kept({"hdd.0": 430, "ssd.0": 500}, 1e6 + 3600) | line
        now = {"hdd.0": Usage(430, 1000, None), "ssd.0": Usage(500, 1000, None)}
        return full(pool, [first, then], now, 1e6 + 7200)

    for line in ({"copied_bytes": 500}, {"promoted": {"copied_bytes": 500}}, {"relief": [{"copied_bytes": 500}]}):
        found = asked(line)
        # All that programs wrote is 30 bytes in 7200 s, so that no server is full sooner.
        assert found.servers_s == {"ssd.0": 1000 / 30 * 7200} and found.pool_s == 2000 / 30 * 7200
    # Of what no mover has told, 500 bytes were written there.
    assert asked({}).servers_s == {"ssd.0": 1000 / 500 * 7200}
    now = {"hdd.0": Usage(400, 1000, None), "ssd.0": Usage(500, 1000, None)}
    since = full(pool, [kept({"hdd.0": 900, "ssd.0": 0}, 1e6)], now, 1e6 + 7200)
    assert (since.servers_s, since.tiers_s, since.pool_s) == ({}, {}, None), "promoted since the last decision"


def test_what_programs_have_removed_leaves_room(pool):
    first, then = kept({"hdd.0": 100, "hdd.1": 900}, 1e6), kept({"hdd.0": 200, "hdd.1": 0}, 1e6 + 7200)
    now = {"hdd.0": Usage(200, 1000, None), "hdd.1": Usage(0, 1000, None)}
    found = full(pool, [first, then], now, 1e6 + 7200)
    assert (found.servers_s, found.tiers_s, found.pool_s) == ({"hdd.0": 72_000}, {}, None)


def test_a_gain_is_measured_by_the_last_speed_of_the_layouts_before_the_move():
    """As where one asks for a decision twice: the period before the move has no requests."""
    now = {"hdd.0": Done(1000, 4000, 0, 1.0, 1.0)}
    moved = {"verdict": "moved", "ratio": 3.0, "done": {"hdd.0": [0, 0, 0, 0.0, 0.0]}}
    served, idle = {"verdict": "kept", "served_bytes_per_s": 1000.0}, {"verdict": "kept"}
    found = measured.since_then([served, idle, moved], now)
    assert found["measured"]["before_bytes_per_s"] == 1000.0 and found["measured"]["ratio"] == 4.0
    assert found["measured"]["predicted_ratio"] == 3.0
    own = measured.since_then([served, {**moved, "served_bytes_per_s": 500.0}], now)
    assert own["measured"]["ratio"] == 8.0, "what is known of the period right before it counts first"
    # Other layouts say nothing: those before another move, a promotion or a relief.
    for other in (
        [{**served, "verdict": "moved"}, moved],
        [served, {**idle, "promoted": {"times": 1}}, moved],
        [served, {**moved, "relieved": {"ssd": 1}}],
    ):
        assert "measured" not in measured.since_then(other, now), other


@pytest.mark.parametrize("jump_days", [-10_000, -2, 2])
def test_a_clock_that_was_put_right_says_nothing_of_how_fast_a_pool_gets_full(pool, monkeypatch, jump_days):
    now, now_s, boot = {"hdd.0": Usage(300, 1000, None)}, 1e9, ["one", 10_000.0]
    monkeypatch.setattr(moved, "now_in_boot", lambda: tuple(boot))
    line = kept({"hdd.0": 100}, now_s + jump_days * 86_400) | {"boot": "one", "boot_s": 10_000.0}
    boot[1] += 600
    assert full(pool, [line], now, now_s) is None, "ten minutes say nothing"
    boot[1] += 6600
    assert full(pool, [line], now, now_s).span_s == 7200
    boot[0] = "two"
    found = full(pool, [line], now, now_s)
    assert (found and found.span_s) == (172_800 if jump_days == -2 else None), "of another boot the clock tells alone"


def test_what_is_no_count_in_the_state_is_not_believed():
    now = {"hdd.0": Done(501, 5, 5, 1.0, 1.0)}
    for wrong in (None, [], {"hdd.0": 1}, {"hdd.0": [1, 2]}, {"hdd.0": [0, 0, 0, "x", 0]}, {"gone": [0, 0, 0, 0, 0]}):
        assert measured.since_then([{"done": wrong}], now) == {}
    assert measured.since_then([{"done": {"hdd.0": [1, 1, 1, 0.5, 0]}}], now) == {"served_bytes_per_s": 16.0}
    assert measured.since_then([{"done": {"hdd.0": [450, 1, 1, 0.5, 0]}}], now) == {}, "a few requests say little"


def test_what_gets_fuller_by_next_to_nothing_is_full_at_no_time(pool):
    """What stands in the namespace may be any number."""
    now = {name: Usage(0, 1000, None) for name in ("hdd.0", "hdd.1", "hdd.2", "ssd.0")}
    found = full(pool, [kept({"hdd.0": -1e-320, "hdd.1": 0}, 0.0)], now, 7200.0)
    assert found is not None and (found.servers_s, found.tiers_s, found.pool_s) == ({}, {}, None)


def test_pool_show_says_what_is_full_first(pool):
    loaded = Pool.load(pool.file)
    assert "is full in" not in pool.stripewise("pool", "show", pool.file).stdout
    pool.python("import sys; open(f'{sys.argv[1]}/f', 'wb').write(bytes(range(1, 256)) * 4000)")
    then = {"time_s": 1.0, "ended_s": time.time() - 5 * 3600, "used_bytes": {"hdd.0": 0}}
    adapting.state_file(loaded).write_text(json.dumps(then))
    shown = pool.stripewise("pool", "show", pool.file).stdout
    told = ", ".join(rf"{name} is full in [\d,.]+ (?:days|hours)" for name in (r"hdd\.0", "hdd", "the pool"))
    assert re.search(rf"^{told}, at the rate of the last 5\.0 hours,", shown, flags=re.MULTILINE)
    document = json.loads(pool.stripewise("pool", "show", pool.file, "--json").stdout)
    assert list(document["full_in_s"]) == ["hdd.0"] and document["full_in_s"]["hdd.0"] > 0
    assert document["full_by_rate_of_s"] == pytest.approx(5 * 3600, rel=0.05)
    # All servers are on one disk here: each of them has all of its room, and so has the pool.
    assert document["pool_full_in_s"] == pytest.approx(document["full_in_s"]["hdd.0"], rel=0.05)


def test_a_line_that_a_kill_has_cut_is_left_out(pool):
    loaded = Pool.load(pool.file)
    wrong = ["7", "[1]", "nothing", '{"verdict": "kept"}', '{"time_s": 1e999}', '{"time_s": "x"}', "[" * 100_000]
    good = '{"time_s": 1.0, "verdict": "kept"}'
    adapting.state_file(loaded).write_text("\n".join([good, *wrong, '{"time_s": 2']))
    assert adapting.decisions(loaded) == [{"time_s": 1.0, "verdict": "kept"}]


def test_a_file_that_is_removed_as_it_moves_counts_for_nothing(hot):
    """The decision had its heat for moved, and its gain beside that of the others."""
    pool = Pool.load(hot[1])

    def progress(path, *_):
        (pool.namespace / "tree" / path).unlink(missing_ok=True)
        return True

    decision = adapting.reconsider(pool, adapting.Limits(LONG_S), progress=progress)
    assert (decision["verdict"], decision["why"]) == ("kept", adapting.NONE_MOVES), decision
    assert decision["skipped"] == [{"path": "f", "why": moved.REMOVED}]
