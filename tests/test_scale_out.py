"""`--dask`: on real schedulers and workers, of which one is killed in the middle of its work."""

import io
import json
import os
import random
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import darshan
import polars as pl
import pytest
from distributed import Client

from conftest import BIN, PATIENCE_S, Stripewise
from stripewise import StripewiseError, scale_out
from stripewise.cli import app

FOLDERS = [Path(darshan.__file__).parent] + [
    Path(os.environ[name]) for name in ["STRIPEWISE_TEST_DATA"] if name in os.environ
]
ALL = (log for folder in FOLDERS for log in folder.rglob("*.darshan") if log.stat().st_size < 4 << 20)
LOGS = sorted({log.name: log for log in ALL}.values())  # several folders have the same ones
(DXT,) = (log for log in LOGS if log.name == "dxt.darshan")
REPEATED = 250
"""Times that the requests of a real log are repeated where a worker has to be caught at its work."""


@dataclass
class Cluster:
    address: str
    workers: list[subprocess.Popen]


@contextmanager
def cluster(base, workers=3, allowed_failures=3, cwd=None, preload=None):
    """A scheduler and workers as `dask` starts them, each a process of its own."""
    base.mkdir(parents=True)
    environment = {
        **os.environ,
        "DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": str(allowed_failures),
        "DASK_DISTRIBUTED__WORKER__PRELOAD": str(preload or []),
    }
    started = []

    def start(name, *arguments):
        with (base / f"{name}.log").open("wb") as log:
            command = [BIN / "dask", *map(str, arguments), "--no-dashboard"]
            started.append(subprocess.Popen(command, cwd=cwd or base, env=environment, stdout=log, stderr=log))
        return started[-1]

    try:
        file = base / "scheduler.json"
        start("scheduler", "scheduler", "--host", "127.0.0.1", "--port", "0", "--scheduler-file", file)
        until(lambda: file.exists() and file.read_text().endswith("}"))
        address = json.loads(file.read_text())["address"]
        options = ["--no-nanny", "--nthreads", "1", "--local-directory", base / "scratch"]
        running = [start(f"worker-{number}", "worker", address, *options) for number in range(workers)]
        with Client(address, set_as_default=False) as client:
            until(lambda: len(client.nthreads()) == workers)
        yield Cluster(address, running)
    finally:
        for process in started:
            process.kill()
            process.wait()


def until(is_so):
    end = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < end, "it did not come to this"
        time.sleep(0.005)


@pytest.fixture(scope="module")
def three(tmp_path_factory):
    with cluster(tmp_path_factory.mktemp("dask") / "three") as running:
        yield running


@pytest.fixture(scope="module")
def repeated(tmp_path_factory):
    """A real log's requests, again and again, imported: a worker is at each batch for some tenths of a second."""
    base = tmp_path_factory.mktemp("repeated")
    stripewise = Stripewise(base)
    stripewise("show", DXT, "--parquet", "once.parquet")
    once = pl.read_parquet(base / "once.parquet")
    turn_ns = once["end_ns"].max()
    turns = (
        once.with_columns(pl.col("start_ns") + turn_ns * number, pl.col("end_ns") + turn_ns * number)
        for number in range(REPEATED)
    )
    pl.concat(turns).write_parquet(base / "often.parquet")
    stripewise("import", "often.parquet", "-o", "T")
    return base / "T"


CLUSTER = """
name = "orion"
file_system = "lustre"
[[tier]]
name = "hdd"
servers = 6
preset = "hdd-7200"
[[tier]]
name = "ssd"
servers = 2
preset = "ssd-sata"
"""


@pytest.fixture
def orion(tmp_path):
    """Servers to give advice for, in whose commands it ends."""
    file = tmp_path / "orion.toml"
    file.write_text(CLUSTER)
    return file


VIEWS = [[], ["--json"], ["--json", "--file", "*a*"], ["--file", "*a*", "--check"], ["--rank", "0"]]


def in_here(monkeypatch, cwd, *arguments):
    """The command in this process, which has Dask loaded: to load it takes longer than most logs."""
    monkeypatch.chdir(cwd)
    monkeypatch.setattr(sys, "argv", ["stripewise", *map(str, arguments)])
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err), pytest.raises(SystemExit) as end:
        app.main()
    return subprocess.CompletedProcess(arguments, end.value.code or 0, out.getvalue(), err.getvalue())


def same(alone, over):
    return (alone.returncode, alone.stdout, alone.stderr) == (over.returncode, over.stdout, over.stderr)


@pytest.mark.parametrize("log", LOGS, ids=lambda log: log.name)
def test_what_workers_make_is_the_same_to_the_byte(log, three, stripewise, orion, monkeypatch):
    """In every view of one log; of the others in that with all figures."""
    stripewise("import", log, "-o", "T")

    def over(*arguments, check=True):
        arguments = (*arguments, "--dask", three.address)
        if log == DXT:
            return stripewise(*arguments, check=check)
        return in_here(monkeypatch, stripewise.cwd, *arguments)

    for view in VIEWS if log == DXT else [["--json"]]:
        alone = stripewise("signature", "T", *view, check=False)
        assert same(alone, over("signature", "T", *view, check=False)), view
    for view in [["--all"], ["--json"]] if log == DXT else [["--json"]]:
        alone = stripewise("show", "T", *view)
        assert same(alone, over("show", "T", *view)), view
    if log == DXT:
        assert len(json.loads(stripewise("signature", "T", "--json").stdout)["files"]) > 100
        below = json.loads(stripewise("show", "T", "--json").stdout)["files"][0]["path"].rpartition("/")[0]
        for view in [["--cluster", orion], ["--cluster", orion, "--json", "--root", below]]:
            alone = stripewise("advise", "T", *view)
            assert same(alone, stripewise("advise", "T", *view, "--dask", three.address)), view
        refused = stripewise("show", "T", "--csv", "-", "--dask", three.address, check=False)
        assert (refused.returncode, refused.stdout) == (1, "") and "--dask is for the summary" in refused.stderr


def is_reading(process, data):
    """Whether the process has a table of requests open: it is in the middle of a batch."""
    open_files = Path(f"/proc/{process.pid}/fd")
    try:
        return any(str(fd.readlink()).startswith(f"{data}/requests/") for fd in open_files.iterdir())
    except FileNotFoundError:  # a file that was closed meanwhile
        return False


def killed_at_work(process, data):
    """Stops the process until that was in the middle of a batch, and kills it there."""
    until(lambda: is_reading(process, data))
    for _ in range(10_000):
        process.send_signal(signal.SIGSTOP)
        until(lambda: Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T")
        if is_reading(process, data):
            process.kill()
            process.wait()
            return True
        process.send_signal(signal.SIGCONT)
        time.sleep(0.002)
    return False


def started(stripewise, *arguments):
    command = [BIN / "stripewise", *map(str, arguments)]
    environment = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", "COLUMNS": "120", "NO_COLOR": "1"}
    return subprocess.Popen(
        command, cwd=stripewise.cwd, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


@pytest.mark.parametrize("command", ["signature", "show", "advise"])
def test_a_worker_that_is_killed_at_its_work_does_not_show(command, repeated, tmp_path, stripewise, orion):
    arguments = [command, repeated, "--json", *(["--cluster", orion] if command == "advise" else [])]
    alone = stripewise(*arguments)
    with cluster(tmp_path / "dask") as running, Client(running.address, set_as_default=False) as client:
        run = started(stripewise, *arguments, "--dask", running.address)
        assert killed_at_work(running.workers[1], repeated), "the worker was never in the middle of its work"
        assert run.poll() is None, "the run was over before the worker was killed"
        out, err = run.communicate(timeout=PATIENCE_S)
        assert (run.returncode, err) == (0, alone.stderr)
        assert out == alone.stdout
        if command == "advise":  # it had requests to survey, and servers to fit to them
            assert '"factor": ' in out and "a sample" in out
        # As the scheduler saw it: one worker went with work that it had not done.
        gone = [event for _, event in client.get_events("all") if event.get("action") == "remove-worker"]
        assert len(gone) == 1
        assert gone[0]["processing-tasks"], gone
        assert len(client.nthreads()) == 2


def test_files_over_which_workers_die_end_the_run(repeated, tmp_path, stripewise):
    with cluster(tmp_path / "dask", workers=2, allowed_failures=0) as running:
        run = started(stripewise, "signature", repeated, "--dask", running.address)
        assert killed_at_work(running.workers[0], repeated)
        out, err = run.communicate(timeout=PATIENCE_S)
    assert (run.returncode, out) == (1, "")
    assert "died again and again over the same files" in err
    assert "--memory-limit" in err


def test_a_result_that_is_lost_with_the_last_worker_is_not_waited_for_for_ever(tmp_path, monkeypatch):
    """All workers die after the work is done and before its result is here."""
    monkeypatch.setattr(scale_out, "FETCH_S", 0.5)
    monkeypatch.setattr(scale_out, "ALONE_S", 1)
    with (
        cluster(tmp_path / "dask", workers=1, allowed_failures=100) as running,
        Client(running.address, set_as_default=False) as client,
    ):
        future = client.submit(abs, -1, pure=False)
        until(future.done)
        running.workers[0].kill()
        running.workers[0].wait()
        patience = scale_out._Patience(client, running.address)
        with pytest.raises(StripewiseError, match=r"has had no worker, or has not answered, for 1 s: see why"):
            scale_out._result(future, running.address, patience)


def refused(stripewise, log, address, *words):
    done = stripewise("signature", log, "--dask", address, check=False, timeout=PATIENCE_S)
    assert (done.returncode, done.stdout) == (1, ""), done
    assert "Traceback" not in done.stderr
    for word in words:
        assert str(word) in done.stderr, done.stderr


def test_what_cannot_be_is_said(three, stripewise, tmp_path):
    refused(stripewise, DXT, three.address, DXT, "no data set", "stripewise import")
    refused(stripewise, "none", three.address, "none", "No such file")
    stripewise("import", DXT, "-o", "T")

    def has_no_scheduler(address):
        refused(stripewise, "T", address, f"no Dask scheduler answers at {address} (", "`dask scheduler`")

    # Each tries for some seconds.
    with ThreadPoolExecutor(4) as commands:
        addresses = ("tcp://127.0.0.1:1", "nothing", "what://ever:1", "tcp://none.invalid:8786")
        list(commands.map(has_no_scheduler, addresses))
    with cluster(tmp_path / "dask", workers=0) as empty:
        refused(stripewise, "T", empty.address, empty.address, "no workers", f"`dask worker {empty.address}`")
    table = next(tmp_path.glob("T/requests/*.parquet"))
    table.write_bytes(table.read_bytes()[:-1])
    refused(stripewise, "T", three.address, os.uname().nodename, table, "were written", "import the log again")


def test_a_worker_that_sees_no_data_set_or_another_is_named(three, stripewise, tmp_path):
    """A path that leads every process into its own directory, as on machines that share none."""
    stripewise("import", DXT, "-o", "T")
    mine = "/proc/self/cwd/T"
    host = os.uname().nodename
    refused(stripewise, mine, three.address, f"worker on {host} cannot read {mine}", "No such file", "every worker")
    other = tmp_path / "other"
    other.mkdir()
    (tmp_path / "run.csv").write_text("file,op,offset,size\n/a,write,0,10\n")
    stripewise("import", "run.csv", "-o", other / "T")
    with cluster(tmp_path / "dask", workers=1, cwd=other) as elsewhere:
        refused(stripewise, mine, elsewhere.address, f"worker on {host} sees another data set at {mine}")


def test_another_version_on_a_worker_is_named(stripewise, tmp_path):
    stripewise("import", DXT, "-o", "T")
    older = tmp_path / "older.py"
    older.write_text("from stripewise import scale_out\nscale_out.__version__ = '0.0.9'\n")
    with cluster(tmp_path / "dask", workers=1, preload=[str(older)]) as running:
        refused(stripewise, "T", running.address, os.uname().nodename, "Stripewise 0.0.9", "of 0.1.0", "install 0.1.0")


def test_without_dask_the_remedy_is_said(stripewise, tmp_path):
    stripewise("import", DXT, "-o", "T")
    script = """
import sys
sys.modules["distributed"] = None
sys.argv[0] = "stripewise"
from stripewise.cli import main
main()
"""
    command = [sys.executable, "-c", script, "signature", "T", "--dask", "tcp://127.0.0.1:8786"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 1
    assert "pip install 'stripewise[dask]'" in done.stderr


def test_batches_have_every_file_once_and_even_rows():
    draw = random.Random(1)
    for _ in range(300):
        rows = {file: draw.choice([1, 5, 1000, draw.randrange(1, 10**6)]) for file in range(draw.randrange(1, 200))}
        count = draw.randrange(1, 40)
        batches = scale_out.balanced(rows, count)
        assert sorted(file for batch in batches for file in batch) == sorted(rows)
        assert all(batches) and len(batches) == min(count, len(rows))
        loads = [sum(rows[file] for file in batch) for batch in batches]
        assert max(loads) <= sum(loads) / len(loads) + max(rows.values())
        assert max(loads) - min(loads) <= max(rows.values())
    assert scale_out.balanced({}, 4) == []
