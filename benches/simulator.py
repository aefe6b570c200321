"""The simulator: sub-requests a second of one core, and memory of the largest case."""

import re
from collections.abc import Iterator

from benches.cargo_example import output_of
from benches.frame import Benchmark, BenchmarkError, Context, Figure, Target

RATE = re.compile(
    r"^ {2}(?P<case>.*): (?P<rate>[\d.]+) \((?P<low>[\d.]+)\.\.(?P<high>[\d.]+)\) million sub-requests/s of \d+$"
)
PEAK = re.compile(r"^peak resident memory: (?P<all>\d+) MB")
LEAST_MILLIONS = 3.0
MOST_MB = 4096.0


def run(context: Context) -> Iterator[Figure | str]:
    """Figures of `crates/simulate/examples/simulator_figures.rs`, by processor time of one thread."""
    context.say("cargo run --release -p stripewise-simulate --example simulator_figures")
    found = False
    for line in output_of("stripewise-simulate", "simulator_figures", ["--quick"] if context.quick else []):
        if match := RATE.match(line):
            found = True
            # The target is the whole simulator's, on systems up to thousands of processes.
            whole = "links" in match["case"] and not match["case"].startswith("10000 servers")
            whole = whole and "no links" not in match["case"]
            yield Figure(
                match["case"],
                float(match["rate"]),
                "M/s",
                float(match["low"]),
                float(match["high"]),
                Target(least=LEAST_MILLIONS) if whole else None,
            )
        elif match := PEAK.match(line):
            yield Figure(
                "peak memory, 10,000 servers x 100,000 processes",
                float(match["all"]),
                "MB",
                target=Target(most=MOST_MB),
            )
        else:
            yield line.strip()
    if not found:
        raise BenchmarkError("simulator_figures printed no figure")


BENCHMARK = Benchmark(
    "simulator", "sub-requests a second on one core; memory of 10,000 servers, 100,000 processes", run
)
