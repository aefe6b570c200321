"""A pool mounted for everybody, and the ways to take the mount away."""

import os

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
