"""Pools: making one, measuring its servers, looking at it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stripewise import _native, devices, mounts, usage
from stripewise._native import StripewiseError
from stripewise.pool import OpProfile, Pool, Server, Tier, file_of
from stripewise.usage import Usage

if TYPE_CHECKING:
    from stripewise._native import CalibratedTier

__all__ = [
    "PRESET_OF_TIER",
    "NewTier",
    "OpProfile",
    "Pool",
    "Server",
    "Tier",
    "Usage",
    "calibrate",
    "check_each_apart",
    "document",
    "emulated_tiers",
    "file_of",
    "kind_of",
    "make",
    "measured_tiers",
    "parse_bytes",
    "real_tiers",
    "usage_of",
]

PRESET_OF_TIER = {"hdd": "hdd-7200", "ssd": "ssd-sata", "nvme": "nvme"}
"""What an emulated tier stands for, in the order of tiers from slow to fast."""

parse_bytes = _native.parse_bytes
kind_of = devices.kind_of


@dataclass
class NewTier:
    """A tier of a pool that is to be made."""

    name: str
    directories: list[Path] = field(default_factory=list)
    """Of its servers; they are made where they are missing."""
    emulate: str | None = None
    """The device that its servers stand for."""
    capacity_bytes: int | None = None
    """Of each server."""


def emulated_tiers(base: Path, servers: Mapping[str, int]) -> list[NewTier]:
    """Tiers of that many emulated servers each, all below the directory `base`."""
    return [
        NewTier(tier, [base / "servers" / f"{tier}.{index}" for index in range(count)], PRESET_OF_TIER[tier])
        for tier, count in servers.items()
    ]


def real_tiers(directories: Mapping[str, Iterable[Path]], pool: str) -> list[NewTier]:
    """Tiers on disks: a server of the pool named `pool` keeps to a hidden directory of that name in each directory.

    Raises `StripewiseError` for what is no directory, and for one inside another one, on the same disk.
    """
    directories = {tier: list(disks) for tier, disks in directories.items()}
    tiers = []
    for tier, disks in directories.items():
        for disk in disks:
            if not disk.is_dir():
                raise StripewiseError(f"{disk} is not a directory; make it, or mount its disk, first")
        tiers.append(NewTier(tier, [disk.absolute() / f".{pool}" for disk in disks]))
    check_each_apart([disk for disks in directories.values() for disk in disks])
    return tiers


def check_each_apart(disks: Iterable[Path]) -> None:
    """Raises `StripewiseError` for a directory inside another one of them, on the same disk, and `OSError`.

    O(directories by levels of their paths).
    """
    named = {disk.resolve(): disk for disk in disks}
    for whole, disk in named.items():
        device = whole.stat().st_dev
        around = next((place for place in whole.parents if place in named and place.stat().st_dev == device), None)
        if around is not None:
            raise StripewiseError(
                f"{disk} lies inside {named[around]}, on the same disk: name directories on disks of their own"
            )


def check_on_a_disk(directory: Path) -> None:
    """Raises `StripewiseError` for a directory on the mount of a pool: what waits for that could wait for itself."""
    found = mounts.above(directory)
    if found is not None:
        raise StripewiseError(
            f"{directory} lies on a mount of pool '{found.source}' ({found.point}): name a directory on a disk"
        )


def make(
    file: Path,
    name: str,
    tiers: Sequence[NewTier],
    *,
    mount: Path,
    namespace: Path | None = None,
    dilation: float = 1.0,
    shared: bool = False,
) -> Pool:
    """Makes a pool: its directories, and the pool file `file`, which must not be there.

    Names and small files go to `namespace`, beside the first server of the last tier if left out. Times of emulated
    servers are multiplied by `dilation`. A `shared` pool is for several users; only root can make it.

    Raises `StripewiseError` for a directory inside the mount, whatever links lead there, or on that of another pool.
    """
    if file.exists():
        raise StripewiseError(f"{file} exists; remove it or choose another with --output")
    if namespace is None:
        fastest = tiers[-1].directories[0]
        namespace = fastest.with_name(f"{fastest.name}-names")
    for directory in (namespace, *(directory for tier in tiers for directory in tier.directories)):
        if directory.resolve().is_relative_to(mount.resolve()):
            raise StripewiseError(
                f"{directory} lies inside the mount ({mount}), if only by a link: name a directory of its own"
            )
        check_on_a_disk(directory)
    file.parent.mkdir(parents=True, exist_ok=True)
    described: list[_native.NewTier] = [
        {
            "name": tier.name,
            "servers": [str(directory) for directory in tier.directories],
            "capacity_bytes": tier.capacity_bytes,
            "emulate": tier.emulate,
            "dilation": dilation if tier.emulate and dilation != 1.0 else None,
        }
        for tier in tiers
    ]
    _native.pool_init(str(file.absolute()), name, str(mount.absolute()), str(namespace), described, shared)
    return Pool.load(file)


SCRATCH_BYTES = 256 << 20
"""What `calibrate` writes to each real server, as `CalibrateOptions` of the crate store has it."""


def calibrate(
    pool: Pool,
    tiers: Sequence[str] | None = None,
    *,
    budget_s: float = 16.0,
    write: bool = True,
    progress: Callable[[list[float]], None] | None = None,
) -> list[CalibratedTier]:
    """Measures what reads and writes cost on the servers of these tiers, all if left out, in about `budget_s` seconds.

    Writes the profiles into the pool file, if `write`. `progress` is called with the share of each server that is done.
    Raises `StripewiseError` where a disk has no room for what is measured on it.
    """
    chosen = list(tiers or measured_tiers(pool))
    _require_room(pool, chosen)
    measured = _native.calibrate(str(pool.file), chosen, budget_s, progress or (lambda _: None))
    for tier in measured if write else ():
        _native.pool_write_profile(str(pool.file), tier["name"], tier["read"], tier["write"], tier["heads"])
        if tier["name"] == pool.meta.name:
            _native.pool_write_at_once(str(pool.file), tier["at_once"])
            if (names := tier["names"]) is not None:
                _native.pool_write_names(str(pool.file), names["look_s"], names["change_s"])
        else:
            # The namespace takes no part in turns.
            _native.pool_write_seeks(str(pool.file), [(of["name"], _points(of["seeks"])) for of in tier["servers"]])
    return measured


def _require_room(pool: Pool, tiers: Sequence[str]) -> None:
    """Raises `StripewiseError` where a file system has no room for the scratch files of all its servers at once."""
    together: dict[int, list[Server]] = {}
    for tier in (*pool.tiers, pool.meta):
        for server in tier.servers if tier.name in tiers and not tier.emulated else ():
            with suppress(OSError):  # What is not there is named by what measures it.
                together.setdefault(server.path.stat().st_dev, []).append(server)
    for servers in together.values():
        disk, needed_bytes = os.statvfs(servers[0].path), len(servers) * SCRATCH_BYTES
        free_bytes = (disk.f_bfree if os.geteuid() == 0 else disk.f_bavail) * disk.f_frsize
        if disk.f_blocks and free_bytes < needed_bytes:
            names = ", ".join(f"{of.name} in {of.path}" for of in servers)
            raise StripewiseError(
                f"{names}: {free_bytes:,} bytes are free, and what is measured there needs {needed_bytes:,} for as "
                f"long as that takes: free {needed_bytes - free_bytes:,} bytes, or name other tiers with --tier"
            )


def _points(seeks: list[list[float]] | None) -> list[tuple[int, float]] | None:
    """What `calibrate` has measured, as `pool_write_seeks` takes it."""
    return None if seeks is None else [(int(gap_bytes), startup_s) for gap_bytes, startup_s in seeks]


def measured_tiers(pool: Pool) -> list[str]:
    """The tiers that `calibrate` measures by itself: all, but the namespace only beside real servers."""
    tiers = pool.tiers if all(tier.emulated for tier in pool.tiers) else (*pool.tiers, pool.meta)
    return [tier.name for tier in tiers]


def usage_of(pool: Pool) -> dict[str, Usage]:
    """How full each server is, by its name, and whether it is there. O(files of the pool)."""
    return usage.of_pool(pool)


def document(pool: Pool) -> dict[str, Any]:
    """The pool as `stripewise pool show --json` prints it."""
    usages = {name: state.as_dict() for name, state in usage_of(pool).items()}
    return {**_native.pool_load(str(pool.file)), "usage": usages}
