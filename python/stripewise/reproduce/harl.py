"""HARL (He et al. 2015): six or so hard disks and two or so SSDs behind Gigabit Ethernet, under OrangeFS."""

from __future__ import annotations

from collections.abc import Callable

from stripewise import _native
from stripewise.reproduce import measure, placement
from stripewise.reproduce.cluster import GIB, KIB, MIB, Devices, Operation, Tier
from stripewise.reproduce.experiment import Cell, Context, Experiment, Result, Row, Sample, counted
from stripewise.reproduce.placement import OURS, Variant, fixed, planned, random_pairs
from stripewise.reproduce.throughput import Choice, Gain, Ran, Setting, Throughput, ours_over
from stripewise.reproduce.workload import Collective, Ior, Op, Part

PAPER = "HARL (He et al. 2015)"
OPS: tuple[Op, ...] = ("read", "write")
MEASURED_SHARE = 1 / 128
"""Of the paper's bytes that is measured: 128 MiB of 16 GiB."""


def set_ab(hdds: int, ssds: int) -> Devices:
    """The paper does not give its devices' times. With these all the layouts that it reports are the best."""
    disk = Operation(0.3, 1.4, 24)
    return Devices(
        f"{hdds} HDDs (0.3-1.4 ms, 24 KB/ms), {ssds} SSDs (read 0.05-0.10 ms, 122 KB/ms; write 0.08-0.16 ms, 103 KB/ms)"
        ", Gigabit Ethernet (117 KB/ms): not in the paper, but all the layouts that it reports are the best with them",
        (
            Tier("hdd", hdds, disk, disk),
            Tier("ssd", ssds, Operation(0.05, 0.10, 122), Operation(0.08, 0.16, 103)),
        ),
        117,
    )


DEFAULT = fixed(64)
HARL = planned("harl-paper", "HARL")
ours_over_harl = ours_over("HARL")
EPSILON = 1e-3
"""The paper compares a coefficient of variation with the one before it and does not say what is a change from none."""


def _every_change(devices: Devices, steps: _native.Steps, _network: str) -> _native.Regions:
    (regions,) = _native.plan_harl_generated(devices.native(), steps, EPSILON)
    return placement.from_native(regions)


HARL_EVERY_CHANGE = Variant("HARL", _every_change)
FIXED = (fixed(16), DEFAULT, fixed(256, measured=False), fixed(1024, measured=False), fixed(2048))
RANDOM = tuple(random_pairs(4, 512, seed=2015, measured=1))


def ior(x: str, devices: Devices, workload: Ior, variants: tuple[Variant, ...], *, measured: bool) -> list[Setting]:
    """IOR reading, and IOR writing."""
    reduced = workload.shrunk(MEASURED_SHARE) if measured else None
    return [Setting(x, op, devices, workload, variants, reduced) for op in OPS]


def uniform(processes: int, request_kib: int) -> Ior:
    """IOR on one file of 16 GB."""
    return Ior.uniform(processes, request_kib * KIB, 16 * GIB)


def over_default(read: float, write: float, *xs: str) -> list[Gain]:
    """HARL over 64 KB stripes, in percent."""
    return [Gain(xs, op, "HARL", ("64K",), paper) for op, paper in zip(OPS, (read, write), strict=True)]


def as_pair(layout: _native.Regions, devices: Devices) -> str:
    """`{32K,160K}`: the widths of hard disks and SSDs."""
    ((_, stripes),) = layout
    widths = dict(stripes)
    slow, _ = devices.tiers
    return f"{{{widths.get(0, 0) // KIB}K,{widths.get(slow.servers, 0) // KIB}K}}"


def tiers_used(layout: _native.Regions, _devices: Devices) -> str:
    """`SSDs only`, `both tiers`."""
    widths_of = placement.text(layout, _devices)
    used = [name for name in ("hdd", "ssd") if f"{name} " in widths_of]
    return {("hdd", "ssd"): "both tiers", ("ssd",): "SSDs only", ("hdd",): "HDDs only"}[tuple(used)]


# Figure 1(a)


def fig1a(experiment: Experiment, context: Context) -> Result:
    """What the servers' times differ by, not a throughput."""
    devices, workload = set_ab(6, 2), uniform(16, 512)
    layout = placement.widths([64 * KIB] * devices.servers)
    steps = workload.shrunk(context.share).steps("read", context.seed)
    simulated = _native.simulate_generated(devices.native(), [layout], steps, seed=context.seed)
    times = [server["busy_s"] + server["link_busy_s"] for server in simulated["servers"]]
    shares: list[list[float]] = []
    runs: list[measure.Run] = []
    invalid = []
    reduced = workload.shrunk(MEASURED_SHARE * context.measured_share)
    if not context.simulate_only:
        pool = measure.EmulatedPool(context.directory / experiment.name, devices)
        pool.place({"fig1a.dat": layout})
        pool.write_once("fig1a.dat", reduced)
        try:
            for number in range(context.rounds):
                context.say(f"{experiment.name}: measuring {reduced.text()}, round {number + 1} of {context.rounds}")
                run = pool.run("fig1a.dat", reduced, "read")
                runs.append(run)
                shares.append(_over_least([server["read"]["busy_s"] for server in run.servers]))
        except measure.InvalidRunError as error:
            shares, invalid = [], [str(error)]
    result = Result(experiment, axis="I/O time over the least of all servers", invalid=invalid)
    result.setup = [f"devices: {devices.name}", f"the paper's scale: {workload.text()}, 64K on every server"]
    if shares:
        result.setup.append(
            f"measured: real processes on EMULATED servers, {counted(len(shares))}; reduced to {reduced.text()}"
        )
        result.setup.append(measure.checked_text(runs))
    for number, share in enumerate(_over_least(times)):
        measured = Sample.of([one[number] for one in shares]) if shares else None
        result.cells.append(Cell("read", devices.server_name(number), "64K", share, measured))
    slow = devices.tiers[0].servers
    ratio = _slow_over_fast(times, slow)
    sample = Sample.of([_slow_over_fast(share, slow) for share in shares]) if shares else None
    why = f"{ratio - 3.5:+.2f}: device and network together, of the devices that the paper's layouts imply"
    result.rows = [Row("I/O time of an HServer over that of an SServer", 3.5, ratio, "x", sample, None, why)]
    return result


def _over_least(times: list[float]) -> list[float]:
    return [time / min(times) for time in times]


def _slow_over_fast(times: list[float], slow: int) -> float:
    return (sum(times[:slow]) / slow) / (sum(times[slow:]) / (len(times) - slow))


# Figures 7 to 11


def fig7() -> Throughput:
    """All the layouts of the paper; its random pairs are not given."""
    variants = (*FIXED, *RANDOM, HARL, OURS)
    settings = ior("512K", set_ab(6, 2), uniform(16, 512), variants, measured=True)
    others = tuple(variant.label for variant in FIXED)
    random = tuple(variant.label for variant in RANDOM)
    return Throughput(
        tuple(settings),
        gains=(
            *over_default(73.4, 176.7, "512K"),
            Gain(("512K",), "read", "HARL", others, 138.6, "fixed width"),
            Gain(("512K",), "write", "HARL", others, 177.6, "fixed width"),
            Gain(("512K",), "read", "HARL", random, 154.5, "random pair"),
            Gain(("512K",), "write", "HARL", random, 215.4, "random pair"),
        ),
        choices=(
            Choice("512K", "read", "HARL", "{32K,160K}", as_pair),
            Choice("512K", "write", "HARL", "{36K,148K}", as_pair),
        ),
        remarks=ours_over_harl,
        bounded=True,
    )


def fig8() -> Throughput:
    """From 8 to 256 processes."""
    paper = {8: (144.1, 104.8), 32: (138.1, 182.2), 128: (182.3, 168.5), 256: (120.2, 235.1)}
    settings: list[Setting] = []
    gains: list[Gain] = []
    for processes, figures in paper.items():
        x = f"p = {processes}"
        variants = (DEFAULT, fixed(256), fixed(1024), HARL, OURS)
        settings += ior(x, set_ab(6, 2), uniform(processes, 512), variants, measured=False)
        gains += over_default(*figures, x)
    return Throughput(tuple(settings), tuple(gains), remarks=ours_over_harl, bounded=True)


def fig9() -> Throughput:
    """Small and large requests; the paper gives one gain for both."""
    settings: list[Setting] = []
    for request_kib in (128, 1024):
        variants = (DEFAULT, fixed(1024, measured=False), HARL, OURS)
        settings += ior(f"{request_kib}K", set_ab(6, 2), uniform(16, request_kib), variants, measured=True)
    return Throughput(
        tuple(settings),
        gains=tuple(over_default(80.1, 147.1, "128K", "1024K")),
        choices=(
            Choice("128K", "read", "HARL", "{0K,64K}", as_pair),
            Choice("128K", "write", "HARL", "{0K,64K}", as_pair),
            Choice("1024K", "read", "HARL", "both tiers", tiers_used),
            Choice("1024K", "write", "HARL", "both tiers", tiers_used),
        ),
        remarks=ours_over_harl,
        bounded=True,
    )


def fig10() -> Throughput:
    """One SSD, and more SSDs than hard disks; the paper gives one gain for both."""
    settings: list[Setting] = []
    for hdds, ssds in ((7, 1), (2, 6)):
        x = f"{hdds}:{ssds}"
        settings += ior(x, set_ab(hdds, ssds), uniform(16, 512), (DEFAULT, HARL, OURS), measured=True)
    return Throughput(
        tuple(settings),
        tuple(over_default(474.9, 180.3, "7:1", "2:6")),
        choices=(
            Choice("7:1", "read", "HARL", "both tiers", tiers_used),
            Choice("2:6", "read", "HARL", "SSDs only", tiers_used),
            Choice("2:6", "write", "HARL", "SSDs only", tiers_used),
        ),
        remarks=ours_over_harl,
        bounded=True,
    )


def fig11() -> Throughput:
    """The paper does not say which request sizes; these are those of its other figures."""
    parts = zip((256, 1024, 2048, 4096), (128, 256, 512, 1024), strict=True)
    workload = Ior(16, tuple(Part(length * MIB, request * KIB) for length, request in parts))
    variants = (DEFAULT, fixed(256), fixed(1024, measured=False), HARL_EVERY_CHANGE, OURS)
    devices = set_ab(6, 2)
    reduced = workload.shrunk(1 / 32)
    settings = tuple(Setting("4 regions", op, devices, workload, variants, reduced) for op in OPS)

    def remarks(ran: dict[tuple[str, Op], Ran]) -> list[str]:
        layouts = ran["4 regions", "read"].layouts["HARL"]
        lines = [f"HARL's regions, reads: {placement.text(layouts, devices)}"]
        lines.append(
            f"a change counts from a coefficient of variation of {EPSILON:g} on: the paper does not say from which, "
            "and among a region's many equal requests the first of the next makes little difference"
        )
        return [*lines, *ours_over_harl(ran)]

    return Throughput(settings, tuple(over_default(255.6, 116.9, "4 regions")), remarks=remarks)


# Figure 12


def fig12() -> Throughput:
    """The paper says class A and 1.69 GB; that many bytes are class B's: 102^3 points of 40 bytes, 40 times."""
    points, point_bytes, steps = 102**3, 5 * 8, 40
    buffer = 4 * MIB
    nodes = 8
    variants = (DEFAULT, fixed(256), fixed(1024), HARL, OURS)
    settings = []
    for processes in (4, 16, 64):
        workload = Collective(processes, min(processes, nodes), points * point_bytes, steps, buffer)
        settings.append(Setting(f"p = {processes}", "both", set_ab(6, 2), workload, variants))
    gains = zip((4, 16, 64), (163.5, 116.9, 114.8), strict=True)

    def remarks(ran: dict[tuple[str, Op], Ran]) -> list[str]:
        written = points * point_bytes * steps
        class_a = 64**3 * point_bytes * steps
        return [
            f"the paper says class A and 1.69 GB; {written / 1e9:.2f} GB is what class B writes, class A writes "
            f"{class_a / 1e9:.2f} GB: this is class B, an aggregator on each of at most {nodes} compute nodes, with "
            f"the buffers of {buffer // MIB} MB that ROMIO then had",
            *ours_over_harl(ran),
        ]

    return Throughput(
        tuple(settings),
        tuple(Gain((f"p = {processes}",), "both", "HARL", ("64K",), paper) for processes, paper in gains),
        remarks=remarks,
    )


def _experiment(name: str, figure: str, title: str, run: Callable[[Experiment, Context], Result]) -> Experiment:
    emulated = name in ("harl-fig1a", "harl-fig7", "harl-fig9", "harl-fig10", "harl-fig11")
    return Experiment(name, PAPER, figure, title, emulated, run)


EXPERIMENTS = (
    _experiment("harl-fig1a", "Figure 1(a)", "I/O time of each server, 64K stripes on 6 HDDs and 2 SSDs", fig1a),
    _experiment("harl-fig7", "Figure 7", "IOR, 16 processes, 512K random: fixed widths, random pairs, HARL", fig7()),
    _experiment("harl-fig8", "Figure 8", "IOR, 512K random, 8 to 256 processes", fig8()),
    _experiment("harl-fig9", "Figure 9", "IOR, 16 processes, requests of 128K and 1024K", fig9()),
    _experiment("harl-fig10", "Figure 10", "IOR, 16 processes, 7 HDDs and an SSD, 2 HDDs and 6 SSDs", fig10()),
    _experiment("harl-fig11", "Figure 11", "IOR, 16 processes, four regions with a request size each", fig11()),
    _experiment("harl-fig12", "Figure 12", "BTIO, collective, 4, 16 and 64 processes", fig12()),
)
