"""The planner at scale: very many requests, files and servers."""

import itertools
import re
from collections.abc import Iterator

from benches.cargo_example import output_of
from benches.frame import Benchmark, BenchmarkError, Context, Figure, Target

SECONDS = re.compile(r"^ {2}seconds (?P<value>[\d.]+)$")
PEAK = re.compile(r"^ {2}peak MB (?P<value>\d+)$")
BOUND = re.compile(r"^ {2}sample (?P<kept>\d+) of (?P<all>\d+), error bound (?P<value>[\d.]+) %$")

CASES = [
    ("requests", 100_000_000, 5_000_000, Target(most=60.0), Target(most=1000.0)),
    ("files", 100_000, 5_000, Target(most=60.0), Target(most=1000.0)),
    ("servers", 10_000, 1_000, Target(most=10.0), Target(most=1000.0)),
]
"""Case of the program, its number, that of a quick run, seconds, megabytes."""

PLANNERS = ["regions", "auto"]
"""`auto` runs all planners; `regions` is the one that most of its time goes to."""


def run(context: Context) -> Iterator[Figure | str]:
    """Figures of `crates/planner/examples/planner_scale.rs`, a process for each case: peak memory is a process's."""
    for (name, usual, quick, seconds, megabytes), planner in itertools.product(CASES, PLANNERS):
        number = quick if context.quick else usual
        context.say(f"cargo run --release -p stripewise-planner --example planner_scale -- {name} {number} {planner}")
        found = False
        title = name
        for line in output_of("stripewise-planner", "planner_scale", [name, str(number), planner]):
            if not line.startswith(" "):
                title = line
            elif match := SECONDS.match(line):
                found = True
                yield Figure(f"{title}: planned in", float(match["value"]), "s", target=seconds)
            elif match := PEAK.match(line):
                yield Figure(f"{title}: peak memory", float(match["value"]), "MB", target=megabytes)
            elif match := BOUND.match(line):
                note = f"{int(match['kept']):,} of {int(match['all']):,} distinct requests priced"
                yield Figure(f"{title}: bound of the mean latency's error", float(match["value"]), "%", note=note)
            else:
                yield f"{title}: {line.strip()}"
        if not found:
            raise BenchmarkError(f"planner_scale {name} {planner} printed no figure")


BENCHMARK = Benchmark(
    "planner-scale", "time and peak memory of planning 100 million requests, 100,000 files, 10,000 servers", run
)
