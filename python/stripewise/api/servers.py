"""What plans and simulations are made for: a pool that is at hand, or a cluster that a file describes."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from stripewise import _native
from stripewise._native import StripewiseError
from stripewise.api.trace import Trace
from stripewise.pool import Pool

Named = str | os.PathLike[str]
"""A path, as text or not."""


@dataclass(frozen=True)
class Servers:
    """One of `pool` and `cluster` is there."""

    name: str
    label: str
    """`pool 'p' (emulated servers)`, for the head of a result: what is emulated has to say so."""
    pool: Pool | None
    cluster: str | None

    @classmethod
    def of(cls, pool: Named | Pool | None, cluster: Named | None) -> Servers:
        """Reads the file that is named.

        Raises `StripewiseError` where none or both are, a file has a mistake, or a tier has no profile.
        """
        if (pool is None) == (cluster is None):
            raise StripewiseError("name either a pool, as pool='p/pool.toml', or a cluster file, as cluster='c.toml'")
        if cluster is not None:
            info = _native.cluster_load(os.fspath(cluster))
            return cls(info["name"], f"{info['kind']} '{info['name']}'", None, os.fspath(cluster))
        assert pool is not None
        at_hand = pool if isinstance(pool, Pool) else Pool.load(Path(pool))
        at_hand.require_profiles()
        return cls(at_hand.name, f"pool '{at_hand.name}' ({at_hand.label})", at_hand, None)

    def advised(self, trace: Trace, root: str | None, layout: str) -> _native.AdviceDocument:
        """What `advise` makes of a layout file's text on these servers: the job, and its figures now and then."""
        place = self.cluster if self.pool is None else str(self.pool.file)
        return _native.advise(trace.native, place, root=root, layout=layout)

    def root(self, root: Named | None) -> str | None:
        """The directory of the trace whose files are meant: the mount, or what the files of the trace share."""
        if root is None:
            return None if self.pool is None else str(self.pool.mount)
        return os.path.abspath(root)
