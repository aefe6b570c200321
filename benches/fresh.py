"""Plans on fresh offsets of the same workload: beside HARL, and beside the best of 110 simple layouts of each cell."""

import re
from collections.abc import Iterator

from benches.cargo_example import output_of
from benches.frame import Benchmark, BenchmarkError, Context, Figure, Target

SUMMARY = re.compile(
    r"^summary plan / (?P<what>.*) over (?P<cells>\d+) cells: least (?P<least>[\d.]+) mean (?P<mean>[\d.]+)$"
)
TARGETS = {"HARL": (Target(least=0.98), None), "the best simple layout": (Target(least=0.97), Target(least=1.05))}


def run(context: Context) -> Iterator[Figure | str]:
    """Every cell is a remark; the summaries of `crates/planner/examples/fresh_figures.rs` give the figures."""
    arguments = ["quick"] if context.quick else []
    context.say(" ".join(["cargo run --release -p stripewise-planner --example fresh_figures --", *arguments]))
    found = 0
    for line in output_of("stripewise-planner", "fresh_figures", arguments):
        match = SUMMARY.match(line)
        if match is None:
            yield line.strip()
            continue
        found += 1
        least, mean = TARGETS[match["what"]]
        what = f"plan / {match['what']}, {match['cells']} cells"
        yield Figure(f"{what}: least", float(match["least"]), target=least)
        yield Figure(f"{what}: geometric mean", float(match["mean"]), target=mean)
    if found != len(TARGETS):
        raise BenchmarkError(f"fresh_figures printed {found} summaries, not {len(TARGETS)}")


BENCHMARK = Benchmark("fresh", "random requests on sets B and P; plans on offsets that they were not made from", run)
