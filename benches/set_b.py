"""The same on devices near those of HARL's paper behind a network."""

from collections.abc import Iterator

from benches.emulated import KIB, MIB, Devices, Variant, compare
from benches.frame import Benchmark, Context, Figure


def operation(startup_min_ms: float, startup_max_ms: float, kib_per_ms: float) -> str:
    """One operation of a device, in the units of the paper, as a pool file has it."""
    bandwidth_bytes_per_s = round(kib_per_ms * 1000 * KIB)
    return f'{{ startup = ["{startup_min_ms}ms", "{startup_max_ms}ms"], bandwidth = "{bandwidth_bytes_per_s}B/s" }}'


NETWORK = f'network = "{117 * 1000 * KIB}B/s"'
DEVICES = Devices(
    hdd=f"{{ read = {operation(0.3, 1.5, 20)}, write = {operation(0.3, 1.5, 20)}, {NETWORK} }}",
    ssd=f"{{ read = {operation(0.05, 0.1, 102)}, write = {operation(0.08, 0.16, 85)}, {NETWORK} }}",
)


def run(context: Context) -> Iterator[Figure | str]:
    """One layout for reads and writes together, as the program has both."""
    yield from compare(context, DEVICES, [Variant("set B", None, 1.45)], (256 if context.quick else 1024) * MIB)


BENCHMARK = Benchmark(
    "set-b",
    "the same; HDDs 0.3-1.5 ms and 20 KiB/ms, SSDs 102 and 85 KiB/ms, a network of 117 KiB/ms added to each",
    run,
)
