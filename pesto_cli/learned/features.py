"""Features of super-ops: what a policy knows about them.

In Spotlight and its rival, the input for a super-op is its name in a vocabulary of the graph
(Section 5.1, "Architecture"), so their policies cannot place another graph. Here a super-op has
features that all graphs have: times, sizes, degrees, heights, ranks, memory, roles, phases, layers
and op types.

Quantities are divided by their mean over the super-ops, so they do not depend on units and on the
size of the model. Then each of these features has mean 0 and deviation 1 over the super-ops of a
graph, so that the network sees what differs between them.

The last features tell machines apart, also if they differ in the same way for all super-ops: how
much slower each device is than the fastest one, and how long transfers take compared with the ops.
HeteroG's policy sees times on all devices and between each pair of them (Section 4.1.1); here a
device has the mean over its links.

All features are finite.
"""

from collections.abc import Callable, Sequence
from zlib import crc32

import numpy as np

from pesto_cli.coarsen.layers import layers_of_groups
from pesto_cli.data.columns import FloatArray, IntArray
from pesto_cli.data.graph import OpGraph
from pesto_cli.data.labels import Phase, Role
from pesto_cli.data.problem import Problem
from pesto_cli.evaluation.simulator import Simulator
from pesto_cli.learned.groups import SuperOps

# Op types are hashed into this number of columns, so a type that was never seen has one too.
# Several types share a column; with few columns, the first layer of the network is small.
TYPE_COLUMNS = 16
NUM_RELATIONS = 4
# A relation has one weight for all super-ops. The larger its values are, the faster it is learned.
RELATION_SCALE = 5.0


def num_features(num_devices: int) -> int:
    """Return the number of columns of `features`."""
    return 4 * num_devices + 4 + 3 + 4 + len(Role) + len(Phase) + TYPE_COLUMNS


def features(super_ops: SuperOps) -> FloatArray:
    """Return the features of each super-op, `[num_super_ops, num_features]`.

    Ops count by their number in roles and phases, and by their time in op types.
    """
    problem = super_ops.problem
    graph, total = problem.graph, _total_of(super_ops)
    time_us = np.where(problem.allowed, problem.duration_us, 0.0)
    total_us = np.column_stack([total(column) for column in time_us.T])
    exchanged = _exchanged(super_ops)
    count = total(np.ones(problem.num_ops))
    work_us = total(problem.min_duration_us)
    types = np.array([crc32(name.encode()) % TYPE_COLUMNS for name in graph.types])
    sizes = (_held_bytes(graph), graph.resident_bytes, graph.num_members)
    columns = [
        *map(_relative, total_us.T),
        *super_ops.allowed().T.astype(np.float64),
        *map(_relative, exchanged),
        *(_relative(total(size)) for size in sizes),
        *_positions(super_ops),
        *(_share(total(graph.labels.role == role), count) for role in Role),
        *(_share(total(graph.labels.phase == phase), count) for phase in Phase),
        *(
            _share(total(np.where(types == column, problem.min_duration_us, 0.0)), work_us)
            for column in range(TYPE_COLUMNS)
        ),
    ]
    of_graph = _standardised(np.column_stack(columns))
    return np.column_stack((of_graph, _slowness(total_us), _transfers(problem, exchanged, work_us)))


def relations(super_ops: SuperOps) -> FloatArray:
    """Return relations to earlier super-ops, `[NUM_RELATIONS, num_super_ops, num_super_ops]`.

    The sum of row n over the earlier super-ops on a device says what this device means for super-op
    n: its load, its load times the work of n, its memory, and the bytes that n exchanges with it.
    All are relative to means, and multiplied by `RELATION_SCALE`.
    """
    problem, of_op, number = super_ops.problem, super_ops.of_op, len(super_ops)
    graph, total = problem.graph, _total_of(super_ops)
    work, memory = total(problem.min_duration_us), total(_held_bytes(graph) + graph.resident_bytes)
    load = _share(work, np.full(number, work.sum() / problem.num_devices))
    own = _relative(work)
    giver, taker = of_op[graph.tensor_producer[graph.consumer_tensor]], of_op[graph.consumers]
    num_bytes = _taken_bytes(graph)
    crosses = (giver != taker) & (giver >= 0) & (taker >= 0)
    exchanged = np.zeros((number, number))
    np.add.at(exchanged, (giver[crosses], taker[crosses]), num_bytes[crosses])
    exchanged += exchanged.T
    mean_bytes = np.full_like(exchanged, exchanged.sum() / max(number, 1))
    found = (
        np.tile(load, (number, 1)),
        np.outer(own, load),
        np.tile(_share(memory, np.full(number, memory.sum() / problem.num_devices)), (number, 1)),
        np.log1p(_share(exchanged, mean_bytes)),
    )
    return RELATION_SCALE * np.tril(found, -1)


def _total_of(super_ops: SuperOps) -> Callable[[FloatArray | IntArray], FloatArray]:
    """Return a function that adds values of ops, `[num_ops]`, for each super-op."""
    inside = np.flatnonzero(super_ops.of_op >= 0)
    of_op = super_ops.of_op[inside]

    def total(values: FloatArray | IntArray) -> FloatArray:
        return np.bincount(of_op, values[inside], len(super_ops)).astype(np.float64)

    return total


def _held_bytes(graph: OpGraph) -> FloatArray:
    """Return the bytes of the outputs that each op holds, `[num_ops]`."""
    held = np.bincount(graph.tensor_producer, graph.held_bytes, graph.num_ops)
    return held.astype(np.float64)


def _taken_bytes(graph: OpGraph) -> IntArray:
    """Return the bytes that each consumer of a tensor takes on its device, `[num_consumers]`."""
    taken = graph.tensor_bytes[graph.consumer_tensor]
    return np.where(graph.consumer_on_host, 0, taken)


def _slowness(total_us: FloatArray) -> FloatArray:
    """Return log(time / least time) of each super-op on each device; 0 where it takes no time.

    total_us: the time of its ops that a device may run, `[num_super_ops, num_devices]`.
    """
    takes_time = total_us > 0
    least_us = np.min(total_us, axis=1, where=takes_time, initial=np.inf, keepdims=True)
    slowness: FloatArray = np.log(np.where(takes_time, total_us / least_us, 1.0))
    return slowness


def _transfers(
    problem: Problem, exchanged: Sequence[FloatArray], work_us: FloatArray
) -> FloatArray:
    """Return log(1 + time of transfers / mean work), `[num_super_ops, num_devices]`.

    The transfers are those of all edges of a super-op over the mean link of a device, as if each
    edge sent a tensor.

    exchanged: see `_exchanged`. work_us: the least time of each super-op, `[num_super_ops]`.
    """
    bytes_out, bytes_in, edges_out, edges_in = exchanged
    machine, others = problem.machine, max(problem.num_devices - 1, 1)
    latency_us, us_per_byte = (
        (matrix.sum(axis=0) + matrix.sum(axis=1)) / (2 * others)
        for matrix in (machine.latency_us, machine.us_per_byte)
    )
    sent_us = np.outer(edges_out + edges_in, latency_us)
    sent_us += np.outer(bytes_out + bytes_in, us_per_byte)
    mean_us = work_us.mean() if len(work_us) else 0.0
    return np.log1p(sent_us / mean_us) if mean_us > 0 else np.zeros_like(sent_us)


def _standardised(table: FloatArray) -> FloatArray:
    """Return columns of mean 0 and deviation 1; columns without differences are 0."""
    if not len(table):
        return table
    deviation = table.std(axis=0)
    centred = table - table.mean(axis=0)
    scaled = np.zeros_like(table)
    np.divide(centred, deviation, out=scaled, where=deviation > 1e-9)
    return scaled


def _exchanged(super_ops: SuperOps) -> list[FloatArray]:
    """Return bytes and edges that leave and enter each super-op, four times `[num_super_ops]`."""
    graph, of_op = super_ops.problem.graph, super_ops.of_op
    giver = graph.tensor_producer[graph.consumer_tensor]
    num_bytes = _taken_bytes(graph)
    tail, head = graph.edges.reshape(-1, 2).T
    columns = []
    for source, target, weight in (
        (giver, graph.consumers, num_bytes),
        (tail, head, np.ones(len(tail))),
    ):
        crosses = of_op[source] != of_op[target]
        for end in (source, target):
            there = crosses & (of_op[end] >= 0)
            total = np.bincount(of_op[end[there]], weight[there], len(super_ops))
            columns.append(total.astype(np.float64))
    return columns


def _positions(super_ops: SuperOps) -> list[FloatArray]:
    """Return the relative first and last height, upward rank and layer, `[num_super_ops]` each."""
    problem, of_op = super_ops.problem, super_ops.of_op
    graph = problem.graph
    layers = layers_of_groups(graph, problem.min_duration_us)
    layer = layers.of_group[graph.colocation_group] / max(len(layers.names) - 1, 1)
    height = graph.heights / max(graph.heights.max(initial=1), 1)
    rank_us = Simulator(problem).upward_rank()
    rank = _share(rank_us, np.full_like(rank_us, rank_us.max(initial=0.0)))
    inside = of_op >= 0
    last, first, rank_of, layer_of = np.zeros((4, len(super_ops)))
    np.maximum.at(last, of_op[inside], height[inside])
    first[:] = 1.0
    np.minimum.at(first, of_op[inside], height[inside])
    np.maximum.at(rank_of, of_op[inside], rank[inside])
    np.maximum.at(layer_of, of_op[inside], layer[inside])
    return [first, last, rank_of, layer_of]


def _relative(values: FloatArray) -> FloatArray:
    """Return log(1 + value / mean value) of values of 0 or more; 0 if all are 0."""
    mean = values.mean() if len(values) else 0.0
    return np.log1p(_share(values, np.full_like(values, mean)))


def _share(values: FloatArray, totals: FloatArray) -> FloatArray:
    """Return value / total, and 0 where the total is 0."""
    return np.divide(values, totals, out=np.zeros(values.shape), where=totals > 0)
