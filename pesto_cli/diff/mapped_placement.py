"""A placement mapped by op names to another graph."""

from dataclasses import dataclass

from pesto_cli.data.problem import Problem
from pesto_cli.data.schedule import Placement
from pesto_cli.data.split_start import SplitStart


@dataclass(frozen=True, eq=False)
class MappedPlacement:
    """A placement that was mapped to another problem, and how many ops each rule placed.

    placement: the placement of the problem's ops.
    num_by_name, num_by_scope, num_by_neighbours, num_by_default: number of ops by rule.
    lost_devices: devices with ops in the old placement that the machine lacks.
    split: the same with split ops; None if the old placement splits none, or none can be kept.
    """

    placement: Placement
    num_by_name: int
    num_by_scope: int
    num_by_neighbours: int
    num_by_default: int
    lost_devices: tuple[str, ...]
    split: "MappedSplit | None" = None

    @property
    def split_start(self) -> SplitStart | None:
        """The start of a search that splits ops, if there is one."""
        return None if self.split is None else self.split.start

    @property
    def share_by_name(self) -> float:
        """The share of ops that were mapped by name."""
        return self.num_by_name / max(1, len(self.placement.device))

    @property
    def is_whole(self) -> bool:
        """Whether every op has its device of the old placement."""
        return self.num_by_name == len(self.placement.device)


@dataclass(frozen=True, eq=False)
class MappedSplit:
    """A placement with a plan that was mapped to another problem.

    start: the plan that was kept, and the placement of its ops.
    mapped: how many of the ops of the split graph each rule placed.
    num_kept: the number of ops that are split as before.
    problem: the problem after it was split.
    """

    start: SplitStart
    mapped: MappedPlacement
    num_kept: int
    problem: Problem
