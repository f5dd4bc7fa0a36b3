"""A placement mapped by op names to another graph."""

from dataclasses import dataclass

from pesto_cli.data.schedule import Placement


@dataclass(frozen=True, eq=False)
class MappedPlacement:
    """A placement that was mapped to another problem, and how many ops each rule placed.

    placement: the placement of the problem's ops.
    num_by_name, num_by_scope, num_by_neighbours, num_by_default: number of ops by rule.
    lost_devices: devices with ops in the old placement that the machine lacks.
    """

    placement: Placement
    num_by_name: int
    num_by_scope: int
    num_by_neighbours: int
    num_by_default: int
    lost_devices: tuple[str, ...]

    @property
    def share_by_name(self) -> float:
        """The share of ops that were mapped by name."""
        return self.num_by_name / max(1, len(self.placement.device))

    @property
    def is_whole(self) -> bool:
        """Whether every op has its device of the old placement."""
        return self.num_by_name == len(self.placement.device)
