"""The mount without the preload library against libfuse's own passthrough file system on the same directory."""

import gzip
import json
import shutil
import statistics
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from benches import request_cost
from benches.frame import Benchmark, BenchmarkError, Context, Figure, MissingError, Target, checked, of_repetitions
from stripewise import native_paths
from stripewise.launch import is_mounted

EXAMPLES = Path("/usr/share/doc/libfuse3-dev/examples")
HOW = "on Debian and Ubuntu: apt install libfuse3-dev fio"
SIZES = ((4, "4 KiB"), (64, "64 KiB"), (512, "512 KiB"))
PATTERNS = (("read", "sequential read"), ("write", "sequential write"))
PATTERNS_RANDOM = (("randread", "random read"), ("randwrite", "random write"))
FILE_MIB = 256
LEAST = 0.9
PATIENCE_S = 10.0


def run(context: Context) -> Iterator[Figure]:
    """One fio job at a time, alternating between the mounts; no page cache in any.

    A file on one server is the kernel's to read and write where it can do that; one on two is the mount's own.
    """
    if shutil.which("fio") is None:
        raise MissingError(f"it needs fio; {HOW}")
    passthrough = _passthrough(context.directory)
    one, two = (request_cost.plain_pool(context.directory, servers) for servers in (1, 2))
    source, theirs = context.directory / "source", context.directory / "theirs"
    source.mkdir()
    theirs.mkdir()
    options = f"source={source},cache=never"
    with (
        _mounted([native_paths.mount_program(), "--foreground", one.file], one.mount),
        _mounted([native_paths.mount_program(), "--foreground", two.file], two.mount),
        _mounted([passthrough, "-f", "-o", options, theirs], theirs),
    ):
        for pattern, name in PATTERNS + PATTERNS_RANDOM:
            for kib, size in SIZES:
                context.say(f"{name} of {size}")
                points = (one.mount, two.mount, theirs)
                rounds = [_round(points, number, pattern, kib, context.quick) for number in range(context.rounds(5))]
                for index, servers in enumerate(("one server", "two servers")):
                    rates = [rates[index] / rates[-1] for rates in rounds]
                    mib = [statistics.median(column) / (1 << 20) for column in zip(*rounds, strict=True)]
                    note = f"{mib[index]:.0f} MiB/s against {mib[-1]:.0f} MiB/s"
                    yield of_repetitions(f"{servers}: {name} of {size}", rates, target=Target(least=LEAST), note=note)


def _passthrough(directory: Path) -> Path:
    """Compiles passthrough_ll of the installed libfuse."""
    found = [path for path in (EXAMPLES / "passthrough_ll.c", EXAMPLES / "passthrough_ll.c.gz") if path.is_file()]
    if not found:
        raise MissingError(f"it needs libfuse's passthrough_ll.c in {EXAMPLES}; {HOW}")
    source, program = directory / "passthrough_ll.c", directory / "passthrough_ll"
    raw = found[0].read_bytes()
    source.write_bytes(gzip.decompress(raw) if found[0].suffix == ".gz" else raw)
    shutil.copy(EXAMPLES / "passthrough_helpers.h", directory)
    flags = checked(["pkg-config", "--cflags", "--libs", "fuse3"]).split()
    checked(["cc", "-O2", "-o", program, source, *flags])
    return program


@contextmanager
def _mounted(command: Sequence[object], point: Path) -> Iterator[None]:
    point.mkdir(parents=True, exist_ok=True)
    log = point.with_name(f"{point.name}.log")
    with log.open("w", encoding="utf-8") as output:
        server = subprocess.Popen([str(part) for part in command], stdout=output, stderr=output)
    try:
        until = time.monotonic() + PATIENCE_S
        while not is_mounted(point):
            if server.poll() is not None or time.monotonic() > until:
                raise BenchmarkError(f"{command[0]} did not mount {point}: {log.read_text(encoding='utf-8').strip()}")
            time.sleep(0.05)
        yield
    finally:
        subprocess.run(["fusermount3", "-u", str(point)], check=False)
        try:
            server.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            server.kill()


def _round(points: Sequence[Path], number: int, pattern: str, kib: int, quick: bool) -> list[float]:
    """A job on each mount, in the other order every other time; rates in the order of `points`."""
    order = range(len(points)) if number % 2 == 0 else reversed(range(len(points)))
    rates = {index: _fio(points[index] / "data", pattern, kib, quick) for index in order}
    return [rates[index] for index in range(len(points))]


def _fio(file: Path, pattern: str, kib: int, quick: bool) -> float:
    """Bytes per second of one job."""
    job = ["--name=one", f"--filename={file}", f"--rw={pattern}", f"--bs={kib}k", f"--size={FILE_MIB}m"]
    how = ["--ioengine=psync", "--fallocate=none", "--time_based", f"--runtime={'200ms' if quick else '500ms'}"]
    report = json.loads(checked(["fio", *job, *how, "--randseed=1", "--output-format=json"]))
    return float(report["jobs"][0]["write" if "write" in pattern else "read"]["bw_bytes"])


BENCHMARK = Benchmark(
    "mount-alone", "the mount without preload library against libfuse's passthrough_ll, in memory, fio", run
)
