"""Repeat a measurement until a time limit ends, but a few times in any case."""

import time
from collections.abc import Iterator


def repetitions(most: int, fewest: int, deadline_s: float) -> Iterator[int]:
    """Yield 0, 1, ..., `most` - 1; after the deadline only the first `fewest` of them.

    deadline_s: by `time.monotonic`.
    """
    for number in range(most):
        if number >= fewest and time.monotonic() > deadline_s:
            return
        yield number
