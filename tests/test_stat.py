"""`stripewise stat` of any path: the pool is found by the path."""

import json
import os
import shutil
import socket
import subprocess

import pytest

from stripewise import mounts

root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to mount")


@pytest.fixture
def mounted(pool):
    """Two pools, one of them at another place than its own; both have what every kind of file is."""
    pool.stripewise("mount", pool.file)
    other = pool.base / "other"
    pool.stripewise("pool", "init", "--emulate", other, "--ssd", "1")
    elsewhere = pool.base / "else where"
    elsewhere.mkdir()
    pool.stripewise("mount", other / "pool.toml", elsewhere)
    (pool.mount / "dir").mkdir()
    (pool.mount / "file").write_text("of the first pool")
    (pool.mount / "dir" / "file").write_text("deeper")
    (pool.mount / "link").symlink_to("file")
    (pool.mount / "dir link").symlink_to(pool.mount / "dir")
    (pool.mount / "dangling").symlink_to("nothing")
    os.mkfifo(pool.mount / "fifo")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(pool.mount / "socket"))
    (elsewhere / "file").write_text("of the second pool, and longer")
    yield pool
    for where in (pool.mount, elsewhere):
        pool.stripewise("umount", "--lazy", where, check=False)


def asked(pool, path, *options, cwd=None, check=True):
    command = type(pool.stripewise)(cwd) if cwd else pool.stripewise
    return command("stat", path, "--json", *options, check=check)


def test_a_file_without_a_handle_is_on_the_metadata_tier(pool):
    namespace = next(pool.servers()[3].glob(".*-names")) / "tree"
    (namespace / "plain").write_text("beside the mount")
    found = json.loads(pool.stripewise("stat", "--pool", pool.file, "plain", "--json").stdout)
    assert (found["placed"], found["handle"], found["version"], found["size_bytes"]) == (False, None, None, 16)
    assert [(region["offset"], region["round"]) for region in found["regions"]] == [(0, ["meta:64KiB"])]
    assert found["datafiles"] == []
    said = pool.stripewise("stat", "--pool", pool.file, "plain").stdout
    assert "handle    none: all bytes are the inode's own" in said
    assert "meta:64KiB" in said


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("", "directory"),
        ("dir", "directory"),
        ("file", "file"),
        ("dir/file", "file"),
        ("dir/../file", "file"),
        ("dir link/file", "file"),
        ("link", "symbolic link"),
        ("dangling", "symbolic link"),
        ("fifo", "FIFO"),
        ("socket", "socket"),
    ],
)
def test_any_path_of_a_mounted_pool(mounted, path, kind):
    found = json.loads(asked(mounted, mounted.mount / path).stdout)
    assert found["kind"] == kind
    assert found["placed"] == (kind == "file")
    if kind == "file":
        assert found["size_bytes"] == (mounted.mount / path).stat().st_size
    # The same by the working directory and by the namespace.
    assert json.loads(asked(mounted, path or ".", cwd=mounted.mount).stdout) == found
    namespace = next(mounted.servers()[3].glob(".*-names")) / "tree"
    if "link/" not in path:
        assert json.loads(asked(mounted, namespace / path).stdout) == found
    said = mounted.stripewise("stat", mounted.mount / path).stdout
    assert said.splitlines()[0].endswith(" on pool 'test' (real servers)")
    assert kind == "file" or kind in said


def test_the_pool_is_that_of_the_mount_and_not_of_the_name(mounted):
    elsewhere = mounted.base / "else where"
    assert "pool 'other'" in mounted.stripewise("stat", elsewhere / "file").stdout
    assert "pool 'other'" in mounted.stripewise("stat", "--pool", mounted.base / "other", elsewhere / "file").stdout
    # A link outside a pool is followed, one on a pool is a file of it.
    (mounted.base / "outside").symlink_to(elsewhere / "file")
    assert json.loads(asked(mounted, "outside").stdout)["size_bytes"] == 30
    wrong = asked(mounted, elsewhere / "file", "--pool", mounted.file, check=False)
    assert wrong.returncode == 1
    assert "is not below" in wrong.stderr


@root
def test_a_bind_mount_shows_a_part_of_the_pool(mounted):
    part = mounted.base / "part"
    part.mkdir()
    subprocess.run(["mount", "--bind", mounted.mount / "dir", part], check=True)
    try:
        assert asked(mounted, part / "file").stdout == asked(mounted, mounted.mount / "dir" / "file").stdout
    finally:
        subprocess.run(["umount", part], check=True)


def test_a_private_mount_and_a_pool_that_is_not_mounted(pool):
    shown = pool.run("sh", "-c", f"echo hello > {pool.mount}/file; cd {pool.mount}; stripewise stat --json file").stdout
    assert json.loads(shown)["size_bytes"] == 6
    assert asked(pool, pool.mount / "file").stdout == shown


def test_what_is_on_no_pool_is_named_with_the_pools_that_are_mounted(mounted):
    (mounted.base / "plain").write_text("")
    for path in (mounted.base / "plain", mounted.base / "missing", "/proc/self/status", "/etc/passwd/x"):
        done = mounted.stripewise("stat", path, check=False)
        assert done.returncode == 1
        assert done.stdout == ""
        assert str(path) in done.stderr
        assert f"'test' at {mounted.mount}" in done.stderr
        assert f"'other' at {mounted.base / 'else where'}" in done.stderr
        assert "--pool" in done.stderr


def test_what_is_in_a_pools_own_directories_is_no_file_of_it(mounted):
    server = next(mounted.servers()[0].glob(".*"))
    assert f"{server}/x is of server hdd.0 of pool 'test'" in asked(mounted, f"{server}/x", check=False).stderr
    names = next(mounted.servers()[3].glob(".*-names"))
    assert "book-keeping of pool 'test'" in asked(mounted, names / "epoch", check=False).stderr


def test_a_file_that_is_not_there_is_named_with_its_pool(mounted):
    for path in ("missing", "missing/x", "file/x"):
        done = asked(mounted, mounted.mount / path, check=False)
        assert done.returncode == 1
        assert done.stderr == f"error: there is no '{path}' in pool 'test'; check the path\n"
    (mounted.mount / "out").symlink_to("/etc")
    done = asked(mounted, "out/hostname", "--pool", mounted.file, check=False)
    assert done.returncode == 1
    assert "'out/hostname' leads out of pool 'test' by a link" in done.stderr


def test_a_pool_file_that_is_gone_is_named(mounted):
    shutil.move(mounted.file, mounted.base / "moved")
    done = asked(mounted, mounted.mount / "file", check=False)
    assert done.returncode == 1
    assert str(mounted.file) in done.stderr
    assert json.loads(asked(mounted, mounted.mount / "file", "--pool", mounted.base / "moved").stdout)["placed"]


def test_the_mount_of_another_user_is_not_believed(monkeypatch, tmp_path):
    table = tmp_path / "mountinfo"
    table.write_text(
        "22 28 0:20 / /sys rw - sysfs sysfs rw\n"
        r"97 30 0:53 /a\040b /data/my\134pool rw shared:57 master:2 - fuse.stripewise scratch rw,user_id=12345,x" "\n"
        "98 30 0:54 / /own rw - fuse.stripewise own rw,user_id=" f"{os.geteuid()}\n"
    )  # fmt: skip
    monkeypatch.setattr(mounts, "TABLE", table)
    other, own = mounts.ours()
    assert (other.id, other.root, str(other.point), other.source) == (97, "/a b", r"/data/my\pool", "scratch")
    assert own.is_trusted
    assert not other.is_trusted
    with pytest.raises(Exception, match=r"user 12345.*--pool"):
        other.pool_file()
