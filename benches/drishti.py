"""Findings beside those of Drishti (https://github.com/hpc-io/drishti) on Darshan logs.

`STRIPEWISE_BENCH_LOGS` names directories of logs, as PATH does, and `DRISHTI` its program (`pip install drishti-io`, in
an environment of its own). docs/advise.md says which of its findings hold, and why the others do not.
"""

import json
import os
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from benches.frame import STRIPEWISE, Benchmark, Context, Figure, MissingError

SMALL = {"small-requests", "tiny-requests", "collective-off", "random-reads", "random-writes", "hdf5-metadata"}
UNEVEN = {"rank-imbalance", "one-rank", "few-writers"}
SAME = {
    "S01": {"stdio"},
    "P05": SMALL,
    "P06": SMALL,
    "P08": {"off-alignment", "unaligned"},
    "P09": {"read-again", "amplification", "read-modify-write"},
    "P10": {"written-again", "amplification"},
    "P11": {"random-reads", "collective-off", "hdf5-metadata"},
    "P13": {"random-writes", "collective-off"},
    "P15": SMALL,
    "P16": SMALL,
    "P17": {"metadata-storm"},
    "P18": UNEVEN,
    "P19": {"rank-time"},
    "P21": UNEVEN,
    "P22": UNEVEN,
    "M02": {"collective-off"},
    "M03": {"collective-off"},
    "M06": {"blocking"},
    "M07": {"blocking"},
}
"""Drishti's codes of what it calls a fault, and the findings that say the same."""

SERVERS = 'name = "any"\n[[tier]]\nname = "hdd"\nservers = 8\npreset = "hdd-7200"\n'
BOUND_S = 600


def run(context: Context) -> Iterator[Figure | str]:
    """Each code: on how many logs Drishti tells it, and on how many of those it is found."""
    drishti = shutil.which(os.environ.get("DRISHTI", "drishti"))
    places = [Path(place) for place in os.environ.get("STRIPEWISE_BENCH_LOGS", "").split(os.pathsep) if place]
    if drishti is None or not places:
        raise MissingError("DRISHTI names Drishti's program, STRIPEWISE_BENCH_LOGS directories of Darshan logs")
    servers = context.directory / "any.toml"
    servers.write_text(SERVERS)
    told: Counter[str] = Counter()
    found: Counter[str] = Counter()
    logs = sorted({log for place in places for log in place.rglob("*.darshan")})
    for log in logs:
        kinds = _findings(log, servers)
        for code in _codes(drishti, log):
            told[code] += 1
            found[code] += bool(kinds & SAME[code])
            if not kinds & SAME[code]:
                yield f"{log.name}: {code} is not among {', '.join(sorted(kinds)) or 'no findings'}"
    for code in sorted(told):
        yield Figure(f"{code} found, of {told[code]} of {len(logs)} logs", found[code], "logs")


def _codes(drishti: str, log: Path) -> set[str]:
    """What Drishti calls a fault."""
    command = [drishti, "--issues", "--code", "--size", "200", str(log)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=BOUND_S, check=False)
    return set(re.findall(r"\[([SPM]\d\d)\]", done.stdout)) & SAME.keys()


def _findings(log: Path, servers: Path) -> set[str]:
    """The kinds of what `advise` finds; none where it refuses the log."""
    command = [*STRIPEWISE, "advise", str(log), "--cluster", str(servers), "--root", "/", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=BOUND_S, check=False)
    if done.returncode != 0:
        return set()
    document = json.loads(done.stdout)
    every = [document["total"], *document["files"]]
    return {finding["kind"] for one in every for finding in one["findings"]}


BENCHMARK = Benchmark("drishti", "findings beside those of Drishti, on Darshan logs", run)
