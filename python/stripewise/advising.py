"""Advice where the requests are with the workers of a Dask cluster: what is asked of them, and what they answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

from stripewise import _native, scale_out
from stripewise.exporters import pricing

Watched = Callable[[str], AbstractContextManager[Callable[[int, int], object]]]
"""A progress bar for work of that name."""


def answered(trace: _native.Trace, question: bytes) -> bytes:
    """What a worker answers a question of `_native.advise` from its files."""
    return _native.advise_pass(trace, question)


class Workers:
    """The workers of a Dask scheduler, and a data set that they all see."""

    def __init__(self, data: Path, address: str, watched: Watched) -> None:
        """Connects anew for each question: a cluster that was started again meanwhile is one as good."""
        self.data = data
        self.address = address
        self.watched = watched

    def passes(self, question: bytes) -> Iterator[bytes]:
        """Answers to a question of `_native.advise`, those of each batch of files."""
        with self.watched("looking through requests") as progress:
            yield from scale_out.analysed(self.data, self.address, partial(answered, question=question), progress)

    def sampled(self, files: Mapping[int, int]) -> pricing.Samples:
        """Requests of some files, as `pricing.sampled` draws them."""
        if not files:
            return {}
        with self.watched("drawing requests") as progress:
            parts = scale_out.analysed(self.data, self.address, partial(pricing.sampled, files=dict(files)), progress)
            return _united(parts)


def _united(parts: Iterable[pricing.Samples]) -> pricing.Samples:
    return {file: sample for part in parts for file, sample in part.items()}
