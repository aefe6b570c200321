"""A pool mounted for all users, and the ways to take the mount away."""

import errno
import os
import signal
from pathlib import Path

import pytest


@pytest.fixture
def mounted(pool):
    pool.stripewise("mount", pool.file)
    yield pool
    pool.stripewise("umount", "--lazy", pool.mount, check=False)


def test_a_mount_that_is_in_use_stays_and_the_message_says_what_to_do(mounted):
    with (mounted.mount / "f").open("wb") as file:
        file.write(b"x" * 10_000)
        refused = mounted.stripewise("umount", mounted.mount, check=False)
        assert refused.returncode == 1
        assert str(mounted.mount) in refused.stderr
        assert "--lazy" in refused.stderr
        assert os.path.ismount(mounted.mount)
    mounted.stripewise("umount", mounted.file)
    assert not os.path.ismount(mounted.mount)


def test_a_lazy_umount_serves_open_files_until_they_are_closed(mounted):
    with (mounted.mount / "f").open("wb", buffering=0) as file:
        file.write(b"1" * 10_000)
        mounted.stripewise("umount", "--lazy", mounted.file)
        assert not os.path.ismount(mounted.mount)
        assert not (mounted.mount / "f").exists()
        file.write(b"2" * 10_000)
    check = "import sys; assert open(sys.argv[1] + '/f', 'rb').read() == b'1' * 10_000 + b'2' * 10_000"
    mounted.python(check)


@pytest.mark.parametrize("kind", ["missing", "file", "dangling"])
def test_a_directory_that_is_named_is_there_already(pool, tmp_path, kind):
    where = tmp_path / "named" / "below" if kind == "missing" else tmp_path / "named"
    if kind == "file":
        where.write_text("kept")
    elif kind == "dangling":
        where.symlink_to(tmp_path / "nothing")
    before = sorted(tmp_path.rglob("*"))
    refused = pool.stripewise("mount", pool.file, where, check=False)
    assert refused.returncode == 1
    assert refused.stderr == f"error: cannot mount at {where}: it is no directory; make it first with mkdir -p\n"
    assert sorted(tmp_path.rglob("*")) == before


def serving(pool):
    """The processes that serve mounts of the pool."""
    found = []
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            words = (directory / "cmdline").read_bytes().split(b"\0")
            state = (directory / "stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue  # It has ended meanwhile.
        if words[0].endswith(b"stripewise-mount") and os.fsencode(pool.file) in words and state != "Z":
            found.append(int(directory.name))
    return found


def die(pool, where):
    """Kills the processes that serve the pool, and waits until the kernel knows it."""
    for number in serving(pool):
        os.kill(number, signal.SIGKILL)
    while True:
        try:
            os.statvfs(where)
        except OSError as error:
            if error.errno == errno.ENOTCONN:
                return
            # The second where requests travel by io_uring.
            assert error.errno in (errno.ECONNABORTED, errno.ECANCELED), error


def test_umount_returns_when_the_process_of_the_mount_has_ended(mounted):
    for target in (mounted.mount, mounted.file):
        assert len(serving(mounted)) == 1
        (mounted.mount / "f").write_bytes(b"x" * 10_000)
        done = mounted.stripewise("umount", target)
        # On a busy disk it also says what it waits for.
        unexpected = [line for line in done.stderr.splitlines() if "is unmounted; waiting for process" not in line]
        assert (unexpected, serving(mounted)) == ([], [])
        mounted.stripewise("mount", mounted.file)


@pytest.mark.parametrize("named", [False, True])
def test_a_mount_whose_process_was_killed_is_cleared_by_the_next(mounted, tmp_path, named):
    where = mounted.mount
    if named:
        where = tmp_path / "named"
        where.mkdir()
        mounted.stripewise("umount", mounted.mount)
        mounted.stripewise("mount", mounted.file, where)
    (where / "f").write_bytes(b"x" * 10_000)
    with (where / "f").open("rb", buffering=0) as file:
        die(mounted, where)
        again = mounted.stripewise("mount", mounted.file, *([where] if named else []))
        assert "cleared the mount of pool `test`" in again.stderr
        assert f"at {where}" in again.stderr
        assert (where / "f").read_bytes() == b"x" * 10_000
        with pytest.raises(OSError, match="not connected"):
            file.read()
    mounted.stripewise("umount", where)
    assert not os.path.ismount(where)


@pytest.mark.parametrize("by_file", [False, True])
def test_umount_clears_a_mount_whose_process_was_killed(mounted, by_file):
    (mounted.mount / "f").write_bytes(b"x" * 10_000)
    with (mounted.mount / "f").open("rb"):
        die(mounted, mounted.mount)
        cleared = mounted.stripewise("umount", mounted.file if by_file else mounted.mount)
    assert "its process had died" in cleared.stderr
    assert mounted.mount.is_dir()
    assert not os.path.ismount(mounted.mount)


def test_run_goes_on_where_a_mount_has_died(mounted):
    (mounted.mount / "f").write_bytes(b"x" * 10_000)
    die(mounted, mounted.mount)
    ran = mounted.run("wc", "-c", mounted.mount / "f")
    assert ran.stdout.split()[0] == "10000"
    assert "stripewise umount" in ran.stderr


def test_a_mount_says_how_requests_travel_and_how_io_uring_is_turned_on(pool):
    """In words of its own, the same by all ways; `tests/test_mount.py` runs over whichever the kernel offers."""
    said = pool.stripewise("mount", "-v", pool.file)
    try:
        words = os.getxattr(pool.mount, "system.stripewise.transport").decode()
        assert f"requests travel by {words}" in " ".join((said.stdout + said.stderr).split())
        assert words.startswith(("io_uring, ", "the device (")), words
        switch = Path("/sys/module/fuse/parameters/enable_uring")
        if switch.exists() and switch.read_text(encoding="ascii").strip() == "N":
            assert words == f"the device (for io_uring: `echo Y > {switch}` as root, then mount again)"
        shown = " ".join(pool.stripewise("top", "--pool", pool.file, "--once").stdout.split())
        assert f"mount at {pool.mount.resolve()}: requests travel by {words}" in shown
        # It is in no list, and no file has another.
        (pool.mount / "f").write_bytes(b"x")
        assert os.listxattr(pool.mount / "f") == []
        assert os.getxattr(pool.mount / "f", "system.stripewise.transport").decode() == words
    finally:
        pool.stripewise("umount", pool.mount)
    shown = pool.stripewise("top", "--pool", pool.file, "--once").stdout
    assert "requests travel" not in shown
