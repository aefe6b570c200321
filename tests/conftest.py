"""Fixtures: the installed `stripewise` command, as a person runs it, on pools below the test's own directory."""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from stripewise import layouts
from stripewise.api import pools
from stripewise.pool import Pool

BIN = Path(sys.executable).parent

PATIENCE_S = 240
"""For what comes about on any machine, however loaded it is: what takes longer hangs. Tests end after 600 s."""

# Other tests run beside an example: how long it takes, or takes to be made, says nothing.
settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")


@dataclass(frozen=True)
class Stripewise:
    """Runs the command line in `cwd`; output is captured, colours and widths are fixed."""

    cwd: Path

    def __call__(self, *arguments, check=True, env=None, timeout=PATIENCE_S, prefix=(), input=None):
        environment = {
            **{key: value for key, value in os.environ.items() if not key.startswith(("STRIPEWISE", "LD_PRELOAD"))},
            "PATH": f"{BIN}:{os.environ['PATH']}",
            "COLUMNS": "120",
            "NO_COLOR": "1",
            "GIT_CONFIG_GLOBAL": "/dev/null",
            **(env or {}),
        }
        done = subprocess.run(
            [*prefix, str(BIN / "stripewise"), *map(str, arguments)],
            cwd=self.cwd,
            env=environment,
            capture_output=True,
            text=True,
            timeout=timeout,
            input=input,
        )
        if check:
            assert done.returncode == 0, f"{arguments}: exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done


@dataclass(frozen=True)
class TestPool:
    """A pool with the command that knows it."""

    __test__ = False

    base: Path
    file: Path
    mount: Path
    stripewise: Stripewise

    def run(self, *command, check=True, preload=True, **options):
        arguments = ["run", "--quiet", "--pool", self.file] + ([] if preload else ["--no-preload"])
        return self.stripewise(*arguments, "--", *command, check=check, **options)

    def python(self, script, *arguments, **options):
        """Runs a Python script on the pool, the mount as its first argument."""
        return self.run(sys.executable, "-c", script, self.mount, *arguments, **options)

    def servers(self):
        return sorted(path for path in (self.base / "disks").iterdir())

    def apply(self, text):
        layout = self.base / "test.layout"
        layout.write_text(text)
        return self.stripewise("apply", layout, "--pool", self.file)


def with_a_file_beside_an_ssd(directory, layout, ssds=1):
    """A pool of two HDDs and an SSD with room for 4 MiB and a stripe, in which the file `f` of 64 MiB has `layout`."""
    stripewise, base = Stripewise(directory), directory / "p"
    stripewise("pool", "init", base, "--emulate", "--hdd", "2", "--ssd", ssds, "--capacity", "ssd=4160KiB")
    first = base / "first.layout"
    first.write_text(layout)
    layouts.apply(first, base / "pool.toml")
    make = "import sys; open(sys.argv[1] + '/f', 'xb').write(b'x' * (64 << 20))"
    stripewise("run", "--quiet", "--pool", base / "pool.toml", "--", "python3", "-c", make, base / "mount")
    return Pool.load(base / "pool.toml")


@pytest.fixture
def stripewise(tmp_path):
    return Stripewise(tmp_path)


STUCK_PLANNER = """
import ctypes, pathlib
from stripewise import _native

libc, lock = ctypes.CDLL(None), ctypes.create_string_buffer(64)

def plan(*_, **__):
    # No signal ends this wait, as none ends what calculates; another thread runs meanwhile.
    pathlib.Path(BEGUN).touch()
    libc.pthread_mutex_lock(lock)
    libc.pthread_mutex_lock(lock)

_native.plan = plan
"""


def with_a_stuck_planner(directory):
    """The environment of commands whose planner takes for ever, and the file that it makes when it begins."""
    begun = directory / "begun"
    (directory / "sitecustomize.py").write_text(STUCK_PLANNER.replace("BEGUN", repr(str(begun))))
    paths = [str(directory), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {"PYTHONPATH": ":".join(paths)}, begun


READ_HOT = """
import os, sys
file = os.open(f"{sys.argv[1]}/f", os.O_RDONLY)
for number in range(200):
    os.pread(file, 65536, (2 << 20) + number % 16 * 65536)
"""


@pytest.fixture
def hot(tmp_path, stripewise):
    """A file on emulated HDDs, one MiB of which was read again and again; times are a hundredth of the real ones."""
    base = tmp_path / "p"
    stripewise("pool", "init", base, "--emulate", "--hdd", "2", "--ssd", "1", "--dilation", "0.01")
    file = base / "pool.toml"
    # Heat is halved once a year here: the horizon has to be as long for a gain to count.
    file.write_text(file.read_text() + '\n[heat]\nperiod = "31000000s"\n')
    layout = tmp_path / "first.layout"
    layout.write_text(
        'version = 1\npool = "p"\n[[file]]\npath = "f"\n[[file.region]]\noffset = "0"\nround = ["hdd.0-1:64KiB"]\n'
    )
    layouts.apply(layout, file)
    script = "import sys; open(f'{sys.argv[1]}/f', 'wb').write(bytes(range(256)) * 32768)" + READ_HOT
    stripewise("run", "--quiet", "--pool", file, "--", "python3", "-c", script, base / "mount")
    return stripewise, file


@pytest.fixture
def pool(tmp_path, stripewise):
    """Real directories, no emulation: for everything that is about bytes and not about time."""
    disks = [tmp_path / "disks" / f"d{number}" for number in range(4)]
    for disk in disks:
        disk.mkdir(parents=True)
    # As the command makes it; the tests of `pool init` are those of tests/test_pool.py.
    tiers = pools.real_tiers({"hdd": disks[:3], "ssd": disks[3:]}, "test")
    file = tmp_path / "pool.toml"
    pools.make(file, "test", tiers, mount=tmp_path / "mount")
    return TestPool(tmp_path, file, tmp_path / "mount", stripewise)


@pytest.fixture
def emulated(tmp_path, stripewise):
    """Two emulated HDDs and an SSD, in real time."""
    base = tmp_path / "emulated"
    tiers = pools.emulated_tiers(base, {"hdd": 2, "ssd": 1})
    pools.make(base / "pool.toml", base.name, tiers, mount=base / "mount", namespace=base / "namespace")
    return TestPool(base, base / "pool.toml", base / "mount", stripewise)


@pytest.fixture
def one_waits(tmp_path):
    """A log in which one of 8 processes waits a thousand times as long as the others on the same server."""
    rows = ["file,op,offset,size,rank,start_ns,end_ns"]
    for rank in range(8):
        took_ns = 4_000_000_000 if rank == 0 else 4_000_000
        for number in range(40):
            begin_ns, offset = number * took_ns, (rank * 40 + number) << 20
            rows.append(f"/data/run/out,write,{offset},1048576,{rank},{begin_ns},{begin_ns + took_ns}")
    log = tmp_path / "one-waits.csv"
    log.write_text("\n".join(rows) + "\n")
    return log
