"""Layouts that any user may have written: whatever stands under the name of one, the commands say which it is and what
is wrong with it, and serve the other files. The mount's side is in crates/mount/tests/users.rs."""

import json
import os
import random
import re
import tomllib

import pytest

# 15 regions of one round of 65,535 servers; a number of rounds that no memory holds; and so on.
HOSTILE = {
    "one-byte": b"\x01",
    "noise": random.Random(7).randbytes(3000),
    "of-another-version": b"\x02\x01\x01\x00\x01\x01\x01\x00\x00",
    "million-stripes": bytes([1, 1, 1, 0, 0xFF, 0xFF, 3, 1, 15, 0, 0]) + bytes([1, 0]) * 14,
    "countless-rounds": b"\x01" + b"\xff" * 8 + b"\x7f",
    "endless-number": b"\x01" + b"\xff" * 300,
    "unknown-server": bytes([1, 1, 1, 0xC8, 1, 1, 1, 1, 0, 0]),
    "no-width": bytes([1, 1, 1, 0, 1, 0, 1, 0, 0]),
    "no-region": bytes([1, 1, 1, 0, 1, 1, 0]),
    "far-offset": bytes([1, 1, 1, 0, 1, 1, 2, 0, 0]) + b"\xff" * 9 + b"\x01\x00",
    "longer-than-it-is": bytes([1, 1, 1, 0, 1, 1, 1, 0, 0, 0]),
    "cut": bytes([1, 1, 1, 0, 1]),
}
PLAIN = '[[file.region]]\noffset = "0"\nround = ["hdd.0-1:8KiB"]\n'


def crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def with_layout(handle: bytes, layout: str) -> bytes:
    """The same handle (docs/format.md) of a file with another layout."""
    changed = handle[:30] + bytes.fromhex(layout) + handle[62:-4]
    return changed + crc32c(changed).to_bytes(4, "big")


@pytest.fixture
def hostile(pool):
    """A pool with a file of each hostile layout, and a good one; hashes by name."""
    source = pool.base / "source"
    source.mkdir()
    for name, content in HOSTILE.items():
        (source / f"bytes-{name}").write_bytes(content)
        (source / name).write_bytes(b"x" * 300_000)
    (source / "good").write_bytes(b"good" * 100_000)
    pool.run("cp", "-r", f"{source}/.", pool.mount)
    # A move says the hash of what it has moved, which is that of a layout of these bytes.
    files = "".join(f'[[file]]\npath = "bytes-{name}"\n{PLAIN}' for name in HOSTILE)
    said = pool.apply(f'version = 1\npool = "test"\n{files}').stdout
    namespace = (pool.file.parent / tomllib.loads(pool.file.read_text())["namespace"]).resolve()
    hashes = {}
    for name, content in HOSTILE.items():
        (hashes[name],) = re.findall(rf"bytes-{name}: moved .*, blake3 ([0-9a-f]{{64}})", said)
        (namespace / "layouts" / hashes[name]).write_bytes(content)
        inode = namespace / "tree" / name
        handle = os.getxattr(inode, "user.stripewise")
        assert crc32c(handle[:-4]).to_bytes(4, "big") == handle[-4:]
        os.setxattr(inode, "user.stripewise", with_layout(handle, hashes[name]))
    return pool, hashes, namespace


def test_a_hostile_layout_is_told_by_every_command_and_harms_no_other_file(hostile):
    pool, hashes, namespace = hostile
    handles = {name: os.getxattr(namespace / "tree" / name, "user.stripewise") for name in HOSTILE}
    for name, digest in hashes.items():
        for command in (
            ("stat", "--pool", pool.file, name),
            ("apply", pool.base / f"{name}.layout", "--pool", pool.file),
        ):
            (pool.base / f"{name}.layout").write_text(f'version = 1\npool = "test"\n[[file]]\npath = "{name}"\n{PLAIN}')
            done = pool.stripewise(*command, check=False)
            said = done.stdout + done.stderr
            assert done.returncode not in (0, -9, -6), (name, said)
            assert digest[:8] in said and "Traceback" not in said and "panicked" not in said, (name, said)
    done = pool.stripewise("fsck", pool.file, "--json", check=False)
    *findings, last = map(json.loads, done.stdout.splitlines())
    assert done.returncode == last["report"]["exit_code"] == 4, done.stdout + done.stderr
    left = {finding["path"] for finding in findings if finding["kind"] == "missing-layout"}
    assert left == set(HOSTILE), findings
    # Nothing of them was given up or changed, and all else goes on.
    for name, handle in handles.items():
        assert os.getxattr(namespace / "tree" / name, "user.stripewise") == handle, name
    pool.run("cmp", pool.base / "source" / "good", pool.mount / "good")
    failed = pool.run("cat", *(pool.mount / name for name in HOSTILE), check=False)
    assert failed.stdout == "" and failed.stderr.count("Input/output error") == len(HOSTILE), failed.stderr
    good = pool.stripewise("stat", "--pool", pool.file, "good", "--json")
    assert json.loads(good.stdout)["size_bytes"] == 400_000
