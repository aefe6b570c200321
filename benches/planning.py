"""The planner against simple placements, HARL and 2,000 random layouts, all simulated."""

import re
from collections.abc import Iterator

from benches.cargo_example import output_of
from benches.frame import Benchmark, BenchmarkError, Context, Figure, Target

LINE = re.compile(r"^ {2}(?P<what>\S.*?) +(?P<value>[\d.]+) +\(at least (?P<least>[\d.]+)\) (?:ok|MISSED)$")
REGION = re.compile(r"^ +\d+ MiB  ")
LONGEST = 200
"""Characters of a remark; a plan of many regions is too long to read here."""
HEAD = re.compile(r"^(?P<case>\S[^:]*): ")


def run(context: Context) -> Iterator[Figure | str]:
    """One figure a line of `crates/planner/examples/planning_figures.rs`; what else it prints is remarks."""
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
        if not REGION.match(line):
            yield line.strip() if len(line) <= LONGEST else f"{line[:LONGEST].strip()} ..."
        if match := HEAD.match(line):
            case = match["case"]
    if not found:
        raise BenchmarkError("planning_figures printed no figure")


BENCHMARK = Benchmark(
    "planning",
    "uniform loads and three with unequal heat and request size, SSDs limited to 40 %; simulated throughput",
    run,
)
