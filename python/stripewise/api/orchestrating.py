"""Turns of the programs of a pool: who is served when, and what programs do."""

from __future__ import annotations

import re
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING

from stripewise import _native, native_paths
from stripewise._native import StripewiseError
from stripewise.api import service
from stripewise.pool import Pool

if TYPE_CHECKING:
    from types import FrameType

    from stripewise._native import OrchestratedNode, OrchestratedProgram, Orchestration

__all__ = [
    "DEFAULT_WINDOW_S",
    "NodeRates",
    "agent_program",
    "elsewhere",
    "listening",
    "orchestrate",
    "ordered_limits",
    "ordered_weights",
    "policies",
    "program_rates",
    "rate",
    "require",
    "status",
    "unit",
]

DEFAULT_WINDOW_S = 0.5
"""The paper's window."""
WINDOWS_S = (0.001, 10.0)
"""The shortest window and the longest."""
WEIGHTS = (0.001, 1000.0)
"""The least weight and the greatest."""
LONGEST_WAIT_S = 0.1
"""How long an end may be waited for."""
WITHOUT_KEYS = (
    "agents of other nodes need keys: make one for each by `stripewise agent new-key NODE` and give --keys FILE"
)

agent_program = native_paths.agent_program


def policies() -> dict[str, str]:
    """Names of the policies, the default first, with a line of each."""
    return dict(_native.schedule_policies())


def status(pool: Pool) -> Orchestration:
    """What goes on: the orchestrator, if there is one, its plan, and all programs that are known."""
    return _native.orchestration(str(pool.file))


def program_rates(
    before: Sequence[OrchestratedProgram], now: Sequence[OrchestratedProgram], passed_s: float
) -> dict[tuple[str, int], float]:
    """Bytes in a second by name and user. A program that is new has begun since; one that began anew has moved none."""
    had = {(one["name"], one["user"]): one["bytes"] for one in before}
    keys = {(one["name"], one["user"]): one["bytes"] for one in now}
    return {key: max(done - had.get(key, 0), 0) / passed_s for key, done in keys.items()}


def elsewhere(found: Orchestration | None) -> list[OrchestratedNode]:
    """The nodes that take part, but this one."""
    return [] if found is None else [node for node in found["nodes"] if not node["is_here"]]


class NodeRates:
    """What programs of other nodes move, and what servers do for them.

    From one word of the orchestrator to the next: it says that once a second.
    """

    def __init__(self, found: Orchestration | None) -> None:
        """From what is known at first on."""
        self._told_s = None if found is None else found["nodes_told_s"]
        self._nodes = {node["name"]: node for node in elsewhere(found)}
        self.programs: dict[str, dict[tuple[str, int], float]] = {}
        """Bytes in a second, by node, and name and user."""
        self.servers: dict[tuple[str, str], tuple[float, float]] = {}
        """Requests and bytes in a second, by node and server."""

    def take(self, found: Orchestration | None) -> None:
        """Takes what is known now; without news, the rates stay."""
        if found is None or found["nodes_told_s"] is None or found["nodes_told_s"] == self._told_s:
            return
        nodes = {node["name"]: node for node in elsewhere(found)}
        passed_s = 0.0 if self._told_s is None else found["nodes_told_s"] - self._told_s
        self.programs, self.servers = {}, {}
        for name in nodes.keys() & self._nodes.keys() if passed_s > 0 else ():
            before, now = self._nodes[name], nodes[name]
            self.programs[name] = program_rates(before["programs"], now["programs"], passed_s)
            had = {one["server"]: one for one in before["servers"]}
            for one in now["servers"]:
                was = had.get(one["server"], {"requests": 0, "bytes": 0})
                requests, moved = (max(one["requests"] - was["requests"], 0), max(one["bytes"] - was["bytes"], 0))
                self.servers[name, one["server"]] = (requests / passed_s, moved / passed_s)
        self._told_s, self._nodes = found["nodes_told_s"], nodes


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

    `tell` gets a line for each program at the end of each window, and whether that says something new; and one for each
    page that is none.
    """
    orchestrator = _native.orchestrate(str(pool.file), policy, window_s, dict(weights or {}), dict(limits or {}))
    try:
        with _until_ended() as ended:
            while not ended.is_set():
                for decision in orchestrator.work(LONGEST_WAIT_S):
                    tell(decision["text"], decision["is_change"])
                for words in orchestrator.take_remarks():
                    tell(words, True)
    finally:
        orchestrator.end()


def require(
    *,
    policy: str,
    window_s: float,
    weights: Mapping[str, float],
    limits: Mapping[str, int],
    listen: str | None,
    keys: Path | None,
) -> None:
    """Raises `StripewiseError` for what no orchestrator begins with: a unit with that could only fail."""
    if policy not in policies():
        raise StripewiseError(f"no policy is named '{policy}': take one of {', '.join(policies())}")
    if not WINDOWS_S[0] <= window_s <= WINDOWS_S[1]:
        raise StripewiseError(f"a window of {window_s * 1000:g} ms: take 1 to 10000 ms (500 is the paper's)")
    for name, weight in weights.items():
        if not WEIGHTS[0] <= weight <= WEIGHTS[1]:
            raise StripewiseError(f"the weight {weight} of '{name}': take {WEIGHTS[0]:g} to {WEIGHTS[1]:g}")
    for name, limit in limits.items():
        if not limit:
            raise StripewiseError(f"a limit of 0 bytes per second for '{name}' would stop it: take more")
    if listen is None:
        return
    _require_listening(listen)
    if keys is None:
        raise StripewiseError(WITHOUT_KEYS)
    if not keys.is_file():
        raise StripewiseError(f"the file of keys {keys} is not there: make it first, then the unit")


def _require_listening(listen: str) -> None:
    """Raises `StripewiseError` for what is neither a port nor an IP address with one."""
    found = re.fullmatch(r"(?:(?:\[(?P<six>[0-9a-fA-F:.]+)\]|(?P<four>[0-9.]+)):)?(?P<port>[0-9]{1,5})", listen)
    is_right = found is not None and int(found["port"]) < 1 << 16
    if found is not None and (address := found["six"] or found["four"]) is not None:
        try:
            is_right &= ip_address(address).version == (6 if found["six"] else 4)
        except ValueError:
            is_right = False
    if not is_right:
        raise StripewiseError(
            f"'{listen}' is no address to listen on: give a PORT (of this machine alone), or ADDRESS:PORT with an IP "
            f"address"
        )


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
        raise StripewiseError(WITHOUT_KEYS)
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
