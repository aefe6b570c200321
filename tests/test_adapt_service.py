"""`adapt` as a service: it goes on where decisions fail, and knows the servers that come and go meanwhile."""

import fcntl
import json
import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from stripewise import StripewiseError
from stripewise.api import adapt as adapting
from stripewise.api import adapt_service, asking, metrics
from stripewise.api.adapt_service import Wanted
from stripewise.api.between import Rounds
from stripewise.pool import Pool

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
    assert "moved_files" not in held["relief"][0]
    free = adapting.reconsider(pool, limits, pace=adapt_service.Pace(urgent=True))
    assert free["relief"][0]["moved_files"] == 1


def test_a_pool_that_could_never_be_adapted_is_refused_at_once(pool):
    refused = pool.stripewise("adapt", pool.file, check=False)
    assert refused.returncode == 1 and "has no profile" in refused.stderr


def test_a_service_that_does_not_answer_is_told_of(file, monkeypatch):
    pool, said = Pool.load(file), []
    monkeypatch.setattr(asking, "TAKE_S", 0.3)
    with adapting.alone(pool), pytest.raises(StripewiseError, match="has not answered for 0 s: it may be moving data"):
        asking.answer(pool, said.append)
    assert len(said) == 1 and not asking.is_waiting(pool), "it takes its question back"
    monkeypatch.setattr(asking, "LIVES_S", 0.1)
    monkeypatch.setattr(asking, "TAKE_S", 60.0)
    with pytest.raises(StripewiseError, match="has ended without an answer"):
        asking.answer(pool, said.append)


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
        said = stripewise("adapt", file, "--once", "--dry-run", "--json")
    assert json.loads(said.stdout)["dry_run"] and adapting.decisions(pool) == []
