"""The report of a large Darshan log, beside PyDarshan's summary of it."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

from benches.frame import STRIPEWISE, Benchmark, Context, Figure, MissingError, Target, of_repetitions
from benches.importing import LARGE, measured

PYDARSHAN = ("-m", "darshan", "summary", "--enable_dxt_heatmap")


def run(context: Context) -> Iterator[Figure | str]:
    """Time, memory and size of the page, with advice; then PyDarshan's, once."""
    log = Path(os.environ.get("STRIPEWISE_TEST_DATA", "none")) / "darshan" / LARGE
    if not log.is_file():
        raise MissingError(f"STRIPEWISE_TEST_DATA names no folder with darshan/{LARGE}")
    page, theirs = context.disk / "report.html", context.disk / "summary.html"
    context.say(f"reporting {LARGE}")
    ours = [measured([*STRIPEWISE, "report", str(log), "-o", str(page)]) for _ in range(context.rounds(5))]
    times = [ended.wall_s for ended in ours]
    yield of_repetitions("the report, the whole command", times, unit="s", target=Target(most=10))
    yield of_repetitions("processor time of it", [ended.processor_s for ended in ours], unit="s")
    peak = max(ended.peak_bytes for ended in ours) / 1e6
    yield Figure("peak memory of it", peak, "MB", target=Target(most=400))
    yield Figure("the page", page.stat().st_size / 1e6, "MB", target=Target(most=5))
    context.say("the same by PyDarshan: a minute")
    summary = measured([sys.executable, *PYDARSHAN, str(log), "--output", str(theirs)])
    yield Figure("PyDarshan: darshan summary --enable_dxt_heatmap", summary.wall_s, "s")
    yield Figure("peak memory of that", summary.peak_bytes / 1e6, "MB")
    yield Figure("its page", theirs.stat().st_size / 1e6, "MB")
    yield of_repetitions("PyDarshan's time / ours", [summary.wall_s / ended.wall_s for ended in ours])


BENCHMARK = Benchmark("report", "an HTML page of a log of 276,882 requests by 1,024 ranks", run)
