"""Many logs, each looked at by itself: by processes of this machine, or by the workers of a Dask cluster.

A process here is given one log at a time and answers with a line of JSON. One that dies takes with it the log that it
was at, and no other: another process goes on with the rest.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

from stripewise import _native, scale_out
from stripewise._native import StripewiseError
from stripewise.naming import common_pattern

DATA_SET = "data set"
"""What `log_format` calls a directory of tables, each of which is none by itself."""
NO_DIRECTORY = "(no directory)"
"""Where standard streams and anonymised names are."""
DIRECTORIES = 50
"""Directories of a log that are told, those with most bytes."""


@dataclass(frozen=True)
class Asked:
    """What is asked of every log."""

    cluster: str | None = None
    """A cluster or pool file; `None`: the servers that each log shows."""
    preset: str = "hdd-7200"
    """What servers that only a log shows are taken for."""
    rules: bool = True
    """Try layout rules on the servers."""


def check(asked: Asked) -> None:
    """Raises `StripewiseError` for what would be a mistake with every log: the servers' file, the preset."""
    if asked.cluster is not None:
        _native.cluster_load(asked.cluster)


def logs_of(paths: Sequence[Path]) -> list[Path]:
    """The logs that are named, and those below the directories that are; each once, in order.

    What is named is taken for a log, whatever it is; below a directory only what looks like one. Links to directories
    are not followed.
    """
    found: list[Path] = []
    for path in paths:
        if path.is_dir() and not _is_log(path):
            found += _below(path)
        else:
            found.append(path)
    return list({os.path.abspath(path): path for path in found}.values())


def _below(directory: Path) -> Iterator[Path]:
    for path in sorted(directory.iterdir()):
        if _is_log(path):
            yield path
        elif path.is_dir() and not path.is_symlink():
            yield from _below(path)


def _is_log(path: Path) -> bool:
    """Whether this is one log. A directory of a tracer's files is, unless logs of other formats lie beside them."""
    own = _native.log_format(str(path))
    if own is None or not path.is_dir() or path.is_symlink():
        return own is not None
    beside = (_native.log_format(str(entry)) for entry in path.iterdir() if entry.is_file())
    return own == DATA_SET or all(one is None or one == own for one in beside)


def looked_at(log: str, asked: Mapping[str, Any]) -> dict[str, Any]:
    """What one log tells, as JSON has it: its job, what it moved, where, and what rules would give; or its error."""
    try:
        return {"log": log, "error": None, **_looked(log, Asked(**asked))}
    except (KeyboardInterrupt, SystemExit):
        raise
    except StripewiseError as error:
        return {"log": log, "error": str(error)}
    except BaseException as error:
        return {"log": log, "error": f"{log} cannot be looked at: {type(error).__name__}: {error}"}


def _looked(log: str, asked: Asked) -> dict[str, Any]:
    trace = _native.Trace(log)
    about = trace.about()
    paths = [str(path).encode("utf-8", "surrogateescape").decode("utf-8", "replace") for path in trace.files()]
    parents = [_parent(path) for path in paths]
    alike: dict[str, list[int]] = {}
    for number, parent in enumerate(parents):
        alike.setdefault(_native.path_pattern(parent), []).append(number)
    summaries = trace.summaries(list(alike.values()))
    directories = [
        {"path": common_pattern([parents[file] for file in files]), "pattern": pattern, **_moved(summary)}
        for (pattern, files), summary in zip(alike.items(), summaries, strict=True)
    ]
    directories = [row for row in directories if row["requests"]]
    directories.sort(key=lambda row: (-row["read_bytes"] - row["written_bytes"], row["path"]))
    used = sum(row["files"] for row in directories)
    total = {name: sum(row[name] for row in directories) for name in ("requests", "read_bytes", "written_bytes")}
    busy_s = trace.busy_s(list(range(len(paths))))
    moved = total["read_bytes"] + total["written_bytes"]
    return {
        "job": about["job"],
        "format": about["format"],
        "lacks": [lack["name"] for lack in about["lacks"]],
        "programs": trace.programs(),
        "processes": about["processes"] or len(trace.processes()),
        "start_unix_s": about["start_unix_s"],
        "run_s": about["run_s"],
        "files": used,
        **total,
        "busy_s": busy_s,
        "bytes_per_s": moved / busy_s if busy_s and moved else None,
        "directories": directories[:DIRECTORIES],
        **_advised(trace, asked, moved),
    }


def _parent(path: str) -> str:
    """The directory of a file; streams and names that no one place has are in none."""
    parent = str(PurePosixPath(path).parent)
    return NO_DIRECTORY if parent == "." else parent


def _moved(summary: dict[str, Any]) -> dict[str, Any]:
    return {
        "files": summary["files"],
        "requests": summary["reads"]["requests"] + summary["writes"]["requests"],
        "read_bytes": summary["reads"]["bytes"],
        "written_bytes": summary["writes"]["bytes"],
    }


def _advised(trace: _native.Trace, asked: Asked, moved: int) -> dict[str, Any]:
    """Findings, and what rules would give; where there is no advice, why."""
    try:
        advice = _native.advise(
            trace, asked.cluster, planner="fixed", preset=asked.preset, rules=asked.rules and moved > 0
        )
    except StripewiseError as error:
        return {"findings": [], "predicted_bytes_per_s": None, "rules": [], "no_rules": str(error)}
    reproduced = advice["reproduced"]
    found: dict[str, dict[str, Any]] = {}
    of_files = [finding for file in advice["files"] for finding in file["findings"]]
    for finding in [*advice["total"]["findings"], *of_files]:
        kept = found.setdefault(finding["kind"], {"kind": finding["kind"], "severity": finding["severity"]})
        kept["severity"] = min(kept["severity"], finding["severity"], key=("high", "medium", "low").index)
    return {
        "findings": list(found.values()),
        "predicted_bytes_per_s": advice["total"]["present_bytes_per_s"],
        "rules": [{"name": rule["name"], "words": rule["words"], **rule["gain"]} for rule in advice["rules"]],
        "no_rules": advice["lacking"] or (reproduced and reproduced["refused"]),
    }


def by_processes(
    logs: Sequence[Path], asked: Asked, processes: int, progress: Callable[[int, int], object]
) -> Iterator[dict[str, Any]]:
    """What every log tells, in no order, by this many processes of this machine."""
    workers = _Workers(asked)
    progress(0, len(logs))
    # A thread waits for each process.
    pool = ThreadPoolExecutor(max_workers=max(1, min(processes, len(logs))))
    try:
        waiting = [pool.submit(workers.look, log) for log in logs]
        for number, future in enumerate(as_completed(waiting), 1):
            progress(number, len(logs))
            yield future.result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        workers.end()


def by_dask(
    logs: Sequence[Path], asked: Asked, address: str, progress: Callable[[int, int], object]
) -> Iterator[dict[str, Any]]:
    """What every log tells, in no order, by the workers of the Dask scheduler at `address`, who read the logs."""
    work = partial(looked_at, asked=asdict(asked))
    for log, found in scale_out.each(logs, address, work, progress):
        entry = {"error": str(found)} if isinstance(found, StripewiseError) else found
        yield {**entry, "log": str(log)}


class _Workers:
    """A process for each thread that looks at logs, started when it is needed."""

    def __init__(self, asked: Asked) -> None:
        self.asked = json.dumps(asdict(asked))
        self.own = threading.local()
        self.alone = threading.Lock()
        self.ended = False
        self.running: set[subprocess.Popen[bytes]] = set()

    def look(self, log: Path) -> dict[str, Any]:
        """What a log tells; a process that dies over it is an error of that log."""
        process = getattr(self.own, "process", None)
        try:
            if process is None:
                process = self.own.process = self._started()
            assert process.stdin is not None and process.stdout is not None
            process.stdin.write(json.dumps(os.fsdecode(log)).encode() + b"\n")
            process.stdin.flush()
            answer = process.stdout.readline()
        except OSError:
            answer = b""
        if not answer.endswith(b"\n"):
            self.own.process = None
            return {"log": str(log), "error": f"{log}: the process that read it died{self._how(process)}"}
        found: dict[str, Any] = json.loads(answer)
        return found

    def _started(self) -> subprocess.Popen[bytes]:
        # Processes of their own do not share out the work of one among all processors once more.
        environment = {**os.environ, "RAYON_NUM_THREADS": "1"}
        command = [sys.executable, "-P", "-c", "from stripewise.surveying import serve; serve()", self.asked]
        with self.alone:
            if self.ended:
                raise OSError("the survey has ended")
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
            self.running.add(process)
        return process

    def _how(self, process: subprocess.Popen[bytes] | None) -> str:
        if process is None:
            return ": it could not be started"
        code = process.wait()
        with self.alone:
            self.running.discard(process)
        return f" of signal {-code}, most often for want of memory" if code < 0 else f" with exit code {code}"

    def end(self) -> None:
        """Ends them all, at whatever they are."""
        with self.alone:
            self.ended = True
            running = list(self.running)
        for process in running:
            process.kill()
            process.wait()


def serve() -> None:
    """A process that looks at logs: a path a line in, as JSON, and what the log tells out."""
    asked = json.loads(sys.argv[1])
    # What anything prints goes to stderr: the answers have the stream for themselves.
    with os.fdopen(os.dup(1), "wb") as answers:
        os.dup2(2, 1)
        for line in sys.stdin.buffer:
            answers.write(json.dumps(looked_at(json.loads(line), asked)).encode() + b"\n")
            answers.flush()
