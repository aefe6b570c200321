"""What a pool does, for Prometheus: a small server of its text format, on this machine alone unless told otherwise."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from stripewise import _native
from stripewise._native import StripewiseError
from stripewise.api import activity, adapt, measured, relief
from stripewise.pool import Pool

__all__ = ["serve"]

LOOPBACK = "127.0.0.1"


def serve(pool: Pool, address: str) -> tuple[str, Callable[[], None]]:
    """Serves the metrics of a pool at `[HOST:]PORT`, in a thread; port 0 is any free one. The URL, and what ends it.

    Each request looks at the counters of the servers and at the decisions of `adapt`. Raises `StripewiseError` for what
    is no address, or cannot be listened at.
    """
    found = re.fullmatch(r"(?:(?P<host>[^\[\]:]+|\[[0-9a-fA-F:.]+\]):)?(?P<port>\d{1,5})", address)
    if found is None or int(found["port"]) > 65_535:
        raise StripewiseError(f"{address}: write [HOST:]PORT for the metrics, such as 9123 or 127.0.0.1:9123")
    host = (found["host"] or LOOPBACK).strip("[]")
    registry = CollectorRegistry()
    registry.register(_PoolCollector(pool))
    try:
        server, thread = start_http_server(int(found["port"]), host, registry)
    except OSError as error:
        reason = f"metrics cannot be served at {host}:{found['port']}: {error.strerror or error}"
        raise StripewiseError(f"{reason}; name another address") from error

    def end() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{server.server_port}/metrics", end


class _PoolCollector(Collector):
    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    def describe(self) -> Iterable[Metric]:
        return ()  # So that nothing is asked of the pool before the first request.

    def collect(self) -> Iterator[Metric]:
        # Servers come and go meanwhile. While the file cannot be read, those that are known count.
        with suppress(StripewiseError):
            self._pool = Pool.load(self._pool.file)
        yield from self._servers()
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
        decisions = adapt.decisions(self._pool)
        verdicts = CounterMetricFamily("stripewise_adapt_decisions", "Decisions of adapt.", labels=["verdict"])
        for verdict, count in Counter(str(of.get("verdict")) for of in decisions).items():
            verdicts.add_metric([verdict], count)
        copied = sum(map(relief.copied_bytes, decisions))
        yield verdicts
        yield CounterMetricFamily("stripewise_adapt_copied_bytes", "Bytes that adapt has copied.", value=copied)
        ratio = GaugeMetricFamily(
            "stripewise_adapt_gain_ratio", "How many times as fast the last move has made the servers.", labels=["how"]
        )
        gain = measured.last_gain(decisions)
        if gain is not None:
            ratio.add_metric(["measured"], gain["ratio"])
            ratio.add_metric(["predicted"], gain["predicted_ratio"])
        yield ratio
        for what, text in (("used", "Bytes of the pool on the server"), ("free", "Bytes that are left on the server")):
            space = GaugeMetricFamily(
                f"stripewise_server_{what}_bytes", f"{text}, at the last decision.", labels=["server"]
            )
            known = decisions[-1].get(f"{what}_bytes") if decisions else None
            for server, count in known.items() if isinstance(known, dict) else ():
                if isinstance(count, int | float):
                    space.add_metric([str(server)], count)
            yield space
