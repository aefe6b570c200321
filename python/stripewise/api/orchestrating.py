"""Turns of the programs of a pool: who is served when, and what programs do."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from stripewise import _native, native_paths
from stripewise._native import StripewiseError
from stripewise.api import service
from stripewise.pool import Pool

if TYPE_CHECKING:
    from types import FrameType

    from stripewise._native import Orchestration

__all__ = [
    "DEFAULT_WINDOW_S",
    "agent_program",
    "listening",
    "orchestrate",
    "ordered_limits",
    "ordered_weights",
    "policies",
    "rate",
    "status",
    "unit",
]

DEFAULT_WINDOW_S = 0.5
"""The paper's window."""
LONGEST_WAIT_S = 0.1
"""How long an end may be waited for."""

agent_program = native_paths.agent_program


def policies() -> dict[str, str]:
    """Names of the policies, the default first, with a line of each."""
    return dict(_native.schedule_policies())


def status(pool: Pool) -> Orchestration:
    """What goes on: the orchestrator, if there is one, its plan, and all programs that are known."""
    return _native.orchestration(str(pool.file))


def orchestrate(
    pool: Pool,
    *,
    policy: str,
    window_s: float = DEFAULT_WINDOW_S,
    weights: Mapping[str, float] | None = None,
    limits: Mapping[str, int] | None = None,
    tell: Callable[[str, bool], None],
) -> None:
    """Orchestrates the programs of a pool until SIGINT or SIGTERM; then all of them are served at all times again.

    `tell` gets a line for each program at the end of each window, and whether that says something new.
    """
    orchestrator = _native.orchestrate(str(pool.file), policy, window_s, dict(weights or {}), dict(limits or {}))
    try:
        with _until_ended() as ended:
            while not ended.is_set():
                for decision in orchestrator.work(LONGEST_WAIT_S):
                    tell(decision["text"], decision["is_change"])
    finally:
        orchestrator.end()


def listening(
    pool: Pool,
    *,
    listen: str,
    keys: Path | None,
    policy: str,
    window_s: float,
    weights: Mapping[str, float],
    limits: Mapping[str, int],
    verbose: bool = False,
) -> list[str]:
    """The command of an orchestrator that agents of other nodes join at `listen`, a port or ADDRESS:PORT.

    Raises `StripewiseError` without a file of keys.
    """
    if keys is None:
        raise StripewiseError(
            "agents of other nodes need keys: make one for each by `stripewise agent new-key NODE` and give --keys FILE"
        )
    rules = [word for name, weight in weights.items() for word in ("--weight", f"{name}={weight}")]
    rules += [word for name, limit in limits.items() for word in ("--limit", f"{name}={limit}")]
    options = ["--policy", policy, "--window-ms", f"{window_s * 1000:g}", "--listen", listen, "--keys", str(keys)]
    more = ["--verbose"] if verbose else []
    return [str(agent_program()), "orchestrate", str(pool.file), *options, *rules, *more]


def unit(pool: Pool, options: list[str], command: str = "") -> tuple[Path, str]:
    """Where the systemd unit of the pool's `orchestrate` belongs, root's or this user's, and its text."""
    purpose = f"turns of the programs of pool {pool.name}"
    return service.unit(pool, "orchestrate", purpose, ["orchestrate", str(pool.file), *options], command=command)


def ordered_weights(rules: list[str]) -> dict[str, float]:
    """Weights of programs from rules `NAME=W`."""
    return _named_values(rules, "weight", float)


def ordered_limits(rules: list[str]) -> dict[str, int]:
    """Bytes in a second of programs from rules `NAME=RATE`."""
    return {of: int(most) for of, most in _named_values(rules, "limit", rate).items()}


def _named_values(rules: list[str], what: str, parse: Callable[[str], float]) -> dict[str, float]:
    """Rules `NAME=VALUE` by name; a name may have `=` in it."""
    found = {}
    for rule in rules:
        name, equals, value = rule.rpartition("=")
        if not equals or not name:
            raise StripewiseError(f"the {what} '{rule}' is not NAME=VALUE")
        try:
            found[name] = parse(value)
        except (ValueError, StripewiseError) as error:
            raise StripewiseError(f"the {what} '{rule}': '{value}' is no number that it can be") from error
    return found


def rate(text: str) -> int:
    """Bytes in a second, as `100MiB` or `100MiB/s`."""
    return _native.parse_bytes(text.removesuffix("/s"))


@contextmanager
def _until_ended() -> Iterator[threading.Event]:
    ended = threading.Event()

    def end(_number: int, _frame: FrameType | None) -> None:
        ended.set()

    before = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield ended
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
