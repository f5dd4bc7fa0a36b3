"""How long a search may run, and how it is asked to stop."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Limits:
    """Bounds on a search.

    time_limit_s: wall-clock seconds. In deterministic mode, work units of about a second each.
    workers: threads to use.
    deterministic: the same input, seed and limits give the same answer, however busy the machine.
    stop: set from outside (Ctrl-C) to end the search early with the best answer so far.
    """

    time_limit_s: float = 60.0
    seed: int = 0
    workers: int = 1
    deterministic: bool = False
    stop: threading.Event = field(default_factory=threading.Event)

    def begin(self) -> Callable[[], bool]:
        """Start the clock of a search that takes rounds; the answer tells whether it has to end.

        In deterministic mode only a request to stop ends it.
        """
        began = time.monotonic()

        def is_over() -> bool:
            spent_s = 0.0 if self.deterministic else time.monotonic() - began
            return self.stop.is_set() or spent_s > self.time_limit_s

        return is_over

    def __reduce__(self) -> tuple[type["Limits"], tuple[float, int, int, bool]]:
        """To another process goes all but the event, which gets a new one there."""
        return Limits, (self.time_limit_s, self.seed, self.workers, self.deterministic)
