"""The request to a backend and its answer, and how its search is stopped from outside."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from typing import TypeVar

from pesto_cli.data.limits import Limits
from pesto_cli.ilp.formulation import Formulation
from pesto_cli.ilp.timetable import Timetable

# Called with objective and bound in microseconds when a better schedule is found, possibly on
# another thread.
OnSolution = Callable[[float, float], None]

POLL_S = 0.05
# In deterministic mode, the number of constraints that may be built for each unit of work.
STEPS_PER_UNIT = 15_000
# Limit on the number of constraints, as PuLP takes 3 kB of memory for each.
MOST_STEPS = 500_000


@dataclass(frozen=True)
class SolverRequest:
    """A request to a backend.

    formulation: the formulation in microseconds.
    start: a left-shifted timetable to begin with, in microseconds, or None.
    start_fits: whether the start meets the memory constraints, so its makespan is an upper bound.
    congestion: whether transfers on one channel queue.
    balance: tolerance of the memory balance, or None.
    began: start of the time limit, by `time.monotonic()`.
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
        """Return the limits minus the time that has passed.

        In deterministic mode the limits are unchanged, as no unit of work has been used.
        """
        if self.limits.deterministic:
            return self.limits
        spent = time.monotonic() - self.began
        return replace(self.limits, time_limit_s=max(0.0, self.limits.time_limit_s - spent))


class TooLargeError(Exception):
    """A model was not built because of its size, the time limit or a requested stop."""


class Pace:
    """Check the limits while a model is built.

    Deterministic mode counts constraints instead of seconds, with enough for a small model.
    """

    def __init__(self, request: SolverRequest) -> None:
        self._limits, self._began, self._num_steps = request.limits, request.began, 0

    def step(self) -> None:
        """Count one more constraint, and check the limits.

        Raises:
            TooLargeError: see `check`.
        """
        self._num_steps += 1
        self.check()

    def check(self) -> None:
        """Check the limits.

        Raises:
            TooLargeError: the time is over, a stop was requested, or the model is too large.
        """
        limit_s = self._limits.time_limit_s
        if self._limits.deterministic:
            limit_s, spent_s = max(1.0, limit_s), self._num_steps / STEPS_PER_UNIT
        else:
            spent_s = time.monotonic() - self._began
        if spent_s > limit_s or self._limits.stop.is_set():
            raise TooLargeError(
                f"the model was not built in {limit_s:.1f} s, after {self._num_steps:,} constraints"
            )
        if self._num_steps > MOST_STEPS:
            raise TooLargeError(f"the model has more than {MOST_STEPS:,} constraints")


@dataclass(frozen=True)
class SolverAnswer:
    """The answer of a backend.

    infeasible: whether infeasibility is proved.
    times: the best timetable, or None. It may be in any unit, as it is left-shifted later.
    bound_us: a lower bound on the makespan.
    left_out: why the search was skipped; empty if it was not.
    """

    infeasible: bool = False
    times: Timetable | None = None
    bound_us: float = 0.0
    left_out: str = ""


_Answer = TypeVar("_Answer")


def run_until_stopped(
    run: Callable[[], _Answer], stop: Callable[[], None], limits: Limits
) -> _Answer:
    """Call `run` on another thread, call `stop` when `limits.stop` is set, and return the result.

    The calling thread only waits. So Python's signal handlers can run in it; on Ctrl-C they set
    `limits.stop`.
    """
    with ThreadPoolExecutor(max_workers=1) as executor:
        future = executor.submit(run)
        try:
            while not wait([future], POLL_S).done:
                if limits.stop.is_set():
                    stop()  # repeatedly, as a stop before the search begins has no effect
        finally:
            while not wait([future], POLL_S).done:
                stop()
    return future.result()
