"""What a pool does, for Prometheus: a small server of its text format, on this machine alone unless told otherwise."""

from __future__ import annotations

import itertools
import math
import os
import re
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from socketserver import ThreadingMixIn
from threading import BoundedSemaphore, Lock, Thread, Timer
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from stripewise import _native, usage
from stripewise._native import StripewiseError
from stripewise.api import activity, adapt, measured, swaps
from stripewise.pool import Pool, Server
from stripewise.usage import Usage

__all__ = ["address", "serve"]

LOOPBACK = "127.0.0.1"
CLIENTS = 16
"""Connections at once: of more the last ones are closed. Each takes a descriptor and a thread of the mover."""
CLIENT_S = 10.0
"""For how long a connection may say nothing, and how long it may take to ask."""
SHARE = 0.01
"""Of the time, at most, for looks at all datafiles, which say what the pool has on its servers."""


def address(text: str) -> tuple[str, int]:
    """Host and port of `[HOST:]PORT`, the host on loopback if there is none.

    Raises `StripewiseError` for what is no address, or has a host that no machine can have as its name.
    """
    found = re.fullmatch(r"(?:(?P<host>[^\[\]:\s\0]+|\[[0-9a-fA-F:.]+\]):)?(?P<port>[0-9]{1,5})", text)
    if found is None or int(found["port"]) > 65_535:
        raise StripewiseError(f"{text}: write [HOST:]PORT for the metrics, such as 9123 or 127.0.0.1:9123")
    host = (found["host"] or LOOPBACK).strip("[]")
    try:
        # As the system is asked for it.
        host.encode("idna")
    except UnicodeError as error:
        raise StripewiseError(
            f"{text}: '{host}' is no name of a host for the metrics: each part between two dots has 1 to 63 letters; "
            f"write [HOST:]PORT, such as 9123 or 127.0.0.1:9123"
        ) from error
    return host, int(found["port"])


def serve(pool: Pool, at: str) -> tuple[str, Callable[[], None]]:
    """Serves the metrics of a pool at `[HOST:]PORT`, in a thread; port 0 is any free one. The URL, and what ends it.

    Each request looks at the counters and the room of the servers, and at the decisions of `adapt`. Raises
    `StripewiseError` for what is no address, or cannot be listened at.
    """
    host, port = address(at)
    registry = CollectorRegistry()
    registry.register(_PoolCollector(pool))
    try:
        server = _server(host, port, _app(registry))
    except OSError as error:
        reason = f"metrics cannot be served at {host}:{port}: {error.strerror or error}"
        raise StripewiseError(f"{reason}; name another address") from error
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()

    def end() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{server.server_port}/metrics", end


class _Handler(WSGIRequestHandler):
    """A connection, which any user of the machine may have made."""

    timeout = CLIENT_S

    def log_message(self, format: str, *arguments: object) -> None:
        """Nothing: what others ask is not the log of the mover."""


class _Server(ThreadingMixIn, WSGIServer):
    """A thread for each connection, and no more of them than `CLIENTS`: none takes what the mover needs to open."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, *arguments: Any) -> None:  # noqa: ANN401
        self._free = BoundedSemaphore(CLIENTS)
        super().__init__(*arguments)

    def process_request(self, request: Any, client_address: Any) -> None:  # noqa: ANN401
        """Where there is no room, the connection is closed."""
        if not self._free.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._free.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:  # noqa: ANN401
        # One that says a byte now and then would keep its place for days.
        asks = Timer(CLIENT_S, _hear_no_more, [request])
        asks.daemon = True
        try:
            asks.start()
            super().process_request_thread(request, client_address)
        finally:
            asks.cancel()
            self._free.release()

    def handle_error(self, *_: object) -> None:
        """Nothing: a client that goes, or asks for nonsense, is no fault of this process."""


def _hear_no_more(client: socket.socket) -> None:
    """What it has asked so far is what is answered; an answer that is under way goes on."""
    with suppress(OSError):
        client.shutdown(socket.SHUT_RD)


def _app(registry: CollectorRegistry) -> Any:  # noqa: ANN401
    """The library's, which fails where a client asks for a version of the format that is no number."""
    made = make_wsgi_app(registry)

    def app(environ: dict[str, Any], start_response: Any) -> Any:  # noqa: ANN401
        try:
            return made(environ, start_response)
        except TypeError:
            return made({key: value for key, value in environ.items() if key != "HTTP_ACCEPT"}, start_response)

    return app


def _server(host: str, port: int, app: Any) -> _Server:  # noqa: ANN401
    """A server that listens. Raises `OSError` where it cannot."""
    family, *_, at = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]

    class Server(_Server):
        address_family = family

    server = Server(at[:2], _Handler)
    server.set_app(app)
    return server


class _PoolCollector(Collector):
    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._alone = Lock()
        self._used: dict[str, Usage] = {}
        self._due_s = 0.0
        self._known: tuple[object, tuple[adapt.Totals, measured.Gain | None]] | None = None

    def describe(self) -> Iterable[Metric]:
        return ()  # So that nothing is asked of the pool before the first request.

    def collect(self) -> Iterator[Metric]:
        # Servers come and go meanwhile. While the file cannot be read, those that are known count.
        with suppress(StripewiseError):
            self._pool = Pool.load(self._pool.file)
        yield from self._servers()
        yield from self._space()
        yield self._latencies()
        yield from self._decisions()

    def _servers(self) -> Iterator[Metric]:
        requests = CounterMetricFamily("stripewise_server_requests", "Requests served.", labels=["server"])
        sizes = CounterMetricFamily("stripewise_server_bytes", "Bytes served.", labels=["server", "op"])
        busy = CounterMetricFamily("stripewise_server_busy_seconds", "Time with a request.", labels=["server"])
        text = "Time of all requests, from the queue to the end."
        times = CounterMetricFamily("stripewise_server_request_seconds", text, labels=["server"])
        for server, done in activity.done(self._pool, activity.sources(self._pool)).items():
            requests.add_metric([server], done.requests)
            sizes.add_metric([server, "read"], done.read_bytes)
            sizes.add_metric([server, "write"], done.written_bytes)
            busy.add_metric([server], done.busy_s)
            times.add_metric([server], done.waiting_s)
        yield from (requests, sizes, busy, times)

    def _latencies(self) -> Metric:
        text = "Time of a request at the server, as mounts with these metrics have counted."
        metric = HistogramMetricFamily("stripewise_server_latency_seconds", text, labels=["server", "op"])
        found = _native.pool_latencies(str(self._pool.file))
        bounds = [*map(repr, found["bounds_s"]), "+Inf"]
        for one in found["servers"]:
            upto = itertools.accumulate(one["counts"])
            metric.add_metric([one["server"], one["op"]], list(zip(bounds, upto, strict=True)), one["sum_s"])
        return metric

    def _decisions(self) -> Iterator[Metric]:
        try:
            totals, gain = self._decided()
        except StripewiseError:
            return  # This user may not read them, as those of root's in a shared pool.
        verdicts = CounterMetricFamily("stripewise_adapt_decisions", "Decisions of adapt.", labels=["verdict"])
        for verdict, count in totals.verdicts.items():
            verdicts.add_metric([verdict], count)
        yield verdicts
        text = "Bytes that adapt has copied."
        yield CounterMetricFamily("stripewise_adapt_copied_bytes", text, value=totals.copied_bytes)
        text = "Heat of what adapt has moved: what requests on it had cost of late, when it moved."
        yield CounterMetricFamily("stripewise_adapt_moved_heat_seconds", text, value=totals.moved_heat_s)
        ratio = GaugeMetricFamily(
            "stripewise_adapt_gain_ratio", "How many times as fast the last move has made the servers.", labels=["how"]
        )
        if gain is not None:
            ratio.add_metric(["predicted"], gain.predicted_ratio)
            if gain.ratio is not None:
                ratio.add_metric(["measured"], gain.ratio)
        yield ratio

    def _decided(self) -> tuple[adapt.Totals, measured.Gain | None]:
        """What decisions have done, and what the last move has gained. They are read where there is another one."""
        with self._alone:
            stamp = adapt.kept(self._pool).stamp()
            if self._known is None or self._known[0] != stamp:
                lines = adapt.kept(self._pool).lines()
                self._known = stamp, (adapt.totals(lines), measured.gain_of_last_move(lines))
            return self._known[1]

    def _space(self) -> Iterator[Metric]:
        """Room as of now, of servers that can be used: a system call for each."""
        up = GaugeMetricFamily("stripewise_server_up", "Whether the server can be used: 1, or 0.", labels=["server"])
        used = GaugeMetricFamily("stripewise_server_used_bytes", "Bytes of the pool on the server.", labels=["server"])
        text = "Bytes that can still be written to the server."
        free = GaugeMetricFamily("stripewise_server_free_bytes", text, labels=["server"])
        known = self._looked()
        for tier in (*self._pool.tiers, self._pool.meta):
            for server in tier.servers:
                of, room = known.get(server.name), _room_bytes(server)
                is_up = room is not None and (of is None or of.error is None)
                up.add_metric([server.name], is_up)
                if room is None or not is_up:
                    continue
                if of is not None:
                    used.add_metric([server.name], of.used_bytes)
                    if tier.capacity_bytes is not None:
                        room = min(room, max(0, tier.capacity_bytes - of.used_bytes))
                if math.isfinite(room):
                    free.add_metric([server.name], room)
        yield from (up, used, free)

    def _looked(self) -> dict[str, Usage]:
        """What the pool has on each server. O(its files): a look is kept for a hundred times as long as it took."""
        with self._alone:
            began_s = time.monotonic()
            if began_s >= self._due_s:
                with suppress(StripewiseError):
                    self._used = usage.of_pool(self._pool)
                now_s = time.monotonic()
                self._due_s = now_s + (now_s - began_s) / SHARE
            return self._used


def _room_bytes(server: Server) -> float | None:
    """What can be written there: without end where its file system does not say; `None` if the server is not there."""
    try:
        room = os.statvfs(server.path / swaps.MARKER)
    except OSError:
        return None
    return room.f_bavail * room.f_frsize if room.f_blocks else math.inf
