"""What the kernel says of the device under a directory."""

import os
from pathlib import Path

SYS = Path("/sys/dev/block")


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
