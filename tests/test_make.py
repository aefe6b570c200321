"""What `make test` stands on: the list of system packages, the bound of each test binary, the list of long tests."""

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from conftest import PATIENCE_S

ROOT = Path(__file__).parent.parent
LONG = (ROOT / "tests" / "long.txt").read_text().splitlines()


def program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/bash\n{text}\n")
    path.chmod(0o755)
    return path


def bounded(binary: Path, crate: str, **environment: str):
    clean = {key: value for key, value in os.environ.items() if not key.startswith("STRIPEWISE")}
    return subprocess.run(
        [ROOT / "tests" / "bounded.sh", binary, "argument"],
        env={**clean, "CARGO_MANIFEST_DIR": f"/somewhere/crates/{crate}", **environment},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )


@pytest.mark.parametrize("name", LONG)
def test_every_long_test_exists(name):
    file, _, test = name.partition("::")
    assert (ROOT / file).is_file()
    assert not test or f"def {test.partition('[')[0]}" in (ROOT / file).read_text()


def test_a_test_binary_that_hangs_fails_and_is_named(tmp_path):
    binary = program(tmp_path / "faults-0123456789abcdef", "echo test it_hangs; exec sleep 600")
    # Long enough for it to begin on a machine that stands still for a while.
    done = bounded(binary, "mount", STRIPEWISE_TEST_SECONDS="5")
    assert done.returncode == 124
    assert "it_hangs" in done.stdout
    assert "crates/mount/tests/faults.rs" in done.stderr


def test_a_test_binary_keeps_its_arguments_and_status(tmp_path):
    variable = "CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER"
    binary = program(tmp_path / "faults-0123456789abcdef", f"echo $1 ${{{variable}-none}}; exit 7")
    done = bounded(binary, "mount", **{variable: "x"})
    assert (done.returncode, done.stdout, done.stderr) == (7, "argument none\n", "")


def test_long_tests_run_when_they_are_asked_for(tmp_path):
    binary = program(tmp_path / "ltp-0123456789abcdef", "echo ran")
    assert "crates/mount/tests/ltp.rs" in LONG
    assert bounded(binary, "mount").stdout == "crates/mount/tests/ltp.rs: left to 'make test-all'\n"
    assert bounded(binary, "store").stdout == "ran\n"
    assert bounded(binary, "mount", STRIPEWISE_LONG_TESTS="1").stdout == "ran\n"


@pytest.mark.parametrize("kind", ["run", "test"])
@pytest.mark.parametrize("user", [0, 1000])
def test_system_packages_are_installed_by_root_and_named_to_others(kind, user, tmp_path):
    """On a machine that has nothing: the search path has only what the test puts there."""
    if user and os.geteuid() != 0:
        user = os.geteuid()
    elif not user and os.geteuid() != 0:
        pytest.skip("needs root")
    asked = tmp_path / "asked"
    asked.touch()
    for name in ("apt-get", "rustup"):
        program(tmp_path / "bin" / name, f'echo "{name} $*" >> {asked}')
    tmp_path.chmod(0o755)
    # Read from stdin: another user may not be able to reach the checkout.
    with (ROOT / "requirements" / "system.sh").open() as script:
        done = subprocess.run(
            ["/bin/bash", "-s", kind],
            stdin=script,
            env={"PATH": str(tmp_path / "bin"), "PYTHON": sys.executable},
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            user=user if os.geteuid() == 0 else None,
            extra_groups=[] if os.geteuid() == 0 else None,
            cwd="/",
        )
    if user:
        assert done.returncode == 1
        assert done.stderr.count("\n") == 1
        assert "sudo apt-get install" in done.stderr
        said = done.stderr
        assert asked.read_text() == ""
    else:
        assert done.returncode == 0, done.stderr
        said = asked.read_text()
        assert said.splitlines()[0] == "apt-get update -qq"
        assert said.splitlines()[-1] == "rustup default stable"
    assert " gcc " in said and " fuse3 " in said
    assert (" stress-ng" in said) == (kind == "test")


def test_a_wrong_kind_of_machine_is_a_usage_error():
    done = subprocess.run(
        [ROOT / "requirements" / "system.sh", "all"], capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert done.returncode == 2
    assert "run|test" in done.stderr


FAKE_PYTHON = """
[ "$1" = -m ] || exit 0
[ "$2 $3" = "venv --clear" ] && rm -rf "$4"
mkdir -p "${@: -1}/bin"
touch "${@: -1}/of-NAME"
printf '#!/bin/bash\\nexit STATUS\\n' > "${@: -1}/bin/pip"
chmod +x "${@: -1}/bin/pip"
"""


def test_make_with_another_python_after_a_try_that_failed(tmp_path):
    """What the first Python has left of .venv is no part of the second one's; a finished .venv stays."""
    shutil.copy(ROOT / "Makefile", tmp_path)
    (tmp_path / "crates").mkdir()
    program(tmp_path / "requirements" / "system.sh", "exit 0")
    (tmp_path / "requirements" / "dev.txt").touch()
    for name, status in (("broken", "1"), ("good", "0")):
        program(tmp_path / name, FAKE_PYTHON.replace("NAME", name).replace("STATUS", status))

    def make(name: str):
        clean = {key: value for key, value in os.environ.items() if not key.startswith("MAKE")}
        command = ["make", f"PYTHON={tmp_path / name}", str(tmp_path / ".venv" / ".tools")]
        return subprocess.run(command, cwd=tmp_path, env=clean, capture_output=True, text=True, timeout=PATIENCE_S)

    venv = tmp_path / ".venv"
    assert make("broken").returncode != 0
    assert (venv / "of-broken").exists()
    assert not (venv / ".tools").exists()
    done = make("good")
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in venv.iterdir()) == [".tools", "bin", "of-good"]
    # New tools go into the .venv that there is.
    newer = (venv / ".tools").stat().st_mtime + 10
    os.utime(tmp_path / "requirements" / "dev.txt", (newer, newer))
    (venv / "kept").touch()
    assert make("good").returncode == 0
    assert (venv / "kept").exists()


def test_the_readme_names_the_versions_that_are_asked_for():
    words = " ".join((ROOT / "README.md").read_text().split())
    rust = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["rust-version"]
    python = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"].removeprefix(">=")
    assert f"Rust {rust} or newer and Python {python} or newer" in words
    assert "`pip install .` and a first `make` compile Rust for some minutes" in words


def test_long_tests_stand_once_and_in_order():
    assert sorted(set(LONG)) == LONG
