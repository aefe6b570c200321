"""What `stripewise top` and the report show of a pool that adapts: heat, decisions, the move that goes on, gains."""

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from types import SimpleNamespace

import pytest

from conftest import READ_HOT
from stripewise.api import adapt as adapting
from stripewise.api import measured, moved, moving, pacing
from stripewise.cli import adapted as cli_adapted
from stripewise.cli import pool_show
from stripewise.pool import Pool
from stripewise.report.facts import Adapted
from stripewise.report.sections import adapted

PATIENCE_S = 60
LONG_H = 87_600
"""Heat is halved once a year here: the horizon has to be as long for a gain to count."""


def top(pool):
    stripewise, file = pool
    return stripewise("top", "--pool", file, "--once").stdout


def test_the_report_draws_the_heat_of_each_file_for_itself():
    """A file of three bytes is hotter by the byte than any other, which would be drawn as cold."""
    facts = SimpleNamespace(adapted=Adapted([("large", 9e6, [0.0, 0.01, 0.04]), ("tiny", 160.0, [50.0] * 3)], []))
    drawn = str(adapted.draw(facts))
    wide = drawn[drawn.index("<svg") : drawn.index("</svg>")]
    opaque = [float(of) for of in re.findall(r'fill="var\(--after\)"[^>]* opacity="([\d.]+)"', wide)]
    assert len(opaque) == 5 and opaque.count(1.0) == 4 and min(opaque) < 0.6, wide


def test_a_pool_that_is_full_is_said_to_be_full_now(capsys):
    pool_show._show_full(measured.Full(7200.0, {"ssd.0": 0.0, "hdd.0": 90_000.0}, {"hdd": 600.0}, 900_000.0))
    said = " ".join(capsys.readouterr().out.split())
    assert "ssd.0 is full now, hdd is full in 10.0 minutes, the pool is full in 10.4 days" in said
    assert "at the rate of the last 2.0 hours" in said


def test_heat_and_the_last_decision_with_its_plans_are_shown(hot):
    _, file = hot
    assert "adapt" not in top(hot)
    # The read MiB is a quarter of the file from its begin; four of 32 parts.
    assert re.search(r"^hottest files +heat +by part *$\n^f +[\d.]+ m?s +.{8}[▄-█]{4}", top(hot), flags=re.MULTILINE)
    pool = Pool.load(file)
    decision = adapting.reconsider(pool, adapting.Limits(horizon_s=1.0))
    shown = top(hot)
    why = r"[\d.]+ [mu]?s gained in the horizon, [\d.]+ [mu]?s for moving"
    assert re.search(rf"^adapt, [\d.]+ m?s ago: kept: {why}$", shown, flags=re.MULTILINE)
    assert f"({decision['ratio']:.2f}x), planner {decision['planner']}" in shown
    fitting = [plan for plan in decision["plans"] if not plan["excess_bytes"]]
    fastest = min(fitting, key=lambda plan: (plan["predicted_s"], plan["planner"]))
    assert f"considered: {fastest['planner']} " in shown
    assert f"and {len(decision['plans']) - 3} more" in shown
    assert "predicted" not in shown, "nothing has moved"
    assert shown.rstrip().endswith("\nno process adapts the pool now")
    with adapting.alone(pool):
        assert "no process" not in top(hot)


def test_a_plan_that_does_not_fit_says_so_and_comes_after_those_that_do():
    plans = [
        {"planner": "large", "predicted_s": 1.0, "excess_bytes": 3 << 20},
        {"planner": "slow", "predicted_s": 3.0, "excess_bytes": 0},
        {"planner": "fast", "predicted_s": 2.0, "excess_bytes": None},
    ]
    decision = {"time_s": time.time(), "verdict": "kept", "plans": plans}
    shown = cli_adapted.shown(SimpleNamespace(decision=decision, move=None, gain=None, hottest=[], is_adapted=True))[
        -1
    ].plain
    assert shown == "  considered: fast 2.00 s, slow 3.00 s, large 1.00 s (does not fit: 3.0 MiB too much)"
    assert adapted._plans(decision) == "fast 2.00 s, slow 3.00 s, large 1.00 s (does not fit)"


def test_a_gain_is_shown_as_predicted_and_then_as_measured(hot):
    stripewise, file = hot
    pool = Pool.load(file)
    limits = adapting.Limits(horizon_s=LONG_H * 3600)
    adapting.reconsider(pool, adapting.Limits(horizon_s=1.0))
    stripewise("run", "--quiet", "--pool", file, "--", "python3", "-c", READ_HOT, file.parent / "mount")
    moved = adapting.reconsider(pool, limits)
    assert moved["verdict"] == "moved"
    assert f"adapt: {moved['ratio']:.2f}x predicted for the last move, not measured so far" in top(hot)
    stripewise("run", "--quiet", "--pool", file, "--", "python3", "-c", READ_HOT, file.parent / "mount")
    gain = adapting.reconsider(pool, limits)["measured"]
    assert f"adapt: {gain['ratio']:.2f}x measured since the last move, {moved['ratio']:.2f}x predicted" in top(hot)


def test_a_move_is_shown_while_it_goes_on(hot):
    _, file = hot
    command = [sys.executable, "-m", "stripewise", "adapt", str(file), "--once", "--horizon", str(LONG_H)]
    # A MiB takes 40 s, and the move is killed as soon as it was seen: a look takes seconds on a busy machine.
    mover = subprocess.Popen([*command, "--rate", "25KB"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        until_s = time.monotonic() + PATIENCE_S
        while (
            not (found := re.search(r"^moving f: (.*)$", shown := top(hot), flags=re.MULTILINE))
            or "left" not in found[1]
        ):
            assert mover.poll() is None and time.monotonic() < until_s, "no move was shown"
        far = r"[\d.]+ [KM]iB of 1\.1 MiB"
        assert re.fullmatch(rf"{far}, [\d.]+ [KM]iB/s, [\d.]+ (m?s|min) left", found[1])
        # Both lines are of one look: by the next the move may have ended.
        assert re.search(rf"^  in all {far}, [\d.]+ (m?s|min) left$", shown, flags=re.MULTILINE)
    finally:
        mover.kill()
        mover.communicate()
    assert "moving" not in top(hot), "what was killed moves nothing"


def test_lines_fit_a_terminal_of_80_columns(hot):
    _, file = hot
    pool = Pool.load(file)
    adapting.reconsider(pool, adapting.Limits(horizon_s=1.0))
    teller = moving.Teller(pool, lambda *_: True)
    assert teller("a directory/" * 12 + "file.h5", 1 << 20, 8 << 20) is True
    process, terminal = pty.fork()
    if process == 0:
        os.environ.update(TERM="xterm", COLUMNS="80")
        command = [sys.executable, "-m", "stripewise", "top", "--pool", str(file), "--once"]
        os.execv(command[0], command)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 80, 0, 0))
    printed = b""
    while select.select([terminal], [], [], PATIENCE_S)[0]:
        try:
            more = os.read(terminal, 65536)
        except OSError:
            break
        if not more:
            break
        printed += more
    os.waitpid(process, 0)
    lines = re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", printed.decode()).splitlines()
    assert max(map(len, lines)) <= 80
    (of_move,) = [line for line in lines if line.startswith("moving ")]
    assert re.search(r"….*file\.h5: 512 KiB of 4\.0 MiB", of_move)
    assert [line for line in lines if line.startswith("hottest files")]


def test_what_is_told_of_a_move_is_checked_and_ends_with_the_one_that_tells(pool):
    loaded = Pool.load(pool.file)
    assert moving.now(loaded) is None
    clock = [10.0]
    teller = moving.Teller(loaded, lambda *_: "rest", lambda: clock[0])
    assert teller("a", 0, 100) == "rest"
    assert moving.now(loaded) == moving.Move("a", 0, 50, 0.0)
    assert cli_adapted._move(moving.Move("", 0, 0, 0.0)) == [], "between two files nothing moves"
    assert moving.now(loaded).left_s is None
    clock[0] += moving.TELL_S / 2
    teller("a", 10, 100)
    assert moving.now(loaded).copied_bytes == 0, "it tells some times a second"
    clock[0] += 2 - moving.TELL_S / 2
    teller("a", 40, 100)
    move = moving.now(loaded)
    assert (move.copied_bytes, move.bytes_per_s, move.left_s) == (20, 10.0, 3.0)
    teller("a longer name", 0, 8)
    teller("b", 4, 8)
    assert moving.now(loaded).path == "b" and moving.now(loaded).copied_bytes == 2
    # A second mover is not told of, and moves all the same.
    assert moving.Teller(loaded, lambda *_: True)("c", 1, 2) is True
    assert moving.now(loaded).path == "b"
    place = loaded.namespace / moving.STATE
    line = '{"path": "b", "done": 3, "total": 2, "took_s": 1}'
    huge = "1" + "0" * 400
    took_long = '{"path": "b", "done": 1, "total": 2, "took_s": %s}'
    of_huge = (took_long, took_long.replace("2", "%s").replace('_s": %s', '_s": 1'))
    cases = ("", "x", "[]", line, line.replace('"b"', "1").replace("3", "1"), line.replace("1}", '"x"}'))
    for wrong in (*cases, *(text % huge for text in of_huge)):
        place.write_text(wrong)
        assert moving.now(loaded) is None
    of_plan = '{"path": "b", "done": 1, "total": 2, "took_s": 1, "planned": [1, %s], "planned_s": %s}'
    for planned, planned_s in ((huge, 1), (10, huge)):
        place.write_text(of_plan % (planned, planned_s))
        assert moving.now(loaded).all_left_s is None, "what no move can have is not believed"
    del teller
    place.write_text(json.dumps({"path": "b", "done": 1, "total": 2, "took_s": 1.0}))
    assert moving.now(loaded) is None, "who told has ended"


def test_the_rate_of_a_move_of_all_files_is_that_since_it_began(pool):
    """A drain counts the bytes of all its files together."""
    loaded = Pool.load(pool.file)
    clock = [10.0]
    teller = moving.Teller(loaded, lambda *_: True, lambda: clock[0], of_all=True)
    teller("a", 0, 4000)
    clock[0] += 10
    teller("a", 1000, 4000)
    clock[0] += moving.TELL_S / 2
    teller("b", 2000, 4000)
    move = moving.now(loaded)
    assert (move.path, move.copied_bytes, move.all_bytes) == ("b", 1000, 2000)
    assert move.bytes_per_s == pytest.approx(1000 / (10 + moving.TELL_S / 2))


@pytest.mark.parametrize("of", ["settled", "decided"])
def test_files_of_one_plan_are_told_together(of, pool):
    """A small file says little of how long all of them take."""
    loaded, words, clock = Pool.load(pool.file), [], [10.0]

    def shown(path, done, total):
        words.append((path, done, total))
        return True

    plan = moving.Whole(shown) if of == "settled" else moved.Watched(loaded, None, shown)
    plan.plan(100)
    teller = moving.Teller(loaded, plan, lambda: clock[0])
    for path in ("a", "b"):
        for done in (0, 50, 100):
            clock[0] += 1
            teller(path, done, 100)
    assert words == [(path, done + before, 200) for path, before in (("a", 0), ("b", 100)) for done in (0, 50, 100)]
    move = moving.now(loaded)
    # A line has what was done before its word.
    assert move.planned == (75, 100) and move.all_left_s == pytest.approx(25 / 75 * 5)
    plan.plan(40)
    teller("c", 0, 80)
    assert moving.now(loaded).all_left_s is None, "another plan"
    plan.close()


def test_a_move_that_cannot_be_told_of_goes_on(pool):
    loaded = Pool.load(pool.file)
    (loaded.namespace / moving.STATE).mkdir()
    assert moving.Teller(loaded, lambda *_: True)("f", 1, 2) is True
    assert moving.now(loaded) is None
    assert pacing.Pacer.of(loaded, pacing.Pace(urgent=True), None)("f", 1, 2) is True


def test_top_updates_what_it_shows_of_decisions(pool):
    """One that comes while it runs."""
    loaded = Pool.load(pool.file)
    command = [sys.executable, "-m", "stripewise", "top", "--pool", str(pool.file), "--interval", "0.1"]
    running = subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)
    )
    try:
        assert any("Ctrl-C ends" in line for line in running.stdout)
        promoted = {"times": 2, "copied_bytes": 3 << 20}
        line = {"time_s": time.time(), "verdict": "kept", "why": "so it is", "promoted": promoted}
        adapting.state_file(loaded).write_text(json.dumps({**line, "plans": [7], "ratio": "x", "gain_s": True}) + "\n")
        assert any(re.fullmatch(r"adapt, .* ago: kept: so it is\n", line) for line in running.stdout)
        assert "promoted before it: 2 times, 3.0 MiB copied" in running.stdout.readline()
    finally:
        running.send_signal(signal.SIGINT)
        running.communicate(timeout=PATIENCE_S)


def test_top_shows_servers_that_come_and_no_longer_those_that_have_gone(pool, tmp_path):
    command = [sys.executable, "-m", "stripewise", "top", "--pool", str(pool.file), "--interval", "0.1"]
    running = subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)
    )
    until_s = time.monotonic() + PATIENCE_S

    def lines():
        for line in running.stdout:
            assert time.monotonic() < until_s, "top does not show it"
            yield line

    try:
        assert any("Ctrl-C ends" in line for line in lines())
        (tmp_path / "more").mkdir()
        pool.stripewise("pool", "add", pool.file, tmp_path / "more", "--tier", "hdd", "--no-fill")
        assert any(line.startswith("hdd.3 ") for line in lines())
        pool.stripewise("pool", "remove", pool.file, "hdd.3")
        titles = 0
        for line in lines():
            titles = 0 if line.startswith("hdd.3 ") else titles + ("Ctrl-C ends" in line)
            if titles == 3:
                break
        assert titles == 3
    finally:
        running.send_signal(signal.SIGINT)
        running.communicate(timeout=PATIENCE_S)


def section(decisions):
    """The section of the report of a pool with these decisions, as words."""
    facts = SimpleNamespace(adapted=Adapted([], decisions))
    return re.sub(r"<[^>]*>|\s+", " ", str(adapted.draw(facts)))


def test_the_report_counts_all_that_a_decision_has_copied():
    promoted = {"times": 3, "copied_bytes": 5 << 20}
    relief = [{"tier": "ssd", "copied_bytes": 2 << 20}, {"tier": "hdd", "copied_bytes": "x"}, 7]
    line = {"time_s": 1.0, "verdict": "moved", "copied_bytes": 64 << 20, "promoted": promoted, "relief": relief}
    shown = section([{**line, "small_files": {"copied_bytes": 4 << 20}, "planner": "regions"}])
    assert "75.0 MiB" in shown
    assert "regions, relief of ssd, relief of hdd, after 3 promotions" in shown
    assert "5.0 MiB" in section([{"time_s": 1.0, "verdict": "kept", "promoted": promoted}])
    for wrong in (True, -5, "5", None, [5]):
        assert " 0 B " in section(
            [{"time_s": 1.0, "verdict": "kept", "promoted": {"copied_bytes": wrong, "times": wrong}}]
        )
