"""A cycle's figures, for people and for programs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import median
from typing import Any, Literal

from stripewise import _native, hints
from stripewise.naming import common_pattern
from stripewise.optimize.cycle import Outcome, Run
from stripewise.optimize.decide import Interval, gain
from stripewise.optimize.measure import Requests, Split
from stripewise.units import about_bytes

Op = Literal["read", "write"]
OPS: tuple[Op, ...] = ("read", "write")


@dataclass(frozen=True)
class Row:
    """Reads or writes of one region: throughput in bytes per second while any of them was in flight."""

    path: str
    offset: int
    end: int | None
    """`None` for the last region, which is open-ended."""
    layout_before: list[str]
    layout_after: list[str]
    op: Op
    requests: int
    bytes: int
    predicted_before: float
    predicted_after: float
    measured_before: float
    measured_after: float | None
    """`None` where the new layout was never run."""
    files: int = 1
    """How many files it is of: their requests together, and the median of their throughputs."""

    @property
    def measured_ratio(self) -> float | None:
        """How many times faster it measured."""
        if self.measured_after is None or self.measured_before == 0:
            return None
        return self.measured_after / self.measured_before


def rows(outcome: Outcome) -> list[Row]:
    """Two rows a region at most: an operation that a region has no request of is left out."""
    plan, predicted = outcome.plan, outcome.predicted
    if plan is None or predicted is None:
        return []
    before = [Requests(run.trace, outcome.pool.mount) for run in outcome.before]
    after = [Requests(run.trace, outcome.pool.mount) for run in outcome.after]
    found = []
    for file, forecast in zip(plan["files"], predicted["files"], strict=True):
        regions = file["regions"]
        offsets = [region["offset"] for region in regions]
        old = [requests.of_regions(file["path"], offsets) for requests in before]
        new = [requests.of_regions(file["path"], offsets) for requests in after]
        for number, region in enumerate(regions):
            for op in OPS:
                figures = getattr(old[0][number], op)
                if figures.requests == 0:
                    continue
                found.append(
                    Row(
                        path=file["path"],
                        offset=region["offset"],
                        end=offsets[number + 1] if number + 1 < len(offsets) else None,
                        layout_before=region["round_before"],
                        layout_after=region["round"],
                        op=op,
                        requests=figures.requests,
                        bytes=figures.bytes,
                        predicted_before=forecast["regions"][number]["before"][op],
                        predicted_after=forecast["regions"][number]["after"][op],
                        measured_before=_median_rate([run[number] for run in old], op),
                        measured_after=_median_rate([run[number] for run in new], op) if new else None,
                    )
                )
    return found


def _median_rate(splits: list[Split], op: str) -> float:
    return float(median(getattr(split, op).bytes_per_s for split in splits))


def grouped(found: Sequence[Row]) -> list[Row]:
    """Rows of files that are named alike but for numbers and laid out alike, as one; those that move most first."""
    alike: dict[tuple[object, ...], list[Row]] = {}
    for row in found:
        layouts = (row.offset, row.end, tuple(row.layout_before), tuple(row.layout_after))
        alike.setdefault((_native.path_pattern(row.path), *layouts, row.op), []).append(row)
    groups = [rows[0] if len(rows) == 1 else _together(rows) for rows in alike.values()]
    moved: dict[str, int] = {}
    for row in groups:
        moved[row.path] = moved.get(row.path, 0) + row.bytes
    return sorted(groups, key=lambda row: (-moved[row.path], row.path, row.offset))


def _together(rows: Sequence[Row]) -> Row:
    after = [row.measured_after for row in rows if row.measured_after is not None]
    return replace(
        rows[0],
        path=common_pattern([row.path for row in rows]),
        files=len(rows),
        requests=sum(row.requests for row in rows),
        bytes=sum(row.bytes for row in rows),
        predicted_before=median(row.predicted_before for row in rows),
        predicted_after=median(row.predicted_after for row in rows),
        measured_before=median(row.measured_before for row in rows),
        measured_after=median(after) if after else None,
    )


def regions(found: Sequence[Row]) -> list[tuple[str, int]]:
    """The regions of some rows, by file and offset, in their order."""
    return list(dict.fromkeys((row.path, row.offset) for row in found))


def op_gain(outcome: Outcome, op: Op) -> Interval | None:
    """Gain in throughput of one operation over all regions; `None` without such requests or without new runs."""

    def rates(runs: list[Run]) -> list[float]:
        return [getattr(run.io, op).bytes_per_s for run in runs]

    before, after = rates(outcome.before), rates(outcome.after)
    if len(after) < 2 or min([*before, *after]) == 0:
        return None
    return gain(before, after)


def predicted_gain(predicted: _native.Prediction, op: Literal["read", "write", "both"]) -> float | None:
    """Gain in throughput that the model promised for `read`, `write` or `both`."""
    before, after = predicted["total"]["before"][op], predicted["total"]["after"][op]
    return after / before if before > 0 else None


def last_line(outcome: Outcome) -> str:
    """`measured gain 4.12x (reads 4.01x, writes 4.25x), predicted 4.3x, 2.0 GiB verified`."""
    if outcome.io_gain is None or outcome.predicted is None:
        return f"nothing changed: {outcome.why}"
    parts = []
    for op in OPS:
        interval = op_gain(outcome, op)
        if interval is not None:
            parts.append(f"{op}s {interval.ratio:.2f}x")
    predicted = predicted_gain(outcome.predicted, "both")
    line = f"measured gain {outcome.io_gain.ratio:.2f}x ({', '.join(parts)})"
    if predicted is not None:
        line += f", predicted {predicted:.1f}x"
    line += f", {about_bytes(outcome.verified_bytes)} verified"
    return line if outcome.kept else f"{line}; taken back: {outcome.why}"


def proposed(outcome: Outcome) -> list[_native.ProposedHint]:
    """The hints of the plan for files like those of the program."""
    return [] if outcome.plan is None else outcome.plan["hints"]


def hint_lines(outcome: Outcome) -> list[str]:
    """They and their commands, for people."""
    return hints.lines(outcome.pool.mount, proposed(outcome))


def document(outcome: Outcome) -> dict[str, Any]:
    """Everything, for `--json`. Times in seconds, sizes in bytes, rates in bytes per second."""
    interval: Callable[[Interval | None], dict[str, float] | None] = lambda i: asdict(i) if i else None  # noqa: E731
    predicted = outcome.predicted
    return {
        "pool": outcome.pool.name,
        "emulated": outcome.pool.is_emulated,
        "command": list(outcome.command),
        "kept": outcome.kept,
        "why": outcome.why,
        "gain": interval(outcome.io_gain),
        "read_gain": interval(op_gain(outcome, "read")),
        "write_gain": interval(op_gain(outcome, "write")),
        "wall_gain": interval(outcome.wall_gain),
        "predicted_gain": {
            "read": predicted_gain(predicted, "read"),
            "write": predicted_gain(predicted, "write"),
            "both": predicted_gain(predicted, "both"),
        }
        if predicted
        else None,
        "verified_bytes": outcome.verified_bytes,
        "cache": outcome.cache,
        "hints": hints.commands(outcome.pool.mount, proposed(outcome)),
        "regions": [{**asdict(row), "measured_ratio": row.measured_ratio} for row in rows(outcome)],
        "runs": {"before": [_run(run) for run in outcome.before], "after": [_run(run) for run in outcome.after]},
        "files": {
            "directory": str(outcome.directory),
            "layout": str(outcome.placement.layout_file) if outcome.placement else None,
            "previous_layout": str(outcome.placement.previous_file) if outcome.placement else None,
        },
    }


def _run(run: Run) -> dict[str, Any]:
    return {
        "trace": str(run.trace),
        "wall_s": run.wall_s,
        "io": {
            op: {**asdict(figures), "bytes_per_s": figures.bytes_per_s}
            for op in (*OPS, "both")
            for figures in (getattr(run.io, op),)
        },
        "device_read_bytes": run.device_read_bytes,
        "read_from_cache_bytes": run.from_cache_bytes,
        "verified_bytes": run.verified_bytes,
        "emulation": run.emulation.verdict,
        "servers": run.emulation.servers,
    }
