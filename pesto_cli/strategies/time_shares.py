"""Shares of a time limit."""

import time
from dataclasses import replace
from typing import Protocol

from pesto_cli.data.limits import Limits


class Share(Protocol):
    """The result of `shares`."""

    def __call__(self, of: float, until: float | None = None) -> Limits:
        """Return limits for a part of the search that ends at `until`, a share of the time limit.

        of: the share of the part alone, which it gets in deterministic mode. By default, the part
            ends at this share, too.
        """


def shares(limits: Limits) -> Share:
    """Return a function that divides a time limit; time counts from the call of `shares`."""
    began = time.monotonic()

    def share(of: float, until: float | None = None) -> Limits:
        left_s = of * limits.time_limit_s
        if not limits.deterministic:
            end = of if until is None else until
            left_s = end * limits.time_limit_s - (time.monotonic() - began)
        return replace(limits, time_limit_s=max(0.0, left_s))

    return share
