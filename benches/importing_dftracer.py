"""Logs of dftracer: calls a second, plain and gzip, against the 90 thousand of its own tool."""

import gzip
import re
from collections.abc import Iterator
from pathlib import Path

from benches.cargo_example import output_of
from benches.frame import Benchmark, BenchmarkError, Context, Figure, Target

LINE = re.compile(r"^dftracer: (?P<rows>\d+) rows of (?P<files>\d+) files in (?P<seconds>[\d.]+) s")
FILES = 100
HEAD = '"cat":"dftracer","type":1,"pid":4711,"tid":4711,"ph":4,"args":{"hhash":"6882804a826580cd"'
CALL = '"cat":"POSIX","type":3,"pid":4711,"tid":4711'


def write_log(path: Path, calls: int) -> None:
    """A log of `calls` calls on 100 files as dftracer 2.2 writes it: seeks, reads and writes, some with offsets."""
    with path.open("w") as log:
        for file in range(FILES):
            log.write(
                f'{{"name":"FH",{HEAD},"name":"/scratch/project/run/part-{file:04}.dat","value":"{file:016x}"}}}}\n'
            )
        for call in range(calls):
            name = ("read", "write", "pwrite64")[call % 3]
            offset = f'"offset":{call * 65536},' if name == "pwrite64" else ""
            moved = f'"ret":65536,{offset}"count":65536,"fhash":"{call % FILES:016x}"'
            args = f'"ph":1,"args":{{"hhash":"6882804a826580cd",{moved}}}'
            time = f'"ts":{1795318380661459 + 7 * call},"dur":{call % 50}'
            log.write(f'{{"id":{call},"name":"{name}",{CALL},{time},{args}}}\n')


def run(context: Context) -> Iterator[Figure | str]:
    """Figures of `crates/import/examples/import_rate.rs` on a log that is made here."""
    calls = 100_000 if context.quick else 2_000_000
    plain = context.directory / "calls.pfw"
    write_log(plain, calls)
    packed = context.directory / "calls.pfw.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes(), 6))
    for what, path in (("plain", plain), ("gzip", packed)):
        context.say(f"cargo run --release -p stripewise-import --example import_rate -- {path.name}")
        found = [
            match
            for _ in range(3)
            for line in output_of("stripewise-import", "import_rate", [str(path)])
            if (match := LINE.match(line))
        ]
        if len(found) != 3 or any(int(match["rows"]) != calls for match in found):
            raise BenchmarkError(f"import_rate did not find {calls} calls in {path}")
        rates = sorted(calls / float(match["seconds"]) for match in found)
        target = Target(least=1e6) if what == "plain" else None
        yield Figure(f"calls of a {what} log", rates[1], "1/s", low=rates[0], high=rates[2], target=target)
    yield f"{calls:,} calls on {FILES} files, {plain.stat().st_size / calls:.0f} bytes a line"


BENCHMARK = Benchmark("importing-dftracer", "a log of dftracer 2, rows counted; one thread, for gzip two", run)
