"""Advice on logs of real programs: whether each is answered, and how near the model comes to what was measured.

`STRIPEWISE_BENCH_LOGS` names directories of logs, as PATH does; without it those that PyDarshan ships are taken. Copies
of a log count once.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import math
import os
import statistics
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benches.frame import STRIPEWISE, Benchmark, Context, Figure, MissingError, Target

PLACE = "STRIPEWISE_BENCH_LOGS"
WITHIN = 2.0
BOUND_S = 300


@dataclass(frozen=True)
class Answer:
    """What `advise` makes of a log."""

    log: Path
    seconds: float
    document: dict[str, Any] | None
    """`None`: it was refused."""
    said: str
    """The last line on standard error."""
    broke: bool

    @property
    def factor(self) -> float | None:
        """Predicted over measured time, by the slower of the two."""
        reproduced = self.document["reproduced"] if self.document else None
        return None if reproduced is None else math.exp(abs(math.log(reproduced["factor"])))

    @property
    def claims(self) -> bool:
        """Whether it says that something would gain."""
        return self.document is not None and self.document["total"]["change"]

    @property
    def is_empty(self) -> bool:
        """Whether requests were read and no program stands above the result."""
        return (
            self.document is not None and self.document["job"]["requests"] > 0 and not self.document["job"]["command"]
        )


def run(context: Context) -> Iterator[Figure | str]:
    """All logs, two at a time."""
    logs = _logs()
    context.say(f"{len(logs)} logs")
    with ThreadPoolExecutor(2) as workers:
        answers = list(workers.map(_answer, logs))
    answered = [answer for answer in answers if answer.document is not None]
    yield Figure("logs", len(logs), "")
    yield Figure(
        "tracebacks, crashes and answers without a job",
        sum(answer.broke or answer.is_empty for answer in answers),
        "",
        target=Target(most=0),
    )
    yield Figure("logs that are refused with a reason", len(logs) - len(answered), "")
    factors = [factor for answer in answered if (factor := answer.factor) is not None]
    if factors:
        near = [factor for factor in factors if factor <= WITHIN]
        yield Figure("logs that time their requests", len(factors), "")
        yield Figure(
            "fitted present against measured, median factor", statistics.median(factors), "x", target=Target(most=1.3)
        )
        yield Figure("… within a factor of 2", 100 * len(near) / len(factors), "%", target=Target(least=90))
    wrong = [answer for answer in answered if answer.claims and (answer.factor or 1) > WITHIN]
    yield Figure("gains claimed where the present is not reproduced", len(wrong), "", target=Target(most=0))
    compared = [answer.document["reproduced"] for answer in answered if answer.document is not None]
    held = [reproduced["held_out"] for reproduced in compared if reproduced and reproduced["held_out"]]
    if held:
        covered = [of for of in held if of["low"] <= of["ratio"] <= of["high"]]
        errors = [math.exp(abs(math.log(of["ratio"]))) for of in held]
        yield Figure("fitted to one half, the other predicted: median factor", statistics.median(errors), "x")
        yield Figure(
            f"… within its interval (of {len(held)} logs)", 100 * len(covered) / len(held), "%", target=Target(least=90)
        )
    slowest = max(answers, key=lambda answer: answer.seconds)
    yield Figure("time per log, median", statistics.median(answer.seconds for answer in answers), "s")
    yield Figure("time per log, longest", slowest.seconds, "s", note=slowest.log.name[:60])
    for answer in answers:
        if answer.document is None or answer.broke:
            yield f"{answer.log.name}: {answer.said}"
        elif answer.is_empty:
            yield f"{answer.log.name}: an answer without a job"
        elif (answer.factor or 1) > WITHIN:
            yield f"{answer.log.name}: {answer.document['reproduced']['refused']}"


def _logs() -> list[Path]:
    places = [Path(place) for place in os.environ.get(PLACE, "").split(os.pathsep) if place]
    if not places:
        found = importlib.util.find_spec("darshan")
        if found is None or not found.submodule_search_locations:
            raise MissingError(f"PyDarshan's logs are not here, and {PLACE} names no directory of logs")
        logs = sorted(Path(found.submodule_search_locations[0]).rglob("*.darshan"))
    else:
        logs = sorted(path for place in places for path in place.rglob("*") if path.is_file())
    if not logs:
        raise MissingError(f"{PLACE}={os.environ.get(PLACE)} has no file")
    return list({hashlib.sha256(log.read_bytes()).digest(): log for log in reversed(logs)}.values())[::-1]


def _answer(log: Path) -> Answer:
    began = time.monotonic()
    command = [*STRIPEWISE, "advise", str(log), "--json"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=BOUND_S)
    except subprocess.TimeoutExpired:
        return Answer(log, time.monotonic() - began, None, f"no answer within {BOUND_S} s", True)
    took = time.monotonic() - began
    said = (done.stderr.strip().splitlines() or [""])[-1]
    if done.returncode != 0:
        return Answer(log, took, None, said, "Traceback" in done.stderr or done.returncode < 0 or not said)
    return Answer(log, took, json.loads(done.stdout), said, "Traceback" in done.stderr)


BENCHMARK = Benchmark("logs", "advice on logs: the present as the model has it, beside what was measured", run)
