"""`--dask`: the files of a data set are analysed in batches by the workers of a Dask cluster.

A data set has a table of requests for each file, so a worker opens those of its batch and no other. What it makes of
them comes back; nothing is written. The caller puts the results together in order of file, as it does with the one
result of a run alone: so neither the number of workers nor their fate shows in the output.
"""

from __future__ import annotations

import heapq
import json
import os
import queue
import socket
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from stripewise._native import StripewiseError, Trace, __version__

if TYPE_CHECKING:
    from distributed import Client, Future

Result = TypeVar("Result")
Tag = TypeVar("Tag")

BATCHES_PER_WORKER = 4
"""More batches make the wait for the last worker shorter; fewer make each worker open the index less often."""
ROWS_PER_BATCH = 8_000_000
"""At most, unless one file has more: what is done again when a worker dies."""
CONNECT_S = 5
"""How long a scheduler may take to answer."""
FETCH_S = 10
"""How long to wait for a result before the patience is checked: is there a worker to wait for?"""
ALONE_S = 60
"""How long there may be no worker at all: one that died is started again in less."""


def analysed(
    log: Path, address: str, analyse: Callable[[Trace], Result], progress: Callable[[int, int], object]
) -> Iterator[Result]:
    """What `analyse` makes of every batch of files, in no order; together the batches have all files with requests.

    `analyse` is sent to the workers: a function of this package, or a `functools.partial` of one. It gets a trace with
    the requests of its batch, in which files have the numbers of the whole. `progress` is called with rows done and all
    rows. The batches of a worker that dies are given to others. Raises `StripewiseError`, also for what is
    wrong on a worker, with its host.
    """
    path = Path(os.path.abspath(log))
    rows, known = _rows(path), _sum(path)
    with _connected(address) as client:
        total = sum(rows.values())
        count = max(_workers(client, address) * BATCHES_PER_WORKER, -(-total // ROWS_PER_BATCH))
        jobs = [((_on_worker, analyse, path, files, known, __version__), files) for files in balanced(rows, count)]
        finished = 0
        progress(finished, total)
        for files, taken in _finished(client, address, jobs):
            result: Result = taken()
            finished += sum(rows[file] for file in files)
            progress(finished, total)
            yield result


def each(
    logs: Sequence[Path], address: str, work: Callable[[str], Result], progress: Callable[[int, int], object]
) -> Iterator[tuple[Path, Result | WorkersDiedError]]:
    """What `work` makes of each log, in no order, on workers that read the logs themselves.

    `work` is sent to the workers: a function of this package, or a `functools.partial` of one. It is given the absolute
    path of a log. A log over which workers die again and again has that as its result. Raises `StripewiseError` where
    there is no cluster, or none any more.
    """
    with _connected(address) as client:
        _workers(client, address)
        jobs = [((_log_on_worker, work, os.path.abspath(log), __version__), log) for log in logs]
        progress(0, len(jobs))
        for number, (log, taken) in enumerate(_finished(client, address, jobs), 1):
            try:
                yield log, taken()
            except WorkersDiedError as error:
                yield log, error
            progress(number, len(jobs))


class WorkersDiedError(StripewiseError):
    """Workers died again and again over the same work."""


def _workers(client: Client, address: str) -> int:
    workers = len(client.nthreads())  # type: ignore[no-untyped-call]
    if not workers:
        raise StripewiseError(
            f"the Dask scheduler at {address} has no workers: start some with `dask worker {address}`"
        )
    return workers


def _finished(
    client: Client, address: str, jobs: Sequence[tuple[tuple[Any, ...], Tag]]
) -> Iterator[tuple[Tag, Callable[[], Any]]]:
    """Has calls made, each a function with its arguments; the tags of those that end, with what gives their results."""
    done: queue.SimpleQueue[Future[Any]] = queue.SimpleQueue()
    running = {}
    patience = _Patience(client, address)
    for call, tag in jobs:
        future = client.submit(*call, pure=False)
        running[future.key] = (future, tag)
        future.add_done_callback(done.put)  # type: ignore[no-untyped-call]
    while running:
        future = _next(done, patience)
        _, tag = running.pop(future.key)
        yield tag, partial(_result, future, address, patience)


def balanced(rows: Mapping[int, int], count: int) -> list[list[int]]:
    """The files in at most `count` batches with about as many rows each; the first has the file with the most.

    Each file goes, the largest first, where there are the fewest rows yet: O(n log n), at most a third above the best.
    """
    batches: list[list[int]] = [[] for _ in range(min(count, len(rows)))]
    loads = [(0, number) for number in range(len(batches))]
    for file in sorted(rows, key=lambda file: (-rows[file], file)):
        load, number = loads[0]
        batches[number].append(file)
        heapq.heapreplace(loads, (load + rows[file], number))
    return [sorted(batch) for batch in batches]


def _rows(path: Path) -> dict[int, int]:
    """Rows of each file that has any, from the index alone."""
    Trace(str(path), files=[])  # is it a data set, and is its index whole?
    return {table["file"]: table["rows"] for table in json.loads((path / "trace.json").read_bytes())["requests"]}


def _sum(path: Path) -> int:
    """Tells one data set from another: the check sums of all its tables are in what is summed."""
    return zlib.crc32((path / "trace.json").read_bytes())


def _connected(address: str) -> Client:
    try:
        from distributed import Client
        from distributed.comm.addressing import resolve_address
    except ImportError as error:
        raise StripewiseError(f"--dask needs Dask ({error}): pip install 'stripewise[dask]'") from error
    try:
        resolve_address(address)  # a client of an address that cannot be takes long to end
        return Client(address, timeout=CONNECT_S, set_as_default=False)  # type: ignore[no-untyped-call]
    except (OSError, ValueError, TypeError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise StripewiseError(
            f"no Dask scheduler answers at {address} ({reason}): start one with `dask scheduler`, which prints its "
            f"address, such as tcp://{socket.gethostname()}:8786"
        ) from error


def _check_version(here: str, version: str) -> None:
    if __version__ != version:
        raise StripewiseError(
            f"{here} has Stripewise {__version__}, this command is of {version}: results could differ; "
            f"install {version} there, or that version here"
        )


def _log_on_worker(work: Callable[[str], Result], path: str, version: str) -> Result:
    """What runs on a worker for a log."""
    _check_version(f"the Dask worker on {socket.gethostname()}", version)
    return work(path)


def _on_worker(analyse: Callable[[Trace], Result], path: Path, files: list[int], known: int, version: str) -> Result:
    """What runs on a worker: everything that can differ there is checked first."""
    here = f"the Dask worker on {socket.gethostname()}"
    _check_version(here, version)
    try:
        found = _sum(path)
    except OSError as error:
        raise StripewiseError(
            f"{here} cannot read {path} ({error.strerror}): put the data set where every worker sees it under this path"
        ) from error
    if found != known:
        raise StripewiseError(
            f"{here} sees another data set at {path} than this command does: put it on a file system that all share"
        )
    try:
        return analyse(Trace(str(path), files=files))
    except StripewiseError as error:
        raise StripewiseError(f"{here}: {error}") from error


class _Patience:
    """How long there has been no worker to wait for."""

    def __init__(self, client: Client, address: str) -> None:
        self.client = client
        self.address = address
        self.alone_since: float | None = None

    def check(self) -> None:
        """Raises where there has been no worker for too long."""
        if self.client.status == "running" and self.client.scheduler_info()["workers"]:
            self.alone_since = None
            return
        now = time.monotonic()
        self.alone_since = now if self.alone_since is None else self.alone_since
        if now - self.alone_since > ALONE_S:
            raise StripewiseError(
                f"the Dask scheduler at {self.address} has had no worker, or has not answered, for {ALONE_S} s: "
                "see why in the logs of its workers, and run this again"
            )


def _next(done: queue.SimpleQueue[Future[Any]], patience: _Patience) -> Future[Any]:
    """The next future that is done, well or not; raises where no worker is left to do it."""
    while True:
        try:
            return done.get(timeout=1)
        except queue.Empty:
            patience.check()


def _result(future: Future[Result], address: str, patience: _Patience) -> Result:
    """What was done, which may be lost with its worker, and done again, before it is here."""
    from distributed import KilledWorker
    from distributed import TimeoutError as NotYetError

    try:
        while True:
            try:
                result: Result = future.result(timeout=FETCH_S)
                return result
            except NotYetError:
                patience.check()
    except StripewiseError:
        raise
    except KilledWorker as error:
        raise WorkersDiedError(
            f"Dask workers of {address} died again and again over the same files, the last was {error.last_worker}: "
            "most often for want of memory; start workers with more (`--memory-limit`) or fewer threads (`--nthreads`)"
        ) from error
    except Exception as error:
        raise StripewiseError(
            f"the Dask cluster at {address} failed with {type(error).__name__}: {error}; its scheduler and all its "
            f"workers need Stripewise {__version__} and the same Python as this command"
        ) from error
