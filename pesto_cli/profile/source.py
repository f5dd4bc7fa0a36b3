"""What a cost source is asked for and what it answers."""

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
    """Devices to measure a step on, and how.

    feeds: a source of batches, see `runtime.feeds`; small valid data by default.
    placement: what the step is measured under; by default all of it on one device of each kind.
    """

    cluster: Cluster
    num_steps: int = 100
    num_warm_up: int = 5
    feeds: str | None = None
    placement: PlacementFile | None = None


@dataclass(frozen=True)
class CostRequest:
    """A training step to be costed.

    meta_graph: the MetaGraphDef that `step` was read from.
    argument: what follows the source's name, such as the file of `csv:FILE`.
    cpu_offload: give ops that a GPU can run a time on the CPU too.
    live: the machine itself, where it is at hand.
    """

    step: StepGraph
    meta_graph: Any
    machine: Machine
    argument: str = ""
    cpu_offload: bool = False
    live: Live | None = None


@dataclass(frozen=True)
class Coverage:
    """How far a measurement and a graph are about the same step.

    matched_ops, num_ops: of the ops that compute (not those that hand on data or handles), how many
        were measured.
    matched_us, recorded_us: of the time that was measured in a step, what belongs to the graph.
    """

    matched_ops: int
    num_ops: int
    matched_us: float
    recorded_us: float


@dataclass(frozen=True)
class Costs:
    """What a source knows of a step.

    time_us: kind of device -> `[num_ops]` on a device of speed 1, NaN where it cannot run the op.
        What it says of feeds and fetches is not used.
    tensor_bytes: `[num_tensors]` where the source has measured them.
    num_runs: measured steps behind the times; 0 where none was run.
    notes: what the user should know of the times.
    spread: of measured times.
    coverage: of a measurement.
    machine: the one asked about with what the source has found out of it, if it has.
    reconciled: steps on some devices beside the op times there.
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
