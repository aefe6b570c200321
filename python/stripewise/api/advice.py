"""`advise`: where the files of any log should be, what that gains, and what matters more."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stripewise import _native, hints
from stripewise.advising import Workers
from stripewise.api import frames, html
from stripewise.api.frames import Columns
from stripewise.api.layout_file import HasLayout
from stripewise.api.servers import Named
from stripewise.api.trace import Trace
from stripewise.exporters.advised import Native, figures_set, of_advice, then_set
from stripewise.heading import NowThen, heading, unchanged
from stripewise.pool import Pool
from stripewise.units import counted, ratio

if TYPE_CHECKING:
    import polars as pl

    from stripewise._native import AdviceDocument

__all__ = ["Advice", "Native", "Workers", "advise"]


def advise(
    trace: Trace,
    *,
    cluster: Named | None = None,
    root: Named | None = None,
    planner: str | None = None,
    preset: str = "hdd-7200",
    osts: int | None = None,
    workers: Workers | None = None,
) -> Advice:
    """Says where the files of a trace should be on the servers of a cluster or pool file, and what that would gain.

    Without `cluster` the servers are those that the log's own Lustre layouts show, `osts` at least, each taken for
    `preset`; without those and `osts` all but the layouts is said. `root` and `planner` are as in `plan`. Where
    `workers` have the requests, `trace` is the index of their data set. Raises `StripewiseError` that names what is
    wrong and the remedy.
    """
    with_layout = partial(
        _native.advise,
        trace.native,
        None if cluster is None else str(cluster),
        root=None if root is None else _root(trace, Path(root)),
        planner=planner,
        preset=preset,
        osts=osts,
        passes=None if workers is None else workers.passes,
    )
    document = with_layout(hints=True)
    mount = Pool.load(Path(cluster)).mount if cluster is not None and document["cluster"]["kind"] == "pool" else None
    return Advice(document, trace, workers, lambda text: with_layout(layout=text), mount)


def _root(trace: Trace, root: Path) -> str:
    """Paths that a log has relative are below a relative directory: to what, the log does not say."""
    relative = not root.is_absolute() and any(not path.startswith("/") for path in map(str, trace.native.files()))
    return str(root if relative else root.absolute())


class Advice(HasLayout):
    """Present and better layouts, gains with their intervals, and findings."""

    def __init__(
        self,
        document: AdviceDocument,
        trace: Trace,
        workers: Workers | None,
        given: Callable[[str], AdviceDocument],
        mount: Path | None,
    ) -> None:
        """Takes what the compiled part advises on a trace, and what gives the same of a layout's text: see `advise`.

        `mount` is where the pool is, if the servers are a pool's.
        """
        super().__init__(document["layout"])
        self.document = document
        """What `stripewise advise --json` prints, but for `native`."""
        self._trace = trace
        self._workers = workers
        self._given = given
        self._mount = mount

    @property
    def heading(self) -> list[str]:
        """The job, what it moved and how fast, its share of the run, and the prediction beside that, in lines."""
        return heading(self.document)

    @property
    def then(self) -> str | None:
        """What the recommended layouts make of it, in words; `None` where nothing should change.

        Where there are commands to set them, it is what those set that is priced.
        """
        return then_set(self.document, self.native)

    @property
    def unchanged(self) -> str:
        """Why no other layout is advised, in words, where none is."""
        return unchanged(self.document)

    @property
    def now_then(self) -> NowThen:
        """What the job has now and then: the same figures that `plan`, `simulate` and reports have.

        Where there are commands of a file system to set the layouts, they are of what those set.
        """
        return figures_set(self.document, self.native)

    @cached_property
    def native(self) -> Native | None:
        """The commands of the servers' file system for what should change, with what they lose and assume.

        `native.exported.script()` has all of them. `None` where nothing should change, and where the file system is not
        known.
        """
        draw = None if self._workers is None else self._workers.sampled
        return of_advice(self.document, self._trace.native, self._given, draw)

    @property
    def hints(self) -> list[dict[str, Any]]:
        """Hints for new files of directories that gain by the model, each with its `command`; of a cluster none."""
        return [] if self._mount is None else hints.commands(self._mount, self.document["hints"])

    @property
    def hint_lines(self) -> list[str]:
        """The same for people."""
        return [] if self._mount is None else hints.lines(self._mount, self.document["hints"])

    @cached_property
    def files(self) -> pl.DataFrame:
        """One row a kind of files that are used and laid out alike: a path, or a pattern where there are several.

        `low` and `high` are the interval of `gain`, the recommended rate over the present one; where nothing should
        change (`change` is false) `recommended` and its rate are null.
        """
        columns: Columns = {
            "path": ("String", lambda file: file["path"]),
            "files": ("UInt64", lambda file: file["files"]),
            "requests": ("UInt64", lambda file: file["requests"]),
            "read_bytes": ("UInt64", lambda file: file["read_bytes"]),
            "written_bytes": ("UInt64", lambda file: file["written_bytes"]),
            "present": ("String", lambda file: _layout(file["present"]["layout"])),
            "source": ("String", lambda file: file["present"]["source"]),
            "present_bytes_per_s": ("Float64", lambda file: file["present"]["bytes_per_s"]),
            "bottleneck": ("String", lambda file: file["present"]["bottleneck"]["words"]),
            "change": ("Boolean", lambda file: file["change"]),
            "recommended": ("String", lambda file: (better := file["recommended"]) and _layout(better["layout"])),
            "recommended_bytes_per_s": (
                "Float64",
                lambda file: (better := file["recommended"]) and better["bytes_per_s"],
            ),
            "gain": ("Float64", lambda file: file["gain"]["ratio"]),
            "low": ("Float64", lambda file: file["gain"]["low"]),
            "high": ("Float64", lambda file: file["gain"]["high"]),
        }
        return frames.frame(self.document["files"], columns)

    @cached_property
    def findings(self) -> pl.DataFrame:
        """One row a finding beside the layouts: of which files (null: the whole run), how grave, what mends it."""
        of_files = [
            {"path": file["path"], **finding} for file in self.document["files"] for finding in file["findings"]
        ]
        of_all = [{"path": None, **finding} for finding in self.document["total"]["findings"]]
        columns = {"path": "String", "severity": "String", "kind": "String", "words": "String", "mend": "List(String)"}
        return frames.of_records([*of_all, *of_files], columns)

    def explain(self) -> str:
        """What should change and why, then what else was found: one line each."""
        lines = [*self.heading, self._headline()]
        for file in self.document["files"]:
            better = file["recommended"]
            if better is None:
                lines.append(f"{file['path']}: stays as it is; {file['present']['bottleneck']['words']}")
                continue
            gain = file["gain"]
            lines.append(
                f"{file['path']}: {_layout(file['present']['layout'])} becomes {_layout(better['layout'])}, "
                f"{ratio(gain['ratio'])} ({ratio(gain['low'])} to {ratio(gain['high'])}); "
                f"{file['present']['bottleneck']['words']}"
            )
        lines.extend(self.document["total"]["reasons"])
        lines.extend(
            f"{finding['severity']}: {'' if finding['path'] is None else finding['path'] + ': '}{finding['words']}"
            for finding in self.findings.iter_rows(named=True)
        )
        return "\n".join([*lines, *self.hint_lines])

    def _headline(self) -> str:
        total, cluster = self.document["total"], self.document["cluster"]
        what = self.then or self.unchanged
        return f"Advice for {counted(total['files'], 'file')} on '{cluster['name']}': {what}"

    def __repr__(self) -> str:
        return f"<{self._headline()}>"

    def _repr_html_(self) -> str:
        return html.shown(self._headline(), self.files, self.heading)


def _layout(regions: list[_native.AdviseRegion]) -> str:
    """`hdd.0-1:1MiB`, or one after the other with the offsets where there are several regions."""
    rounds = [" ".join(region["round"]) for region in regions]
    if len(regions) == 1:
        return rounds[0]
    return "; ".join(f"{region['offset']}: {told}" for region, told in zip(regions, rounds, strict=True))
