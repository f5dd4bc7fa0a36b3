"""The ways to split for which there is time."""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import chain

from pesto_cli.data.problem import Problem
from pesto_cli.data.solution import Solution
from pesto_cli.strategies.context import Context
from pesto_cli.strategies.devices import accelerators, on_faster_hosts
from pesto_cli.strategies.split_search.beside_whole import BesideWhole
from pesto_cli.strategies.split_search.forms import beside_whole, every_way
from pesto_cli.strategies.split_search.ways import AsBefore, OnMeshes, Way, share_of
from pesto_cli.strategies.split_search.whole import Placer

# If whole ops take more than so many times as long as the best way, no way splits some of them.
FAR = 1.3
# The first ways, and those that split some of the whole ops, get a larger share of a short time
# limit: they are most often the best. The very first way gains more than a refinement of whole ops.
NUM_FIRST, FIRST_SHARE, ONLY_SHARE = 2, 0.5, 0.8


class WaysInTime:
    """The ways for which a share of the time limit is enough.

    The first ways are most often the best. If a number of parts of the batch is worse than a
    smaller number, larger numbers are not tried: more parts send more and smaller tensors, and take
    more time to construct. The ways that split some of the whole ops come last, because a search
    finds better whole ops in the meantime.
    """

    def __init__(
        self,
        problem: Problem,
        context: Context,
        share: float,
        whole: Solution | None = None,
        *,
        placer: Placer | None = None,
        on_fewer_hosts: bool = False,
    ) -> None:
        """Prepare the iteration.

        share: the share of the time limit for all ways together.
        whole: a solution with whole ops; without one, no way splits only some of the ops.
        placer: see `every_way`.
        on_fewer_hosts: whether an earlier search has tried the faster half of the hosts.
        """
        self._problem, self._limits = problem, context.limits
        fewer = on_faster_hosts(problem) if on_fewer_hosts else None
        self._were_tried = set[int]() if fewer is None else set(accelerators(fewer))
        self._ways = tuple(every_way(problem, placer))
        self._share, self.share_used = share, 0.0
        self._num_ways, self._num_left_out = 0, 0
        self._before = [] if context.split_start is None else [AsBefore(context.split_start)]
        # One accelerator has nothing to share.
        self._whole = whole if len(accelerators(problem)) > 1 else None
        self._best = (0, math.inf)
        self._objectives = dict[int, tuple[int, float]]()

    def each(self, better: Callable[[], Solution] | None = None) -> Iterator[Way]:
        """Yield one way after the other; `note` gets its solution, which decides what follows.

        better: returns a better solution with whole ops, for the last ways.
        """
        yield from self._before
        num_tried = 0
        for way in filter(None, map(self._untried, self._every_way(better))):
            self._num_ways += 1
            if isinstance(way, OnMeshes) and way.num_parts >= self._too_many:
                continue
            share = self._share_of([way])
            if self.share_used + share >= self._most_share(way, num_tried):
                self._num_left_out += 1
                continue
            self.share_used += share
            num_tried += 1
            yield way

    def _most_share(self, way: Way, num_tried: int) -> float:
        """Return the share in which so many ways and this one must be constructed."""
        if isinstance(way, BesideWhole):
            return max(self._share, FIRST_SHARE)
        if not num_tried:
            return max(self._share, ONLY_SHARE)
        num_first = 1 if self.reserved_share else NUM_FIRST
        share = max(self._share, FIRST_SHARE) if num_tried < num_first else self._share
        return share - self.reserved_share

    def _every_way(self, better: Callable[[], Solution] | None) -> Iterator[Way]:
        """Yield all ways; the last ones split some ops, if whole ops are fast enough."""
        yield from self._ways
        if self._whole is not None:
            whole = self._whole if better is None else better()
            if self._is_near(whole):
                yield from beside_whole(whole)

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

    def _share_of(self, ways: Iterable[Way]) -> float:
        """Return the estimated share of the time limit in which ways are constructed."""
        us_per_op = sum(way.us_per_op(self._problem) for way in ways)
        return share_of(us_per_op, self._problem, self._limits)

    @property
    def reserved_share(self) -> float:
        """The share of the time limit for the ways that split some of the whole ops.

        It is 0 if these are too slow.
        """
        if self._whole is None or not self._is_near(self._whole):
            return 0.0
        return self._share_of(beside_whole(self._whole))

    @property
    def most_share(self) -> float:
        """The largest share of the time limit that all other ways take."""
        every = self._share_of(self._ways)
        return max(0.0, min(every, self._share - self.reserved_share))

    @property
    def notes(self) -> tuple[str, ...]:
        """A note on the ways that were left out for lack of time."""
        if not self._num_left_out:
            return ()
        return (
            f"the time limit was too short to try {self._num_left_out} of {self._num_ways} ways to "
            "split",
        )
