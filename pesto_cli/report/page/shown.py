"""The data that `api.report` passes to a page."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from pesto_cli.data.graph import IntArray
from pesto_cli.data.load import Load
from pesto_cli.data.problem import Problem
from pesto_cli.data.result import Result
from pesto_cli.report.critical_path import PathSegment
from pesto_cli.report.families import Families
from pesto_cli.report.pictures.memory import Curves
from pesto_cli.report.pictures.spans import Drawn


@dataclass(frozen=True, eq=False)
class Shown:
    """A placement of the profile, replayed.

    name: unique on the page. held: the result of `memory.held_over_time`. path: the critical path
    of the schedule. provenance: the provenance of the placement. file_hash: the hash of its file,
    empty if there is none. whole: the load of the best schedule with whole ops that the search
    found, if ops are split and it is stored.
    """

    name: str
    result: Result
    held: Curves
    path: Sequence[PathSegment]
    provenance: Mapping[str, Any] = field(default_factory=dict)
    file_hash: str = ""
    whole: Load | None = None

    @cached_property
    def drawn(self) -> Drawn:
        """The drawn parts of the schedule."""
        added = {} if self.families is None else self.families.added
        return Drawn(self.result.problem, self.result.schedule, self.path, added=added)

    @cached_property
    def families(self) -> Families | None:
        """What each op of the original graph became; None if no op was split."""
        return Families.of_solution(self.result.solution)


@dataclass(frozen=True, eq=False)
class Coarse:
    """A coarsening of the profile's problem. node_of_op: `[num_ops]`."""

    problem: Problem
    node_of_op: IntArray
