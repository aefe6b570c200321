"""The exact stripe search against the exhaustive one."""

import re
from collections.abc import Iterator

from benches.cargo_example import output_of
from benches.frame import Benchmark, BenchmarkError, Context, Figure, Target

SEARCH = re.compile(r"^ {2}search .* evaluations .*?(?P<fewer>\d+) x fewer.* (?P<seconds>[\d.]+) s$")
SAMPLED = re.compile(r"^ {2}sampled .*at most (?P<percent>[\d.]+) %")
PEAK = re.compile(r"^peak resident memory: (?P<all>\d+) MB")


def run(context: Context) -> Iterator[Figure | str]:
    """Figures of `crates/planner/examples/stripe_search_figures.rs`, which checks that both find one optimum."""
    context.say("cargo run --release -p stripewise-planner --example stripe_search_figures")
    title = ""
    found = False
    for line in output_of("stripewise-planner", "stripe_search_figures"):
        if match := SEARCH.match(line):
            found = True
            large = title.startswith("1,000,000")
            seconds = Target(most=5.0 if large else 0.5)
            yield Figure(f"{title}: time", float(match["seconds"]), "s", target=seconds)
            fewer = None if large else Target(least=300.0)
            yield Figure(f"{title}: fewer evaluations", float(match["fewer"]), target=fewer)
        elif match := SAMPLED.match(line):
            yield Figure(f"{title}: optimum is at most so far below", float(match["percent"]), "%")
        elif match := PEAK.match(line):
            yield Figure(f"{title}: peak memory", float(match["all"]), "MB", target=Target(most=200.0))
        elif not line.startswith(" "):
            title = line
        else:
            yield f"{title}: {line.strip()}"
    if not found:
        raise BenchmarkError("stripe_search_figures printed no figure")


BENCHMARK = Benchmark("stripe-search", "the exhaustive search's optimum with fewer evaluations, step 4 KiB", run)
