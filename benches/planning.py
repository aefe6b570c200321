"""The planner against simple placements, HARL and 2,000 random layouts, all simulated."""

import re
from collections.abc import Iterator

from benches.cargo_example import output_of
from benches.frame import Benchmark, BenchmarkError, Context, Figure, Target

LINE = re.compile(r"^ {2}(?P<what>\S.*?) +(?P<value>[\d.]+) +\(at least (?P<least>[\d.]+)\) (?:ok|MISSED)$")
HEAD = re.compile(r"^(?P<case>\S[^:]*): ")


def run(context: Context) -> Iterator[Figure | str]:
    """One figure a line of `crates/planner/examples/planning_figures.rs`; the rest of its output is shown as it is."""
    context.say("cargo run --release -p stripewise-planner --example planning_figures")
    case = ""
    found = False
    # Its exit code is 1 when a target is missed, which is not a failure to measure.
    for line in output_of("stripewise-planner", "planning_figures", accept=(0, 1)):
        if match := LINE.match(line):
            found = True
            target = Target(least=float(match["least"]))
            yield Figure(f"{case}: {match['what']}", float(match["value"]), target=target)
            continue
        yield line.strip()
        if match := HEAD.match(line):
            case = match["case"]
    if not found:
        raise BenchmarkError("planning_figures printed no figure")


BENCHMARK = Benchmark(
    "planning",
    "uniform loads and three with unequal heat and request size, SSDs limited to 40 %; simulated throughput",
    run,
)
