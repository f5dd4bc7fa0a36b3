"""Times as text: in us or ms, with at least four digits."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

SIGNIFICANT_DIGITS = 4


@dataclass(frozen=True)
class TimeScale:
    """A unit and a number of decimals: `us` if all times are below 1 ms, else `ms`."""

    unit: str
    us_per_unit: float
    num_decimals: int

    @classmethod
    def of(cls, times_us: Iterable[float]) -> Self:
        """Return the scale that shows the smallest of the times with four digits, at most to ns."""
        some_us = [time_us for time_us in times_us if time_us > 0] or [100.0]
        if max(some_us) < 1e3:
            unit, us_per_unit, fewest, most = "us", 1.0, 1, 3
        else:
            unit, us_per_unit, fewest, most = "ms", 1e3, 2, 6
        digits_before = math.floor(math.log10(min(some_us) / us_per_unit)) + 1
        return cls(unit, us_per_unit, min(most, max(fewest, SIGNIFICANT_DIGITS - digits_before)))

    def text(self, time_us: float) -> str:
        """Return a time as text without its unit."""
        return f"{time_us / self.us_per_unit:.{self.num_decimals}f}"


def time_text(time_us: float) -> str:
    """Return a time as text with its unit."""
    scale = TimeScale.of([time_us])
    return f"{scale.text(time_us)} {scale.unit}"
