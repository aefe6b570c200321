"""Unequal disks: plans go by what servers really have free."""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to mount a small file system under a server")

MIB = 1 << 20
FILE_MIB = 96
SSD_MIB = 64
PROFILES = {"hdd": ("8ms", "100MB/s"), "ssd": ("50us", "2GB/s")}
PROGRAM = f"""
import os, sys
fd = os.open(sys.argv[1] + "/large", os.O_RDWR | os.O_CREAT, 0o644)
for n in range({FILE_MIB}):
    os.pwrite(fd, bytes([n]) * {MIB}, n * {MIB})
for n in range({FILE_MIB}):
    assert os.pread(fd, {MIB}, n * {MIB}) == bytes([n]) * {MIB}
"""
CONTENT = hashlib.sha256(b"".join(bytes([n]) * MIB for n in range(FILE_MIB))).hexdigest()


@pytest.fixture
def unequal(pool):
    """Three disks of much room, and a fast one of 64 MiB, with profiles as measured."""
    text = pool.file.read_text()
    for tier, (startup, bandwidth) in PROFILES.items():
        of = f'startup = ["{startup}", "{startup}"]\nbandwidth = "{bandwidth}"\n'
        head, name, rest = text.partition(f'name = "{tier}"\n')
        servers, end, rest = rest.partition("]\n")
        text = f"{head}{name}{servers}{end}[tier.read]\n{of}[tier.write]\n{of}{rest}"
    pool.file.write_text(text)
    server = ssd(pool)
    marker = (server / ".stripewise").read_bytes()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SSD_MIB}m", "none", server], check=True)
    (server / ".stripewise").write_bytes(marker)
    yield pool
    subprocess.run(["umount", "-l", server], check=True)


def ssd(pool):
    shown = json.loads(pool.stripewise("pool", "show", pool.file, "--json").stdout)
    servers = [server for tier in shown["tiers"] for server in tier["servers"]]
    return next(Path(server["path"]) for server in servers if server["name"] == "ssd.0")


def free_bytes(path):
    found = os.statvfs(path)
    return found.f_bavail * found.f_frsize


def plan(pool):
    options = ["--pool", pool.file, "-o", pool.base / "new.layout"]
    document = json.loads(pool.stripewise("plan", pool.base / "run.trace", *options, "--json").stdout)
    on_ssd = next(tier for tier in document["space"] if tier["tier"] == "ssd")
    return document, on_ssd["planned_bytes"]


def traced(pool):
    trace = pool.base / "run.trace"
    pool.stripewise("trace", "--pool", pool.file, "-o", trace, "--", sys.executable, "-c", PROGRAM, pool.mount)


def test_a_plan_puts_no_more_on_a_small_fast_disk_than_it_has_room_for(unequal):
    traced(unequal)
    free = free_bytes(ssd(unequal))
    document, on_ssd = plan(unequal)
    # All would be faster there, and nothing of it can go before its copy is written.
    assert 0 < on_ssd < free < FILE_MIB * MIB
    assert "ssd has room for" in document["limited_by_space"]
    assert "with room for all" in document["limited_by_space"]
    unequal.stripewise("apply", unequal.base / "new.layout", "--pool", unequal.file)
    found = json.loads(unequal.stripewise("stat", "--pool", unequal.file, "large", "--json").stdout)
    held = {datafile["server"]: datafile["allocated_bytes"] for datafile in found["datafiles"]}
    assert held["ssd.0"] == pytest.approx(on_ssd, abs=MIB)
    digest = unequal.run("sha256sum", f"{unequal.mount}/large").stdout.split()[0]
    assert digest == CONTENT
    # The same plan again: what it has there already is room for it.
    assert plan(unequal)[1] >= on_ssd


def test_a_plan_for_files_to_come_leaves_them_the_room_that_there_is(unequal):
    traced(unequal)
    unequal.run("rm", f"{unequal.mount}/large")
    document, on_ssd = plan(unequal)
    assert on_ssd < free_bytes(ssd(unequal)) and document["limited_by_space"] is not None
    printed = unequal.stripewise("plan", unequal.base / "run.trace", "--pool", unequal.file, "-o", "again.layout")
    assert document["limited_by_space"] in printed.stderr
    unequal.stripewise("apply", unequal.base / "new.layout", "--pool", unequal.file)
    unequal.python(PROGRAM)
    found = json.loads(unequal.stripewise("stat", "--pool", unequal.file, "large", "--json").stdout)
    assert found["left_out"] == []
    assert {datafile["server"] for datafile in found["datafiles"]} >= {"ssd.0"}


def test_a_full_disk_is_left_out_of_plans_and_files(unequal):
    traced(unequal)
    unequal.run("rm", f"{unequal.mount}/large")
    server = ssd(unequal)
    with (server / "other").open("wb") as other:
        os.posix_fallocate(other.fileno(), 0, free_bytes(server))
    _, on_ssd = plan(unequal)
    assert on_ssd == 0
    unequal.stripewise("apply", unequal.base / "new.layout", "--pool", unequal.file)
    unequal.python(PROGRAM)
    # Of the default layout, a file leaves it out, and says so.
    unequal.python(PROGRAM.replace("/large", "/another"))
    printed = unequal.stripewise("stat", "--pool", unequal.file, "another").stdout
    assert "left out  ssd.0: without room when the file was made" in printed


def test_what_fits_nowhere_is_said_with_the_rooms(unequal):
    traced(unequal)
    unequal.run("rm", f"{unequal.mount}/large")
    text = unequal.file.read_text()
    unequal.file.write_text(text.replace('name = "hdd"\n', 'name = "hdd"\ncapacity = "8MiB"\n'))
    options = ["--pool", unequal.file, "-o", unequal.base / "new.layout"]
    done = unequal.stripewise("plan", unequal.base / "run.trace", *options, check=False)
    assert done.returncode == 1
    assert "hdd" in done.stderr and "ssd has room for" in done.stderr and "free space there" in done.stderr


SPARSE = f"""
import os, sys
fd = os.open(sys.argv[1] + "/sparse", os.O_RDWR | os.O_CREAT, 0o644)
os.ftruncate(fd, 1 << 42)
os.pwrite(fd, bytes({MIB}), 0)
for _ in range(20):
    os.pread(fd, 65536, 0)
"""


def test_the_holes_of_a_file_need_no_room(unequal):
    trace = unequal.base / "run.trace"
    unequal.stripewise("trace", "--pool", unequal.file, "-o", trace, "--", sys.executable, "-c", SPARSE, unequal.mount)
    options = ["--pool", unequal.file, "-o", unequal.base / "new.layout", "--json"]
    planned = unequal.stripewise("plan", trace, *options, check=False)
    assert planned.returncode == 0, planned.stdout + planned.stderr
    assert json.loads(planned.stdout)["changes"]
