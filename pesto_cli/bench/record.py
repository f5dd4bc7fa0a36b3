"""What is kept of a run, as a file of its own."""

from typing import Any

from pydantic import ConfigDict

from pesto_cli.files.storage import Extensible

FORMAT = "pesto-bench-run"

# Of a row of a timeline: start and end in us of every busy time.
Busy = list[tuple[float, float]]


class Record(Extensible):
    """A contender on a model and a machine.

    key: all that the result depends on; see `runs.key_of`.
    refused: why there is no schedule, else empty; then all other figures are 0.
    shortfall_bytes: by how much memory is exceeded, over all devices; peak_bytes: by device.
    took_s: from the problem to the schedule, and cpu_s, what of it this process computed.
    orders_us: makespan of the same devices in every order of `strategies.order.ORDERS`.
    timeline: busy times by device and channel.
    """

    model_config = ConfigDict(extra="ignore", frozen=True)

    key: dict[str, Any]
    num_ops: int
    refused: str = ""
    step_us: float = 0.0
    bound_us: float = 0.0
    shortfall_bytes: int = 0
    peak_bytes: dict[str, int] = {}
    took_s: float = 0.0
    cpu_s: float = 0.0
    orders_us: dict[str, float] = {}
    timeline: dict[str, Busy] = {}

    @property
    def fits(self) -> bool:
        """Whether there is a schedule that stays within all memories."""
        return not self.refused and not self.shortfall_bytes
