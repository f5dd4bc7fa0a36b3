"""The time of a tuning: how much is left, and what it was used for."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum


class Phase(StrEnum):
    """What time is used for. STEPS includes opening the sessions in which the steps run."""

    LINKS = "links"
    PROFILE = "profile"
    SEARCH = "search"
    STEPS = "steps"
    REST = "rest"


class Clock:
    """Counts the seconds of each phase from its creation; phases do not overlap."""

    def __init__(self, limit_s: float) -> None:
        self.limit_s = limit_s
        self._began = time.monotonic()
        self._spent_s = dict.fromkeys(Phase, 0.0)

    @contextmanager
    def phase(self, name: Phase) -> Iterator[None]:
        """Count the time until the context ends."""
        began = time.monotonic()
        try:
            yield
        finally:
            self._spent_s[name] += time.monotonic() - began

    @property
    def spent_s(self) -> float:
        """All seconds until now."""
        return time.monotonic() - self._began

    @property
    def left_s(self) -> float:
        """The seconds until the time limit, at least 0."""
        return max(0.0, self.limit_s - self.spent_s)

    def shares(self) -> Mapping[Phase, float]:
        """Return the share of each phase in the time until now; the rest is that of no phase."""
        total_s = max(self.spent_s, 1e-9)
        shares = {phase: spent_s / total_s for phase, spent_s in self._spent_s.items()}
        counted = sum(share for phase, share in shares.items() if phase is not Phase.REST)
        return {**shares, Phase.REST: max(0.0, 1.0 - counted)}
