"""Song et al. 2012: a width for every server, on PVFS2 behind Gigabit Ethernet or InfiniBand."""

from __future__ import annotations

from collections.abc import Callable

from stripewise import _native
from stripewise.reproduce.cluster import KIB, MIB, Devices, Operation, Tier
from stripewise.reproduce.experiment import Context, Experiment, Result
from stripewise.reproduce.placement import OURS, Variant, equal_depth, fixed, per_server
from stripewise.reproduce.throughput import Choice, Gain, Ran, Setting, Throughput, ours_over
from stripewise.reproduce.workload import Loop, Op

PAPER = "Song et al. 2012"
OPS: tuple[Op, ...] = ("read", "write")
ETHERNET, INFINIBAND = 117.0, 8e9 / 8 / KIB / 1000
"""KB/ms of 1 and of 8 Gbit/s (the first as measured by HARL's authors on the same cluster)."""
DILATION = 5.0
"""A request of 1 KB takes 0.2 ms, too short for a process to be woken in time."""


def servers(count: int, network: float, name: str) -> Devices:
    """The paper gives 0.2 ms and lost the bandwidth in print; 80 to 90 MB/s is where its Table II comes out."""
    device = Operation(0.1, 0.3, 85)
    text = f"{count} servers (0.1-0.3 ms, 85 KB/ms: the bandwidth is not legible in the paper, its Table II implies it)"
    return Devices(f"{text}, {name}", (Tier("hdd", count, device, device),), network)


def on_ethernet(count: int) -> Devices:
    """Gigabit Ethernet."""
    return servers(count, ETHERNET, "Gigabit Ethernet")


def on_infiniband(count: int) -> Devices:
    """4X InfiniBand."""
    return servers(count, INFINIBAND, "InfiniBand (8 Gbit/s)")


SMALL_AND_LARGE = Loop(16, (*(KIB,) * 192, 64 * KIB), 64, "song")
"""The paper does not say how many loops."""
ADAPTIVE = "equal depth"
ours = ours_over(ADAPTIVE)


def of_servers(layout: _native.Regions, devices: Devices) -> str:
    """`(49,49,49,109)`: widths in KB."""
    ((_, stripes),) = layout
    widths = dict(stripes)
    return f"({','.join(f'{widths.get(server, 0) / KIB:g}' for server in range(devices.servers))})"


def table2() -> Throughput:
    """Widths and gains for two rounds and four block sizes."""
    paper = {
        (256, 1): ("(49,49,49,109)", 32.5),
        (256, 2): ("(50,50,50,106)", 32.3),
        (256, 4): ("(48,48,48,112)", 32.0),
        (256, 8): ("(48,48,48,112)", 32.0),
        (512, 1): ("(98,158,98,158)", 18.2),
        (512, 2): ("(98,158,98,158)", 18.2),
        (512, 4): ("(100,156,100,156)", 18.1),
        (512, 8): ("(96,160,96,160)", 17.9),
    }
    settings, choices, gains = [], [], []
    for (round_kib, block_kib), (widths, gain) in paper.items():
        x = f"{round_kib}K/{block_kib}K"
        default = fixed(round_kib // 4)
        variants = (Variant("equal widths", default.make), equal_depth(ADAPTIVE, round_kib, block_kib))
        settings.append(Setting(x, "read", on_infiniband(4), SMALL_AND_LARGE, variants))
        choices.append(Choice(x, "read", ADAPTIVE, widths, of_servers))
        gains.append(Gain((x,), "read", ADAPTIVE, ("equal widths",), gain))

    def remarks(_: dict[tuple[str, Op], Ran]) -> list[str]:
        return ["x is the size of a round and of a block; the gains of the paper were measured, ours are simulated"]

    return Throughput(tuple(settings), tuple(gains), tuple(choices), remarks)


def fig5() -> Throughput:
    """Other widths of the last server, too, as in the paper's plot."""
    sweep = [per_server((width, width, width, 256 - 3 * width)) for width in (68, 60, 56, 52, 44, 40)]
    variants = (
        fixed(64),
        *(Variant(other.label, other.make, measured=False) for other in sweep),
        equal_depth(ADAPTIVE, 256, 4),
        OURS,
    )
    settings = []
    for x, devices in (("Ethernet", on_ethernet(4)), ("InfiniBand", on_infiniband(4))):
        reduced = SMALL_AND_LARGE.shrunk(1 / 32) if x == "Ethernet" else None
        settings += [Setting(x, op, devices, SMALL_AND_LARGE, variants, reduced) for op in OPS]
    paper = {"Ethernet": (26.0, 19.0), "InfiniBand": (32.0, 27.0)}
    gains = [
        Gain((x,), op, ADAPTIVE, ("64K",), figure)
        for x, figures in paper.items()
        for op, figure in zip(OPS, figures, strict=True)
    ]
    choices = [Choice(x, "read", ADAPTIVE, "(48,48,48,112)", of_servers) for x in paper]
    return Throughput(tuple(settings), tuple(gains), tuple(choices), ours, DILATION)


def fig6() -> Throughput:
    """The paper does not give its instances' parameters."""

    def quarters(*requests_kib: int) -> tuple[int, ...]:
        return tuple(kib * KIB for kib in requests_kib for _ in range(MIB // (kib * KIB)))

    ior, tiles, merged = quarters(4, 16, 64, 256), quarters(8, 16, 32, 64), quarters(1024, 1024, 1024, 1024)
    devices = on_ethernet(64)
    variants = (fixed(64), equal_depth(ADAPTIVE, 64 * 64, 2), OURS)
    workloads = {
        "IOR sequential": Loop(64, ior, 4, "ior", strided=True),
        "IOR random": Loop(64, ior, 4, "ior", strided=True, shuffled=True),
        "tile": Loop(64, tiles, 4, "mpi-tile-io", strided=True),
        "tile, collective": Loop(64, merged, 8, "mpi-tile-io", strided=True),
    }
    settings = [Setting(x, op, devices, workload, variants) for x, workload in workloads.items() for op in OPS]
    ior_xs, tile_xs = ("IOR sequential", "IOR random"), ("tile", "tile, collective")
    gains = [Gain(xs, op, ADAPTIVE, ("64K",), paper) for xs, paper in ((ior_xs, 81.5), (tile_xs, 54.6)) for op in OPS]

    def remarks(ran: dict[tuple[str, Op], Ran]) -> list[str]:
        return [
            "the paper says that several instances with different parameters ran, and not with which: here each "
            "quarter of a round has a request size of its own; collective calls join the requests of a quarter",
            *ours(ran),
        ]

    return Throughput(tuple(settings), tuple(gains), remarks=remarks)


def fig7() -> Throughput:
    """Writes of one application of Los Alamos, over the fixed widths of the paper."""
    workload = Loop(64, (16, 128 * KIB - 16, 128 * KIB), 64, "lanl-app1", strided=True)
    widths = (32, 64, 128, 256, 512)
    variants = (*(fixed(width) for width in widths), equal_depth(ADAPTIVE, 16 * 64, 2), OURS)
    setting = Setting("App 1", "write", on_infiniband(16), workload, variants, workload.shrunk(1 / 8))
    over = tuple(variant.label for variant in variants[: len(widths)])
    gains = (Gain(("App 1",), "write", ADAPTIVE, over, 80.3, "fixed width"),)
    return Throughput((setting,), gains, remarks=ours, dilation=DILATION)


def _experiment(name: str, figure: str, title: str, run: Callable[[Experiment, Context], Result]) -> Experiment:
    return Experiment(name, PAPER, figure, title, name in ("song-fig5", "song-fig7"), run)


EXPERIMENTS = (
    _experiment("song-table2", "Table II", "a loop of 192 x 1 KB and 64 KB: widths by round and block size", table2()),
    _experiment("song-fig5", "Figure 5", "the same loop, 16 clients, 4 servers: widths against 64K on each", fig5()),
    _experiment("song-fig6", "Figure 6", "IOR and MPI-TILE-IO instances of several sizes, 64 servers", fig6()),
    _experiment("song-fig7", "Figure 7", "LANL App 1, 64 clients, 16 servers: widths against fixed ones", fig7()),
)
