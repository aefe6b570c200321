"""What recording costs."""

from collections.abc import Iterator

from benches import request_cost
from benches.frame import Benchmark, BenchmarkError, Context, Figure, Target, of_repetitions
from stripewise._native import Trace

REQUEST_BYTES = 4096
RECORD_BYTES = 64
NANOSECONDS = 300.0
EVERYTHING = ("env", "STRIPEWISE_TRACE_EXCLUDE=/proc")
"""Memory (/dev/shm) is not recorded otherwise."""


def run(context: Context) -> Iterator[Figure]:
    """Requests of 4 KiB that are recorded, against libc's own on the same file."""
    file = context.directory / "recorded.dat"
    for call in ("read", "write"):
        context.say(f"recording {call}s of 4 KiB")
        trace = context.directory / f"{call}.trace"
        command = ["trace", "--output", trace]
        rounds = request_cost.rounds(context, command, call, REQUEST_BYTES, file, file, before=EVERYTHING)
        added = [each.ours_ns - each.plain_ns for each in rounds]
        note = f"{rounds[0].ours_ns:.0f} ns against {rounds[0].plain_ns:.0f} ns"
        yield of_repetitions(f"{call}: added", added, unit="ns", target=Target(most=NANOSECONDS), note=note)
        records = len(Trace(str(trace)).columns()["offset"])
        if records == 0:
            raise BenchmarkError(f"{trace} has no record")
        each_bytes = trace.stat().st_size / records
        note = f"{records:,} records, names and header included"
        yield Figure(f"{call}: a record", each_bytes, "bytes", target=Target(most=RECORD_BYTES), note=note)


BENCHMARK = Benchmark("recording", "requests of 4 KiB on a file in memory, recorded against libc alone", run)
