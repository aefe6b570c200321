"""The throughput objective against HARL's, simulated."""

import re
from collections.abc import Iterator

from benches.cargo_example import output_of
from benches.frame import Benchmark, BenchmarkError, Context, Figure, Target

SUMMARY = re.compile(
    r"^summary (?P<what>.*) / HARL over (?P<cells>\d+) cells: least (?P<least>[\d.]+) mean (?P<mean>[\d.]+)$"
)


def run(context: Context) -> Iterator[Figure | str]:
    """Every cell is a remark; the summary of `crates/planner/examples/theta_figures.rs` gives the figures."""
    arguments = ["512"] if context.quick else []
    context.say(" ".join(["cargo run --release -p stripewise-planner --example theta_figures --", *arguments]))
    found = False
    for line in output_of("stripewise-planner", "theta_figures", arguments):
        if match := SUMMARY.match(line):
            found = True
            what = f"{match['what']} / HARL, {match['cells']} cells"
            # What simulations and widths per server add is reported beside the target of the objective.
            decides = match["what"] == "theta"
            least, mean = (Target(least=0.99), Target(least=1.2)) if decides else (None, None)
            yield Figure(f"{what}: least", float(match["least"]), target=least)
            yield Figure(f"{what}: geometric mean", float(match["mean"]), target=mean)
        else:
            yield line.strip()
    if not found:
        raise BenchmarkError("theta_figures printed no summary")


BENCHMARK = Benchmark(
    "theta", "requests of 64 KiB to 4 MiB, 1 to 64 processes, sets B and P; fresh requests, simulated", run
)
