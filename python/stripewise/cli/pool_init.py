"""`stripewise pool init`."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer

from stripewise import devices
from stripewise._native import StripewiseError, parse_bytes
from stripewise._native import pool_init as make_pool
from stripewise.cli import console

PRESET_OF_TIER = {"hdd": "hdd-7200", "ssd": "ssd-sata", "nvme": "nvme"}
"""What an emulated tier stands for, in the order of tiers from slow to fast."""


@dataclass
class _Tier:
    name: str
    directories: list[Path] = field(default_factory=list)
    emulate: str | None = None
    capacity_bytes: int | None = None


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
        float, typer.Option(metavar="K", help="Multiply all times of emulated disks: 0.1 is ten times faster.")
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
        tiers = _emulated_tiers(base, asked)
        name = name or base.name
        mount = mount or base / "mount"
        output = output or base / "pool.toml"
        namespace = base / "namespace"
    else:
        name = name or "scratch"
        tiers = _real_tiers(directories or [], asked, name)
        mount = mount or Path.cwd() / name
        output = output or Path(f"{name}.toml")
        fastest = tiers[-1].directories[0]
        namespace = fastest.with_name(f"{fastest.name}-names")
    _set_capacities(tiers, capacity or [])

    if output.exists():
        raise StripewiseError(f"{output} exists; remove it or choose another with --output")
    output.parent.mkdir(parents=True, exist_ok=True)
    make_pool(
        str(output.absolute()),
        name,
        str(mount.absolute()),
        str(namespace),
        [
            {
                "name": tier.name,
                "servers": [str(directory) for directory in tier.directories],
                "capacity_bytes": tier.capacity_bytes,
                "emulate": tier.emulate,
                "dilation": dilation if tier.emulate and dilation != 1.0 else None,
            }
            for tier in tiers
        ],
        shared,
    )
    servers = sum(len(tier.directories) for tier in tiers)
    console.say(f"made pool '{name}' of {servers} {'emulated ' if emulate else ''}servers: {output}")
    if not emulate:
        console.hint(f"`stripewise pool calibrate {output}` measures the devices, which planning needs")


def _emulated_tiers(base: Path, asked: dict[str, list[str]]) -> list[_Tier]:
    tiers = []
    for tier, values in asked.items():
        if not values:
            continue
        if len(values) > 1 or not values[0].isdecimal() or not 1 <= int(values[0]) <= 1000:
            raise StripewiseError(
                f"--{tier} {' '.join(values)}: with --emulate it takes a number of disks from 1 to 1000"
            )
        servers = [base / "servers" / f"{tier}.{index}" for index in range(int(values[0]))]
        tiers.append(_Tier(tier, servers, emulate=PRESET_OF_TIER[tier]))
    if not tiers:
        raise StripewiseError("a pool needs servers; say how many: --hdd 6 --ssd 2")
    return tiers


def _real_tiers(directories: list[Path], asked: dict[str, list[str]], name: str) -> list[_Tier]:
    tiers = {tier: _Tier(tier) for tier in PRESET_OF_TIER}
    for directory in directories:
        kind = devices.kind_of(directory)
        if kind is None:
            raise StripewiseError(
                f"cannot tell what kind of disk {directory} is on; say it with --hdd, --ssd or --nvme {directory}"
            )
        tiers[kind].directories.append(directory)
    for tier, values in asked.items():
        for value in values:
            if value.isdecimal() and not Path(value).is_dir():
                raise StripewiseError(f"--{tier} {value}: a number of disks needs --emulate; else name a directory")
            tiers[tier].directories.append(Path(value))
    used = [tier for tier in tiers.values() if tier.directories]
    if not used:
        raise StripewiseError(
            "a pool needs servers; name a directory on each disk: pool init /disk1 /disk2 --ssd /nvme"
        )
    for tier_ in used:
        for directory in tier_.directories:
            if not directory.is_dir():
                raise StripewiseError(f"{directory} is not a directory; make it, or mount its disk, first")
        tier_.directories = [directory.absolute() / f".{name}" for directory in tier_.directories]
    return used


def _set_capacities(tiers: list[_Tier], values: list[str]) -> None:
    for value in values:
        tier_name, _, size = value.rpartition("=")
        capacity_bytes = parse_bytes(size)
        named = [tier for tier in tiers if tier_name in ("", tier.name)]
        if not named:
            names = ", ".join(tier.name for tier in tiers)
            raise StripewiseError(f"--capacity {value}: the pool has no tier '{tier_name}', it has {names}")
        for tier in named:
            tier.capacity_bytes = capacity_bytes
