"""The words of the command line: every help text is a file in `snapshots`.

STRIPEWISE_UPDATE_SNAPSHOTS=1 writes them anew; the change is then read in the diff.
"""

import os
import re
from pathlib import Path

import pytest

SNAPSHOTS = Path(__file__).parent / "snapshots"
COMMANDS = [
    "",
    "pool",
    "pool init",
    "pool show",
    "pool calibrate",
    "pool add",
    "pool drain",
    "pool remove",
    "pool replace",
    "pool rebalance",
    "pool settle",
    "trace",
    "import",
    "show",
    "signature",
    "plan",
    "compare",
    "simulate",
    "planners",
    "report",
    "advise",
    "survey",
    "export",
    "apply",
    "hint",
    "mount",
    "umount",
    "run",
    "stat",
    "heat",
    "fsck",
    "export-tree",
    "optimize",
    "adapt",
    "top",
    "orchestrate",
    "reproduce",
    "help",
]


BENCH = ["ior", "btio", "mpi-tile-io", "mpi-io-test", "noncontig", "hpio", "song", "lanl-app1"]
AGENT = ["agent", "agent join", "agent new-key"]


@pytest.mark.parametrize("command", [*COMMANDS, "bench", *(f"bench {workload}" for workload in BENCH), *AGENT])
def test_help_says_what_it_said(stripewise, command):
    printed = stripewise(*command.split(), "--help").stdout
    snapshot = SNAPSHOTS / f"help-{command.replace(' ', '-') or 'stripewise'}.txt"
    if os.environ.get("STRIPEWISE_UPDATE_SNAPSHOTS"):
        snapshot.parent.mkdir(exist_ok=True)
        snapshot.write_text(printed)
    assert printed == snapshot.read_text()


@pytest.mark.parametrize("command", [command for command in COMMANDS if command not in ("pool",)])
def test_every_help_has_an_example(stripewise, command):
    assert "Examples:" in stripewise(*command.split(), "--help").stdout


def test_bench_help_is_the_workload_generators_own(stripewise):
    printed = stripewise("bench", "--help").stdout
    assert "stripewise-bench /disk/test" in printed
    listed = re.findall(
        r"^  ([a-z0-9-]+)  +\S", printed.split("Workloads:")[1].split("Options:")[0], flags=re.MULTILINE
    )
    assert listed == BENCH


def test_version(stripewise):
    assert stripewise("--version").stdout == "stripewise 0.1.0\n"


def test_an_unknown_command_is_a_usage_error_with_the_likely_one(stripewise):
    done = stripewise("polo", check=False)
    assert done.returncode == 2
    assert "pool" in done.stderr
    assert done.stdout == ""


def test_a_file_that_is_not_there_is_named_in_words(stripewise):
    done = stripewise("show", "nothing.trace", check=False)
    assert done.returncode == 1
    assert done.stderr == "error: cannot use nothing.trace: No such file or directory; check the path\n"


def test_a_system_error_names_the_file_and_the_reason(stripewise, tmp_path):
    (tmp_path / "plain").touch()
    done = stripewise("show", "plain/below", check=False)
    assert done.returncode == 1
    assert done.stderr == "error: cannot use plain/below: Not a directory\n"


@pytest.mark.parametrize("command", COMMANDS)
def test_help_fits_a_terminal_of_80_columns(stripewise, command):
    lines = stripewise(*command.split(), "--help", env={"COLUMNS": "80"}).stdout.splitlines()
    assert [line for line in lines if len(line) > 80] == []
    # A sentence that is cut says nothing.
    assert [line for line in lines if line.endswith("...") and not line.startswith("Usage:")] == []
