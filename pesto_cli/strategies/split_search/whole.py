"""Placements of whole ops, for the search that splits ops."""

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import Protocol

from pesto_cli.data.limits import Limits
from pesto_cli.data.problem import Problem
from pesto_cli.data.schedule import Schedule
from pesto_cli.data.solution import Solution
from pesto_cli.evaluation.sampling import deviation_of_parts
from pesto_cli.sharding.problems import rewritten
from pesto_cli.strategies.context import Context
from pesto_cli.strategies.fewer_hosts import FEWER_HOSTS

# The name of the best schedule of the search before, as a start.
SEARCH_BEFORE = "search before"


class Placer(Protocol):
    """The part of `Pesto` that places whole ops."""

    @property
    def robust(self) -> bool:
        """Whether the last part of the search minimises the mean makespan over samples."""

    def place(
        self, problem: Problem, context: Context, found: Mapping[str, Schedule] | None = None
    ) -> Solution:
        """Return a solution with whole ops."""


class WholeOps:
    """Searches placements of whole ops; each search begins with the result of the one before.

    Ops that the constraints split are placed as parts.
    """

    def __init__(
        self, placer: Placer, problem: Problem, context: Context, start: Solution | None
    ) -> None:
        """Prepare the search.

        start: a solution on fewer hosts, from which the search also starts.
        """
        self.placer, self._problem, self._context = placer, problem, context
        self._split = rewritten(problem, problem.chosen) if problem.chosen else None
        self._placed = replace(problem, parts=None)
        if self._split is not None:
            self._placed = self._split.problem
            deviation = deviation_of_parts(context.deviation_of(problem), self._split.origin)
            self._context = replace(context, warm_start=None, deviation=deviation)
        self._starts = {FEWER_HOSTS: start.whole} if start and start.whole else {}

    def search(self, limits: Limits) -> Solution:
        """Return the best solution of this search and of those before."""
        context = replace(self._context, limits=limits)
        found = self.placer.place(self._placed, context, self._starts)
        self._starts = {SEARCH_BEFORE: found.schedule}
        if self._split is None:
            return replace(found, asked=self._problem, problem=self._problem)
        return replace(
            self._split.solution(self._problem, found.schedule),
            notes=found.notes,
            sampled=found.sampled,
        )

    @contextmanager
    def search_beside(self, before: Solution, limits: Limits) -> Iterator[Callable[[], Solution]]:
        """Search while the body of the `with` statement runs, which keeps one worker for itself.

        Yields a function that waits for the result. With one worker or without time, this is the
        solution before.
        """
        if limits.workers == 1 or limits.time_limit_s <= 0 or limits.stop.is_set():
            yield lambda: before
            return
        others = replace(limits, workers=limits.workers - 1)
        with ThreadPoolExecutor(1) as thread:
            yield thread.submit(self.search, others).result
