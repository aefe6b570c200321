"""The one list of all experiments."""

from __future__ import annotations

from collections.abc import Sequence

from stripewise.reproduce import chen, harl, song
from stripewise.reproduce.experiment import Experiment, UnknownExperimentError

EXPERIMENTS: tuple[Experiment, ...] = (*harl.EXPERIMENTS, *chen.EXPERIMENTS, *song.EXPERIMENTS)

ALL = "all"


def named(names: Sequence[str]) -> list[Experiment]:
    """The experiments of these names, each once, in the order of the list; `all` is all of them.

    Raises `UnknownExperimentError` that names the wrong one and those that there are.
    """
    known = [experiment.name for experiment in EXPERIMENTS]
    unknown = [name for name in names if name not in known and name != ALL]
    if unknown:
        raise UnknownExperimentError(f"no experiment '{unknown[0]}'; there is {', '.join([*known, ALL])}")
    return [experiment for experiment in EXPERIMENTS if ALL in names or experiment.name in names]
