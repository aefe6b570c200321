"""A placed file through the preload library against a plain file."""

from collections.abc import Iterator

from benches import request_cost
from benches.frame import STRIPEWISE, Benchmark, Context, Figure, Target, checked, of_repetitions

SIZES = ((4 << 10, "4 KiB", 0.8), (512 << 10, "512 KiB", 0.95))


def run(context: Context) -> Iterator[Figure]:
    """Requests to a file on one server in memory, against libc's own to a plain file: the datafile itself.

    So both have the very same pages: where memory was allocated makes more of a difference than the way.
    """
    pool = request_cost.plain_pool(context.directory)
    placed = pool.mount / "placed.dat"
    checked([*STRIPEWISE, "run", "--pool", pool.file, "--", "dd", "if=/dev/zero", f"of={placed}", "bs=1M", "count=64"])
    (plain,) = (file for file in pool.servers[0].path.glob("??/*") if file.is_file())
    for request_bytes, size, least in SIZES:
        for call in ("read", "write"):
            context.say(f"{call} of {size} of a placed file")
            rounds = request_cost.rounds(context, ["run", "--pool", pool.file], call, request_bytes, placed, plain)
            rates = [1 / each.ratio for each in rounds]
            note = f"{rounds[0].ours_ns:.0f} ns against {rounds[0].plain_ns:.0f} ns"
            what = f"{call} of {size}: placed / plain"
            yield of_repetitions(what, rates, target=Target(least=least), note=note)


BENCHMARK = Benchmark("preload-placed", "throughput of a placed file, one server in memory, against a plain file", run)
