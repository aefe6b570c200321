"""Layouts as the commands of a parallel file system, with what they lose and what that costs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from stripewise import _native, exporters, layouts, outputs
from stripewise._native import StripewiseError
from stripewise.api.trace import Trace
from stripewise.exporters import EXPORTERS, Exported, pricing
from stripewise.exporters.hints import NAME as HINTS
from stripewise.exporters.hints import HintsFile, of_layouts
from stripewise.exporters.lustre import Lustre
from stripewise.pool import Pool

if TYPE_CHECKING:
    from stripewise._native import ClusterInfo, LayoutDocument

__all__ = ["EXPORTERS", "HINTS", "Exported", "HintsFile", "export", "export_hints", "save"]


def export(
    layout: Path,
    *,
    to: str | None = None,
    pool: Pool | None = None,
    cluster: Path | None = None,
    trace: Callable[[], Trace] | None = None,
    trace_root: Path | None = None,
    pool_map: Mapping[str, str] | None = None,
    targets: Mapping[str, list[str]] | None = None,
    root: str = "",
    existing: bool = False,
    as_yaml: bool = False,
    warn: Callable[[str], None] | None = None,
) -> Exported:
    """Translates a layout file for the file system `to`, a name of `EXPORTERS`; that of a cluster file if left out.

    With the profiles of a pool or of a cluster file what is lost is priced, on made-up requests, or on those of `trace`
    (opened when all else is known to be right) below `trace_root`. `pool_map` has the native pools of tiers, `targets`
    the native names of their servers, `root` the directory that paths are below; files that are `existing` keep their
    bytes. `warn` is told what is not priced. Raises `StripewiseError` for what does not fit together, and for a layout
    that cannot be expressed.
    """
    document = layouts.read(layout)
    described = None
    if pool is not None and not _has_no_profile(pool, warn):
        described = _native.cluster_load(str(pool.file))
    elif cluster is not None:
        described = _native.cluster_load(str(cluster))
    name = described["name"] if described is not None else pool.name if pool is not None else None
    if name is not None and document["pool"] != name:
        raise StripewiseError(
            f"{layout} is for '{document['pool']}', not for '{name}'; change its `pool`, or the file that you give"
        )
    if trace is not None and described is None:
        raise StripewiseError("--trace prices what is lost, which needs profiles: give --pool or --cluster with them")
    to = to or _file_system(described)
    if as_yaml and to != "lustre":
        raise StripewiseError(f"--yaml is for --to lustre, not for --to {to}")
    exported = exporters.export(
        document,
        to=Lustre(as_yaml=True) if as_yaml else to,
        cluster=described,
        workloads=_workloads(document, pool, trace(), trace_root) if trace is not None else None,
        servers={tier.name: len(tier.servers) for tier in pool.tiers} if pool is not None else None,
        pool_map=dict(pool_map or {}),
        targets=dict(targets or {}),
        root=root,
        existing=existing,
        label=pool.label if pool is not None else "",
    )
    if exported.refused:
        raise StripewiseError(f"{exported.title} cannot express it: " + "; ".join(exported.refused))
    return exported


def export_hints(layout: Path, *, trace: Callable[[], Trace] | None = None, root: str = "") -> HintsFile:
    """Hints of MPI-IO for the files of a layout file below `root`: a file for ROMIO and for Cray's library.

    With a `trace` they are also what is found of its collective I/O. Raises `StripewiseError` where there are none.
    """
    document = layouts.read(layout)
    found = _native.io_hints(trace().native) if trace is not None else []
    return of_layouts(document["pool"], exporters.sources(document), root, found)


def _file_system(cluster: ClusterInfo | None) -> str | None:
    return cluster["file_system"] if cluster is not None else None


def _has_no_profile(pool: Pool, warn: Callable[[str], None] | None) -> bool:
    without = [tier.name for tier in pool.tiers if tier.profile_source == "none"]
    if without and warn is not None:
        warn(f"tier {', '.join(without)} of {pool.file} has no profile: what is lost is not priced")
    return bool(without)


def _workloads(
    document: LayoutDocument, pool: Pool | None, trace: Trace, trace_root: Path | None
) -> dict[str, pricing.Workload]:
    patterns = [file["path"] for file in document["files"]]
    root = trace_root or (pool.mount if pool is not None else Path("/"))
    # Paths that a log has relative are below a relative directory: to what, the log does not say.
    relative = not root.is_absolute() and any(not path.startswith("/") for path in map(str, trace.native.files()))
    return pricing.of_trace(trace.native, str(root if relative else root.absolute()), patterns)


def save(text: str, output: Path, mode: int = 0o666) -> None:
    """Writes all of a script or of hints, or nothing: half of a script would be a script too.

    Its mode is `mode` without what the umask takes.
    """
    outputs.write(text.encode(), output, mode)
