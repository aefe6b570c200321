"""What the preload library costs on files that are not the pool's."""

from collections.abc import Iterator

from benches import request_cost
from benches.frame import Benchmark, Context, Figure, Target, of_repetitions

CALLS = (("read", 4096), ("write", 4096), ("open", 4096))


def run(context: Context) -> Iterator[Figure]:
    """Calls on a file in memory through the preload library, against libc's own on the same file."""
    pool = request_cost.plain_pool(context.directory)
    file = context.directory / "outside.dat"
    for call, request_bytes in CALLS:
        context.say(f"{call} of 4 KiB outside the pool")
        rounds = request_cost.rounds(context, ["run", "--pool", pool.file], call, request_bytes, file, file)
        cost = [100 * (each.ratio - 1) for each in rounds]
        # A request is what the target is about; a path takes the check of its prefix.
        target = Target(most=2.0) if call != "open" else None
        what = {"open": "open and close"}.get(call, f"{call} of 4 KiB")
        note = f"{rounds[0].ours_ns:.0f} ns against {rounds[0].plain_ns:.0f} ns"
        yield of_repetitions(f"{what}: added time", cost, unit="%", target=target, note=note)


BENCHMARK = Benchmark("preload-outside", "a file in memory outside the pool, preload library against libc alone", run)
