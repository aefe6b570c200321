"""What programs lose while a server is drained under them, and how long opens and writes of a file that moves wait.

What a write waits for its file's move is the lease of that, which only its switch holds. The rest of a write's time is
that of the disks, which fio and the copying keep busy.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

from benches.emulated import Devices, make_pool
from benches.frame import (
    STRIPEWISE,
    Benchmark,
    BenchmarkError,
    Context,
    Figure,
    MissingError,
    Target,
    checked,
    of_repetitions,
)
from stripewise import emulation
from stripewise.pool import Pool

DEVICES = Devices('"hdd-7200"', '"ssd-sata"', hdds=4, ssds=1)
COLD_FILES = 12
COLD_MIB = 48
HOT_MIB = 256
SECONDS = 12
RUNS = 5
LEAST = 0.9
MOST_MS = 50.0
PATIENCE_S = 60.0
BETWEEN_OPENS_S = 0.05
BETWEEN_WRITES_S = 0.005
LEASE = re.compile(
    r"^(?P<thread>\d+) +(?P<time_s>[\d.]+) (?:fcntl\((?P<file>\d+), F_OFD_SETLKW?, "
    r"\{l_type=(?P<kind>F_\w+), l_whence=SEEK_SET, l_start=5, l_len=1\}(?P<rest>.*)|<\.\.\. fcntl resumed>.*)$"
)
"""What strace says of the sixth byte of a lock file, which is locked while writers wait; and of a call that waited."""


def fio(pool: Pool, seconds: int) -> float:
    """MiB per second that four processes read at random places of a file that is on all disks, through the mount."""
    command = ["fio", "--name=hot", f"--filename={pool.mount / 'hot'}", "--rw=randread", "--bs=64k", "--direct=1"]
    command += ["--numjobs=4", f"--size={HOT_MIB}m", f"--runtime={seconds}", "--time_based", "--group_reporting"]
    document = json.loads(checked([*command, "--output-format=json", "--randrepeat=0"]))
    return float(document["jobs"][0]["read"]["bw_bytes"]) / (1 << 20)


@contextmanager
def drained(pool: Pool, *options: str) -> Iterator[None]:
    """A server of the pool is being drained."""
    before = pool.file.read_text(encoding="utf-8")
    command = [*STRIPEWISE, "pool", "drain", str(pool.file), "hdd.3", *options]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        began = time.monotonic()
        while pool.file.read_text(encoding="utf-8") == before and "draining" not in before:
            if process.poll() is not None or time.monotonic() - began > PATIENCE_S:
                process.kill()
                raise BenchmarkError("the drain does not begin")
            time.sleep(0.01)
        try:
            yield
            if process.poll() is not None:
                raise BenchmarkError("the drain was done before the program: nothing was measured; more has to move")
        finally:
            process.send_signal(signal.SIGINT)


class Opener(threading.Thread):
    """Opens the files that move for writing, one after the other, and keeps the times of that."""

    def __init__(self, pool: Pool) -> None:
        """Of the pool that is drained."""
        super().__init__()
        self._files = [pool.mount / f"cold{number:02}" for number in range(COLD_FILES)]
        self.waits_ms: list[float] = []
        self.ended = threading.Event()

    def run(self) -> None:
        """Until it is ended."""
        while not self.ended.is_set():
            for file in self._files:
                began = time.monotonic()
                descriptor = os.open(file, os.O_WRONLY)
                self.waits_ms.append((time.monotonic() - began) * 1e3)
                os.close(descriptor)
                if self.ended.wait(BETWEEN_OPENS_S):
                    return


class Writer(threading.Thread):
    """Has the files that move open for writing all the time, writes small pieces, and keeps the times of that."""

    def __init__(self, pool: Pool) -> None:
        """Of the pool that is drained."""
        super().__init__()
        self._files = [pool.mount / f"cold{number:02}" for number in range(COLD_FILES)]
        self.waits_ms: list[float] = []
        self.ended = threading.Event()

    def run(self) -> None:
        """Until it is ended."""
        random = Random(1)
        descriptors = [os.open(file, os.O_WRONLY) for file in self._files]
        while not self.ended.wait(BETWEEN_WRITES_S):
            offset = random.randrange(COLD_MIB << 8) << 12
            began = time.monotonic()
            os.pwrite(random.choice(descriptors), bytes(4096), offset)
            self.waits_ms.append((time.monotonic() - began) * 1e3)
        for descriptor in descriptors:
            os.close(descriptor)


def waited(program: Opener | Writer, pool: Pool) -> list[float]:
    """Milliseconds that what a program does takes beside fio."""
    program.start()
    try:
        fio(pool, SECONDS)
    finally:
        program.ended.set()
        program.join()
    return program.waits_ms


def run(context: Context) -> Iterator[Figure | str]:
    """Throughput of fio alone and beside a drain, and the longest wait of an open for writing and of a write."""
    if shutil.which("fio") is None:
        raise MissingError("fio is not installed; install the package fio")
    pool = make_pool(context.directory / "pool", DEVICES)
    checked([*STRIPEWISE, "mount", pool.file])
    try:
        for number in range(COLD_FILES):
            (pool.mount / f"cold{number:02}").write_bytes(os.urandom(COLD_MIB << 20))
        (pool.mount / "hot").write_bytes(os.urandom(HOT_MIB << 20))
        yield from _throughput(context, pool)
        programs: list[tuple[str, str, type[Opener | Writer]]] = [
            ("an open for writing", "opens", Opener),
            ("a write to open files", "writes", Writer),
        ]
        for what, many, program in programs:
            alone = waited(program(pool), pool)
            with drained(pool, "--wait"):
                beside = waited(program(pool), pool)
            yield Figure(f"{what}, no drain", max(alone), "ms", note=f"longest of {len(alone)} {many}")
            # A write takes what the disks take, too.
            target = Target(most=MOST_MS) if program is Opener else None
            yield Figure(f"{what}, drain", max(beside), "ms", target=target, note=f"longest of {len(beside)} {many}")
        yield from _leases(context, pool)
        yield from _switches(pool)
    finally:
        checked([*STRIPEWISE, "umount", pool.mount])


def held_ms(trace: str) -> list[float]:
    """For how long each lease was held, from the request for it to the end of its release, by a log of strace."""
    held_ms, since, ending = [], {}, {}
    for match in filter(None, map(LEASE.match, trace.splitlines())):
        thread, time_s = match["thread"], float(match["time_s"])
        if match["kind"] == "F_WRLCK":
            since[match["file"]] = time_s
        elif match["kind"] == "F_UNLCK" and match["file"] in since:
            ending[thread] = since.pop(match["file"])
            if "unfinished" in match["rest"]:
                continue
            held_ms.append((time_s - ending.pop(thread)) * 1e3)
        elif match["kind"] is None and thread in ending:
            held_ms.append((time_s - ending.pop(thread)) * 1e3)
    return held_ms


def _leases(context: Context, pool: Pool) -> Iterator[Figure]:
    """The longest lease while all files of a server move beside fio and a writer of each."""
    what = "a lease, for which writers wait, beside fio"
    if shutil.which("strace") is None:
        yield Figure(what, None, "ms", target=Target(most=MOST_MS), note="invalid: strace is not installed")
        return
    log, ended, writer = context.directory / "leases", threading.Event(), Writer(pool)

    def load() -> None:
        while not ended.is_set():
            fio(pool, SECONDS)

    reader = threading.Thread(target=load)
    reader.start()
    writer.start()
    try:
        command = ["strace", "-f", "--seccomp-bpf", "-qq", "-ttt", "-e", "trace=fcntl", "-o", log, *STRIPEWISE]
        checked([*command, "pool", "drain", pool.file, "hdd.2", "--wait", "--urgent"])
    finally:
        ended.set()
        writer.ended.set()
        reader.join()
        writer.join()
    leases_ms = held_ms(Path(log).read_text(encoding="utf-8"))
    if not leases_ms:
        raise BenchmarkError("no file has moved beside its writer: nothing was measured")
    note = f"longest of {len(leases_ms)}; writes took up to {max(writer.waits_ms):.0f} ms, the disks' part in it"
    yield Figure(what, max(leases_ms), "ms", target=Target(most=MOST_MS), note=note)


def _switches(pool: Pool) -> Iterator[Figure]:
    """The longest wait of a write to open files that all move meanwhile.

    Beside fio hardly one comes to its switch.
    """
    waits_ms: dict[bool, list[float]] = {}
    moved_files = 0
    for moves in (False, True):
        writer = Writer(pool)
        writer.start()
        try:
            if moves:
                command = [*STRIPEWISE, "pool", "drain", pool.file, "hdd.3", "--wait", "--urgent", "--json"]
                moved_files = json.loads(checked(command))["moved_files"]
            else:
                time.sleep(SECONDS)
        finally:
            writer.ended.set()
            writer.join()
        waits_ms[moves] = writer.waits_ms
    if moved_files == 0:
        raise BenchmarkError("all files had moved before the last drain: nothing was measured; more has to move")
    note = f"longest of {len(waits_ms[False])} writes"
    yield Figure("a write to open files, no fio, no drain", max(waits_ms[False]), "ms", note=note)
    note = f"longest of {len(waits_ms[True])} writes; {moved_files} files move"
    target = Target(most=MOST_MS)
    yield Figure("a write to open files, no fio, urgent drain", max(waits_ms[True]), "ms", target=target, note=note)


def _throughput(context: Context, pool: Pool) -> Iterator[Figure | str]:
    alone, ratios = [], []
    for number in range(context.rounds(RUNS)):
        context.say(f"fio alone and beside a drain, run {number + 1}")
        snapshot = emulation.snapshot(pool)
        rate = fio(pool, SECONDS)
        with drained(pool):
            slowed = fio(pool, SECONDS)
        verdict = emulation.since(snapshot).verdict
        if verdict is not None and verdict["valid"]:
            alone.append(rate)
            ratios.append(slowed / rate)
    if not ratios:
        yield Figure("fio beside a drain, over alone", None, note="invalid: emulation error above 10 %")
        return
    yield of_repetitions("fio alone", alone, unit="MiB/s")
    yield of_repetitions("fio beside a drain, over alone", ratios, target=Target(least=LEAST))


BENCHMARK = Benchmark("beside", "fio while a server is drained, and opens and writes of files that move", run)
