"""The best schedule and bound of a search so far."""

from collections.abc import Callable
from dataclasses import replace

from pesto_cli.data.problem import Problem
from pesto_cli.data.result import Progress, optimal_up_to_us
from pesto_cli.data.schedule import Schedule, objective, shortfall_bytes
from pesto_cli.strategies.context import Context


class Incumbent:
    """The best schedule and the best lower bound so far; reports each change of them."""

    def __init__(self, problem: Problem, context: Context) -> None:
        self._problem = self._solved = problem
        self._context = context
        self._stage = self._source = ""
        self._best: Schedule | None = None
        self.lower_bound_us = 0.0

    @property
    def schedule(self) -> Schedule:
        """The best schedule offered so far; there must be one."""
        if self._best is None:
            raise LookupError("no schedule was offered")
        return self._best

    @property
    def is_optimal(self) -> bool:
        """Whether the best schedule fits in memory and is proved to be optimal."""
        quality = objective(self._solved, self.schedule)
        return quality <= (0, optimal_up_to_us(self.lower_bound_us))

    def begin(self, stage: str) -> None:
        """Report that a stage begins."""
        self._stage = stage
        self._report()

    def offer(self, source: str, schedule: Schedule, solved: Problem | None = None) -> None:
        """Keep a schedule if it is better than the best so far.

        solved: the problem of the schedule, if its graph was rewritten.
        """
        solved = solved or self._problem
        best = self._best
        if best is None or objective(solved, schedule) < objective(self._solved, best):
            self._source, self._best, self._solved = source, schedule, solved
            self._report()

    def prove(self, lower_bound_us: float) -> None:
        """Keep a lower bound if it is higher than the best so far."""
        if lower_bound_us > self.lower_bound_us:
            self.lower_bound_us = lower_bound_us
            self._report()

    def _report(self) -> None:
        if self._best is None:
            return
        progress = Progress(
            stage=self._stage,
            source=self._source,
            incumbent=self._best,
            shortfall_bytes=int(shortfall_bytes(self._solved, self._best).sum()),
            lower_bound_us=self.lower_bound_us,
        )
        self._context.on_progress(progress)


class BestProgress:
    """Reports the best incumbent of several searches, one after the other."""

    def __init__(self, on_progress: Callable[[Progress], None]) -> None:
        self._on_progress = on_progress
        self._best: Progress | None = None

    def __call__(self, progress: Progress) -> None:
        """Report the best incumbent so far, with the stage and the bound of the running search."""
        if self._best is None or _key(progress) < _key(self._best):
            self._best = progress
        stage, bound_us = progress.stage, progress.lower_bound_us
        self._on_progress(replace(self._best, stage=stage, lower_bound_us=bound_us))


def _key(progress: Progress) -> tuple[int, float]:
    return progress.shortfall_bytes, progress.makespan_us
