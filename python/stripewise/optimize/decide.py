"""Whether a layout is faster beyond noise."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from statistics import fmean, variance

_T_975 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)
"""Student's t, 97.5 %, for 1 to 10 degrees of freedom; the last serves for more, which is on the safe side."""

NOISE_FLOOR = 0.01
"""Runs never count as steadier than 1 %: two of them may agree by luck."""


class Verdict(Enum):
    """What the measured runs say."""

    FASTER = "faster"
    SLOWER = "slower"
    UNDECIDED = "undecided"


@dataclass(frozen=True)
class Interval:
    """A ratio with its 95 % confidence interval."""

    ratio: float
    low: float
    high: float

    @property
    def verdict(self) -> Verdict:
        """Faster or slower only if the whole interval says so."""
        if self.low > 1.0:
            return Verdict.FASTER
        return Verdict.SLOWER if self.high < 1.0 else Verdict.UNDECIDED


def gain(before: Sequence[float], after: Sequence[float]) -> Interval:
    """How many times higher the rates `after` are than those `before`; at least two of each, all above 0.

    The interval is Welch's, of the difference of the mean logarithms: rates vary by factors, and the two layouts need
    not be equally steady.
    """
    old, new = [math.log(rate) for rate in before], [math.log(rate) for rate in after]
    own = [max(variance(logs), NOISE_FLOOR**2) / len(logs) for logs in (old, new)]
    error = math.sqrt(sum(own))
    freedom = sum(own) ** 2 / sum(part**2 / (len(logs) - 1) for part, logs in zip(own, (old, new), strict=True))
    reach = _T_975[min(len(_T_975), max(1, int(freedom))) - 1] * error
    difference = fmean(new) - fmean(old)
    return Interval(math.exp(difference), math.exp(difference - reach), math.exp(difference + reach))
