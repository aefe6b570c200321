"""Signatures: of a large real log by the whole command, and of 100 million requests of every kind."""

import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

from benches.cargo_example import output_of
from benches.frame import STRIPEWISE, Benchmark, BenchmarkError, Context, Figure, Target, checked, of_repetitions

PATTERNS = (
    "contiguous",
    "nested",
    "checkpoints",
    "near",
    "runs",
    "short",
    "pairs",
    "unlike",
    "twice",
    "random",
    "garbage",
)
REQUESTS = 100_000_000
QUICK_REQUESTS = 2_000_000
LINE = re.compile(
    r"^\w+ \((?P<what>.*)\): \d+ requests in (?P<seconds>[\d.]+) s, .* peak (?P<peak>\d+) MB;"
    r".* ratio (?P<ratio>[\d.]+); expanded in [\d.]+ s, exact$"
)
LOG = "darshan/hdf5-collective-1024-ranks-lustre.darshan"


def run(context: Context) -> Iterator[Figure | str]:
    """The command on the log, then `crates/signature/examples/signature_scale.rs`, a process for each pattern."""
    data = os.environ.get("STRIPEWISE_TEST_DATA")
    if data is None:
        yield f"STRIPEWISE_TEST_DATA is not set: the command is not measured on {LOG}"
    else:
        yield _of_command(context, Path(data) / LOG)
    requests = QUICK_REQUESTS if context.quick else REQUESTS
    for pattern in PATTERNS:
        context.say(f"cargo run --release -p stripewise-signature --example signature_scale -- {pattern} {requests}")
        (line,) = output_of("stripewise-signature", "signature_scale", [pattern, str(requests)])
        match = LINE.match(line)
        if match is None:
            raise BenchmarkError(f"signature_scale printed no figure: {line}")
        what = f"{pattern} ({match['what']})"
        yield Figure(what, float(match["seconds"]), "s", target=Target(most=60.0), note=f"{match['ratio']}:1")
        # Random 64-bit offsets and sizes are 16 bytes each, which no signature can make fewer; no file system has them.
        limit = None if pattern == "garbage" else Target(most=1000.0)
        yield Figure(f"{pattern}: peak memory", float(match["peak"]), "MB", target=limit)


def _of_command(context: Context, log: Path) -> Figure:
    seconds = []
    for _ in range(context.rounds(5)):
        context.say(f"stripewise signature {log.name}")
        began = time.perf_counter()
        checked([*STRIPEWISE, "signature", log])
        seconds.append(time.perf_counter() - began)
    what = "stripewise signature of a log of 276,882 segments and 1,024 ranks"
    return of_repetitions(what, seconds, unit="s", target=Target(most=2.0))


BENCHMARK = Benchmark("signature", "time and peak memory of signatures: a real log, and 100 million requests", run)
