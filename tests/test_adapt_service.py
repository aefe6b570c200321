"""`adapt` as a service: it goes on where decisions fail, and knows the servers that come and go meanwhile."""

import errno
import fcntl
import json
import os
import secrets
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext

import pytest

from conftest import BIN, PATIENCE_S, with_a_stuck_planner
from stripewise import StripewiseError, _native
from stripewise.api import adapt as adapting
from stripewise.api import (
    adapt_service,
    asking,
    between,
    ending,
    kept_lines,
    landing,
    leaving,
    metrics,
    moved,
    moving,
    owned,
    promotion,
    relief,
    small_files,
)
from stripewise.api.adapt_service import Wanted
from stripewise.api.between import Rounds
from stripewise.api.files import open_pool
from stripewise.api.pacing import Pace
from stripewise.pool import Pool
from stripewise.units import about_bytes


def asks(pool):
    """The file of a question, as of a command that waits."""
    owned.make_directory(asking._directory(pool))
    with owned.directory(asking._directory(pool)) as directory:
        owned.make(directory, name := secrets.token_hex(8))
    return asking._directory(pool) / name


WRITE = "import sys; open(f'{sys.argv[1]}/young', 'wb').write(bytes(range(250)) * 4000)"


@pytest.fixture
def file(tmp_path, stripewise):
    """An emulated pool with heat, where files land on the SSD; times are a hundredth of the real ones."""
    base = tmp_path / "p"
    stripewise("pool", "init", base, "--emulate", "--hdd", "2", "--ssd", "1", "--dilation", "0.01")
    file = base / "pool.toml"
    file.write_text(file.read_text().replace("[default]\n", '[default]\nland = "ssd"\n') + "\n[heat]\n")
    return file


@contextmanager
def layouts_are_changed_by_another(pool):
    """The lock that a drain has while it moves files."""
    descriptor = os.open(pool.namespace / "locks" / f"apply.{os.geteuid()}", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def test_it_goes_on_after_decisions_that_fail_until_the_pool_file_is_gone(file, monkeypatch):
    decide, faults = Rounds.decide, [StripewiseError("the disk is tired"), ValueError("a fault")]

    def fails_first(*arguments, **options):
        if faults:
            raise faults.pop(0)
        return decide(*arguments, **options)

    monkeypatch.setattr(Rounds, "decide", fails_first)
    service = adapt_service.run(file, Wanted(promote_s=0.0, period_s=0.0))
    assert next(service)["why"] == "the disk is tired"
    assert next(service)["why"] == "unexpected ValueError: a fault"
    assert next(service)["verdict"] == "kept"
    assert [of["verdict"] for of in adapting.decisions(Pool.load(file))] == ["failed", "failed", "kept"]
    file.unlink()
    with pytest.raises(StripewiseError, match="is gone"):
        next(service)


def test_servers_that_came_are_known_to_decisions_and_metrics(pool, monkeypatch):
    known, asked = [], metrics.activity.sources
    monkeypatch.setattr(metrics.activity, "sources", lambda of: known.append(len(of.servers)) or asked(of))
    monkeypatch.setattr(Pool, "require_profiles", lambda _: None)
    monkeypatch.setattr(adapt_service.Rounds, "__init__", lambda *_: None)
    monkeypatch.setattr(adapt_service.Rounds, "until_due", lambda *_: iter(()))
    decided = []
    monkeypatch.setattr(
        adapt_service.Rounds, "decide", lambda _, of, *__, **___: decided.append(len(of.servers)) or {"verdict": "kept"}
    )
    collector = metrics._PoolCollector(Pool.load(pool.file))
    service = adapt_service.run(pool.file, Wanted(period_s=0.0))
    next(service)
    list(collector.collect())
    more = pool.base / "disks" / "more"
    more.mkdir()
    pool.stripewise("pool", "add", pool.file, more, "--tier", "hdd")
    next(service)
    list(collector.collect())
    assert (decided, known) == ([4, 5], [4, 5])


def test_a_drain_that_changes_layouts_keeps_no_decision_from_being_made(file, stripewise):
    pool = Pool.load(file)
    stripewise("run", "--quiet", "--pool", file, "--", "python3", "-c", WRITE, pool.mount)
    limits = adapting.Limits()
    with layouts_are_changed_by_another(pool):
        held = adapting.reconsider(pool, limits, pace=adapt_service.Pace(urgent=True))
    assert held["verdict"] == "kept" and "is under way" in held["relief"][0]["why"]
    assert "moved_files" not in held["relief"][0] and held["relief"][0]["copied_bytes"] == 0
    free = adapting.reconsider(pool, limits, pace=adapt_service.Pace(urgent=True))
    assert free["relief"][0]["moved_files"] == 1


def test_a_pool_that_could_never_be_adapted_is_refused_at_once(pool):
    refused = pool.stripewise("adapt", pool.file, check=False)
    assert refused.returncode == 1 and "has no profile" in refused.stderr


def test_a_service_that_does_not_answer_is_told_of(file, monkeypatch):
    pool, said = Pool.load(file), []
    monkeypatch.setattr(asking, "TAKE_S", 0.3)
    refused = "has moved nothing and not answered for 0 s"
    with adapting.alone(pool), pytest.raises(StripewiseError, match=refused):
        asking.answer(pool, said.append)
    assert len(said) == 1 and not asking.is_waiting(pool), "it takes its question back"
    monkeypatch.setattr(asking, "LIVES_S", 0.1)
    monkeypatch.setattr(asking, "TAKE_S", 60.0)
    with pytest.raises(StripewiseError, match="has ended without an answer"):
        asking.answer(pool, said.append)


def test_a_service_that_takes_a_question_and_never_answers_is_told_of(file):
    """As one that hangs while it plans, or cannot write its line."""
    pool, now_s, said = Pool.load(file), [0.0], []

    def show(_):
        now_s[0] += asking.TAKE_S / 4
        assert now_s[0] < 9 * asking.TAKE_S, "it waits for ever"
        if now_s[0] == asking.TAKE_S / 2:
            assert len(asking.take(pool)) == 1

    with adapting.alone(pool), pytest.raises(StripewiseError, match="has moved nothing and not answered for 600 s"):
        asking.answer(pool, said.append, show, lambda: now_s[0])
    assert "it decides" in said[-1] and now_s[0] > 1.5 * asking.TAKE_S, "it has its time from when it takes that on"


@pytest.mark.parametrize("is_read_only", [False, True])
def test_what_cannot_be_removed_is_no_question_and_no_decision_is_made_for_it(file, monkeypatch, is_read_only):
    """A directory among them, or a question as the namespace turns read-only."""
    pool, unlink = Pool.load(file), os.unlink
    directory = asks(pool).parent
    assert asking.is_waiting(pool)
    if is_read_only:
        monkeypatch.setattr(os, "unlink", lambda *_, **__: (_ for _ in ()).throw(OSError(errno.EROFS, "read-only")))
        assert asking.take(pool) == []
        (later,) = (of.name for of in directory.iterdir())
    else:
        (directory / "a directory").mkdir()
        (later,) = (of.name for of in directory.iterdir() if of.is_file())
        assert asking.take(pool) == [later], "it goes on past the other one"
        later = asks(pool).name
        assert asking.is_waiting(pool)
        assert asking.take(pool) == [later]
    assert not asking.is_waiting(pool)
    slept = []
    monkeypatch.setattr(adapt_service.time, "sleep", slept.append)
    adapt_service._wait(pool, 600.0, lambda: len(slept) < 3)
    assert slept == [adapt_service.LOOK_S] * 3, "it waits"
    if is_read_only:
        # Once it can be written again, the next one takes it.
        monkeypatch.setattr(os, "unlink", unlink)
        assert (asking.take(pool), asking.is_waiting(pool)) == ([later], False)


def test_a_service_that_waits_sleeps_also_where_it_is_asked_again_and_again(file, monkeypatch):
    pool, slept = Pool.load(file), []
    asks(pool)
    monkeypatch.setattr(adapt_service.time, "sleep", slept.append)
    adapt_service._wait(pool, 600.0, lambda: True)
    assert slept == [adapt_service.LOOK_S]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes files for another user")
def test_what_root_makes_in_the_namespace_of_a_user_belongs_to_that_user(pool, tmp_path, monkeypatch):
    """So that a service of the user finds what root asks, and the user may adapt the pool as before."""
    loaded = Pool.load(pool.file)
    namespace = loaded.namespace
    os.chown(namespace, 65534, 65533)
    before = {of.name for of in namespace.iterdir()}
    (secret := tmp_path / "secret").write_bytes(b"")
    os.link(secret, namespace / moving.STATE)
    monkeypatch.setattr(kept_lines, "MOST_BYTES", 1)
    with adapting.alone(loaded):
        question = asks(loaded)
        for _ in range(2):
            adapting.failed(loaded, StripewiseError("the disk is tired"))
            moved.record(loaded, {"what": "copied", "path": "f", "copied_bytes": 1})
        leaving._keep(loaded, {1: (0, 1)})
        small_files._keep(loaded, {1: (1.0, None)})
        moving.Teller(loaded, lambda *_: True)("f", 0, 1)
    made = [of for of in (*namespace.iterdir(), question) if of.name not in {*before, moving.STATE}]
    assert len(made) == 9 and {(of.stat().st_uid, of.stat().st_gid) for of in made} == {(65534, 65533)}
    assert {of.stat().st_mode & 0o077 for of in made} == {0}
    assert secret.stat().st_uid == 0, "what is there is not given away, as it may be another name of what is root's"
    (namespace / moving.STATE).unlink()
    moving.Teller(loaded, lambda *_: True)("f", 0, 1)
    assert (namespace / moving.STATE).stat().st_uid == 65534
    (namespace / adapting.LOCK).unlink()
    (namespace / adapting.LOCK).symlink_to(secret)
    with pytest.raises(StripewiseError, match="cannot be written"), adapting.alone(loaded):
        pass


def test_a_service_that_moves_data_is_waited_for_and_its_move_is_told(hot, monkeypatch):
    """Each word of the move takes longer by the clock of the one that asks, until that has waited for long."""
    pool, now_s, shown, told = Pool.load(hot[1]), [0.0], [], []
    said, answers, clients = [], [], ThreadPoolExecutor(1)
    monkeypatch.setattr(asking, "LOOK_S", 0.001)
    monkeypatch.setattr(moving, "TELL_S", 0.0)

    def show(move):
        if move is not None and move not in shown:
            shown.append(move)
            now_s[0] += asking.TAKE_S / 8

    def progress(*_):
        if not answers:
            answers.append(clients.submit(asking.answer, pool, said.append, show, lambda: now_s[0]))
        told.append(0)
        while len(shown) < min(len(told), 20) and not answers[0].done():
            time.sleep(0.001)
        return True

    # So that it rests, and tells of its rests.
    wanted = Wanted(adapting.Limits(87_600 * 3600), pace=Pace(rate_bytes_per_s=500_000), promote_s=0.0, period_s=0.0)
    with adapting.alone(pool), clients:
        service = adapt_service.run(pool.file, wanted, lambda: nullcontext(progress))
        first, second = next(service), next(service)
        answer = answers[0].result()
        assert answer["asked"] == second["asked"] and len(answer["asked"]) == 1
    assert first["verdict"] == "moved" and "asked" not in first
    moves = [words for words in said if words.startswith("it moves")]
    whole = about_bytes(first["moved_bytes"])
    assert all(words.startswith("it moves f: ") and words.endswith("; the decision follows") for words in moves)
    assert all(f" of {whole}" in words.split("; in all ")[1] for words in moves), moves
    assert said.index(moves[0]) < said.index("it decides, and moves what pays; Ctrl-C ends this command alone")
    assert {move.path for move in shown} == {"f"} and now_s[0] > 2 * asking.TAKE_S


def test_one_that_asks_a_process_that_ends_decides_by_itself(file, stripewise):
    """As beside another `--once`, which takes no question."""
    pool = Pool.load(file)
    with ThreadPoolExecutor(1) as client:
        with adapting.alone(pool):
            asked = client.submit(stripewise, "adapt", file, "--once")
            while not asking.is_waiting(pool) and not asked.done():
                time.sleep(0.01)
        done = asked.result()
    assert "has ended without an answer, so that this command decides" in done.stderr
    (decision,) = adapting.decisions(pool)
    assert decision["verdict"] == "kept" and "asked" not in decision and not asking.is_waiting(pool)


def test_a_decision_that_fails_is_the_answer_too(file, stripewise, monkeypatch):
    pool = Pool.load(file)

    def fails(*_, **__):
        raise StripewiseError("the disk is tired")

    monkeypatch.setattr(Rounds, "decide", fails)
    with adapting.alone(pool), ThreadPoolExecutor(1) as client:
        service = adapt_service.run(file, Wanted(promote_s=0.0))
        next(service)
        asked = client.submit(stripewise, "adapt", file, "--once", check=False)
        assert next(service)["verdict"] == "failed", "it does not wait for ten minutes"
        done = asked.result()
    assert done.returncode == 1 and "the disk is tired" in done.stderr


def test_a_dry_run_beside_a_service_decides_by_itself(file, stripewise):
    pool = Pool.load(file)
    with adapting.alone(pool):
        (line,) = stripewise("adapt", file, "--once", "--dry-run", "--json").stdout.splitlines()
    assert json.loads(line)["dry_run"] and adapting.decisions(pool) == []


def test_a_service_prints_a_line_of_json_for_each_decision(file, stripewise):
    """It fails with the pool file, which goes once there are two lines."""
    pool = Pool.load(file)
    command = [BIN / "stripewise", "adapt", file, "--period", "1", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as service:
        lines = [service.stdout.readline() for _ in range(2)]
        file.unlink()
        lines += service.stdout.read().splitlines()
        assert "is gone" in service.stderr.read() and service.wait() == 1
    kept = [of["verdict"] for of in adapting.decisions(pool)]
    assert [json.loads(line)["verdict"] for line in lines] == kept[:-1] and kept[-1] == "failed"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_service_that_systemd_stops_or_whose_terminal_is_closed_leaves_nothing_behind(hot, tmp_path, number):
    """The signal comes while it plans, with what it plans from in a directory of its own."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    # Tests that run under `nohup` ignore SIGHUP, and so would what they start.
    command = ["env", "--default-signal=HUP", BIN / "stripewise", "adapt", hot[1], "--period", "1", "--promote", "0"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, env={**os.environ, "TMPDIR": str(scratch)}) as service:
        end_s = time.monotonic() + PATIENCE_S
        while not list(scratch.iterdir()):
            assert time.monotonic() < end_s and service.poll() is None
        service.send_signal(number)
        assert service.wait(PATIENCE_S) == -number
    assert list(scratch.iterdir()) == []
    with adapting.alone(Pool.load(hot[1])):
        pass


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, -signal.SIGTERM), (signal.SIGINT, 130)])
def test_a_signal_ends_a_service_at_once_whose_planner_takes_long(hot, tmp_path, number, code):
    """With nothing left behind. A planner may calculate for minutes, and knows of no signals."""
    variables, begun = with_a_stuck_planner(tmp_path)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    command = ["env", "--default-signal=INT", BIN / "stripewise", "adapt", hot[1], "--promote", "0"]
    environment = {**os.environ, **variables, "TMPDIR": str(scratch)}
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, env=environment) as service:
        try:
            end_s = time.monotonic() + PATIENCE_S
            while not begun.exists():
                assert time.monotonic() < end_s and service.poll() is None
                time.sleep(0.05)
            assert list(scratch.iterdir())
            service.send_signal(number)
            assert service.wait(PATIENCE_S) == code
        finally:
            service.kill()
    assert list(scratch.iterdir()) == []
    with adapting.alone(Pool.load(hot[1])):
        pass


def test_what_is_waited_for_beside_signals_gives_and_raises_what_it_would_without():
    def fail():
        raise TimeoutError("of the call")

    assert ending.heeding(lambda: 7) == 7
    with pytest.raises(TimeoutError, match="of the call"):
        ending.heeding(fail)
    with ThreadPoolExecutor(1) as other:
        assert other.submit(ending.heeding, lambda: 8).result() == 8


def test_a_sighup_that_is_ignored_ends_nothing():
    """As by `nohup`."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with ending.tidy_end():
            os.kill(os.getpid(), signal.SIGHUP)
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("late", ["mount", "directory"])
def test_a_server_that_is_mounted_late_is_waited_for_and_nothing_moves_because_of_it(hot, late, monkeypatch):
    """Its directory is not there yet, or is the one over which it will be mounted."""
    pool, now_s = Pool.load(hot[1]), [0.0]
    layout = _native.file_stat(str(pool.file), "f")["regions"]
    (hdd,) = (server.path for server in pool.servers if server.name == "hdd.1")
    away = hdd.with_name("away")
    hdd.rename(away)
    if late == "mount":
        hdd.mkdir()
    monkeypatch.setattr(adapt_service, "LOOK_S", 0.01)
    limits = adapting.Limits(87_600 * 3600)
    service = adapt_service.run(pool.file, Wanted(limits, promote_s=0.0, period_s=0.0), clock=lambda: now_s[0])
    with adapting.alone(pool), ThreadPoolExecutor(1) as client:
        held = next(service)
        assert (held["verdict"], held["away"]) == ("kept", ["hdd.1"])
        assert held["why"].startswith("hdd.1 is not there: nothing moves until it is, or for 600")
        asked = client.submit(asking.answer, pool, lambda _: None)
        assert next(service)["verdict"] == "kept" and asked.result()["away"] == ["hdd.1"], "it says so when it is asked"
        assert _native.file_stat(str(pool.file), "f")["regions"] == layout
        decided = client.submit(next, service)
        if late == "mount":
            hdd.rmdir()
        away.rename(hdd)
        decision = decided.result()
    assert decision["verdict"] == "moved" and "away" not in decision, "it decides as soon as it is there"


def test_a_server_that_goes_with_the_namespace_is_waited_for_without_a_decision_after_the_other(hot, monkeypatch):
    """Both are on one disk where `pool init` makes them."""
    pool = Pool.load(hot[1])
    ssd = next(server.path for server in pool.servers if server.name == "ssd.0")
    slept, gone = [], [(ssd, ssd.with_name("away")), (pool.namespace, pool.namespace.with_name("names away"))]

    def sleep(seconds):
        slept.append(seconds)
        for here, there in gone:
            there.rename(here)

    service = adapt_service.run(pool.file, Wanted(promote_s=0.0, period_s=20.0))
    monkeypatch.setattr(between, "SHORT_S", 0.05)
    with adapting.alone(pool):
        assert next(service)["verdict"] != "failed"
        for here, there in gone:
            here.rename(there)
        monkeypatch.setattr(adapt_service.time, "sleep", sleep)
        held = next(service)
        assert held["verdict"] == "failed" and held["why"].startswith("ssd.0 is not there: nothing moves until it is")
        assert "cannot be written, so that the decision is not kept" in held["why"]
        assert next(service)["verdict"] != "failed"
    assert slept == [adapt_service.LOOK_S], "it decides when both are there again, and not before"


def test_a_server_that_stays_away_keeps_the_rest_of_the_pool_for_a_time_only(hot):
    pool, now_s = Pool.load(hot[1]), [0.0]
    layout = _native.file_stat(str(pool.file), "f")["regions"]
    (hdd,) = (server.path for server in pool.servers if server.name == "hdd.1")
    hdd.rename(hdd.with_name("away"))
    limits = adapting.Limits(87_600 * 3600)
    service = adapt_service.run(pool.file, Wanted(limits, promote_s=0.0, period_s=0.0), clock=lambda: now_s[0])
    with adapting.alone(pool):
        assert "is not there" in next(service)["why"]
        now_s[0] = adapt_service.AWAY_S
        decision = next(service)
    # What has a part there cannot be read, and stays.
    assert (decision["verdict"], decision["why"]) == ("kept", "no file that would gain can move now")
    assert decision["away"] == ["hdd.1"] and decision["skipped"][0]["path"] == "f"
    assert _native.file_stat(str(pool.file), "f")["regions"] == layout


def test_a_server_that_comes_and_goes_is_waited_for_no_longer_than_one_that_stays_away(pool, monkeypatch):
    loaded, now_s, away = Pool.load(pool.file), [0.0], []
    monkeypatch.setattr(adapting, "away", lambda _: list(away))
    servers = adapt_service._Away(lambda: now_s[0])

    def looked(after_s, *names):
        now_s[0] += after_s
        away[:] = names
        return servers.waited_for(loaded)

    assert looked(0, "hdd.1") == {"hdd.1": 600}
    assert looked(400) == {}
    assert looked(10, "hdd.1", "hdd.0") == {"hdd.1": 200, "hdd.0": 600}
    assert looked(150, "hdd.1", "hdd.0") == {"hdd.1": 50, "hdd.0": 450}
    assert looked(50, "hdd.1") == {}, "it was away for ten minutes in all"
    assert looked(1) == looked(599) == {}
    assert looked(0, "hdd.1", "hdd.0") == {"hdd.0": 600}, "the other one was there for a second less"
    assert looked(1) == looked(600) == {}
    assert looked(1, "hdd.1", "hdd.0") == {"hdd.1": 600, "hdd.0": 600}


@pytest.mark.parametrize("promote_s", [0.0, 0.01])
def test_a_server_that_goes_between_two_decisions_is_waited_for(hot, promote_s, monkeypatch):
    """What is looked at until the next decision is due would be moved."""
    pool = Pool.load(hot[1])
    hdd = next(server.path for server in pool.servers if server.name == "hdd.1")
    moved_without, goes = [], [lambda: hdd.rename(hdd.with_name("away"))]

    def look(*_, **__):
        # The first look finds it there; it goes before the next one.
        if goes:
            goes.pop()()
        elif not hdd.exists():
            moved_without.append(0)

    monkeypatch.setattr(promotion.Promoter, "look", look)
    monkeypatch.setattr(landing.Mark, "look", look)
    monkeypatch.setattr(between, "SHORT_S", 0.05)
    service = adapt_service.run(pool.file, Wanted(promote_s=promote_s, period_s=20.0))
    with adapting.alone(pool):
        assert "away" not in next(service)
        held = next(service)
    assert held["away"] == ["hdd.1"] and held["why"].startswith("hdd.1 is not there: nothing moves until it is")
    assert moved_without == []


@pytest.mark.parametrize("fault", ["the namespace is full", "the pool file has a mistake"])
def test_a_decision_that_fails_while_a_server_is_away_is_made_again_with_the_next_period(hot, fault, monkeypatch):
    """Looks between two decisions end where a server is away: it would fail again and again without a wait."""
    pool, waited_s = Pool.load(hot[1]), []

    def has_no_room(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(adapt_service, "_wait", lambda _, seconds, __: waited_s.append(seconds))
    monkeypatch.setattr(between, "SHORT_S", 0.05)
    service = adapt_service.run(pool.file, Wanted(promote_s=0.0, period_s=20.0))
    with adapting.alone(pool):
        assert "away" not in next(service)
        hdd = next(server.path for server in pool.servers if server.name == "hdd.1")
        hdd.rename(hdd.with_name("away"))
        if fault == "the namespace is full":
            monkeypatch.setattr(kept_lines.Kept, "append", has_no_room)
        else:
            pool.file.write_text("name =\n")
        for before in range(3):
            assert next(service)["verdict"] == "failed"
            assert waited_s == [20.0] * before


def test_a_pool_on_which_files_land_needs_no_calibration_without_heat(pool):
    """The service moves what has landed, and plans nothing."""
    pool.file.write_text(pool.file.read_text().replace("[default]\n", '[default]\nland = "ssd"\n'))
    with open_pool(pool.file).open("f", "wb") as file:
        file.write(b"stripewise" * 100_000)
    loaded = Pool.load(pool.file)
    adapt_service.require(loaded)
    wanted = adapt_service.Wanted(pace=Pace(urgent=True))
    decision = next(adapt_service.run(pool.file, wanted))
    assert (decision["verdict"], decision["relief"][0]["moved_files"]) == ("kept", 1)
    assert "keeps no heat" in decision["why"] and relief.landed(loaded, None).leaving == ()
    assert adapting.move_s_per_byte(loaded) == float("inf"), "no promotion pays"
    pool.file.write_text(pool.file.read_text() + "\n[heat]\n")
    with pytest.raises(StripewiseError, match="has no profile"):
        adapt_service.require(Pool.load(pool.file))
