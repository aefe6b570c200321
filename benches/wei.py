"""Wei et al.: small files on an emulated metadata tier beside its operations on names, and beside large files."""

from __future__ import annotations

import json
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from benches import wei_client
from benches.frame import ROOT, STRIPEWISE, Benchmark, BenchmarkError, Context, Figure, Target, checked, of_repetitions
from benches.fuse_mounts import pool_mounted
from stripewise import emulation
from stripewise.pool import Pool

META = """
[meta.emulate]
read = { startup = ["0.6ms", "1ms"], bandwidth = "120MB/s" }
write = { startup = ["1ms", "1.6ms"], bandwidth = "120MB/s" }
at_once = 2
"""
DISKS = 6
STRIPED, INLINE, FIXED, BY_LOAD = "striped", "always inline", "up to 16 KiB", "by load"
BEHIND = f"@hdd.0-{DISKS - 1}:64KiB"
WAYS: Mapping[str, str | None] = {
    STRIPED: None,
    INLINE: f"layout=meta:1GiB/1GiB{BEHIND}",
    FIXED: f"layout=meta:16KiB/16KiB{BEHIND}",
    BY_LOAD: "small=64K",
}
"""The hint of each way; a threshold that is a layout does not follow the load, as `small` does."""
CLIENTS = (2, 8, 14, 20)
MOST_LOSS = 0.08
LEAST_GAIN = 3.0


def pool_with_meta(directory: Path) -> Pool:
    """A pool of emulated disks with an emulated metadata tier below `directory`."""
    checked([*STRIPEWISE, "pool", "init", directory, "--emulate", "--hdd", str(DISKS)])
    file = directory / "pool.toml"
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace("[[tier]]", f"{META}\n[[tier]]", 1), encoding="utf-8")
    return Pool.load(file)


def _ways(pool: Pool, ways: Mapping[str, str | None]) -> dict[str, Path]:
    """A directory of the mount for each way, with its hint."""
    directories = {}
    for number, (way, hint) in enumerate(ways.items()):
        directories[way] = pool.mount / f"way{number}"
        directories[way].mkdir()
        if hint is not None:
            checked([*STRIPEWISE, "hint", directories[way], hint])
    return directories


def _clients(arguments: Sequence[Sequence[object]]) -> list[wei_client.Done]:
    """Runs a client for each list of arguments, all from one moment on, and what they say."""
    command = [sys.executable, "-m", "benches.wei_client"]
    pipe = subprocess.PIPE
    clients = [
        subprocess.Popen([*command, *map(str, of)], cwd=ROOT, stdin=pipe, stdout=pipe, text=True) for of in arguments
    ]
    done: list[wei_client.Done] = []
    try:
        for client in clients:
            assert client.stdout is not None
            if client.stdout.readline() != "ready\n":
                raise BenchmarkError("a client did not begin; its error stands above")
        for client in clients:
            assert client.stdin is not None
            client.stdin.write("go\n")
            client.stdin.flush()
        for client in clients:
            said, _ = client.communicate()
            if client.returncode != 0:
                raise BenchmarkError(f"a client ended with exit code {client.returncode}; its error stands above")
            done.append(json.loads(said))
    finally:
        for client in clients:
            client.kill()
            client.wait()
    return done


def _rate(done: Sequence[wei_client.Done], kind: str) -> float:
    """What the clients did of a kind in a second of the time that they spent on it, all together."""
    took = [of[kind] for of in done if kind in of]
    return sum(of["count"] for of in took) / sum(of["took_s"] for of in took)


def _in_turn(number: int, ways: Sequence[str]) -> list[str]:
    """The ways, another one first in each round."""
    first = number % len(ways)
    return [*ways[first:], *ways[:first]]


def fig3(context: Context) -> Iterator[Figure | str]:
    """Clients that change names and use small files, in turn in a directory of each way."""
    pool = pool_with_meta(context.directory / "fig3")
    seconds = 3 if context.quick else 6
    rates: dict[int, list[dict[str, list[wei_client.Done]]]] = {}
    kept = []
    with pool_mounted(pool.file, pool.mount):
        directories = _ways(pool, WAYS)
        for clients in (CLIENTS[0], CLIENTS[-1]) if context.quick else CLIENTS:
            for number in range(context.rounds(3)):
                before = emulation.snapshot(pool)
                of_round = {}
                for way in _in_turn(number, list(WAYS)):
                    context.say(f"{clients} clients, {way}")
                    of_round[way] = _clients(
                        [("mixed", directories[way], seconds, 1000 * number + client) for client in range(clients)]
                    )
                rates.setdefault(clients, []).append(of_round)
                kept.append(emulation.since(before).verdict)
    if not all(verdict is not None and verdict["valid"] for verdict in kept):
        yield "the emulated servers did not keep their times in each round"
    for clients, rounds in rates.items():
        yield from _fig3_figures(clients, rounds, is_last=clients == CLIENTS[-1])


def _fig3_figures(
    clients: int, rounds: Sequence[dict[str, list[wei_client.Done]]], *, is_last: bool
) -> Iterator[Figure]:
    def ratios(way: str, kind: str) -> list[float]:
        return [_rate(of[way], kind) / _rate(of[STRIPED], kind) for of in rounds]

    for way in (way for way in WAYS if way != STRIPED):
        is_held = is_last and way == BY_LOAD
        loss = Target(most=MOST_LOSS) if is_held else None
        rate = statistics.median(_rate(of[way], "names") for of in rounds)
        yield of_repetitions(
            f"emulated, {clients} clients, {way}: loss of operations on names against {STRIPED}",
            [1 - ratio for ratio in ratios(way, "names")],
            unit="",
            target=loss,
            note=f"{rate:,.0f} a second and client",
        )
        gain = Target(least=LEAST_GAIN) if is_held else None
        what = f"emulated, {clients} clients, {way} / {STRIPED}: files up to {wei_client.SMALL_BYTES >> 10} KiB"
        yield of_repetitions(what, ratios(way, "small"), target=gain)


WEB_WAYS: Mapping[str, str | None] = {"striped": None, "small=64K": "small=64K"}


def fig2(context: Context) -> Iterator[Figure | str]:
    """A web server whose clients ask for small and large files, and two `grep` beside each other."""
    pool = pool_with_meta(context.directory / "fig2")
    shapes: tuple[tuple[str, Callable[[Path, bool], dict[str, float]]], ...] = (("web server", _web), ("grep", _grep))
    rounds: dict[str, list[dict[str, dict[str, float]]]] = {shape: [] for shape, _ in shapes}
    kept = []
    with pool_mounted(pool.file, pool.mount):
        directories = _ways(pool, WEB_WAYS)
        for directory in directories.values():
            wei_client.make_site(directory, 60 if context.quick else 200, 3 if context.quick else 8)
        for number in range(context.rounds(5)):
            before = emulation.snapshot(pool)
            for shape, measure in shapes:
                of_round = {}
                for way in _in_turn(number, list(WEB_WAYS)):
                    context.say(f"{shape}, {way}")
                    of_round[way] = measure(directories[way], context.quick)
                rounds[shape].append(of_round)
            kept.append(emulation.since(before).verdict)
    if not all(verdict is not None and verdict["valid"] for verdict in kept):
        yield "the emulated servers did not keep their times in each round"
    striped, hinted = WEB_WAYS
    for shape, of_shape in rounds.items():
        for kind, least in (("small", 1.3), ("large", 1.0)):
            yield of_repetitions(
                f"emulated, {shape}, {hinted} / {striped}: {kind} files",
                [of[hinted][kind] / of[striped][kind] for of in of_shape],
                target=Target(least=least),
            )


def _web(site: Path, is_quick: bool) -> dict[str, float]:
    """Bytes a second of small and of large files that clients get from Python's web server."""
    with _served(site) as port:
        done = _clients([("web", site, 3 if is_quick else 10, client, port) for client in range(4)])
    return {kind: _rate(done, kind) for kind in ("small", "large")}


@contextmanager
def _served(site: Path) -> Iterator[int]:
    """The port of a web server of the files below `site`."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    command = [sys.executable, "-m", "http.server", "--bind", "127.0.0.1", "--directory", str(site), str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(300):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        else:
            raise BenchmarkError("Python's web server did not begin")
        yield port
    finally:
        server.kill()
        server.wait()


def _grep(site: Path, is_quick: bool) -> dict[str, float]:
    """Bytes a second of two `grep` at one time, one through the small files and one through the large ones."""
    del is_quick
    searches = {kind: sorted((site / kind).iterdir()) for kind in ("small", "large")}
    began = time.monotonic()
    running = {
        kind: subprocess.Popen(["grep", "-c", "no such line", *map(str, files)], stdout=subprocess.DEVNULL)
        for kind, files in searches.items()
    }
    took_s: dict[str, float] = {}
    while len(took_s) < len(running):
        for kind, process in running.items():
            if kind not in took_s and process.poll() is not None:
                took_s[kind] = time.monotonic() - began
        time.sleep(0.0005)
    # No line is found: 1. Anything else is an error.
    if any(process.returncode != 1 for process in running.values()):
        raise BenchmarkError("grep failed; its error stands above")
    size = {kind: sum(file.stat().st_size for file in files) for kind, files in searches.items()}
    return {kind: size[kind] / took_s[kind] for kind in searches}


FIG2 = Benchmark("wei-fig2", "small files beside large ones, in the shape of a web server and of grep", fig2)
FIG3 = Benchmark("wei-fig3", "operations on names and small files of 2 to 20 clients on one metadata tier", fig3)
