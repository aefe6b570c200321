"""What a log says of its job, where the workers of a Dask cluster have the requests, too."""

from __future__ import annotations

from stripewise import _native
from stripewise.advising import Watched, Workers
from stripewise.api.trace import Trace
from stripewise.heading import job_heading

__all__ = ["job_heading", "job_of"]


def job_of(trace: Trace, dask: str | None, watched: Watched) -> _native.AdviseJob:
    """The job of a trace; or, of the index of a data set, by the workers of the Dask scheduler `dask`."""
    if dask is None:
        return trace.job
    return _native.job_facts(trace.native, passes=Workers(trace.path, dask, watched).passes)
