"""New files land on a fast tier and go to their place; tiers near their limit are relieved of what gains least."""

import fcntl
import json
import math
import os
import signal
import struct
import subprocess
import time
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace

import pytest

from stripewise import StripewiseError, _native, decided
from stripewise.api import activity, filling, hinting, leaving, moved, moving, placing, relief, small_files
from stripewise.api import adapt as adapting
from stripewise.api import landing as landing_marks
from stripewise.api.between import Rounds
from stripewise.api.files import open_pool
from stripewise.api.pacing import Pace, Pacer
from stripewise.cli import pool_settle, settling
from stripewise.pool import Pool

WRITE = (
    "import os, sys\nfor name in sys.argv[2:]:\n    file = os.open(f'{sys.argv[1]}/{name}', os.O_CREAT | os.O_WRONLY)\n"
)
WRITE += "    os.write(file, bytes(range(256)) * 4096)\n    os.fsync(file)\n    os.close(file)\n"
READ = "import sys\nfor name in sys.argv[2:]:\n    for _ in range(400):\n"
READ += "        open(f'{sys.argv[1]}/{name}', 'rb', buffering=0).read(1 << 20)\n"
CHECK = "import sys\nassert open(f'{sys.argv[1]}/{sys.argv[2]}', 'rb').read() == bytes(range(256)) * 4096\n"
URGENT = Pace(urgent=True)


@pytest.fixture
def landing(tmp_path, stripewise):
    """Files land on an emulated SSD of 4 MB, and go to it and two HDDs; times are a hundredth of the real ones."""
    base = tmp_path / "p"
    stripewise("pool", "init", base, "--emulate", "--hdd", "2", "--ssd", "1", "--dilation", "0.01")
    file = base / "pool.toml"
    text = file.read_text().replace("[default]\n", '[default]\nland = "ssd"\n')
    # Heat is halved once a year here.
    file.write_text(
        text.replace('name = "ssd"\n', 'name = "ssd"\ncapacity = "4MB"\n') + '\n[heat]\nperiod = "31000000s"\n'
    )

    def program(code, *arguments):
        stripewise("run", "--quiet", "--pool", file, "--", "python3", "-c", code, base / "mount", *arguments)

    return stripewise, file, program


def servers(file, name):
    found = subprocess.run(
        ["stripewise", "stat", "--pool", file, name, "--json"], capture_output=True, text=True, check=True
    )
    document = json.loads(found.stdout)
    return sorted({entry.split(":")[0] for region in document["regions"] for entry in region["round"]}), document


def test_files_land_settle_once_and_hot_ones_stay(landing):
    stripewise, file, program = landing
    program(WRITE, "cold", "hot")
    program(READ, "hot")
    assert servers(file, "cold")[0] == ["ssd.0"] and servers(file, "cold")[1]["landed_on"] == "ssd"
    assert "landed    on ssd" in stripewise("stat", "--pool", file, "cold").stdout
    assert "it has landed on ssd" in stripewise("hint", "--pool", file, "cold", "--why").stdout
    assert "land on ssd, which they leave at the latest when it is 80% full" in stripewise("pool", "show", file).stdout
    asked = relief.settle(Pool.load(file), dry_run=True)
    assert (asked["leaving_landed"], asked["kept_hot"], asked["needed_bytes"]) == (1, 1, 0)
    said = stripewise("pool", "settle", file, "--urgent").stdout
    assert "1 hot file stays" in said and "ssd: moved 1 file" in said
    assert servers(file, "cold")[0] == ["hdd.0-1", "ssd.0"] and servers(file, "cold")[1]["landed_on"] is None
    assert servers(file, "hot")[0] == ["ssd.0"]
    for name in ("cold", "hot"):
        program(CHECK, name)
    assert relief.settle(Pool.load(file), pace=URGENT)["moved_files"] == 0
    program(WRITE, "young")
    totals = []

    def progress(_path, done, total):
        assert done <= total
        totals.append(total)
        return True

    assert relief.settle(Pool.load(file), everything=True, pace=URGENT, progress=progress)["moved_files"] == 2
    assert set(totals) == {2 * 2 * (1 << 20)}, "of both files together"
    assert servers(file, "hot")[0] == ["hdd.0-1", "ssd.0"]


def test_a_file_that_cannot_be_read_is_named_and_keeps_no_other_from_its_place(landing):
    stripewise, file, program = landing
    # Who opens a file with a lease has its holder told.
    before = signal.signal(signal.SIGIO, signal.SIG_IGN)
    program(WRITE, "first", "second")
    held = os.open(Pool.load(file).namespace / "tree" / "first", os.O_RDWR)
    fcntl.fcntl(held, fcntl.F_SETLEASE, fcntl.F_WRLCK)
    told = "first: left for later: "
    dry = stripewise("pool", "settle", file, "--dry-run")
    assert told in dry.stdout and "1 file that landed there" in dry.stdout
    settled = stripewise("pool", "settle", file, "--urgent", check=False)
    assert settled.returncode == 1 and told in settled.stdout and "ssd: moved 1 file" in settled.stdout
    os.close(held)
    signal.signal(signal.SIGIO, before)
    assert "ssd: moved 1 file" in stripewise("pool", "settle", file, "--urgent").stdout
    program(CHECK, "first")


def test_a_tier_without_a_server_is_not_0_percent_full(landing):
    stripewise, file, program = landing
    program(WRITE, "young")
    server = Pool.load(file).tiers[1].servers[0]

    def said(why):
        shown, settled = (stripewise("pool", command, file).stdout for command in ("show", "settle"))
        assert f"are made in their place at once, not on ssd, where they should land: {why}" in shown
        assert f"{why}: no new file lands there" in settled
        assert "now it is" not in shown
        return settled

    stripewise("pool", "drain", file, "ssd.0", "--to", "hdd", "--urgent")
    said("ssd has no server in use")
    stripewise("pool", "remove", file, "ssd.0")
    assert "full" not in said("ssd has no server in use")
    assert server.name == "ssd.0" and not server.path.exists()


def test_a_tier_whose_disks_are_away_is_not_0_percent_full(landing):
    stripewise, file, _ = landing
    root = file.parent / "servers/ssd.0"
    root.rename(root.with_name("away"))
    assert "where they should land: ssd has no server that is there" in stripewise("pool", "show", file).stdout
    assert "ssd has no server that is there" in stripewise("pool", "settle", file, check=False).stdout


def test_settling_is_refused_beside_a_process_that_adapts_the_pool(landing):
    """Both keep which files have left in part."""
    stripewise, file, program = landing
    program(WRITE, "large")
    pool = Pool.load(file)
    with adapting.alone(pool):
        refused = stripewise("pool", "settle", file, "--urgent", check=False)
        words = " ".join(refused.stderr.split())
        assert refused.returncode == 1 and "which settles its files itself" in words and "--once` has it do so" in words
        assert "1 file that landed there" in stripewise("pool", "settle", file, "--dry-run").stdout
        assert servers(file, "large")[1]["landed_on"] == "ssd"
    assert "ssd: moved 1 file" in stripewise("pool", "settle", file, "--urgent").stdout


def test_at_the_mark_the_least_gain_per_byte_leaves_and_each_decision_says_so(landing):
    _, file, program = landing
    program(WRITE, "first", "second", "third", "fourth")
    program(READ, "first", "second", "third", "third", "third")
    pool = Pool.load(file)
    asked = adapting.reconsider(pool, adapting.Limits(), dry_run=True)["relief"]
    assert asked[0]["needed_bytes"] > 0 and asked[0]["why"] == "only asked what would be done"
    kept = adapting.reconsider(pool, adapting.Limits(day_bytes=1000), planner="fixed")["relief"]
    assert kept[0]["copied_bytes"] == 0 and "above the limit of a day" in kept[0]["why"]
    decision = adapting.reconsider(pool, adapting.Limits(), planner="fixed", pace=URGENT)
    (step,) = decision["relief"]
    assert step["tier"] == "ssd" and step["moved_files"] >= 1 and step["copied_bytes"] > 0
    assert servers(file, "fourth")[0] == ["hdd.0-1", "ssd.0"], "it was written and not read"
    assert servers(file, "third")[0] == ["ssd.0"], "it gains most"
    assert adapting.decisions(pool)[-1]["relief"] == [step]
    assert decided.copied_bytes(decision) == step["copied_bytes"] + decision.get("copied_bytes", 0)


def test_at_the_mark_files_leave_between_two_decisions(landing):
    _, file, program = landing
    pool = Pool.load(file)
    rounds = Rounds(pool, 0.0, URGENT)
    program(WRITE, "first", "second", "third", "fourth")
    # A decision is not due for ten minutes.
    done = next(rounds.until_due(600.0, adapting.Limits()))
    (step,) = done["relief"]
    assert done["verdict"] == "relieved" and step["needed_bytes"] > 0 and step["copied_bytes"] > 0
    assert relief.landed(pool, _native.pool_heat(str(file), ".")).needed_bytes == 0
    (kept,) = [line for line in moved.records(pool) if line["what"] == "relieved"]
    assert kept["relief"] == [step] and kept["took_s"] > 0
    assert adapting.copied_today(pool) == step["copied_bytes"]
    decision = rounds.decide(pool, adapting.Limits(), planner="fixed", dry_run=False)
    assert decision["relieved"]["copied_bytes"] == step["copied_bytes"]
    assert adapting.copied_today(pool) == decided.copied_bytes(decision), "nothing counts twice"
    for name in ("first", "second", "third", "fourth"):
        program(CHECK, name)


@dataclass(frozen=True)
class UntilSomethingMoved(adapting.Limits):
    """Hours that are over once a file has moved."""

    pool: Pool | None = None

    def allows(self, _):
        return not moved.records(self.pool)


def test_a_tier_is_relieved_until_the_hours_end_and_in_the_next_ones(landing):
    _, file, program = landing
    program(WRITE, "first", "second")
    pool = Pool.load(file)
    (step,) = adapting.reconsider(pool, UntilSomethingMoved(pool=pool), planner="fixed", pace=URGENT)["relief"]
    assert step["leaving_landed"] == 2 and step["why"] == moved.OVER
    # What was copied of the second counts, too.
    assert 1 << 20 <= step["copied_bytes"] < 2 << 20
    places = [servers(file, name)[0] for name in ("first", "second")]
    assert places == [["hdd.0-1", "ssd.0"], ["ssd.0"]]
    (rest,) = adapting.reconsider(pool, adapting.Limits(), planner="fixed", pace=URGENT)["relief"]
    assert rest["moved_files"] == 1 and servers(file, "second")[0] == ["hdd.0-1", "ssd.0"]
    for name in ("first", "second"):
        program(CHECK, name)


def test_a_file_that_landed_and_is_larger_than_a_day_s_limit_leaves_in_parts(landing, monkeypatch):
    """A part a day, none above the limit; the rest counts as landed, and nothing is copied twice."""
    _, file, program = landing
    program(WRITE, "large")
    pool, limits = Pool.load(file), adapting.Limits(day_bytes=300_000)
    monkeypatch.setattr(moved, "DAY_S", 0)
    monkeypatch.setattr(adapting, "DAY_S", 0)
    copied = []
    for _ in range(9):
        steps = adapting.reconsider(pool, limits, planner="fixed", pace=URGENT).get("relief")
        if not steps:
            break
        copied.append(steps[0]["copied_bytes"])
        is_last = sum(copied) == 1 << 20
        assert steps[0]["leaving_landed"] == 1 and steps[0]["moved_files"] == int(is_last)
        assert is_last or "1 of 1 would copy more than the 300,000 bytes" in steps[0]["why"]
    assert copied == [4 << 16, 4 << 16, 4 << 16, 4 << 16]
    assert servers(file, "large")[0] == ["hdd.0-1", "ssd.0"] and leaving.known(pool) == {}
    program(CHECK, "large")


def test_what_has_left_before_layouts_are_changed_by_another_process_counts(landing, monkeypatch):
    """Between two steps of a large file another process may begin to change layouts."""
    _, file, program = landing
    program(WRITE, "large")
    pool, relieve, calls = Pool.load(file), _native.pool_relieve, []

    def once(*arguments):
        if calls:
            raise StripewiseError("another change of layouts is under way")
        calls.append(arguments)
        return relieve(*arguments)

    monkeypatch.setattr(leaving, "STEP_BYTES", 256 << 10)
    monkeypatch.setattr(leaving._native, "pool_relieve", once)
    (step,) = adapting.reconsider(pool, adapting.Limits(), planner="fixed", pace=URGENT)["relief"]
    assert (step["copied_bytes"], step["why"]) == (256 << 10, "another change of layouts is under way")
    monkeypatch.setattr(leaving._native, "pool_relieve", relieve)
    (rest,) = adapting.reconsider(pool, adapting.Limits(), planner="fixed", pace=URGENT)["relief"]
    assert (rest["copied_bytes"], rest["moved_files"]) == (768 << 10, 1)
    assert adapting.copied_today(pool) == 1 << 20
    program(CHECK, "large")


def part_of(size_bytes, begin=0):
    stretch, held = (begin, size_bytes), {"ssd.0": 1}
    of = {"path": "f", "handle": 1, "version": 1, "stretch": stretch, "tier_bytes": 1, "by_server": held}
    return {**of, "has_landed": True}


def test_a_part_is_no_smaller_than_its_share_of_the_file_unless_a_day_s_limit_is():
    part = part_of(64 << 20)
    assert leaving.least_bytes(part, None, 3) == leaving.least_bytes(part, 4 << 20, 3) == 49 << 16
    assert leaving.share(part, (49 << 16) - 1, 49 << 16) is None, "another day has more left"
    assert leaving.share(part, 49 << 16, 49 << 16).end == 49 << 16
    assert leaving.least_bytes(part, 3 << 20, 3) == 3 << 19, "no day has as much: half of what one has"
    assert leaving.least_bytes(part, 1 << 20, 3) == 1 << 20, "it leaves in 64 parts at most"
    assert leaving.least_bytes({**part, "has_landed": False, "stretch": (63 << 20, 64 << 20)}, 1 << 18, 3) == 1 << 17
    assert leaving.share(part, None, 1 << 20).is_all and leaving.share(part, 64 << 20, 1 << 30).is_all


def test_the_holes_of_a_file_take_nothing_of_a_day_s_limit_from_others():
    holes = {**part_of(3 << 40), "tier_bytes": 3 << 40, "by_server": {"ssd.0": 8192}}
    share = leaving.share(holes, 1 << 20, leaving.least_bytes(holes, 1 << 20, 3))
    assert share is not None and share.is_all
    assert share.size_bytes == 8192
    assert share.of_all == 1.0
    assert leaving.share(holes, 8191, 1 << 40) is None


@pytest.mark.parametrize(("day_bytes", "most_parts"), [(16 << 20, 21), (8 << 20, 21), (4 << 20, 64), (1 << 20, 0)])
def test_the_parts_of_all_days_leave_no_more_datafiles_than_lengths_are_recorded_of(
    landing, monkeypatch, day_bytes, most_parts
):
    """A file of 100 MiB in steps of 1 MiB, on three servers: 21 parts, unless a limit is less than such a part."""
    pool, size_bytes, moves = Pool.load(landing[1]), 100 << 20, []

    def relieve(_, __, files, ___):
        ((_, _, _, ((begin, end),), _),) = files
        moves.append((begin, min(end, size_bytes)))
        return {"moved_files": 1, "copied_bytes": moves[-1][1] - begin, "passed_over": [], "staying": []}

    monkeypatch.setattr(leaving, "STEP_BYTES", 1 << 20)
    monkeypatch.setattr(leaving._native, "pool_relieve", relieve)
    for _ in range(200):
        part = part_of(size_bytes, moves[-1][1] if moves else 0)
        of = relief._Candidate({**part, "by_server": {"ssd.0": 1}}, 0.0, 0.0, is_hot=False)
        step = relief.Step("ssd", 1, 2, 0, (of,), 0, frozenset({1}))
        before = len(moves)
        done = relief.take(pool, step, URGENT, None, most_bytes=day_bytes, a_day=day_bytes)
        assert sum(end - begin for begin, end in moves[before:]) <= day_bytes
        if not most_parts:
            assert not moves and "cannot leave in 64 parts by the limit of 1,048,576 bytes a day" in done["why"]
            assert "with one of 1,638,400 they can" in done["why"]
            return
        if moves[-1][1] == size_bytes:
            break
    assert [begin for begin, _ in moves] == [0, *(end for _, end in moves[:-1])], "each byte is copied once"
    assert len(moves) <= most_parts


def test_a_large_file_that_leaves_is_moved_in_steps_and_a_kill_costs_one(landing, monkeypatch):
    _, file, program = landing
    program(WRITE, "large")
    pool, copied, last, after = Pool.load(file), [0], [0], [400_000]
    monkeypatch.setattr(leaving, "STEP_BYTES", 256 << 10)

    def killed(path, done, total):
        # Of all steps; each byte is copied and read back.
        copied[0] += done // 2 - last[0]
        last[0] = done // 2
        return copied[0] < after[0]

    kills = 0
    for _ in range(9):
        last[0] = 0
        try:
            relief.settle(pool, pace=URGENT, progress=killed)
            break
        except KeyboardInterrupt:
            kills += 1
            after[0] += 400_000
    assert kills >= 2 and copied[0] <= (1 << 20) + kills * (256 << 10)
    assert servers(file, "large")[0] == ["hdd.0-1", "ssd.0"] and leaving.known(pool) == {}
    program(CHECK, "large")


@pytest.mark.parametrize("state", [None, "[[1,", '[[1, 2, 3], 7, {}, [-1, 0, 1], [1e99, 0, 1], ["x"]]', "{}"])
def test_a_state_of_files_that_leave_that_is_lost_or_no_state_keeps_no_file_from_leaving(landing, state, monkeypatch):
    _, file, program = landing
    program(WRITE, "large", "other")
    pool = Pool.load(file)
    adapting.reconsider(pool, adapting.Limits(day_bytes=300_000), planner="fixed", pace=URGENT)
    ((handle, part),) = leaving.known(pool).items()
    assert part == (0, 4 << 16) and handle > 0
    kept = pool.namespace / leaving.STATE
    kept.unlink() if state is None else kept.write_text(state)
    relief.settle(pool, pace=URGENT)
    whole = [name for name in ("large", "other") if len(servers(file, name)[1]["regions"]) == 1]
    assert len(whole) == 1, "the rest of the other one stays"
    assert leaving.known(pool) == {}, "what is of no file that leaves is forgotten"
    for name in ("large", "other"):
        program(CHECK, name)


def test_a_file_that_cannot_be_read_at_a_look_leaves_on_once_it_can(landing, monkeypatch):
    """Its handle is damaged for the time of a look in which another file leaves."""
    _, file, program = landing
    program(WRITE, "large")
    pool = Pool.load(file)
    adapting.reconsider(pool, adapting.Limits(day_bytes=300_000), planner="fixed", pace=URGENT)
    program(WRITE, "other")
    ((handle, part),) = leaving.known(pool).items()
    tree, handle_of = pool.namespace / "tree", "user.stripewise"
    whole = os.getxattr(tree / "large", handle_of)
    os.setxattr(tree / "large", handle_of, b"SWEH")
    (step,) = adapting.reconsider(pool, adapting.Limits(), planner="fixed", pace=URGENT)["relief"]
    assert (step["moved_files"], step["leaving_landed"]) == (1, 1)
    os.setxattr(tree / "large", handle_of, whole)
    assert leaving.known(pool) == {handle: part}
    # Nor is one that a look does not find, as it is renamed meanwhile.
    (tree / "large").rename(pool.namespace / "large")
    relief.settle(pool, everything=True, pace=URGENT)
    (pool.namespace / "large").rename(tree / "large")
    done = relief.settle(pool, everything=True, pace=URGENT)
    assert (done["moved_files"], done["copied_bytes"]) == (1, (1 << 20) - (4 << 16))
    assert servers(file, "large")[0] == ["hdd.0-1", "ssd.0"] and leaving.known(pool) == {}
    for name in ("large", "other"):
        program(CHECK, name)


def test_a_state_that_cannot_be_read_for_a_moment_is_not_forgotten(landing, monkeypatch):
    """A directory in its place stands for a disk that fails to read it."""
    _, file, program = landing
    program(WRITE, "large")
    pool = Pool.load(file)
    adapting.reconsider(pool, adapting.Limits(day_bytes=300_000), planner="fixed", pace=URGENT)
    program(WRITE, "other")
    small_files._keep(pool, {1 << 40: (1.0, 7)})
    ((handle, part),) = leaving.known(pool).items()
    states = [pool.namespace / state for state in (leaving.STATE, small_files.STATE)]
    for state in states:
        state.rename(state.with_suffix(".aside"))
        state.mkdir()
    monkeypatch.setattr(leaving, "STEP_BYTES", 256 << 10)
    step = relief.landed(pool, None)
    assert [of.part["path"] for of in step.leaving] == ["other"], "the rest of the large one is a region like others"
    with pytest.raises(StripewiseError, match=rf"{leaving.STATE} cannot be read: Is a directory"):
        relief.take(pool, step, URGENT, None)
    assert small_files.due(pool) == []
    small_files.decay(pool)
    for state in states:
        state.rmdir()
        state.with_suffix(".aside").rename(state)
    assert relief.take(pool, step, URGENT, None)["moved_files"] == 1
    assert (leaving.known(pool), small_files._kept(pool)) == ({handle: part}, {1 << 40: (1.0, 7)})
    assert relief.settle(pool, everything=True, pace=URGENT)["copied_bytes"] == (1 << 20) - (4 << 16)
    for name in ("large", "other"):
        program(CHECK, name)


def test_a_file_that_has_come_in_the_place_of_one_that_leaves_stays(landing):
    """As programs replace files: a part of the old one is to leave, and the new one has landed, too."""
    _, file, program = landing
    program(WRITE, "old", "new")
    pool = Pool.load(file)
    program(READ, "new", "old")
    step = relief.landed(pool, _native.pool_heat(str(file), "."), all_landed=True)
    assert sorted(of.part["path"] for of in step.leaving) == ["new", "old"]
    assert all(of.heat_us > 0 for of in step.leaving)
    program("import os, sys; os.rename(f'{sys.argv[1]}/new', f'{sys.argv[1]}/old')")
    for of, most_bytes in (
        (step, None),
        (replace(step, leaving=[of for of in step.leaving if of.part["path"] == "old"]), 300_000),
    ):
        done = relief.take(pool, of, URGENT, None, most_bytes=most_bytes, a_day=most_bytes)
        assert (done["moved_files"], done["copied_bytes"], done["staying"], done["moved_heat_s"]) == (0, 0, [], 0.0)
    assert servers(file, "old")[0] == ["ssd.0"] and servers(file, "old")[1]["landed_on"] == "ssd"
    assert relief.settle(pool, everything=True, pace=URGENT)["moved_files"] == 1
    assert leaving.known(pool) == {}
    program(CHECK, "old")


@pytest.fixture
def busy(monkeypatch):
    """Programs keep a server busy half of the time; what the machine counts is not asked."""
    began_s = time.monotonic()
    looks = []

    def done(_, __):
        looks.append(time.monotonic())
        return {
            "hdd.0": activity.Done(0, 0, 0, (looks[-1] - began_s) / 2, 0.0),
            "ssd.0": activity.Done(0, 0, 0, 0.0, 0.0),
        }

    monkeypatch.setattr(activity, "done", done)
    return looks


def test_while_the_servers_are_busy_nothing_leaves_a_tier_that_has_room(landing, busy):
    _, file, program = landing
    program(WRITE, "young")
    pool = Pool.load(file)
    leaving._keep(pool, {1 << 40: (0, 1)})
    for _ in range(2):
        done = relief.settle(pool, everything=True)
        assert done["why"] == "the servers are busy for programs, and the tier has room"
        assert (done["moved_files"], done["copied_bytes"], done["staying"]) == (0, 0, [])
    assert len(busy) == 4, "a look each time, and no more: the next period tries again"
    (step,) = adapting.reconsider(pool, adapting.Limits(), planner="fixed")["relief"]
    assert (step["why"], step["leaving_landed"], step["copied_bytes"]) == (done["why"], 1, 0)
    assert servers(file, "young")[1]["landed_on"] == "ssd" and leaving.known(pool) == {1 << 40: (0, 1)}
    assert relief.settle(pool, everything=True, pace=URGENT)["moved_files"] == 1
    # Nothing is left that could wait.
    assert "why" not in relief.settle(pool, everything=True)
    program(CHECK, "young")


def test_settling_that_leaves_files_as_the_servers_are_busy_fails(landing, busy, monkeypatch, capsys):
    _, file, program = landing
    program(WRITE, "young")
    with pytest.raises(SystemExit) as ended:
        pool_settle.pool_settle(file, hot=True)
    assert ended.value.code == 1 and "the servers are busy for programs" in capsys.readouterr().out
    pool_settle.pool_settle(file, hot=True, dry_run=True)
    pool_settle.pool_settle(file, hot=True, urgent=True)
    pool_settle.pool_settle(file, hot=True)
    assert servers(file, "young")[1]["landed_on"] is None


def test_a_tier_at_its_mark_is_relieved_while_the_servers_are_busy_and_the_move_rests(landing, busy):
    _, file, program = landing
    program(WRITE, "first", "second", "third", "fourth")
    pool, words = Pool.load(file), []

    def progress(path, done, total):
        words.append((path, done))
        return True

    step = relief.landed(pool, None)
    assert step.is_full
    done = relief.take(pool, step, Pace(), progress)
    assert "why" not in done and done["moved_files"] == len(step.leaving) > 0 and done["staying"] == []
    assert busy and len(words) > len(set(words)), "it is asked again and again while it rests"
    for name in ("first", "second", "third", "fourth"):
        program(CHECK, name)


@pytest.fixture
def looks_at_once(monkeypatch):
    """Each look at how full the tier is that may be made is made."""
    monkeypatch.setattr(filling, "LOOK_S", 0.0)
    monkeypatch.setattr(filling, "LOOK_SHARE", math.inf)


def write(pool, name, size_bytes):
    with open_pool(pool.file).open(name, "wb") as file:
        file.write(bytes(size_bytes))


def test_what_moves_ends_when_the_tier_fills_to_its_mark_meanwhile_and_the_next_look_makes_room(landing, looks_at_once):
    _, file, program = landing
    file.write_text(file.read_text().replace('land = "ssd"\n', 'land = "ssd"\nland_mark = 0.6\n'))
    program(WRITE, "first", "second")
    pool, came = Pool.load(file), [("third", 1 << 20), ("fourth", 500_000)]

    def progress(*_):
        while came:
            write(pool, *came.pop())
        return True

    decision = adapting.reconsider(pool, adapting.Limits(), planner="fixed", pace=URGENT, progress=progress)
    (step,) = decision["relief"]
    assert step["needed_bytes"] == 0 and step["leaving_landed"] == 2
    assert step["why"] == "ssd has filled to its mark meanwhile: what makes room there goes first"
    assert decision["verdict"] == "kept" and "is asked for" in decision["why"], "what has its place is planned"
    places = [servers(file, name)[0] for name in ("first", "second")]
    assert places == [["hdd.0-1", "ssd.0"], ["ssd.0"]], "the file that moved then has its place"
    (made,) = landing_marks.Mark(URGENT).look(pool, adapting.Limits(), lambda: 0)["relief"]
    assert made["needed_bytes"] > 0 and made["moved_files"] == 3 and "why" not in made
    for name in ("first", "second"):
        program(CHECK, name)


def test_a_tier_that_stays_above_its_mark_keeps_no_other_from_moving(landing, monkeypatch, looks_at_once):
    pool, full = Pool.load(landing[1]), [0.9]

    def rooms(*_):
        return [{"server": "ssd.0", "used_bytes": round(full[-1] * 1000), "free_bytes": round(1000 - full[-1] * 1000)}]

    monkeypatch.setattr(filling._native, "pool_tier_rooms", rooms)
    of = filling.Filling.of(pool)
    states = []
    for share in (0.9, 0.7, 0.75, 0.81, 0.89, 0.91, 0.81, 0.79, 0.85):
        full.append(share)
        states.append((of.is_above(), of.hurries(), of.why_ended() is not None, of.why_scarce() is not None))
    above, hurries, ended, scarce = zip(*states, strict=True)
    assert above == (True, False, False, True, True, True, True, False, True)
    assert hurries == (False, False, False, False, False, True, True, False, False), "until it is below the mark"
    assert ended == (False, False, False, True, True, True, True, True, True), "it has filled since it was below"
    assert scarce == (False, False, False, False, False, True, True, False, False), "it has become scarce, and is"


def test_the_copy_of_a_file_that_moves_does_not_fill_a_tier(landing, monkeypatch, looks_at_once):
    """What adapting brings fills the tier to its mark, and is there twice while it moves."""
    used, looks = [790], []

    def rooms(*_):
        looks.append(used[0])
        return [{"server": "ssd.0", "used_bytes": used[0], "free_bytes": 1000 - used[0]}]

    monkeypatch.setattr(filling._native, "pool_tier_rooms", rooms)
    of = filling.Filling.of(Pool.load(landing[1]))
    assert of.why_ended(0) is None
    used[0] = 900
    assert not of.hurries() and looks == [790], "it does not look while a file moves"
    assert of.why_ended(100) is None and not of.is_above(100)
    assert of.why_ended(99) is not None


def test_at_the_mark_what_makes_most_room_moves_first(landing):
    _, file, program = landing
    pool, moves = Pool.load(file), []
    for number in range(5):
        write(pool, f"a{number}", 1 << 10)
    program(WRITE, "b0", "b1", "b2", "b3")

    def progress(path, *_):
        if path not in moves:
            moves.append(path)
        return True

    step = relief.landed(pool, None)
    assert step.is_full
    assert [of.part["path"] for of in step.leaving][:5] == [f"a{number}" for number in range(5)]
    done = relief.take(pool, step, URGENT, progress)
    assert done["moved_files"] == len(step.leaving) == 9
    assert sorted(moves[:4]) == ["b0", "b1", "b2", "b3"]


def test_at_the_mark_a_move_does_not_rest_where_the_tier_would_be_full_before_it_has_ended(landing, busy, monkeypatch):
    _, file, program = landing
    program(WRITE, "first", "second", "third", "fourth")
    pool, words = Pool.load(file), []
    monkeypatch.setattr(filling, "LOOK_S", math.inf)
    assert relief.needed(_native.pool_tier_parts(str(file), "ssd")["rooms"], 0.9)

    def progress(path, done, total):
        words.append((path, done))
        return True

    mark = landing_marks.Mark(Pace())
    (made,) = mark.look(pool, adapting.Limits(), lambda: 0, progress)["relief"]
    assert made["moved_files"] == 4 and len(words) == len(set(words)), "it is never asked again after a rest"


def test_a_settle_of_a_tier_with_room_ends_when_programs_keep_the_servers_busy_for_long(
    landing, busy, monkeypatch, capsys
):
    """So that other commands get their turn; by itself `pool settle` goes on."""
    _, file, program = landing
    program(WRITE, "first", "second")
    pool = Pool.load(file)
    monkeypatch.setattr(relief, "BUSY_S", 1e-9)
    monkeypatch.setattr(relief.Pacer, "finds_others_busy", lambda _: False)
    (step,) = adapting.reconsider(pool, adapting.Limits(), planner="fixed")["relief"]
    assert step["why"].startswith("programs keep the servers busy for ") and "the tier has room" in step["why"]
    settling.report(step)
    said = capsys.readouterr().out
    assert "ssd: copied 1.5 MiB" in said and "nothing more moved: programs keep" in said
    assert [servers(file, name)[0] for name in ("first", "second")] == [["hdd.0-1", "ssd.0"], ["ssd.0"]]
    assert relief.settle(pool)["moved_files"] == 1
    for name in ("first", "second"):
        program(CHECK, name)


def test_what_was_copied_of_a_move_that_gave_way_is_not_free_for_the_next_tier(landing, monkeypatch):
    pool = Pool.load(landing[1])
    gave_way, lefts = {"copied_bytes": 0, "moved_files": 0}, []

    def take(of, step, _pace, watch, *, most_bytes, a_day, filling):
        lefts.append(most_bytes)
        assert (of, a_day) == (pool, 1000) and filling is not None
        if step.tier == "first":
            # A line tells of it, and what the step has done does not.
            watch("f", 600, 1200)
            watch.close()
            return gave_way
        # Without a line.
        return {"copied_bytes": 100}

    none = {"used_bytes": 0, "size_bytes": 1, "needed_bytes": 1, "leaving": (), "kept_hot": 0}
    monkeypatch.setattr(
        relief, "steps", lambda *_: [relief.Step(tier, **none) for tier in ("first", "second", "third")]
    )
    monkeypatch.setattr(relief, "take", take)
    adapting.reconsider(pool, adapting.Limits(day_bytes=1000), planner="fixed")
    assert lefts == [1000, 400, 300]


def test_where_the_namespace_cannot_be_written_the_rest_of_a_decision_goes_on(landing, monkeypatch):
    """As on a full disk, just when room is needed. A directory in the place of the new file stands for that."""
    _, file, program = landing
    program(WRITE, "large", "other")
    pool = Pool.load(file)
    leaving._keep(pool, {1 << 40: (0, 1)})
    small_files._keep(pool, {1 << 40: (1.0, 7)})
    for state in (leaving.STATE, small_files.STATE):
        (pool.namespace / f"{state}.new").mkdir()
    monkeypatch.setattr(leaving, "STEP_BYTES", 256 << 10)
    (step,) = adapting.reconsider(pool, adapting.Limits(), planner="fixed", pace=URGENT)["relief"]
    assert f"{leaving.STATE} cannot be written: Is a directory" in step["why"], "what has to be kept is not moved"
    assert (step["leaving_landed"], step["copied_bytes"]) == (2, 0)
    monkeypatch.setattr(leaving, "STEP_BYTES", 1 << 30)
    # What moves at once needs nothing kept, and what is to be forgotten is kept until the next look.
    (step,) = adapting.reconsider(pool, adapting.Limits(), planner="fixed", pace=URGENT)["relief"]
    assert (step["moved_files"], leaving.known(pool)) == (2, {1 << 40: (0, 1)})
    assert small_files._kept(pool) == {1 << 40: (1.0, 7)}
    for state in (leaving.STATE, small_files.STATE):
        (pool.namespace / f"{state}.new").rmdir()
    leaving.forget_all_but(pool, set())
    small_files.decay(pool)
    assert (leaving.known(pool), small_files._kept(pool)) == ({}, {1 << 40: (0.5, 7)})
    for name in ("large", "other"):
        program(CHECK, name)


def test_what_is_nested_without_end_is_no_state(landing):
    pool = Pool.load(landing[1])
    for state in (leaving.STATE, small_files.STATE, moving.STATE):
        (pool.namespace / state).write_text("[" * 100_000)
    assert leaving.known(pool) == small_files._kept(pool) == {}
    with (pool.namespace / moving.STATE).open("rb") as teller:
        fcntl.flock(teller, fcntl.LOCK_EX)
        assert moving.now(pool) is None


def test_looks_at_the_mark_are_cheap_and_keep_to_the_limits(landing, monkeypatch):
    _, file, program = landing
    pool, now_s = Pool.load(file), [0.0]
    program(WRITE, "first", "second", "third", "fourth")
    looked, parts = [], _native.pool_tier_parts

    def look(*arguments):
        looked.append(now_s[0])
        now_s[0] += 2.0
        return parts(*arguments)

    monkeypatch.setattr(relief._native, "pool_tier_parts", look)
    mark = landing_marks.Mark(URGENT, lambda: now_s[0])
    for _ in range(20):
        # Nothing may be copied: it does not try again and again.
        assert mark.look(pool, adapting.Limits(day_bytes=10), lambda: 10) is None
        now_s[0] += 4.0
    assert len(looked) == 3, "a look of 2 s is made each 40 s, and 30 s after one that could move nothing"
    hour = datetime.now().hour
    looked.clear()
    now_s[0] += 100.0
    assert mark.look(pool, adapting.Limits(hours=((hour + 2) % 24, (hour + 3) % 24)), lambda: 0) is None
    assert looked == []
    assert mark.look(pool, adapting.Limits(), lambda: 0)["relief"][0]["copied_bytes"] > 0


def test_a_disk_that_is_not_as_full_as_the_mark_needs_no_look_at_files(landing, monkeypatch):
    _, file, _ = landing
    file.write_text(file.read_text().replace('capacity = "4MB"\n', ""))
    (tier,) = (tier for tier in Pool.load(file).tiers if tier.name == "ssd")
    for free, is_above in ((30, False), (10, True)):
        disk = SimpleNamespace(f_blocks=105, f_bfree=free + 5, f_bavail=free, f_frsize=4096)
        monkeypatch.setattr(filling.os, "statvfs", lambda _, disk=disk: disk)
        assert filling.may_be_above(tier, 0.8) is is_above


def test_one_server_that_is_full_is_a_tier_above_its_mark(landing, monkeypatch):
    _, file, _ = landing
    file.write_text(file.read_text().replace('capacity = "4MB"\n', ""))
    (tier,) = (tier for tier in Pool.load(file).tiers if tier.name == "ssd")
    (server,) = tier.servers
    full, empty = (SimpleNamespace(f_blocks=100, f_bfree=free, f_bavail=free, f_frsize=4096) for free in (10, 90))
    disks = iter([empty, full])
    monkeypatch.setattr(filling.os, "statvfs", lambda _: next(disks))
    monkeypatch.setattr(filling.swaps, "usable", lambda _: [server, server])
    assert filling.may_be_above(tier, 0.8)


def test_a_look_that_is_not_made_counts_for_no_busy_server():
    now_s = [0.0]
    hurries = [False]
    pacer = Pacer(Pace(), lambda: {"hdd.0": now_s[0]}, lambda *_: True, lambda: now_s[0], hurries=lambda: hurries[0])
    for _ in range(200):
        now_s[0] += 1.0
        pacer("file", 0, 1)
    assert pacer.busy_for_s() > relief.BUSY_S
    hurries[0] = True
    for _ in range(10):
        now_s[0] += 1.0
        pacer("file", 0, 1)
    assert pacer.busy_for_s() == 0.0


def test_without_heat_all_that_landed_leaves(landing):
    stripewise, file, program = landing
    file.write_text(file.read_text().replace('[heat]\nperiod = "31000000s"\n', ""))
    program(WRITE, "young")
    said = stripewise("adapt", file, "--once", "--urgent").stdout
    assert "ssd: moved 1 file" in said and "the pool keeps no heat" in said
    assert servers(file, "young")[0] == ["hdd.0-1", "ssd.0"]


def test_what_landed_leaves_in_a_pool_that_was_never_calibrated(pool):
    text = pool.file.read_text().replace("[default]\n", '[default]\nland = "ssd"\n')
    pool.file.write_text(f"{text}\n[heat]\n")
    pool.python(WRITE, "young")
    assert "ssd: moved 1 file" in pool.stripewise("pool", "settle", pool.file, "--urgent").stdout
    pool.python(CHECK, "young")


def test_a_file_whose_name_is_no_text_leaves_the_tier_on_which_it_landed(landing):
    stripewise, file, program = landing
    program("import os, sys; open(os.fsencode(sys.argv[1]) + b'/bad\\xff', 'wb').write(bytes(range(256)) * 1000)")
    settled = stripewise("pool", "settle", file, "--urgent", check=False)
    assert settled.returncode == 0 and "moved 1 file" in settled.stdout, settled.stdout
    program(
        "import os, sys; assert open(os.fsencode(sys.argv[1]) + b'/bad\\xff', 'rb').read() == bytes(range(256)) * 1000"
    )


def test_a_pool_where_no_file_lands_says_how(pool):
    with pytest.raises(StripewiseError, match=r'write land = "TIER" below \[default\]'):
        relief.settle(Pool.load(pool.file))
    refused = pool.stripewise("pool", "settle", pool.file, check=False)
    assert refused.returncode == 1 and 'land = "TIER"' in refused.stderr


def set_threshold(pool, share):
    """Puts the threshold of small files to that share, as if load had moved it there; files were made of late."""
    with (pool.namespace / "meta-load.2").open("r+b") as page:
        page.seek(16)
        page.write(struct.pack("=d", share))


def test_small_files_leave_and_return_within_the_limits(emulated):
    pool = Pool.load(emulated.file)
    hinting.hint(placing.place_of(Path(), pool), ["small=64K"])
    files = open_pool(emulated.file)
    for name, size in (("large", 50_000), ("small", 5_000)):
        with files.open(name, "xb") as file:
            file.write(bytes(range(250)) * (size // 250))
    cold = {"block_bytes": 1 << 20, "period_s": 60, "files": []}

    def decide(**limits):
        set_threshold(pool, limits.pop("share", 0.25))
        dry_run = limits.pop("dry_run", False)
        decision = adapting.reconsider(pool, adapting.Limits(**limits), heat=cold, dry_run=dry_run, pace=URGENT)
        return decision.get("small_files")

    due = {"tier": "meta", "leaving": 1, "returning": 0, "moved_bytes": 50_000}
    assert decide(dry_run=True) == {**due, "why": "only asked what would be done"}
    limited = decide(day_bytes=1000)
    assert limited["moved_files"] == 0 and "above the limit of a day" in limited["why"]
    assert decide() == {**due, "moved_files": 1, "copied_bytes": 50_000, "staying": []}
    ((handle, moves, size),) = json.loads((pool.namespace / "small-files.json").read_text())
    assert (moves, size) == (1.0, 50_000)
    assert decide() is None
    with files.open("large", "r+b") as file:
        file.truncate(3_000)
    back = {**due, "leaving": 0, "returning": 1, "moved_bytes": 3_000}
    assert decide() == {**back, "moved_files": 1, "copied_bytes": 3_000, "staying": []}
    # Twice within three decisions, each of which halves what was before it.
    assert json.loads((pool.namespace / "small-files.json").read_text()) == [[handle, 1.25, None]]
    (pool.namespace / "small-files.json").write_text('[[1, "often", 2], {}, [-1, 1, 1], 7')
    assert decide() is None
    with files.open("large", "rb") as file:
        assert file.read() == bytes(range(250)) * 12
    assert "meta" in servers(emulated.file, "large")[0]
    # Nothing is known any more of its moves: its handle says that it may leave once more, and then come back.
    with files.open("large", "r+b") as file:
        file.seek(0, 2)
        file.write(bytes(17_000))
    again = {**due, "moved_bytes": 16_384}
    assert decide(share=0.125) == {**again, "moved_files": 1, "copied_bytes": 16_384, "staying": []}
    (pool.namespace / "small-files.json").unlink()
    with files.open("large", "r+b") as file:
        file.truncate(3_000)
    assert decide() == {**back, "moved_files": 1, "copied_bytes": 3_000, "staying": []}


def test_a_tier_near_its_limit_is_relieved_of_the_regions_with_the_least_gain_per_byte(landing, monkeypatch):
    """No file lands here: only the reserve of its server is left, and half a MiB has to leave."""
    _, file, _ = landing
    file.write_text(file.read_text().replace('land = "ssd"\n', ""))
    pool = Pool.load(file)
    kib = 1 << 10

    def part(begin, end):
        return {
            "path": "f",
            "handle": 1,
            "version": 1,
            "stretch": (begin * kib, end * kib),
            "tier_bytes": (end - begin) * kib,
            "by_server": {"ssd.0": (end - begin) * kib},
            "has_landed": False,
        }

    room = {"server": "ssd.0", "used_bytes": 4 << 20, "free_bytes": 512 * kib, "reserve_bytes": 513 * kib}
    room["on_disk_bytes"] = 512 * kib
    # Two regions share the first block of heat, and two the last one.
    parts = [part(0, 512), part(512, 1024), part(1024, 2048), part(2048, 2304), part(2304, 3072)]
    monkeypatch.setattr(
        relief._native, "pool_tier_parts", lambda *_: {"parts": parts, "rooms": [room], "begun": [], "unread": []}
    )
    heat = {
        "block_bytes": 1 << 20,
        "period_s": 600,
        "missed": 0,
        "files": [{"path": "f", "size_bytes": 3072 * kib, "cost_us": 0, "blocks": [(0, 3000), (1, 2000), (2, 3500)]}],
    }
    (step,) = relief.steps(pool, heat)
    assert step.needed_bytes == 514 * kib
    assert [of.part["stretch"][0] // kib for of in step.leaving] == [1024], "it gains least per byte"
    heat["files"][0]["blocks"] = [(0, 3000), (1, 9000), (2, 3500)]
    (step,) = relief.steps(pool, heat)
    # Neither of the two has all the heat of their block.
    assert sorted(of.part["stretch"][0] // kib for of in step.leaving) == [0, 512]
    room["free_bytes"] = room["on_disk_bytes"] = 513 * kib
    assert relief.steps(pool, heat) == []


def test_room_is_made_on_the_server_that_lacks_it(landing, monkeypatch):
    """ssd.0 is full, and the coldest regions are on ssd.1: those of ssd.0 leave."""
    _, file, _ = landing
    text = file.read_text().replace('land = "ssd"\n', "")
    file.write_text(text)
    kib = 1 << 10

    def part(path, **by_server):
        by_server = {server.replace("_", "."): count * kib for server, count in by_server.items()}
        stretch = (0, sum(by_server.values()))
        return {
            "path": path,
            "handle": 1,
            "version": 1,
            "stretch": stretch,
            "tier_bytes": stretch[1],
            "by_server": by_server,
            "has_landed": False,
        }

    def room(server, free_kib):
        free = free_kib * kib
        known = {"server": server, "used_bytes": 4 << 20, "free_bytes": free, "on_disk_bytes": free}
        return {**known, "reserve_bytes": 512 * kib}

    parts = [
        part("cold1", ssd_1=1024),
        part("cold2", ssd_1=1024),
        part("both", ssd_0=64, ssd_1=960),
        part("warm", ssd_0=1024),
        part("hot", ssd_0=1024),
    ]
    rooms = [room("ssd.0", 100), room("ssd.1", 8192)]
    monkeypatch.setattr(
        relief._native, "pool_tier_parts", lambda *_: {"parts": parts, "rooms": rooms, "begun": [], "unread": []}
    )
    costs = {"both": 500, "warm": 3000, "hot": 9000}
    heat = {
        "block_bytes": 1 << 20,
        "period_s": 600,
        "missed": 0,
        "files": [
            {"path": path, "size_bytes": 1 << 20, "cost_us": cost, "blocks": [(0, cost)]}
            for path, cost in costs.items()
        ],
    }
    (step,) = relief.steps(Pool.load(file), heat)
    # "both" gains least, but more for each byte that it frees on ssd.0.
    assert ([of.part["path"] for of in step.leaving], step.needed_bytes) == (["warm"], 924 * kib)
    # A mark counts on each server, too.
    file.write_text(text.replace("[default]\n", '[default]\nland = "ssd"\nland_mark = 0.9\n'))
    (step,) = relief.steps(Pool.load(file), heat)
    assert [of.part["path"] for of in step.leaving] == ["warm"]


def test_heat_that_leaves_between_two_decisions_counts_for_the_metrics(landing):
    _, file, program = landing
    program(WRITE, "first", "second", "third", "fourth")
    program(READ, "first", "second", "third", "fourth")
    pool = Pool.load(file)
    mark = landing_marks.Mark(URGENT)
    (step,) = mark.look(pool, adapting.Limits(), lambda: 0)["relief"]
    assert step["moved_heat_s"] > 0
    decision = adapting.reconsider(pool, adapting.Limits(), planner="fixed", relieved=mark.relieved())
    assert decision["relieved"]["moved_heat_s"] == step["moved_heat_s"]
    assert decided.moved_heat_s(decision) >= step["moved_heat_s"]
    assert adapting.totals(adapting.kept(pool).lines()).moved_heat_s >= step["moved_heat_s"]
