"""The columns that the kernels of `earliest.py` read and write.

The nodes of a placement graph are numbered by the topologically first of their ops. Sizes are in
bytes, times in us.
"""

from typing import NamedTuple

import numpy as np

from pesto_cli.data.graph import Adjacency, BoolArray, FloatArray, IntArray
from pesto_cli.data.problem import Problem
from pesto_cli.strategies.baechi.memory import needs, plan_bytes
from pesto_cli.strategies.baechi.placement_graph import PlacementGraph
from pesto_cli.strategies.baechi.settings import Settings

NONE = -1
LEAST_BLOCK = 32


class Nodes(NamedTuple):
    """A placement graph.

    duration: `[num_nodes, num_devices]`.
    group: the group of each node, `[num_nodes]`.
    favourite: the favourite child of each node, or `NONE`, `[num_nodes]`.
    allowed: `[num_groups, num_devices]`.
    input_offsets: rows of `source`, `tensor` and `is_signal`, ordered by source, `[num_nodes + 1]`.
    child_offsets: rows of `children`, `[num_nodes + 1]`.
    taker_offsets: rows of `takers`, the consumers of each tensor, `[num_tensors + 1]`.
    member_offsets: rows of `members`, the nodes of each group, `[num_groups + 1]`.
    """

    duration: FloatArray
    group: IntArray
    favourite: IntArray
    allowed: BoolArray
    input_offsets: IntArray
    source: IntArray
    tensor: IntArray
    is_signal: BoolArray
    tensor_bytes: IntArray
    child_offsets: IntArray
    children: IntArray
    taker_offsets: IntArray
    takers: IntArray
    member_offsets: IntArray
    members: IntArray


class Links(NamedTuple):
    """The time of a transfer by source and target: `max(least, latency + per_byte * bytes)`."""

    latency: FloatArray
    per_byte: FloatArray
    least: FloatArray
    signal: float


class Needed(NamedTuple):
    """Bytes of nodes and groups, as in `memory.Needs`.

    `reserve` is what a group reserves; it is empty if groups reserve nothing.
    """

    variables: FloatArray
    outputs: FloatArray
    group_variables: FloatArray
    reserve: FloatArray


class State(NamedTuple):
    """The state of a schedule while it is built.

    Nodes: device (`NONE` before the node is scheduled), start, end.
        waiting: number of inputs whose source has not ended.
        left_to_use: number of children that are not scheduled.
        is_ready: whether all sources have ended and the node is not scheduled.
        is_settled: whether no input has to be sent, so that transfers do not change its arrivals.
        watched, since: `[num_nodes, num_devices]`, see `ready.py`.
    Tensors: received: arrival at each device, below 0 if not sent, `[num_tensors, num_devices]`.
    Devices: busy: end of its last transfer. free: end of its last node. room: free bytes.
        running, last: the running and the last node, or `NONE`.
    Groups: group_device; credit: unused bytes of its reserve; unscheduled: number of nodes.
    Blocks of nodes, see `ready.py`: block_offsets, `[num_blocks + 1]`; num_ready, `[num_blocks]`;
        soonest, by watched device, `[num_blocks, num_devices, num_devices + 1]`; least_need,
        `[num_blocks, num_devices]`.
    now: the current time, `[1]`.
    counts: the numbers of scheduled nodes and of forced nodes among them, `[2]`.
    """

    device: IntArray
    start: FloatArray
    end: FloatArray
    waiting: IntArray
    left_to_use: IntArray
    is_ready: BoolArray
    is_settled: BoolArray
    watched: IntArray
    since: FloatArray
    received: FloatArray
    busy: FloatArray
    free: FloatArray
    room: FloatArray
    running: IntArray
    last: IntArray
    group_device: IntArray
    credit: FloatArray
    unscheduled: IntArray
    block_offsets: IntArray
    num_ready: IntArray
    soonest: FloatArray
    least_need: FloatArray
    now: FloatArray
    counts: IntArray


def nodes_of(placed: PlacementGraph, settings: Settings, favourite: IntArray) -> Nodes:
    """Return the columns of a placement graph."""
    tensors = Adjacency.from_edges(len(placed.tensor_bytes), placed.input_tensor, placed.input_node)
    groups = Adjacency.from_edges(placed.num_groups, placed.group, np.arange(placed.num_nodes))
    return Nodes(
        duration=placed.duration_us,
        group=placed.group,
        favourite=favourite,
        allowed=placed.group_allowed,
        input_offsets=placed.input_offsets,
        source=placed.input_source,
        tensor=placed.input_tensor,
        is_signal=placed.input_is_signal & (not settings.signals_cost_transfers),
        tensor_bytes=placed.tensor_bytes,
        child_offsets=placed.successors.offsets,
        children=placed.successors.indices,
        taker_offsets=tensors.offsets,
        takers=tensors.indices,
        member_offsets=groups.offsets,
        members=groups.indices,
    )


def links_of(problem: Problem, settings: Settings) -> Links:
    """Return the links of the machine in the model of these settings."""
    machine, factor = problem.machine, settings.comm_factor
    return Links(
        machine.latency_us * factor,
        machine.us_per_byte * factor,
        machine.min_us * factor,
        float(machine.signal_us),
    )


def needed_of(problem: Problem, placed: PlacementGraph, settings: Settings) -> Needed:
    """Return the memory of nodes and groups in the model of these settings."""
    need = needs(problem, placed)
    reserve = need.group_variables + need.group_outputs
    return Needed(
        need.variables,
        need.outputs,
        need.group_variables,
        reserve if settings.reserve_memory else reserve[:0],
    )


def start_of(problem: Problem, nodes: Nodes, settings: Settings) -> State:
    """Return the state before any node is scheduled or marked as ready."""
    num_nodes, num_devices = nodes.duration.shape
    num_groups = len(nodes.allowed)
    # About as many nodes in a block as there are blocks, so that searching either is fast.
    blocks = np.append(np.arange(0, num_nodes, max(LEAST_BLOCK, int(num_nodes**0.5))), num_nodes)
    num_blocks = len(blocks) - 1

    def filled(value: int, *shape: int) -> IntArray:
        return np.full(shape, value, dtype=np.int64)

    return State(
        device=filled(NONE, num_nodes),
        start=np.zeros(num_nodes),
        end=np.zeros(num_nodes),
        waiting=np.bincount(nodes.children, minlength=num_nodes),
        left_to_use=np.diff(nodes.child_offsets),
        is_ready=np.zeros(num_nodes, dtype=np.bool_),
        is_settled=np.zeros(num_nodes, dtype=np.bool_),
        watched=filled(NONE, num_nodes, num_devices),
        since=np.zeros((num_nodes, num_devices)),
        received=np.full((len(nodes.tensor_bytes), num_devices), -1.0),
        busy=np.zeros(num_devices),
        free=np.zeros(num_devices),
        room=plan_bytes(problem, settings.memory_fraction),
        running=filled(NONE, num_devices),
        last=filled(NONE, num_devices),
        group_device=filled(NONE, num_groups),
        credit=np.zeros(num_groups),
        unscheduled=np.bincount(nodes.group, minlength=num_groups),
        block_offsets=blocks,
        num_ready=filled(0, num_blocks),
        soonest=np.full((num_blocks, num_devices, num_devices + 1), np.inf),
        least_need=np.full((num_blocks, num_devices), np.inf),
        now=np.zeros(1),
        counts=filled(0, 2),
    )
