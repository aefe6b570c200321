"""How far predictions of load are from what comes, where load comes in bursts: BLS-ESM against ESM."""

import re
import statistics
from collections.abc import Iterator

from benches.cargo_example import output_of
from benches.frame import Benchmark, BenchmarkError, Context, Figure, Target

SHAPE = re.compile(
    r"^(?P<shape>.+): ESM (?P<esm>[\d.]+), BLS-ESM (?P<bls>[\d.]+), ESM of what was wanted (?P<other>[\d.]+)$"
)
MOST = 0.7
"""Of the mean absolute error of ESM."""


def run(context: Context) -> Iterator[Figure | str]:
    """Figures of `crates/optimisation/examples/burst_figures.rs`: nothing is timed, so each run gives the same ones."""
    context.say("cargo run --release -p stripewise-optimisation --example burst_figures")
    rows = []
    for line in output_of("stripewise-optimisation", "burst_figures"):
        if match := SHAPE.match(line):
            esm, bls, other = float(match["esm"]), float(match["bls"]), float(match["other"])
            rows.append((esm, bls))
            note = f"BLS-ESM {bls:.1f}, ESM {esm:.1f}, ESM of what was wanted {other:.1f}"
            yield Figure(match["shape"], bls / esm, target=Target(most=MOST), note=note)
        else:
            yield line
    if not rows:
        raise BenchmarkError("burst_figures printed no figure")
    yield Figure("mean error over all shapes", sum(bls for _, bls in rows) / sum(esm for esm, _ in rows),
                 target=Target(most=MOST))  # fmt: skip
    yield Figure(
        "mean of the shapes' ratios", statistics.mean(bls / esm for esm, bls in rows), target=Target(most=MOST)
    )


BENCHMARK = Benchmark("burst", "mean absolute error of BLS-ESM over that of ESM, on ten shapes of bursts", run)
