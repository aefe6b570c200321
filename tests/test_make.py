"""What `make test` stands on: the list of system packages, the bound of each test binary, the list of long tests."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

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
        timeout=60,
    )


@pytest.mark.parametrize("name", LONG)
def test_every_long_test_exists(name):
    assert (ROOT / name).is_file()


def test_a_test_binary_that_hangs_fails_and_is_named(tmp_path):
    binary = program(tmp_path / "faults-0123456789abcdef", "echo test it_hangs; exec sleep 600")
    done = bounded(binary, "mount", STRIPEWISE_TEST_SECONDS="1")
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
            timeout=60,
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
    done = subprocess.run([ROOT / "requirements" / "system.sh", "all"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "run|test" in done.stderr
