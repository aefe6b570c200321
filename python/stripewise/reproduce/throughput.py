"""Experiments that compare the throughput of one workload under several layouts: most of them."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np

from stripewise import _native
from stripewise.reproduce import measure, placement
from stripewise.reproduce.cluster import MIB, Devices
from stripewise.reproduce.experiment import Cell, Context, Experiment, Result, Row, Sample, counted
from stripewise.reproduce.placement import OURS, Variant
from stripewise.reproduce.workload import BARRIER, Op, Workload

OP_NAMES = {"read": "read", "write": "write", "both": "write and read"}
EMULATED_NETWORK = "device"
"""Emulated servers hold the device while its bytes travel."""
LONGEST_LAYOUT = 80
"""Characters of a remark."""
CLOSE = 0.1
"""Ratios within so much of each other are called alike."""


@dataclass(frozen=True)
class Setting:
    """One workload on one set of devices, reading or writing, under several layouts."""

    x: str
    """Where it stands in the plot: `p = 8`."""
    op: Op
    devices: Devices
    workload: Workload
    """At the paper's scale."""
    variants: tuple[Variant, ...]
    reduced: Workload | None = None
    """What is measured; `None` where nothing is."""


@dataclass(frozen=True)
class Gain:
    """`variant` over another layout, or over the slowest of several, in percent."""

    xs: tuple[str, ...]
    """The setting; where the paper does not say which of several, its figure is held against the greatest of them."""
    op: Op
    variant: str
    over: tuple[str, ...]
    paper: float
    called: str = ""
    """What the others are called where they are several."""

    def text(self, x: str) -> str:
        """`p = 8, read: HARL over 64K`."""
        over = self.over[0] if len(self.over) == 1 else f"the slowest {self.called}"
        where = x if len(self.xs) == 1 else f"{x} (the greatest)"
        return f"{where}, {OP_NAMES[self.op]}: {self.variant} over {over}"


@dataclass(frozen=True)
class Choice:
    """The layout that a planner is said to choose."""

    x: str
    op: Op
    variant: str
    paper: str
    ours: Callable[[_native.Regions, Devices], str]
    """Ours in the same words."""


@dataclass
class Ran:
    """A setting with its figures, in bytes per second."""

    setting: Setting
    layouts: dict[str, _native.Regions]
    simulated: dict[str, _native.Simulated]
    expected: dict[str, float] = field(default_factory=dict)
    """Simulated as measured."""
    measured: dict[str, list[float]] = field(default_factory=dict)
    """One value a round."""
    runs: list[measure.Run] = field(default_factory=list)
    """All measured runs."""
    invalid: str = ""

    def rate(self, label: str) -> float:
        """Simulated at the paper's scale."""
        return self.simulated[label]["bytes_per_s"]


@dataclass(frozen=True)
class Throughput:
    """An experiment: settings, and what the paper says of them. Called, it runs."""

    settings: tuple[Setting, ...]
    gains: tuple[Gain, ...] = ()
    choices: tuple[Choice, ...] = ()
    remarks: Callable[[dict[tuple[str, Op], Ran]], list[str]] | None = None
    dilation: float = 1.0
    """Of the emulated servers' times."""
    bounded: bool = False
    """Whether the paper's cost model is HARL's, which bounds what its layouts can gain."""
    network: str = "link"

    def __call__(self, experiment: Experiment, context: Context) -> Result:
        """Simulates every setting and measures those that are reduced."""
        result = Result(experiment, axis="MiB/s")
        ran: dict[tuple[str, Op], Ran] = {}
        pools: dict[Devices, measure.EmulatedPool] = {}

        def simulated(setting: Setting) -> Ran:
            context.say(f"{experiment.name}: {setting.x}, {OP_NAMES[setting.op]}: simulating {setting.workload.text()}")
            return simulate(setting, context, self.network)

        # The simulator and the planners leave Python's lock alone, so settings take all processors.
        with ThreadPoolExecutor(os.cpu_count()) as threads:
            all_ran = list(threads.map(simulated, self.settings))
        for number, (setting, one) in enumerate(zip(self.settings, all_ran, strict=True)):
            ran[setting.x, setting.op] = one
            if setting.reduced is not None and not context.simulate_only:
                pool = pools.get(setting.devices)
                if pool is None:
                    where = context.directory / f"{experiment.name}-{len(pools)}"
                    pool = pools[setting.devices] = measure.EmulatedPool(where, setting.devices, self.dilation)
                _measure(one, setting.reduced.shrunk(context.measured_share), pool, f"{number}", context)
            result.cells += cells(one)
            if one.invalid:
                result.invalid.append(f"{setting.x}, {OP_NAMES[setting.op]}: {one.invalid}")
        result.setup = _setup(self, context, [run for one in all_ran for run in one.runs])
        result.rows = [row(choice, ran, self.bounded) for choice in self.choices]
        result.rows += [row(gain, ran, self.bounded) for gain in self.gains]
        if self.remarks is not None:
            result.remarks = self.remarks(ran)
        return result


def simulate(setting: Setting, context: Context, network: str) -> Ran:
    """All variants of a setting, under the same requests and the same draws of startup times."""
    devices = setting.devices
    workload = setting.workload.shrunk(context.share)
    steps = workload.steps(setting.op, context.seed)
    layouts = {variant.label: variant.make(devices, steps, network) for variant in setting.variants}
    simulated = {
        label: _native.simulate_generated(devices.native(), [layout], steps, seed=context.seed, network=network)
        for label, layout in layouts.items()
    }
    return Ran(setting, layouts, simulated)


def _measure(ran: Ran, reduced: Workload, pool: measure.EmulatedPool, prefix: str, context: Context) -> None:
    """Runs of all variants in turn (A B A B ...), each checked; what is planned is planned for the reduced size."""
    setting = ran.setting
    steps = reduced.steps(setting.op, context.seed)
    variants = [variant for variant in setting.variants if variant.measured]
    files = {variant.label: f"{prefix}-{number}.dat" for number, variant in enumerate(variants)}
    layouts = {variant.label: variant.make(setting.devices, steps, EMULATED_NETWORK) for variant in variants}
    for label, layout in layouts.items():
        devices = setting.devices.native()
        simulated = _native.simulate_generated(devices, [layout], steps, seed=context.seed, network=EMULATED_NETWORK)
        ran.expected[label] = simulated["bytes_per_s"]
    pool.place({files[label]: layout for label, layout in layouts.items()})
    ran.measured = {label: [] for label in layouts}
    try:
        if setting.op == "read":
            for label in layouts:
                context.say(f"  writing what is to be read: {label}")
                pool.write_once(files[label], reduced)
        for number in range(context.rounds):
            context.say(f"  measuring {reduced.text()}, round {number + 1} of {context.rounds}")
            for label in layouts:
                run = pool.run(files[label], reduced, setting.op)
                ran.runs.append(run)
                ran.measured[label].append(run.bytes_per_s)
    except measure.InvalidRunError as error:
        ran.measured, ran.invalid = {}, str(error)
    finally:
        for file in files.values():
            pool.remove(file)


def cells(ran: Ran) -> list[Cell]:
    """One a variant, in MiB/s."""
    found = []
    for variant in ran.setting.variants:
        label = variant.label
        rates = ran.measured.get(label)
        expected = ran.expected.get(label)
        found.append(
            Cell(
                panel=OP_NAMES[ran.setting.op],
                x=ran.setting.x,
                layout=label,
                simulated=ran.rate(label) / MIB,
                measured=Sample.of([rate / MIB for rate in rates]) if rates else None,
                expected=expected / MIB if expected is not None else None,
            )
        )
    return found


def row(claim: Gain | Choice, ran: dict[tuple[str, Op], Ran], bounded: bool) -> Row:
    """The paper's figure beside ours."""
    if isinstance(claim, Choice):
        one = ran[claim.x, claim.op]
        ours = claim.ours(one.layouts[claim.variant], one.setting.devices)
        why = "the same" if ours == claim.paper else "differs"
        return Row(f"{claim.x}, {OP_NAMES[claim.op]}: layout of {claim.variant}", claim.paper, ours, why=why)

    def simulated_at(x: str) -> float:
        one = ran[x, claim.op]
        return _percent(one.rate(claim.variant), min(one.rate(label) for label in claim.over))

    x = max(claim.xs, key=simulated_at)
    one, simulated = ran[x, claim.op], simulated_at(x)
    measured: Sample | str | None = None
    expected = None
    over = [label for label in claim.over if label in one.measured]
    if one.invalid:
        measured = "invalid"
    elif claim.variant in one.measured and over:
        rounds = zip(*(one.measured[label] for label in over), strict=True)
        pairs = zip(one.measured[claim.variant], rounds, strict=True)
        measured = Sample.of([_percent(rate, min(others)) for rate, others in pairs])
        expected = _percent(one.expected[claim.variant], min(one.expected[label] for label in over))
    return Row(claim.text(x), claim.paper, simulated, "%", measured, expected, explain(claim, one, simulated, bounded))


def ours_over(label: str) -> Callable[[dict[tuple[str, Op], Ran]], list[str]]:
    """What the papers do not have: Stripewise's own planner under the same load, beside the layout of this label."""

    def remarks(ran: dict[tuple[str, Op], Ran]) -> list[str]:
        lines = []
        for (x, op), one in ran.items():
            gain = 100 * (one.rate(OURS.label) / one.rate(label) - 1)
            layout = placement.text(one.layouts[OURS.label], one.setting.devices)
            shown = layout if len(layout) <= LONGEST_LAYOUT else f"{layout[:LONGEST_LAYOUT]}..."
            lines.append(
                f"{x}, {OP_NAMES[op]}: Stripewise's own planner, simulated: {gain:+.0f} % over {label} ({shown})"
            )
        return lines

    return remarks


def _percent(rate: float, base: float) -> float:
    return 100 * (rate / base - 1)


def explain(claim: Gain, ran: Ran, simulated: float, bounded: bool) -> str:
    """By how much ours differs from the paper, and what limits ours."""
    paper, ours = 1 + claim.paper / 100, 1 + simulated / 100
    slowest, fastest = min(claim.over, key=ran.rate), max(claim.over, key=ran.rate)
    parts = []
    if len(claim.over) > 1:
        parts.append(
            f"over the fastest of them ({fastest}) {_percent(ran.rate(claim.variant), ran.rate(fastest)):+.0f} %"
        )
    if abs(ours / paper - 1) <= CLOSE:
        return "; ".join([f"alike: {ours:.2f}x for {paper:.2f}x", *parts])
    difference = f"{simulated - claim.paper:+.0f} points"
    limit = latency_bound(ran, slowest, claim.variant) if bounded else None
    if limit is not None and paper > limit:
        parts.append(
            "outside the paper's own latency model, which for these two layouts has at most "
            f"+{100 * (limit - 1):.0f} % whatever the devices"
        )
    parts += [_bottleneck(ran, slowest), _bottleneck(ran, claim.variant)]
    return f"{difference}: {'; '.join(parts)}"


def _bottleneck(ran: Ran, label: str) -> str:
    """How busy each tier's servers are, on average: what a layout leaves unused."""
    simulated = ran.simulated[label]
    shares = []
    first = 0
    for tier in ran.setting.devices.tiers:
        servers = simulated["servers"][first : first + tier.servers]
        first += tier.servers
        busy = sum(max(server["busy_s"], server["link_busy_s"]) for server in servers) / tier.servers
        shares.append(f"{tier.name} {100 * busy / simulated['makespan_s']:.0f} %")
    return f"servers busy under {label}: {', '.join(shares)}"


def latency_bound(ran: Ran, base: str, variant: str) -> float | None:
    """The most that `variant` can gain over `base` by HARL's cost model (Eq. 1-8), whatever the devices' times.

    A request's cost there is network + startup + transfer: `t max(b)`, the largest expected startup, and
    `max(b beta)`, b being the bytes on a server. Where both layouts touch the same number of servers of each tier, the
    startups are equal, and a sum shrinks by no larger a factor than one of its terms does. `None` where requests are
    not all alike, or the numbers of servers differ.
    """
    workload = ran.setting.workload.shrunk(1e-9)
    shares = [_shares(ran.layouts[label], ran.setting, workload) for label in (base, variant)]
    if shares[0] is None or shares[1] is None:
        return None
    (touched, most), (touched_then, most_then) = shares[0], shares[1]
    if touched != touched_then:
        return None
    terms = [before / then for before, then in zip(most, most_then, strict=True) if then]
    return max(1.0, max(most) / max(most_then), *terms)


def _shares(layout: _native.Regions, setting: Setting, workload: Workload) -> tuple[list[int], list[int]] | None:
    """Servers touched and most bytes on one of them, by tier; `None` unless every request has the same."""
    if len(layout) != 1:
        return None
    round_of = dict(layout[0][1])
    widths = np.array([round_of.get(server, 0) for server in range(setting.devices.servers)], dtype=np.int64)
    starts = np.concatenate([[0], np.cumsum(widths)[:-1]])
    steps = workload.steps(setting.op, 1)
    requests = steps["kind"] != BARRIER
    offset, size = steps["offset"][requests].astype(np.int64), steps["size"][requests].astype(np.int64)
    period = int(widths.sum())

    def before(x: np.ndarray[tuple[int], np.dtype[np.int64]]) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
        within = np.clip((x % period)[:, None] - starts, 0, widths)
        return (x // period)[:, None] * widths + within  # type: ignore[no-any-return]

    held = before(offset + size) - before(offset)
    touched, most = [], []
    first = 0
    for tier in setting.devices.tiers:
        own = held[:, first : first + tier.servers]
        first += tier.servers
        counts, largest = (own > 0).sum(axis=1), own.max(axis=1)
        if len(set(counts)) > 1 or len(set(largest)) > 1:
            return None
        touched.append(int(counts[0]))
        most.append(int(largest[0]))
    return touched, most


def _setup(experiment: Throughput, context: Context, runs: list[measure.Run]) -> list[str]:
    lines = []
    for devices in dict.fromkeys(setting.devices for setting in experiment.settings):
        lines.append(f"devices: {devices.name}")
    for workload in dict.fromkeys(setting.workload.text() for setting in experiment.settings):
        lines.append(f"the paper's scale: {workload}")
    if context.quick:
        lines.append(f"QUICK: 1/{round(1 / context.share)} of the paper's bytes are simulated, and one run is measured")
    if runs:
        reduced = dict.fromkeys(
            setting.reduced.shrunk(context.measured_share).text() for setting in experiment.settings if setting.reduced
        )
        slower = f", all times x {experiment.dilation:g}" if experiment.dilation != 1 else ""
        lines.append(
            f"measured: real processes on EMULATED servers{slower}; {counted(context.rounds)} of each layout in turn; "
            f"reduced to {'; '.join(reduced)}"
        )
        lines.append(measure.checked_text(runs))
    return lines
