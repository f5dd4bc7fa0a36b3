"""The record of a run, which is cached in a file of its own."""

from typing import Annotated, Any

from pydantic import ConfigDict, Field

from pesto_cli.files.storage import Extensible

FORMAT = "pesto-bench-run"

# A row of a timeline: start and end in us of every busy period, which JSON has as a list.
Busy = list[Annotated[tuple[float, float], Field(strict=False)]]


class LongOp(Extensible):
    """One of the longest ops of a step.

    weight_bytes: of the variables that it reads. num_parts: 1 if it is whole.
    """

    model_config = ConfigDict(extra="ignore", frozen=True)

    name: str
    type: str
    time_us: float
    weight_bytes: int
    num_parts: int


class Decisions(Extensible):
    """How the ops of the forward and the backward pass, and variables, were split and placed.

    devices: names of all devices.
    whole: device -> number of whole ops.
    even, uneven: numbers of split ops with equally large parts on all accelerators, or not.
    variables: `whole`, `split` and `mirrored` -> number of variables.
    split_work_us: op type -> time of the whole ops that were split.
    longest: the longest ops of each type, by decreasing time.
    """

    model_config = ConfigDict(extra="ignore", frozen=True)

    devices: list[str]
    whole: dict[str, int]
    even: int
    uneven: int
    variables: dict[str, int]
    split_work_us: dict[str, float]
    longest: list[LongOp]


class CurvePoint(Extensible):
    """A point of a learning curve.

    seconds: since the run began. num_placements: that were tried on this graph until then.
    mean_us: mean step time of the iteration. best_us: the shortest step time so far. A step that
        does not fit in memory counts several times in both.
    """

    model_config = ConfigDict(extra="ignore", frozen=True)

    seconds: float
    num_placements: int
    mean_us: float
    best_us: float


class Learning(Extensible):
    """How a policy learned.

    trained_s, num_trained: the training on other graphs before, in seconds and in placements.
    first_us: the step time of its most probable placement, before it learned on this graph.
    first_fits: whether this placement fits into memory. first_s: seconds until it was found.
    curve: some iterations: those with a better placement, and of the others ever fewer.
    """

    model_config = ConfigDict(extra="ignore", frozen=True)

    trained_s: float = 0.0
    num_trained: int = 0
    first_us: float
    first_fits: bool
    first_s: float
    curve: list[CurvePoint]


class Record(Extensible):
    """The result of a contender on a model and a machine.

    key: everything that the search depends on; see `runs.key_of`.
    refused: the reason if there is no schedule, else empty; if refused, all other figures are 0.
    shortfall_bytes: by how much peaks exceed memory, summed over the devices.
    peak_bytes: device -> peak of its memory.
    took_s: elapsed time from the problem to the schedule. cpu_s: CPU time of this process.
    orders_us: order in `strategies.order.ORDERS` -> makespan of the same devices in this order.
    timeline: device or channel -> its busy periods.
    decisions: how ops were split and placed.
    learning: how a policy learned.
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
    decisions: Decisions | None = None
    learning: Learning | None = None

    @property
    def fits(self) -> bool:
        """Whether there is a schedule, and it fits into the memory of all devices."""
        return not self.refused and not self.shortfall_bytes
