"""What is left of a placement on a graph that has changed."""

from dataclasses import dataclass

from pesto_cli.data.schedule import Placement


@dataclass(frozen=True, eq=False)
class MappedPlacement:
    """A placement of a problem's ops, and how many of them each rule has placed.

    lost_devices: those of the old placement that have ops and that the machine lacks.
    """

    placement: Placement
    num_by_name: int
    num_by_scope: int
    num_by_neighbours: int
    num_by_default: int
    lost_devices: tuple[str, ...]

    @property
    def share_by_name(self) -> float:
        """Of all ops."""
        return self.num_by_name / max(1, len(self.placement.device))

    @property
    def is_whole(self) -> bool:
        """Whether every op is where the old placement has it."""
        return self.num_by_name == len(self.placement.device)
