"""Random requests of 512 KiB over one file on hard disks and SSDs, the default layout against the planned one."""

from collections.abc import Iterator

from benches.emulated import MIB, Devices, Variant, compare
from benches.frame import Benchmark, Context, Figure

DEVICES = Devices(hdd='"hdd-7200"', ssd='"ssd-sata"')
VARIANTS = [
    Variant("no limit", None, 12.0),
    Variant("SSDs 40 %", 0.4, 4.5),
]


def run(context: Context) -> Iterator[Figure | str]:
    """Both variants share the default layout's runs."""
    yield from compare(context, DEVICES, VARIANTS, (256 if context.quick else 2048) * MIB)


BENCHMARK = Benchmark(
    "uniform",
    "16 processes, 512 KiB random; 6 emulated HDDs (4-12 ms, 80 MB/s), 2 emulated SSDs (0.08-0.12 ms, 400 MB/s)",
    run,
)
