"""`stripewise survey`: many logs, of which some are broken."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import darshan
import pytest

import stripewise as sw
from conftest import BIN, PATIENCE_S
from stripewise import surveying
from stripewise.api.survey import summed_up

LOGS = {log.name: log for log in Path(darshan.__file__).parent.rglob("*.darshan")}


@pytest.fixture
def logs(tmp_path):
    """Three whole logs, a cut one, one that is none, and what is no log at all."""
    folder = tmp_path / "logs"
    (folder / "deep").mkdir(parents=True)
    for name in ("sample-badost.darshan", "sample-goodost.darshan"):
        shutil.copy(LOGS[name], folder / name)
    (folder / "deep" / "a.csv").write_text(
        "file,op,offset,size\n/data/run7/out,write,0,1000\n/data/run8/out,read,0,24\n"
    )
    (folder / "cut.darshan").write_bytes(LOGS["sample-badost.darshan"].read_bytes()[:2000])
    (folder / "README.md").write_text("These are logs.\n")
    os.mkfifo(folder / "pipe")
    return folder


def surveyed(stripewise, *arguments, **options):
    done = stripewise("survey", *arguments, "--json", **options)
    return json.loads(done.stdout)


def test_logs_are_summed_up_and_a_bad_one_stops_nothing(logs, stripewise):
    document = surveyed(stripewise, logs)
    assert document["schema"] == {"name": "stripewise-survey", "version": 1}
    assert [Path(log["log"]).name for log in document["logs"]] == [
        "a.csv",
        "sample-badost.darshan",
        "sample-goodost.darshan",
    ]
    (failed,) = document["failed"]
    assert failed["log"] == str(logs / "cut.darshan") and "cut.darshan" in failed["error"]
    total = document["total"]
    assert (total["logs"], total["failed"]) == (4, 1)
    summaries = [sw.read(log["log"]).summary()["files"] for log in document["logs"]]
    for side, key in (("reads", "read_bytes"), ("writes", "written_bytes")):
        moved = sum(file[side]["bytes"] for files in summaries for file in files)
        assert total[key] == moved
        for group in ("applications", "users", "directories", "days"):
            assert sum(row[key] for row in document[group]) == moved
    assert {row["name"]: row["logs"] for row in document["applications"]}["ior"] == 2
    # Named alike but for numbers, in one log: the numbers that differ are stars.
    assert "/data/run*" in [row["name"] for row in document["directories"]]
    # Standard output is in no directory, and of a log without times there is no sum of times.
    assert "(no directory)" in [row["name"] for row in document["directories"]]
    assert [row["logs"] for row in document["applications"] if row["busy_s"] is None] == [1]
    slow = next(row for row in document["findings"] if row["kind"] == "slow-server")
    assert (slow["logs"], slow["applications"]) == (1, ["ior"])
    csv = document["logs"][0]
    assert csv["busy_s"] is None and "--cluster" in csv["no_rules"] and csv["rules"] == []
    assert set(csv["job"]) == {"id", "user", "command", "nodes"}


def test_a_rule_gains_over_all_what_the_sum_of_the_times_gains(logs, stripewise, one_waits):
    cluster = logs / "orion.toml"
    cluster.write_text(
        'name = "orion"\nfile_system = "lustre"\n[[tier]]\nname = "hdd"\nservers = 4\npreset = "hdd-7200"\n'
    )
    document = surveyed(stripewise, one_waits, logs / "sample-goodost.darshan", "--cluster", cluster)
    # Of a log that no model of servers gives, no rule is told.
    (bad, good) = sorted(document["logs"], key=lambda log: len(log["rules"]))
    assert bad["rules"] == [] and "after fitting, the model gives" in bad["no_rules"]
    rules = {rule["name"]: rule for rule in document["rules"]}
    assert len(rules) == 7 and "all x 1MiB" in rules
    for own in good["rules"]:
        rule = rules[own["name"]]
        assert rule["gain"] == pytest.approx(own["ratio"])
        assert rule["low"] <= rule["gain"] <= rule["high"]
        assert rule["logs"] == 1 and rule["faster"] == int(own["low"] >= 1.03)
    assert [rule["gain"] for rule in document["rules"]] == sorted(
        (rule["gain"] for rule in rules.values()), reverse=True
    )
    assert not surveyed(stripewise, logs, "--no-rules")["rules"]


def test_what_is_printed_begins_with_the_sum_and_ends_with_what_failed(logs, stripewise):
    done = stripewise("survey", logs, prefix=["sh", "-c", 'exec "$@" 2>&1', "sh"])
    lines = done.stdout.splitlines()
    assert lines[0].startswith("4 logs, 1 of them could not be read: ")
    assert lines[-1].startswith("warning: ") and "cut.darshan" in lines[-1]
    assert any(line.startswith("no rule was tried on 1 log: ") for line in lines)
    assert any(line.startswith("progressive: 1 server up to 256MiB") for line in lines)
    for heading in ("all files on", "application", "directory", "day (UTC)"):
        assert any(line.startswith(heading) for line in lines), heading


def test_no_log_at_all_and_only_bad_ones(tmp_path, stripewise, logs):
    empty = tmp_path / "empty"
    empty.mkdir()
    refused = stripewise("survey", empty, check=False)
    assert refused.returncode == 1 and f"there is no log in {empty}" in refused.stderr
    bad = stripewise("survey", logs / "cut.darshan", tmp_path / "missing", "--json", check=False)
    assert bad.returncode == 1
    document = json.loads(bad.stdout)
    assert [entry["log"] for entry in document["failed"]] == [str(logs / "cut.darshan"), str(tmp_path / "missing")]
    wrong = stripewise("survey", logs, "--cluster", logs / "README.md", check=False)
    assert wrong.returncode == 1 and "README.md" in wrong.stderr and wrong.stdout == ""


def test_a_directory_of_logs_is_not_said_to_lack_the_preload_library(logs, stripewise):
    for command in (["show", logs], ["advise", logs], ["report", logs, "-o", logs / "r.html"]):
        refused = stripewise(*command, check=False)
        assert refused.returncode == 1
        assert "a directory of 3 logs" in refused.stderr and f"stripewise survey {logs}" in refused.stderr


def test_files_of_a_tracer_hide_no_logs_beside_them(logs):
    """A directory of a tracer's files alone is one log; with others in it, each file is."""
    event = (
        '{"id":0,"name":"write","cat":"POSIX","pid":1,"tid":1,"ts":1,"dur":2,"ph":"X","args":{"fname":"/f","ret":9}}'
    )
    own = logs / "own"
    own.mkdir()
    for number in range(3):
        (own / f"{number}.pfw").write_text(f"[\n{event}\n")
    assert own in surveying.logs_of([logs])
    whole = {path.name for path in surveying.logs_of([logs])}
    shutil.copy(LOGS["sample-badost.darshan"], own / "a.darshan")
    mixed = {path.name for path in surveying.logs_of([logs])}
    assert mixed == whole - {"own"} | {"0.pfw", "1.pfw", "2.pfw", "a.darshan"}
    assert {path.name for path in surveying.logs_of([own])} == {"0.pfw", "1.pfw", "2.pfw", "a.darshan"}


def test_a_process_that_dies_takes_one_log_with_it(logs, monkeypatch):
    """The process is killed in the middle of a log: the next logs are read by another one."""
    wanted = [logs / "sample-badost.darshan", logs / "deep" / "a.csv", logs / "sample-goodost.darshan"]
    kill = f"import os, signal; os.kill(os.getpid(), signal.{signal.SIGKILL.name})"
    started = subprocess.Popen
    commands = []

    def first_dies(command, **options):
        commands.append(command)
        return started([sys.executable, "-c", kill] if len(commands) == 1 else command, **options)

    monkeypatch.setattr(surveying.subprocess, "Popen", first_dies)
    found = {entry["log"]: entry for entry in surveying.by_processes(wanted, surveying.Asked(), 1, lambda *_: None)}
    failed = [log for log, entry in found.items() if entry["error"]]
    assert failed == [str(wanted[0])]
    assert "died of signal 9" in found[failed[0]]["error"]
    assert len(commands) == 2 and all(found[str(log)]["requests"] for log in wanted[1:])


def test_an_ended_survey_leaves_no_process(logs):
    entries = surveying.by_processes([logs / "deep" / "a.csv"] * 3, surveying.Asked(), 2, lambda *_: None)
    next(entries)
    entries.close()
    children = subprocess.run(["ps", "--ppid", str(os.getpid()), "-o", "args="], capture_output=True, text=True).stdout
    assert "surveying" not in children


def test_damaged_logs_of_any_kind_are_entries(tmp_path):
    """Bytes of a real log changed at random: each log is an entry, with figures or an error that names it."""
    whole = LOGS["sample-goodost.darshan"].read_bytes()
    draw = random.Random(7)
    paths = []
    for number in range(12):
        damaged = bytearray(whole[: draw.randrange(len(whole) // 2, len(whole))])
        for _ in range(8):
            damaged[draw.randrange(len(damaged))] = draw.randrange(256)
        paths.append(tmp_path / f"{number}.darshan")
        paths[-1].write_bytes(damaged)
    document = summed_up(list(surveying.by_processes(paths, surveying.Asked(rules=False), 2, lambda *_: None)))
    assert document["total"]["logs"] == 12 == len(document["logs"]) + len(document["failed"])
    assert all(Path(entry["log"]).name in entry["error"] for entry in document["failed"])


def test_dask_workers_read_the_logs_themselves(logs, stripewise, tmp_path):
    """The output is that of a run alone."""
    started = []

    def start(*arguments):
        with (tmp_path / f"{arguments[0]}.out").open("wb") as out:
            command = [BIN / "dask", *arguments, "--no-dashboard"]
            started.append(subprocess.Popen(command, cwd=tmp_path, stdout=out, stderr=out))

    try:
        file = tmp_path / "scheduler.json"
        start("scheduler", "--host", "127.0.0.1", "--port", "0", "--scheduler-file", str(file))
        end = time.monotonic() + PATIENCE_S
        while not (file.exists() and file.read_text().endswith("}")):
            assert time.monotonic() < end
            time.sleep(0.01)
        address = json.loads(file.read_text())["address"]
        start("worker", address, "--no-nanny", "--nthreads", "1", "--local-directory", str(tmp_path / "scratch"))
        while (done := stripewise("survey", logs, "--dask", address, "--json", check=False)).returncode:
            assert time.monotonic() < end, done.stderr
        assert done.stdout == stripewise("survey", logs, "--json").stdout
    finally:
        for process in started:
            process.kill()
            process.wait()
