"""`stripewise pool init`."""

from pathlib import Path
from typing import Annotated

import typer

from stripewise import StripewiseError
from stripewise.api import pools
from stripewise.cli import console
from stripewise.cli.finite import finite


def pool_init(
    directories: Annotated[
        list[Path] | None,
        typer.Argument(metavar="DIR...", help="Directories, one per disk. With --emulate: one for the whole pool."),
    ] = None,
    hdd: Annotated[
        list[str] | None,
        typer.Option(metavar="DIR|N", help="A directory on a hard disk, again for each; with --emulate: how many."),
    ] = None,
    ssd: Annotated[list[str] | None, typer.Option(metavar="DIR|N", help="The same for SATA solid-state disks.")] = None,
    nvme: Annotated[list[str] | None, typer.Option(metavar="DIR|N", help="The same for NVMe disks.")] = None,
    emulate: Annotated[
        bool, typer.Option("--emulate", help="Emulate the disks on this machine: real bytes, charged times.")
    ] = False,
    dilation: Annotated[
        float,
        typer.Option(
            metavar="K", callback=finite, help="Multiply all times of emulated disks: 0.1 is ten times faster."
        ),
    ] = 1.0,
    capacity: Annotated[
        list[str] | None,
        typer.Option(metavar="[TIER=]SIZE", help="Bytes that each server (of TIER) may hold, such as ssd=100GB."),
    ] = None,
    name: Annotated[
        str | None, typer.Option(metavar="NAME", help="Name of the pool; the directory's name, or 'scratch'.")
    ] = None,
    mount: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where programs see the files; ./NAME, or DIR/mount.")
    ] = None,
    shared: Annotated[
        bool,
        typer.Option(
            "--shared", help="Several users use it directly, with mounts of their own; only root can make it."
        ),
    ] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="POOL", help="Pool file; ./NAME.toml, or DIR/pool.toml.")
    ] = None,
) -> None:
    """Make a pool: servers on some directories, a namespace, and the file that describes it.

    Directories named without a tier are sorted into hdd, ssd and nvme by what the kernel says of their device. Names
    and small files go to the fastest tier. Nothing that is in the directories is touched: the pool keeps to a hidden
    directory of its own name in each. Edit the file afterwards as you like; `pool calibrate` measures the devices.

    \b
    Examples:
      stripewise pool init ./p --hdd 6 --ssd 2 --emulate
      stripewise pool init ./p --hdd 6 --ssd 2 --emulate --capacity ssd=100MiB
      stripewise pool init /disk1 /disk2 --ssd /nvme --name scratch \\
          --mount /data/scratch
    """
    asked = {"hdd": hdd or [], "ssd": ssd or [], "nvme": nvme or []}
    if emulate:
        if len(directories or []) != 1:
            raise StripewiseError(
                "--emulate takes one directory for the whole pool, such as: pool init ./p --emulate --hdd 6 --ssd 2"
            )
        base = (directories or [])[0].absolute()
        tiers = pools.emulated_tiers(base, _counts(asked))
        name = name or base.name
        mount = mount or base / "mount"
        output = output or base / "pool.toml"
        namespace = base / "namespace"
    else:
        name = name or "scratch"
        tiers = pools.real_tiers(_disks(directories or [], asked), name)
        mount = mount or Path.cwd() / name
        output = output or Path(f"{name}.toml")
        namespace = None
    _set_capacities(tiers, capacity or [])
    pools.make(output, name, tiers, mount=mount, namespace=namespace, dilation=dilation, shared=shared)
    servers = sum(len(tier.directories) for tier in tiers)
    console.say(f"made pool '{name}' of {servers} {'emulated ' if emulate else ''}servers: {output}")
    if not emulate:
        console.hint(f"`stripewise pool calibrate {output}` measures the devices, which planning needs")


def _counts(asked: dict[str, list[str]]) -> dict[str, int]:
    """How many disks of each kind to emulate."""
    counts = {}
    for tier, values in asked.items():
        if not values:
            continue
        if len(values) > 1 or not values[0].isdecimal() or not 1 <= int(values[0]) <= 1000:
            raise StripewiseError(
                f"--{tier} {' '.join(values)}: with --emulate it takes a number of disks from 1 to 1000"
            )
        counts[tier] = int(values[0])
    if not counts:
        raise StripewiseError("a pool needs servers; say how many: --hdd 6 --ssd 2")
    return counts


def _disks(directories: list[Path], asked: dict[str, list[str]]) -> dict[str, list[Path]]:
    """The directories of each kind of disk, those that were named without one sorted in."""
    disks: dict[str, list[Path]] = {tier: [] for tier in pools.PRESET_OF_TIER}
    for directory in directories:
        kind = pools.kind_of(directory)
        if kind is None:
            raise StripewiseError(
                f"cannot tell what kind of disk {directory} is on; say it with --hdd, --ssd or --nvme {directory}"
            )
        disks[kind].append(directory)
    for tier, values in asked.items():
        for value in values:
            if value.isdecimal() and not Path(value).is_dir():
                raise StripewiseError(f"--{tier} {value}: a number of disks needs --emulate; else name a directory")
            disks[tier].append(Path(value))
    used = {tier: named for tier, named in disks.items() if named}
    if not used:
        raise StripewiseError(
            "a pool needs servers; name a directory on each disk: pool init /disk1 /disk2 --ssd /nvme"
        )
    return used


def _set_capacities(tiers: list[pools.NewTier], values: list[str]) -> None:
    for value in values:
        tier_name, _, size = value.rpartition("=")
        capacity_bytes = pools.parse_bytes(size)
        named = [tier for tier in tiers if tier_name in ("", tier.name)]
        if not named:
            names = ", ".join(tier.name for tier in tiers)
            raise StripewiseError(f"--capacity {value}: the pool has no tier '{tier_name}', it has {names}")
        for tier in named:
            tier.capacity_bytes = capacity_bytes
