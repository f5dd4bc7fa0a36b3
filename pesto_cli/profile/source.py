"""The types of a cost source: a `CostRequest` in, `Costs` out."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pesto_cli.cluster import Cluster
from pesto_cli.data.graph import FloatArray, IntArray
from pesto_cli.data.machine import Machine
from pesto_cli.files import PlacementFile
from pesto_cli.files.profile import Spread
from pesto_cli.graphdef.read import StepGraph
from pesto_cli.profile.run.reconcile import Reconciliation


@dataclass(frozen=True)
class Live:
    """Real devices on which a step is measured, and the settings of the measurement.

    feeds: a source of batches, see `runtime.feeds`; by default small valid data.
    limit_s: no more steps begin after so many seconds, except for the fewest. It holds for the
        steps of each layout, for those beside other devices, and for ops that run alone.
    placement: the placement that is measured; by default the whole step is on one device, and one
        device of each kind is measured.
    """

    cluster: Cluster
    num_steps: int = 100
    num_warm_up: int = 5
    feeds: str | None = None
    placement: PlacementFile | None = None
    limit_s: float = math.inf


@dataclass(frozen=True)
class CostRequest:
    """A training step whose op times a source returns.

    meta_graph: the MetaGraphDef that `step` was read from.
    argument: the text after the source's name, such as the file of `csv:FILE`.
    cpu_offload: give ops that a GPU can run a time on the CPU too.
    live: the real devices of the machine; None if there are none.
    """

    step: StepGraph
    meta_graph: Any
    machine: Machine
    argument: str = ""
    cpu_offload: bool = False
    live: Live | None = None


@dataclass(frozen=True)
class Coverage:
    """The parts of a graph and of a measurement that match each other.

    num_ops: number of ops that compute; ops that only pass on data or handles do not count.
    matched_ops: number of these that were measured.
    recorded_us: measured time of a step. matched_us: its part that belongs to ops of the graph.
    """

    matched_ops: int
    num_ops: int
    matched_us: float
    recorded_us: float


@dataclass(frozen=True)
class Costs:
    """The costs of a step that a source returns.

    time_us: device kind -> `[num_ops]` on a device of speed 1, NaN if the kind cannot run the op.
        The times of feeds and fetches are not used.
    tensor_bytes: `[num_tensors]`; None if the source does not measure sizes.
    num_runs: number of steps that the times were measured on; 0 if no step was run.
    notes: notes on the times for the user.
    spread: minimum, mean and deviation of measured times.
    coverage: how well a measurement matches the graph.
    machine: the requested machine with measured values; None if the source changes nothing.
    reconciled: comparisons of whole steps with the sum of their op times.
    """

    time_us: Mapping[str, FloatArray]
    tensor_bytes: IntArray | None = None
    num_runs: int = 0
    notes: tuple[str, ...] = ()
    spread: Spread | None = None
    coverage: Coverage | None = None
    machine: Machine | None = None
    reconciled: tuple[Reconciliation, ...] = ()


Source = Callable[[CostRequest], Costs]
