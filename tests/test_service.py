"""systemd units: the command that writes one, and that systemd takes it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import PATIENCE_S
from stripewise import StripewiseError
from stripewise.api import service
from stripewise.pool import Pool

OPTIONS = ["--hours", "22-6", "--limit", "100GB", "--rate", "50MB", "--metrics", "9123", "--urgent", "--horizon", "48"]


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


def test_the_command_installs_a_unit_that_runs_it_with_its_options(pool, config):
    done = as_user("adapt", pool.file, *OPTIONS, "--install-unit")
    assert done.returncode == 0, done.stderr
    unit = config / "stripewise-adapt-test.service"
    assert f"wrote {unit}" in done.stdout and f"systemctl --user enable --now {unit.name}" in done.stderr
    found = lines(unit)
    command = found["Service"]["ExecStart"]
    assert command.startswith("/") and f'"adapt" "{pool.file}" ' in command
    for option, value in zip(OPTIONS[:-3:2], OPTIONS[1:-3:2], strict=True):
        assert f'"{option}" "{value}"' in command
    assert '"--urgent"' in command and '"--horizon" "48.0"' in command and "--install-unit" not in command
    assert found["Service"]["Restart"] == "on-failure" and int(found["Service"]["RestartSec"]) >= 5
    assert (found["Service"]["IOSchedulingClass"], found["Install"]["WantedBy"]) == ("idle", "default.target")
    loaded = Pool.load(pool.file)
    needed = found["Unit"]["RequiresMountsFor"].split(" ")
    places = [pool.file.parent, loaded.namespace]
    assert sorted(needed) == sorted(f'"{place}"' for place in places), "a missing server keeps it back from nothing"
    assert found["Unit"]["After"] == "local-fs.target remote-fs.target"
    verified(unit)
    # What it runs is what the command line takes.
    words = [word.strip('"') for word in command.split(" ")[1:]]
    tried = pool.stripewise(*words, "--dry-run", check=False)
    assert tried.returncode == 1 and "has no profile" in tried.stderr, "a pool that was not calibrated, and no option"
    before = unit.read_text()
    again = as_user("adapt", pool.file, "--install-unit")
    assert again.returncode == 1 and f"{unit} exists" in again.stderr
    assert unit.read_text() == before


@pytest.mark.skipif(os.geteuid() != 0, reason="root's units are root's")
def test_root_installs_a_unit_of_the_system(pool, tmp_path):
    units = tmp_path / "units"
    units.mkdir()
    shadow = f'mount --bind {units} /etc/systemd/system && exec "$@"'
    prefix = ("unshare", "--mount", "sh", "-c", shadow, "sh")
    try:
        done = pool.stripewise("adapt", pool.file, "--install-unit", prefix=prefix, check=False)
    except FileNotFoundError:
        pytest.skip("this machine has no unshare")
    if "permission denied" in done.stderr or "must be superuser" in done.stderr:
        pytest.skip(f"no directory can be mounted here: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    (unit,) = units.iterdir()
    assert unit.name == "stripewise-adapt-test.service"
    assert lines(unit)["Install"]["WantedBy"] == "multi-user.target"
    assert "systemctl enable --now stripewise-adapt-test.service" in done.stderr
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


def test_a_configuration_that_is_no_absolute_path_is_not_believed(pool, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setenv("XDG_CONFIG_HOME", "relative")
    path, _ = service.unit(Pool.load(pool.file), "adapt", "x", [], command=sys.executable)
    assert path.parent == Path.home() / ".config/systemd/user"
