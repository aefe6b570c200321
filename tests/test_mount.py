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
