"""What a backend is asked and what it answers, and how its search is stopped from outside."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from typing import TypeVar

from pesto_cli.data.limits import Limits
from pesto_cli.ilp.formulation import Formulation
from pesto_cli.ilp.timetable import Timetable

# Called with objective and bound in us when a better schedule is found; maybe on another thread.
OnSolution = Callable[[float, float], None]

POLL_S = 0.05
# In deterministic mode, the constraints of a model that a unit of work is enough for.
STEPS_PER_UNIT = 15_000
# However much time there is: PuLP takes 3 kB of memory for a constraint.
MOST_STEPS = 500_000


@dataclass(frozen=True)
class SolverRequest:
    """A question to a backend.

    formulation: in microseconds. start: a left-shifted timetable to begin with, in microseconds.
    start_fits: whether it keeps within the memory constraints, so that nothing longer is wanted.
    congestion: whether transfers queue. balance: tolerance of the memory balance, or None.
    began: when the time of the limits began to run, by `time.monotonic()`.
    """

    formulation: Formulation
    limits: Limits
    congestion: bool = True
    balance: float | None = None
    start: Timetable | None = None
    start_fits: bool = False
    on_solution: OnSolution | None = None
    began: float = field(default_factory=time.monotonic)

    def remaining(self) -> Limits:
        """The limits less the time that has passed; a deterministic search has its units yet."""
        if self.limits.deterministic:
            return self.limits
        spent = time.monotonic() - self.began
        return replace(self.limits, time_limit_s=max(0.0, self.limits.time_limit_s - spent))


class TooLargeError(Exception):
    """A model was not built in time, or before a stop was asked for; says how far it came."""


class Pace:
    """Sees to it that building a model heeds the limits.

    In deterministic mode steps are counted, not seconds, and there are enough for a small model.
    """

    def __init__(self, asked: SolverRequest) -> None:
        self._limits, self._began, self._num_steps = asked.limits, asked.began, 0

    def step(self) -> None:
        """Count another constraint.

        Raises:
            TooLargeError: as `check`.
        """
        self._num_steps += 1
        self.check()

    def check(self) -> None:
        """Go on, or not.

        Raises:
            TooLargeError: the time is over, a stop was asked for, or the model has no end.
        """
        limit_s = self._limits.time_limit_s
        if self._limits.deterministic:
            limit_s, spent_s = max(1.0, limit_s), self._num_steps / STEPS_PER_UNIT
        else:
            spent_s = time.monotonic() - self._began
        if spent_s > limit_s or self._limits.stop.is_set():
            raise TooLargeError(
                f"it was not built in {limit_s:.1f} s, with {self._num_steps:,} constraints so far"
            )
        if self._num_steps > MOST_STEPS:
            raise TooLargeError(f"it has more than {MOST_STEPS:,} constraints")


@dataclass(frozen=True)
class SolverAnswer:
    """A backend's answer.

    infeasible: proved. times: the best, in any unit, as it is left-shifted later; or None.
    bound_us: no schedule is shorter. left_out: why no model was searched, if none was.
    """

    infeasible: bool = False
    times: Timetable | None = None
    bound_us: float = 0.0
    left_out: str = ""


_Answer = TypeVar("_Answer")


def run_until_stopped(
    run: Callable[[], _Answer], stop: Callable[[], None], limits: Limits
) -> _Answer:
    """Run on another thread, and call `stop` when the limits' event is set.

    This thread only waits, so that Python's signal handlers, which set the event on Ctrl-C, run.
    """
    with ThreadPoolExecutor(max_workers=1) as executor:
        future = executor.submit(run)
        try:
            while not wait([future], POLL_S).done:
                if limits.stop.is_set():
                    stop()  # again and again: before the search has begun it has no effect
        finally:
            while not wait([future], POLL_S).done:
                stop()
    return future.result()
