"""What a cost source is asked for and what it answers."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pesto_cli.graph import FloatArray, IntArray
from pesto_cli.graphdef.read import StepGraph
from pesto_cli.machine import Machine


@dataclass(frozen=True)
class Request:
    """A training step to be costed.

    meta_graph: the MetaGraphDef that `step` was read from.
    argument: what follows the source's name, such as the file of `csv:FILE`.
    cpu_offload: give ops that a GPU can run a time on the CPU too.
    """

    step: StepGraph
    meta_graph: Any
    machine: Machine
    argument: str = ""
    cpu_offload: bool = False


@dataclass(frozen=True)
class Costs:
    """What a source knows of a step.

    time_us: kind of device -> `[num_ops]` on a device of speed 1, NaN where it cannot run the op.
        What it says of feeds and fetches is not used.
    tensor_bytes: `[num_tensors]` where the source has measured them.
    num_runs: measured steps behind the times; 0 where none was run.
    notes: what the user should know of the times.
    """

    time_us: Mapping[str, FloatArray]
    tensor_bytes: IntArray | None = None
    num_runs: int = 0
    notes: tuple[str, ...] = ()


Source = Callable[[Request], Costs]
