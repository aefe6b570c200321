"""What the papers print, found again: optimum expected, optimum found."""

import re
from collections.abc import Iterator

from benches.cargo_example import output_of
from benches.frame import Benchmark, BenchmarkError, Context, Figure, Target

TOTAL = re.compile(r"^(?P<what>\S.*): (?P<equal>\d+) of (?P<rows>\d+) rows$")


def run(context: Context) -> Iterator[Figure | str]:
    """Every row of `crates/planner/examples/paper_figures.rs` is a remark, its totals are the figures."""
    context.say("cargo run --release -p stripewise-planner --example paper_figures")
    found = False
    for line in output_of("stripewise-planner", "paper_figures"):
        if match := TOTAL.match(line):
            found = True
            target = Target(least=float(match["rows"]))
            yield Figure(f"{match['what']}: rows found exactly", float(match["equal"]), "", target=target)
        else:
            yield line.strip()
    if not found:
        raise BenchmarkError("paper_figures printed no table")


BENCHMARK = Benchmark(
    "papers", "HARL's optima with set AB, Song's Table II, Chen's implications: expected and found", run
)
