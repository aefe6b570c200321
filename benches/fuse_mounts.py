"""Mounts for benchmarks: pools of plain directories, and libfuse's own passthrough file system beside them."""

import gzip
import os
import resource
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from benches.frame import ROOT, BenchmarkError, MissingError, checked
from stripewise import native_paths
from stripewise.launch import is_mounted

EXAMPLES = Path("/usr/share/doc/libfuse3-dev/examples")
HOW = "on Debian and Ubuntu: apt install libfuse3-dev"
PATIENCE_S = 60.0
CAP_SYS_RESOURCE = 1 << 24


@cache
def example(name: str) -> Path:
    """Builds an example of the mount's crate in release."""
    checked(["cargo", "build", "--quiet", "--release", "-p", "stripewise-mount", "--example", name], cwd=ROOT)
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    return target / "release" / "examples" / name


def passthrough_ll(directory: Path) -> Path:
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


def most_descriptors() -> int:
    """How many open files a process may have here, if it asks for as many as it may."""
    status = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    capabilities = next(int(line.split()[1], 16) for line in status if line.startswith("CapEff"))
    if capabilities & CAP_SYS_RESOURCE:
        return int(Path("/proc/sys/fs/nr_open").read_text(encoding="ascii"))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[1]


@contextmanager
def pool_mounted(file: Path, point: Path, options: str = "", descriptors: int | None = None) -> Iterator[int]:
    """Our mount of the pool of `file`, with that limit of open files; the server's process number."""
    command = [native_paths.mount_program(), "--foreground", *(["-o", options] if options else []), file, point]
    with mounted(command, point, descriptors) as process:
        yield process


@contextmanager
def mounted(command: Sequence[object], point: Path, descriptors: int | None = None) -> Iterator[int]:
    """Runs a file system's server until the end; its process number. `descriptors`: the most it may have open."""
    point.mkdir(parents=True, exist_ok=True)
    log = point.with_name(f"{point.name}.log")

    # Root would raise the limit again if it could.
    stay = ["setpriv", "--bounding-set=-sys_resource"] if os.geteuid() == 0 else []
    limit = ["prlimit", f"--nofile={descriptors}:{descriptors}", *stay] if descriptors else []
    with log.open("w", encoding="utf-8") as output:
        server = subprocess.Popen([str(part) for part in [*limit, *command]], stdout=output, stderr=output)
    try:
        until = time.monotonic() + PATIENCE_S
        while not is_mounted(point):
            if server.poll() is not None or time.monotonic() > until:
                raise BenchmarkError(f"{command[0]} did not mount {point}: {log.read_text(encoding='utf-8').strip()}")
            time.sleep(0.05)
        yield server.pid
    finally:
        subprocess.run(["fusermount3", "-u", str(point)], check=False)
        try:
            server.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            server.kill()
