"""Earliest task first with memory and favourite children: what m-ETF and m-SCT share.

Time goes forward. Whenever a device is free, it takes the topologically first op that may start
on it now: all its inputs are reckoned to be there, and its memory has room. An op pins its group.
A device sends or receives one tensor at a time (`placer/device.py`), and keeps what it received for
other ops. Only when an op is chosen, its inputs are sent, in the order of their sources.

m-SCT adds: a device whose last op has a favourite child that is ready, and that it can start as
early as any other, is awake (`placer/m_sct.py`). It waits for that child, and until then takes only
urgent ops: those that may start by now on every device that may take them.
"""

from dataclasses import dataclass

from pesto_cli.data.graph import FloatArray, IntArray
from pesto_cli.data.problem import Problem
from pesto_cli.evaluation.simulator.columns import KernelMachine
from pesto_cli.strategies.baechi.memory import needs, plan_bytes
from pesto_cli.strategies.baechi.placement_graph import PlacementGraph
from pesto_cli.strategies.baechi.placing import place
from pesto_cli.strategies.baechi.settings import Settings
from pesto_cli.strategies.baechi.state import (
    NodeInputs,
    PlacerGraph,
    PlacerInput,
    PlacerNeeds,
)


@dataclass(frozen=True, eq=False)
class Plan:
    """Baechi's own schedule.

    device, start_us: `[num_nodes]`.
    num_forced: nodes that found no room in its model of memory, and were placed all the same.
    """

    device: IntArray
    start_us: FloatArray
    num_forced: int


def earliest_first(
    problem: Problem, placed: PlacementGraph, settings: Settings, favourite: IntArray
) -> Plan:
    """Place and schedule every node; `favourite` is `[num_nodes]`, a child or `NONE`.

    Where the program gives up, because nothing fits any more, the topologically first ready op goes
    to the device that has most room.
    """
    need, machine = needs(problem, placed), problem.machine
    reserve = need.group_variables + need.group_outputs
    if not settings.reserve_memory:
        reserve = reserve[:0]
    graph = PlacerGraph(
        placed.duration_us,
        placed.group,
        placed.group_allowed,
        NodeInputs(
            placed.input_offsets,
            placed.input_source,
            placed.input_tensor,
            placed.input_is_signal & (not settings.signals_cost_transfers),
            placed.tensor_bytes,
        ),
        placed.successors.offsets,
        placed.successors.indices,
        favourite,
    )
    needed = PlacerNeeds(need.variables, need.outputs, need.group_variables, reserve)
    links = KernelMachine.of(machine)._replace(
        latency_us=machine.latency_us * settings.comm_factor,
        us_per_byte=machine.us_per_byte * settings.comm_factor,
        min_us=machine.min_us * settings.comm_factor,
    )
    room = plan_bytes(problem, settings.memory_fraction)
    device, start_us, num_forced = place(PlacerInput(graph, needed, links), room)
    return Plan(device, start_us, int(num_forced))
