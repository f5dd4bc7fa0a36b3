"""The data that `api.report` passes to a page."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from pesto_cli.data.graph import IntArray
from pesto_cli.data.problem import Problem
from pesto_cli.data.result import Result
from pesto_cli.report.critical_path import PathSegment
from pesto_cli.report.pictures.memory import Curves
from pesto_cli.report.pictures.spans import Drawn


@dataclass(frozen=True, eq=False)
class Shown:
    """A placement of the profile, replayed.

    name: unique on the page. held: the result of `memory.held_over_time`. path: the critical path
    of the schedule. provenance: the provenance of the placement. file_hash: the hash of its file,
    empty if there is none.
    """

    name: str
    result: Result
    held: Curves
    path: Sequence[PathSegment]
    provenance: Mapping[str, Any] = field(default_factory=dict)
    file_hash: str = ""

    @cached_property
    def drawn(self) -> Drawn:
        """The drawn parts of the schedule."""
        return Drawn(self.result.problem, self.result.schedule, self.path)


@dataclass(frozen=True, eq=False)
class Coarse:
    """A coarsening of the profile's problem. node_of_op: `[num_ops]`."""

    problem: Problem
    node_of_op: IntArray
