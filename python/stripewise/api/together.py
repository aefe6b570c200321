"""Programs that run at once: what they do to each other, and what turns would make of that."""

from __future__ import annotations

import os
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from stripewise import _native
from stripewise.api.orchestrating import policies
from stripewise.api.servers import Named, Servers
from stripewise.api.simulation import around_of
from stripewise.api.trace import Trace
from stripewise.pool import Pool

__all__ = ["ALL_POLICIES", "helping_policy", "named_programs", "together", "worst_slowdown"]

ALL_POLICIES = "all"
"""In place of a policy: each of them."""


def named_programs(traces: Sequence[Trace]) -> dict[str, Trace]:
    """Traces by the names of their files, with a number where two have one."""
    named: dict[str, Trace] = {}
    for trace in traces:
        name, number = trace.path.stem, 2
        while name in named:
            name, number = f"{trace.path.stem}-{number}", number + 1
        named[name] = trace
    return named


def together(
    programs: Mapping[str, Trace],
    *,
    pool: Named | Pool | None = None,
    cluster: Named | None = None,
    root: Named | None = None,
    policies_tried: Sequence[str] = (ALL_POLICIES,),
    window_s: float = 0.5,
    weights: Mapping[str, float] | None = None,
    limits: Mapping[str, int] | None = None,
    as_recorded: bool = False,
    pairs: bool = False,
    repeat: int = 3,
    seed: int = 1,
    think: bool = True,
    around: Mapping[str, Any] | None = None,
) -> _native.ConcurrentPrograms:
    """Simulates recorded programs alone, together, and together under policies of `stripewise orchestrate`.

    Files have the layouts that they have in the pool, or the cluster's default. The first of the policies in the
    result is `none`. `weights`, and `limits` in bytes per second, are by the name of a program, as in
    `stripewise.api.orchestrating.orchestrate`. With `as_recorded` programs begin as far apart as their logs did, else
    at once; with `pairs` each two that share servers at one time are simulated by themselves, too. The time between
    requests is kept, unless `think` is off: queues that wait for the next request of a program depend on it. `around`
    and the rest are as in `simulate`.
    Raises `StripewiseError` that names what is wrong.
    """
    servers = Servers.of(pool, cluster)
    place = servers.cluster if servers.pool is None else str(servers.pool.file)
    assert place is not None
    tried = list(policies()) if ALL_POLICIES in policies_tried else list(dict.fromkeys(policies_tried))
    return _native.together(
        [(name, trace.native) for name, trace in programs.items()],
        place,
        servers.root(root),
        tried,
        f"{window_s!r}s",
        dict(weights or {}),
        dict(limits or {}),
        as_recorded=as_recorded,
        pairs=pairs,
        around=around_of({"bins": 0, "repeat": repeat, "seed": seed, "think": think, **(around or {})}),
    )


def advised(traces: Sequence[Trace], *, cluster: Named, root: Named | None = None) -> _native.ConcurrentPrograms:
    """What recorded programs of one time do to each other, and what each policy makes of that: see `together`.

    `cluster` is a cluster or pool file. Raises `StripewiseError` where a log has no absolute time.
    """
    for trace in traces:
        if not trace.about["start_unix_s"]:
            raise _native.StripewiseError(
                f"{trace.path}: the log does not say when it began, so nothing is known of what ran beside it; "
                "`stripewise simulate --schedule all` takes programs to begin at once"
            )
    is_pool = _native.cluster_load(os.fspath(cluster))["kind"] == "pool"
    return together(
        named_programs(traces),
        pool=cluster if is_pool else None,
        cluster=None if is_pool else cluster,
        root=root,
        as_recorded=True,
        pairs=True,
        think=True,
    )


LEAST_HELP = 1.05
"""By how much programs have to be faster in the geometric mean, that turns are advised; none may lose as much."""


def worst_slowdown(outcome: _native.PolicyOutcome) -> float:
    """The slowdown of the program that is slowed most."""
    return max(slowdown["mean"] for slowdown in outcome["slowdowns"])


def helping_policy(found: _native.ConcurrentPrograms) -> _native.PolicyOutcome | None:
    """The policy under which programs are slowed least, if that is less than without turns by more than a little."""
    plain, *others = found["policies"]

    def slowed(outcome: _native.PolicyOutcome) -> float:
        return statistics.geometric_mean([max(slowdown["mean"], 1e-9) for slowdown in outcome["slowdowns"]])

    fair = [one for one in others if worst_slowdown(one) <= LEAST_HELP * worst_slowdown(plain)]
    best = min(fair, key=slowed, default=None)
    return best if best is not None and slowed(plain) >= LEAST_HELP * slowed(best) else None
