"""What plans and simulations say of a job: what it has now and then, by the model that advice has."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

from stripewise import _native
from stripewise.heading import NowThen, heading, now_then, then_line


class Priced:
    """The job of a log, and what other layouts make of it: the same figures from every command."""

    def __init__(self, ask: Callable[[], _native.AdviceDocument]) -> None:
        """`ask` is called once, when a figure is wanted first."""
        self._ask = ask

    @cached_property
    def _priced(self) -> _native.AdviceDocument:
        return self._ask()

    @property
    def heading(self) -> list[str]:
        """The job, what it moved and how fast, its share of the run, and the prediction beside that, in lines."""
        return heading(self._priced)

    @property
    def then(self) -> str:
        """What the layouts make of it, in a line of words."""
        return then_line(self._priced)

    @property
    def kinds(self) -> list[_native.AdviseFile]:
        """Files that are named, laid out and used alike as one, the largest first: now and with the layouts."""
        return self._priced["files"]

    @property
    def now_then(self) -> NowThen:
        """What the job has now and under the layouts: the same figures that `advise` and reports have.

        They are simulated with servers that are fitted to the log, as far as it times requests. Prices of planners and
        replays are of servers as the pool or cluster file describes them.
        """
        return now_then(self._priced)
