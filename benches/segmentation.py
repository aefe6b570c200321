"""Regions by optimal segmentation against a layout for every 64 MB chunk."""

import re
from collections.abc import Iterator

from benches.cargo_example import output_of
from benches.frame import Benchmark, BenchmarkError, Context, Figure, Target

LINE = re.compile(r"^ {2}(?P<what>\S.*): regions (?P<regions>\d+), seconds (?P<own>[\d.]+), fresh (?P<fresh>[\d.]+)$")
LARGE = re.compile(r"^4 TiB: seconds (?P<seconds>[\d.]+), regions (?P<regions>\d+), (?P<requests>\d+) requests$")


def run(context: Context) -> Iterator[Figure | str]:
    """Figures of `crates/planner/examples/segmentation_figures.rs`."""
    context.say("cargo run --release -p stripewise-planner --example segmentation_figures")
    costs: dict[str, tuple[float, float]] = {}
    regions = 0.0
    for line in output_of("stripewise-planner", "segmentation_figures"):
        if match := LINE.match(line):
            costs[match["what"]] = float(match["own"]), float(match["fresh"])
            regions = float(match["regions"])
            yield f"{match['what']}: {match['regions']} regions, {match['own']} s of latency"
        elif match := LARGE.match(line):
            what = f"4 TiB, {int(match['requests']):,} requests: time to segment"
            yield Figure(what, float(match["seconds"]), "s", target=Target(most=1.0))
        else:
            yield line.strip()
    if "regions" not in costs or "64 MB chunks" not in costs:
        raise BenchmarkError("segmentation_figures printed no figure")
    yield Figure("regions", regions, "", target=Target(most=5.0))
    own, fresh = (ours / theirs for ours, theirs in zip(costs["regions"], costs["64 MB chunks"], strict=True))
    yield Figure("cost / that of 64 MB chunks, each with its own exact optimum", own, target=Target(most=1.0))
    yield Figure("the same on fresh requests of the same regions", fresh, target=Target(most=1.0))


BENCHMARK = Benchmark("segmentation", "four regions whose request sizes vary by 25 %, set B, reads", run)
