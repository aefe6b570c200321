"""systemd units: the command that writes one, and that systemd takes it."""

import errno
import io
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import PATIENCE_S
from stripewise import StripewiseError
from stripewise.api import orchestrating, service
from stripewise.cli import console
from stripewise.pool import Pool

OPTIONS = ["--hours", "22-6", "--limit", "100GB", "--rate", "50MB", "--metrics", "9123", "--urgent", "--horizon", "48"]


@pytest.fixture
def adapted(emulated):
    """A pool that can be adapted: it keeps heat, and its servers have profiles."""
    emulated.file.write_text(emulated.file.read_text() + "\n[heat]\n")
    return emulated


@pytest.fixture
def config(tmp_path, monkeypatch):
    """Where this user's configuration is, for a user who is not root."""
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path / "config" / "systemd" / "user"


def as_user(*arguments):
    """The command, run by a user who is not root as far as it knows."""
    script = "import os, runpy; os.geteuid = lambda: 1000; runpy.run_module('stripewise', run_name='__main__')"
    return subprocess.run(
        [sys.executable, "-c", script, *map(str, arguments)], capture_output=True, text=True, timeout=PATIENCE_S
    )


def lines(unit):
    """The settings of a unit by section."""
    found = {}
    for line in unit.read_text().splitlines():
        if line.startswith("["):
            section = found.setdefault(line.strip("[]"), {})
        elif line:
            key, value = line.split("=", 1)
            assert key not in section
            section[key] = value
    return found


def verified(unit):
    """That systemd reads the unit and finds nothing wrong with it, where it is installed."""
    if shutil.which("systemd-analyze") is not None:
        # Without --man=no it looks for pages, and a service without the bus looks at its own file alone.
        told = subprocess.run(
            ["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True, timeout=PATIENCE_S
        )
        wrong = [line for line in told.stderr.splitlines() if unit.name in line]
        assert not wrong, told.stderr


def test_the_command_installs_a_unit_that_runs_it_with_its_options(adapted, config):
    pool = adapted
    done = as_user("adapt", pool.file, *OPTIONS, "--json", "--install-unit")
    assert done.returncode == 0, done.stderr
    unit = config / "stripewise-adapt-emulated.service"
    assert f"wrote {unit}" in done.stdout and f"systemctl --user enable --now {unit.name}" in done.stderr
    found = lines(unit)
    command = found["Service"]["ExecStart"]
    assert command.startswith("/") and f'"adapt" "{pool.file}" ' in command
    for option, value in zip(OPTIONS[:-3:2], OPTIONS[1:-3:2], strict=True):
        assert f'"{option}" "{value}"' in command
    assert '"--urgent"' in command and '"--json"' in command
    assert '"--horizon" "48.0"' in command and "--install-unit" not in command
    assert found["Service"]["Restart"] == "on-failure" and int(found["Service"]["RestartSec"]) >= 5
    # Writers wait for requests of a move: those of the idle class would starve while programs keep a disk busy.
    assert (found["Service"]["IOSchedulingClass"], found["Service"]["IOSchedulingPriority"]) == ("best-effort", "7")
    assert found["Install"]["WantedBy"] == "default.target"
    loaded = Pool.load(pool.file)
    needed = found["Unit"]["RequiresMountsFor"].split(" ")
    places = [pool.file.parent, loaded.namespace]
    assert sorted(needed) == sorted(f'"{place}"' for place in places), "a missing server keeps it back from nothing"
    assert found["Unit"]["After"] == "local-fs.target remote-fs.target"
    verified(unit)
    # What it runs is what the command line takes.
    words = [word.strip('"') for word in command.split(" ")[1:]]
    words[words.index("9123")] = "0"  # Other tests may serve there.
    tried = pool.stripewise(*words, "--dry-run")
    assert json.loads(tried.stdout)["why"] == "nothing was read or written of late through a mount that keeps heat"
    before = unit.read_text()
    again = as_user("adapt", pool.file, "--install-unit")
    assert again.returncode == 1 and f"{unit} exists" in again.stderr
    assert unit.read_text() == before


LONG = f"{'a' * 64}.example:9123"


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--metrics", "nonsense"], "nonsense: write [HOST:]PORT for the metrics"),
        (["--metrics", "..:9123"], "'..' is no name of a host"),
        (["--metrics", LONG], "each part between two dots has 1 to 63 letters"),
        (["--once"], "--once decides once, and the unit of --install-unit runs for good: leave one of them out"),
        (["--dry-run"], "--dry-run decides once"),
        (["--planner", "none"], "no planner 'none'"),
    ],
)
def test_a_unit_of_adapt_that_could_only_fail_is_not_written(adapted, config, options, why):
    refused = as_user("adapt", adapted.file, "--install-unit", *options)
    assert refused.returncode == console.EXIT_USAGE and why in refused.stderr
    assert not config.exists() and "wrote" not in refused.stdout


def test_a_unit_of_a_pool_that_cannot_be_adapted_is_not_written(pool, emulated, config):
    for file, why in ((pool.file, "has no profile"), (emulated.file, "keeps no heat: write a table [heat]")):
        refused = as_user("adapt", file, "--install-unit")
        assert refused.returncode == 1 and why in refused.stderr
    assert not config.exists()


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--policy", "fair"], "no policy is named 'fair': take one of reuse-distance"),
        (["--window", "0"], "a window of 0 ms: take 1 to 10000 ms"),
        (["--weight", "sim=nan"], "the weight nan of 'sim': take 0.001 to 1000"),
        (["--limit", "sim=0"], "a limit of 0 bytes per second for 'sim' would stop it: take more"),
        (["--listen", "7077"], "agents of other nodes need keys"),
        (["--listen", "7077", "--keys", "/missing"], "the file of keys /missing is not there"),
        (["--listen", "host:7077", "--keys", "/dev/null"], "'host:7077' is no address to listen on"),
        (["--status"], "--status prints and exits, and --install-unit writes a unit: leave one of them out"),
        (["--json"], "--json prints and exits"),
        (["--policies"], "--policies prints and exits"),
    ],
)
def test_a_unit_of_orchestrate_that_could_only_fail_is_not_written(pool, config, options, why):
    refused = as_user("orchestrate", pool.file, "--install-unit", *options)
    assert refused.returncode == 1 and why in refused.stderr
    assert not config.exists() and "wrote" not in refused.stdout


@pytest.mark.parametrize(
    ("address", "is_one"),
    [
        ("7077", True),
        ("0.0.0.0:7", True),
        ("[::1]:65535", True),
        ("", False),
        ("host:7", False),
        ("65536", False),
        ("1.2.3.4", False),
        ("::1:7077", False),
        ("[1.2.3.4]:7", False),
        (":7077", False),
    ],
)
def test_where_a_unit_of_orchestrate_listens_is_what_the_orchestrator_takes(pool, address, is_one, tmp_path):
    """The program itself takes no address that is refused, and refuses none that is taken."""
    (keys := tmp_path / "keys").touch()
    options = {"policy": "even", "window_s": 0.5, "weights": {}, "limits": {}, "keys": keys}
    agent = [orchestrating.agent_program(), "orchestrate", tmp_path / "missing", "--policy", "even"]
    tried = subprocess.run(
        [*agent, "--window-ms", "500", f"--listen={address}", "--keys", keys],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert tried.returncode != 0 and ("address to listen on" in tried.stderr) is not is_one, tried.stderr
    if is_one:
        orchestrating.require(listen=address, **options)
        return
    with pytest.raises(StripewiseError, match="is no address to listen on"):
        orchestrating.require(listen=address, **options)


@pytest.mark.skipif(os.geteuid() != 0, reason="root's units are root's")
def test_root_installs_a_unit_of_the_system(adapted, tmp_path):
    units = tmp_path / "units"
    units.mkdir()
    shadow = f'mount --bind {units} /etc/systemd/system && exec "$@"'
    prefix = ("unshare", "--mount", "sh", "-c", shadow, "sh")
    try:
        done = adapted.stripewise("adapt", adapted.file, "--install-unit", prefix=prefix, check=False)
    except FileNotFoundError:
        pytest.skip("this machine has no unshare")
    if "permission denied" in done.stderr or "must be superuser" in done.stderr:
        pytest.skip(f"no directory can be mounted here: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    (unit,) = units.iterdir()
    assert unit.name == "stripewise-adapt-emulated.service"
    assert lines(unit)["Install"]["WantedBy"] == "multi-user.target"
    assert "systemctl enable --now stripewise-adapt-emulated.service" in done.stderr
    verified(unit)


def test_what_systemd_would_read_is_quoted(pool, config, tmp_path):
    """Spaces, quotes, percent signs and dollars of a path are the path's."""
    odd = tmp_path / 'a "$HOME" %n \\x'
    odd.mkdir()
    file = odd / "pool.toml"
    shutil.copy(pool.file, file)
    path, text = service.unit(Pool.load(file), "adapt", "x", ["adapt", str(file)], command="/bin/true")
    assert path.parent == config
    quoted = f'"{tmp_path}/a \\"$HOME\\" %%n \\\\x"'
    assert f"RequiresMountsFor={quoted} " in text
    assert f'ExecStart=/bin/true "adapt" {quoted[:-1].replace("$", "$$")}/pool.toml"' in text
    service.install(path, text)
    verified(path)
    with pytest.raises(StripewiseError, match="line feed"):
        service.unit(Pool.load(file), "adapt", "x", ["adapt", "a\nExecStartPre=/bin/false"])


def test_a_command_whose_path_has_spaces_is_started(pool, config, tmp_path, monkeypatch):
    own = tmp_path / "a $HOME %n" / "stripewise"
    own.parent.mkdir()
    own.write_text("#!/bin/sh\n")
    own.chmod(0o755)
    monkeypatch.setattr(service.shutil, "which", lambda _: str(own))
    path, text = service.unit(Pool.load(pool.file), "adapt", "x", ["adapt"])
    assert f'ExecStart="{tmp_path}/a $HOME %%n/stripewise" "adapt"\n' in text
    service.install(path, text)
    verified(path)


@pytest.mark.parametrize("odd", ["a\rb", "a\x1bb", "a\udcffb"])
def test_a_path_that_no_unit_can_have_is_refused(pool, config, odd):
    with pytest.raises(StripewiseError, match="which no systemd unit can have: rename it"):
        service.unit(Pool.load(pool.file), "adapt", "x", ["adapt", odd], command="/bin/true")


def test_the_command_and_the_places_of_a_unit_are_absolute_and_quoted(pool, config, tmp_path, monkeypatch):
    tools = tmp_path / "my %n tools"
    tools.mkdir()
    (tools / "stripewise").symlink_to(shutil.which("true"))
    monkeypatch.chdir(tools)
    monkeypatch.setenv("PATH", f".:{os.environ['PATH']}")
    around = tools / ".." / pool.file.relative_to(tmp_path)
    path, text = service.unit(Pool.load(around), "adapt", "x", [])
    assert f'ExecStart="{tmp_path}/my %%n tools/stripewise" ' in text
    assert f'RequiresMountsFor="{pool.file.parent}" ' in text, "systemd overlooks what has .. in it"
    service.install(path, text)
    verified(path)


def test_a_unit_that_cannot_be_written_leaves_nothing(config, monkeypatch):
    unit = config / "stripewise-adapt-p.service"
    with monkeypatch.context() as full:
        full.setattr(service.Path, "open", lambda file, *_, **__: Full(file))
        with pytest.raises(StripewiseError, match=r"adapt-p\.service cannot be written: No space left"):
            service.install(unit, "text")
    assert not unit.exists()


class Full(io.StringIO):
    """A new file on a full disk."""

    def __init__(self, file):
        super().__init__()
        file.touch()

    def write(self, _):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_configuration_that_is_no_absolute_path_is_not_believed(pool, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setenv("XDG_CONFIG_HOME", "relative")
    path, _ = service.unit(Pool.load(pool.file), "adapt", "x", [], command=sys.executable)
    assert path.parent == Path.home() / ".config/systemd/user"
