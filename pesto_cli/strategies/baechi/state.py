"""What the placer of `earliest` is given, and its state: arrays that its steps change in place."""

from typing import NamedTuple

import numpy as np

from pesto_cli.data.graph import BoolArray, FloatArray, IntArray
from pesto_cli.evaluation.simulator.columns import KernelMachine
from pesto_cli.kernels import kernel, step

NONE = -1


class NodeInputs(NamedTuple):
    """What nodes take, in rows by node; see `PlacementGraph`.

    offsets: `[num_nodes + 1]`.
    source, tensor, is_signal: `[num_inputs]`.
    tensor_bytes: `[num_tensors]`.
    """

    offsets: IntArray
    source: IntArray
    tensor: IntArray
    is_signal: BoolArray
    tensor_bytes: IntArray


class PlacerGraph(NamedTuple):
    """Nodes, and what is between them.

    duration_us: `[num_nodes, num_devices]`.
    group: `[num_nodes]`.
    group_allowed: `[num_groups, num_devices]`.
    inputs: see there.
    offsets: `[num_nodes + 1]`, rows of `children`.
    children: `[num_edges]`, nodes.
    favourite: `[num_nodes]`, a child or `NONE`.
    """

    duration_us: FloatArray
    group: IntArray
    group_allowed: BoolArray
    inputs: NodeInputs
    offsets: IntArray
    children: IntArray
    favourite: IntArray


class PlacerNeeds(NamedTuple):
    """Bytes; see `memory.Needs`.

    variables, outputs: `[num_nodes]`.
    group_variables: `[num_groups]`.
    reserve: `[num_groups]`, what a group takes as soon as it has a device; or empty.
    """

    variables: FloatArray
    outputs: FloatArray
    group_variables: FloatArray
    reserve: FloatArray


class PlacerInput(NamedTuple):
    """What does not change."""

    graph: PlacerGraph
    needs: PlacerNeeds
    links: KernelMachine


class PlacerNodes(NamedTuple):
    """`[num_nodes]` each.

    num_awaited: how many sources have not ended.
    num_users: how many children have not been scheduled.
    device: or `NONE`.
    start_us, end_us: once it is scheduled.
    ready: the ready nodes, in no order; there are `num_ready[0]` of them.
    is_ready: whether each is.
    """

    num_awaited: IntArray
    num_users: IntArray
    device: IntArray
    start_us: FloatArray
    end_us: FloatArray
    ready: IntArray
    num_ready: IntArray
    is_ready: BoolArray


class PlacerDevices(NamedTuple):
    """`[num_devices]` each.

    running, last: the node that runs, and the last that was started, or `NONE`.
    free_us: the end of the last.
    busy_us: until when it sends and receives.
    room: bytes.
    """

    running: IntArray
    last: IntArray
    free_us: FloatArray
    busy_us: FloatArray
    room: FloatArray


class PlacerGroups(NamedTuple):
    """`[num_groups]` each.

    device: or `NONE`.
    credit: bytes of its reserve that its nodes have not taken.
    num_unscheduled: nodes.
    """

    device: IntArray
    credit: FloatArray
    num_unscheduled: IntArray


class Reckoned(NamedTuple):
    """`[num_nodes, num_devices]` each, of ready nodes.

    arrival_us: when all inputs can be there.
    sends: whether any is to be sent for that.
    start_us: when it could start, inf where it may not go.
    """

    arrival_us: FloatArray
    sends: BoolArray
    start_us: FloatArray


class PlacerState(NamedTuple):
    """All that changes; received_us: `[num_tensors, num_devices]`, below 0 if it was not sent."""

    nodes: PlacerNodes
    devices: PlacerDevices
    groups: PlacerGroups
    reckoned: Reckoned
    received_us: FloatArray


@kernel
def initial_state(given: PlacerInput, room: FloatArray) -> PlacerState:
    """No node is scheduled, and those without sources are ready."""
    num_devices, num_groups = len(room), len(given.graph.group_allowed)
    num_nodes, num_tensors = len(given.graph.group), len(given.graph.inputs.tensor_bytes)
    running = np.full(num_devices, NONE, np.int64)
    times = np.zeros(num_devices)
    return PlacerState(
        nodes=_nodes_at_first(given),
        devices=PlacerDevices(running, running.copy(), times, times.copy(), room.copy()),
        groups=PlacerGroups(
            np.full(num_groups, NONE, np.int64),
            np.zeros(num_groups),
            np.bincount(given.graph.group, minlength=num_groups),
        ),
        reckoned=Reckoned(
            np.zeros((num_nodes, num_devices)),
            np.zeros((num_nodes, num_devices), np.bool_),
            np.full((num_nodes, num_devices), np.inf),
        ),
        received_us=np.full((num_tensors, num_devices), -1.0),
    )


@kernel
def _nodes_at_first(given: PlacerInput) -> PlacerNodes:
    num_nodes = len(given.graph.group)
    nodes = PlacerNodes(
        num_awaited=np.zeros(num_nodes, np.int64),
        num_users=np.diff(given.graph.offsets),
        device=np.full(num_nodes, NONE, np.int64),
        start_us=np.zeros(num_nodes),
        end_us=np.zeros(num_nodes),
        ready=np.empty(num_nodes, np.int64),
        num_ready=np.zeros(1, np.int64),
        is_ready=np.zeros(num_nodes, np.bool_),
    )
    num_awaited = nodes.num_awaited
    for child in given.graph.children:
        num_awaited[child] += 1
    for node in np.flatnonzero(num_awaited == 0):
        make_ready(nodes, node)
    return nodes


@step
def make_ready(nodes: PlacerNodes, node: int) -> None:
    """List a node as ready."""
    nodes.ready[nodes.num_ready[0]] = node
    nodes.num_ready[0] += 1
    nodes.is_ready[node] = True


@step
def make_unready(nodes: PlacerNodes, node: int) -> None:
    """List a ready node no longer."""
    nodes.is_ready[node] = False
    nodes.num_ready[0] -= 1
    last, row = nodes.num_ready[0], 0
    while nodes.ready[row] != node:
        row += 1
    nodes.ready[row] = nodes.ready[last]
