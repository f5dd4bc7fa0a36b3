"""The ways to split for which there is time."""

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain

from pesto_cli.data.problem import Problem
from pesto_cli.data.solution import Solution
from pesto_cli.strategies.context import Context
from pesto_cli.strategies.devices import accelerators, on_faster_hosts
from pesto_cli.strategies.split_search.forms import beside_whole, every_way
from pesto_cli.strategies.split_search.ways import AsBefore, OnMeshes, Way

# If whole ops take more than so many times as long as the first way, no way splits some of them.
FAR = 1.3
# The first ways get a larger share of a short time limit: they are most often the best.
NUM_FIRST, FIRST_SHARE = 2, 0.5


class WaysInTime:
    """The ways for which a share of the time limit is enough.

    The first ways are most often the best. If a number of parts of the batch is worse than a
    smaller number, larger numbers are not tried: more parts send more and smaller tensors, and take
    more time to construct.
    """

    def __init__(
        self,
        problem: Problem,
        context: Context,
        share: float,
        whole: Solution | None = None,
        *,
        on_fewer_hosts: bool = False,
    ) -> None:
        """Prepare the iteration.

        share: the share of the time limit for all ways together.
        whole: a solution with whole ops, of which some ways split a few.
        on_fewer_hosts: whether an earlier search has tried the faster half of the hosts.
        """
        self._problem, self._limit_us = problem, context.limits.time_limit_s * 1e6
        fewer = on_faster_hosts(problem) if on_fewer_hosts else None
        self._were_tried = set[int]() if fewer is None else set(accelerators(fewer))
        self._share, self._used_us = share, 0.0
        self._num_ways, self._num_left_out = 0, 0
        self._before = [] if context.split_start is None else [AsBefore(context.split_start)]
        self._whole, self._best = whole, (0, math.inf)
        self._objectives = dict[int, tuple[int, float]]()

    def __iter__(self) -> Iterator[Way]:
        """Yield the ways; the solutions that `note` gets in the meantime decide what follows."""
        yield from self._before
        num_tried = 0
        for way in filter(None, map(self._untried, self._every_way())):
            self._num_ways += 1
            if isinstance(way, OnMeshes) and way.num_parts >= self._too_many:
                continue
            way_us = way.us_per_op(self._problem) * self._problem.num_ops
            if self._used_us + way_us >= self._most_us(num_tried):
                self._num_left_out += 1
                continue
            self._used_us += way_us
            num_tried += 1
            yield way

    def _most_us(self, num_tried: int) -> float:
        """Return the time in which so many ways and the next one must be constructed."""
        first = FIRST_SHARE if num_tried < NUM_FIRST else 0.0
        return max(self._share, first) * self._limit_us

    def _every_way(self) -> Iterator[Way]:
        """Yield all ways; those that split some ops come second, if whole ops are fast enough."""
        for number, way in enumerate(every_way(self._problem)):
            yield way
            if number == 0 and self._whole is not None and self._is_near(self._whole):
                yield from beside_whole(self._whole)

    def _is_near(self, solution: Solution) -> bool:
        """Whether a solution is at most FAR times as long as the best one so far."""
        short, makespan_us = self._best
        return solution.objective <= (short, FAR * makespan_us)

    def _untried(self, way: Way) -> Way | None:
        """Return a way without the meshes that were tried on fewer hosts; None if none is left."""
        if not isinstance(way, OnMeshes):
            return way
        left = [mesh for mesh in way.meshes if not {*chain(*mesh.stages)} <= self._were_tried]
        return replace(way, meshes=tuple(left)) if left else None

    def note(self, way: Way, solution: Solution) -> None:
        """Take note of the solution of a way."""
        self._best = min(self._best, solution.objective)
        if isinstance(way, OnMeshes) and not way.hosts:
            self._objectives[way.num_parts] = solution.objective

    @property
    def _too_many(self) -> float:
        """The least number of parts that was worse than the best one, which is smaller."""
        best = min(self._objectives, key=lambda each: self._objectives[each], default=0)
        return min((each for each in self._objectives if each > best), default=math.inf)

    @property
    def share_used(self) -> float:
        """The estimated share of the time limit that the ways so far have taken."""
        return self._used_us / self._limit_us if self._limit_us else 0.0

    @property
    def notes(self) -> tuple[str, ...]:
        """A note on the ways that were left out for lack of time."""
        if not self._num_left_out:
            return ()
        return (
            f"the time limit was too short to try {self._num_left_out} of {self._num_ways} ways to "
            "split",
        )
