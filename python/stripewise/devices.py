"""What the kernel says of the device under a directory: its kind, and what it has done."""

import os
import stat
from dataclasses import dataclass
from pathlib import Path

from stripewise import mounts

SYS = Path("/sys/dev/block")
SECTOR_BYTES = 512
"""The unit of the kernel's counters, whatever the sectors of the device are."""


@dataclass(frozen=True)
class Counters:
    """What a block device has done since the machine started, for all programs; what caches served is not in it."""

    reads: int
    read_bytes: int
    writes: int
    written_bytes: int
    busy_s: float
    """While at least one request was in the device or its queue."""
    waiting_s: float
    """Of all requests together, from the queue to the end."""


@dataclass(frozen=True)
class Device:
    """A block device, or a partition of one."""

    name: str
    """The kernel's, as in `/proc/diskstats`."""
    directory: Path
    """Its directory in sysfs."""

    def counters(self) -> Counters | None:
        """What it has done so far; `None` where the kernel does not say or the device has gone."""
        try:
            fields = [int(word) for word in (self.directory / "stat").read_text(encoding="ascii").split()]
        except (OSError, ValueError):
            return None
        if len(fields) < 11:
            return None
        reads, _, read_sectors, _, writes, _, written_sectors, _, _, busy_ms, waiting_ms = fields[:11]
        return Counters(
            reads=reads,
            read_bytes=read_sectors * SECTOR_BYTES,
            writes=writes,
            written_bytes=written_sectors * SECTOR_BYTES,
            busy_s=busy_ms * 1e-3,
            waiting_s=waiting_ms * 1e-3,
        )


def of(directory: Path, sys: Path = SYS) -> Device | str:
    """The device under a directory, or why there is none: in words that follow the name of a server.

    A file system that numbers itself (btrfs, ZFS) has the device that the mount table names, if it names one.
    """
    try:
        descriptor = os.open(directory, os.O_PATH | os.O_CLOEXEC)
        try:
            # A file system whose disk has failed may answer the one and not the other.
            number = os.fstat(descriptor).st_dev
            mount = mounts.holding(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        return f"cannot be reached: {error.strerror}"
    device = _by_number(number, sys) or (_by_source(mount.source, sys) if mount is not None else None)
    if device is not None:
        return device
    return f"is on {mount.fs_type}, which has no block device" if mount is not None else "has no block device"


def _by_number(number: int, sys: Path) -> Device | None:
    directory = (sys / f"{os.major(number)}:{os.minor(number)}").resolve()
    return Device(directory.name, directory) if directory.is_dir() else None


def _by_source(source: str, sys: Path) -> Device | None:
    try:
        status = Path(source).stat()
    except (OSError, ValueError):
        return None
    return _by_number(status.st_rdev, sys) if source.startswith("/dev/") and stat.S_ISBLK(status.st_mode) else None


def kind_of(directory: Path, sys: Path = SYS) -> str | None:
    """`hdd`, `ssd` or `nvme` for a directory on a block device; `None` where the kernel does not say.

    A partition has no queue of its own, its disk has; a stack of devices (LVM, dm-crypt, md) is as slow as the
    slowest below it. Network and memory file systems have no block device.
    """
    number = directory.stat().st_dev
    device = (sys / f"{os.major(number)}:{os.minor(number)}").resolve()
    return _kind_of_device(device) if device.is_dir() else None


def _kind_of_device(device: Path) -> str | None:
    disk = device if (device / "queue").is_dir() else device.parent
    below = sorted((disk / "slaves").iterdir()) if (disk / "slaves").is_dir() else []
    if below:
        kinds = [_kind_of_device(slave.resolve()) for slave in below]
        order = ["hdd", "ssd", "nvme"]
        return None if None in kinds else min((kind for kind in kinds if kind), key=order.index)
    try:
        rotational = (disk / "queue" / "rotational").read_text(encoding="ascii").strip()
    except OSError:
        return None
    if rotational == "1":
        return "hdd"
    return "nvme" if disk.name.startswith("nvme") else "ssd"
