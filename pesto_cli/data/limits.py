"""Limits of a search: time, seed, workers, and the event that stops it."""

import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import Any

from pesto_cli.errors import BadInputError

# Field, type, least value, and the type in words.
RANGES: tuple[tuple[str, type[Any], int, str], ...] = (
    ("time_limit_s", Real, 0, "a finite number"),
    ("seed", Integral, 0, "a whole number"),
    ("workers", Integral, 1, "a whole number"),
)


@dataclass(frozen=True)
class Limits:
    """Limits of a search.

    time_limit_s: wall-clock seconds, 0 or more. In deterministic mode, units of work; one unit
        takes about a second on an idle core of a server.
    seed: 0 or more. workers: threads to use, 1 or more.
    deterministic: the same input, seed and limits give the same result, whatever the load of the
        machine.
    stop: set by another thread (Ctrl-C) to end the search early; it returns its incumbent.
    """

    time_limit_s: float = 60.0
    seed: int = 0
    workers: int = 1
    deterministic: bool = False
    stop: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        """Check the numbers.

        Raises:
            BadInputError: a field has another type or is out of range.
        """
        for name, kind, least, words in RANGES:
            value = getattr(self, name)
            if not isinstance(value, kind) or not least <= value < math.inf:
                raise BadInputError(
                    f"{name} is {value!r}; {words} of {least} or more was expected."
                )

    def begin(self) -> Callable[..., bool]:
        """Start the clock; return a function that says whether the search has to end.

        The function takes the duration of the next step in seconds, 0 by default, and returns True
        if the step would end after the time limit. In deterministic mode, it returns True only
        after a request to stop.
        """
        began = time.monotonic()

        def is_over(next_s: float = 0.0) -> bool:
            spent_s = 0.0 if self.deterministic else time.monotonic() - began + next_s
            return self.stop.is_set() or spent_s > self.time_limit_s

        return is_over

    def __reduce__(self) -> tuple[type["Limits"], tuple[float, int, int, bool]]:
        """Pickle all fields but the event; the copy in another process has an event of its own."""
        return Limits, (self.time_limit_s, self.seed, self.workers, self.deterministic)
