"""Features of super-ops: what a policy knows about them.

In Spotlight and its rival, the input for a super-op is its name in a vocabulary of the graph
(Section 5.1, "Architecture"), so their policies cannot place another graph. Here a super-op has
features that all graphs have: times, sizes, degrees, heights, ranks, memory, roles, phases, layers
and op types.

Quantities are divided by their mean over the super-ops, so they do not depend on units and on the
size of the model. Then each feature has mean 0 and deviation 1 over the super-ops of a graph, so
that the network sees what differs between them. All features are finite.
"""

from zlib import crc32

import numpy as np

from pesto_cli.data.columns import FloatArray, IntArray
from pesto_cli.data.labels import Phase, Role
from pesto_cli.evaluation.simulator import Simulator
from pesto_cli.learned.groups import SuperOps
from pesto_cli.strategies.layers import layers_of_groups

# Op types are hashed into this number of columns, so a type that was never seen has one too.
TYPE_COLUMNS = 16


def num_features(num_devices: int) -> int:
    """Return the number of columns of `features`."""
    return 2 * num_devices + 4 + 3 + 4 + len(Role) + len(Phase) + TYPE_COLUMNS


def features(super_ops: SuperOps) -> FloatArray:
    """Return the features of each super-op, `[num_super_ops, num_features]`.

    Ops count by their number in roles and phases, and by their time in op types.
    """
    problem = super_ops.problem
    graph, of_op = problem.graph, super_ops.of_op
    inside = np.flatnonzero(of_op >= 0)
    of_op, number = of_op[inside], len(super_ops)

    def total(values: FloatArray | IntArray) -> FloatArray:
        return np.bincount(of_op, values[inside], number).astype(np.float64)

    time_us = np.where(problem.allowed, problem.duration_us, 0.0)
    count = total(np.ones(problem.num_ops))
    work_us = total(problem.min_duration_us)
    types = np.array([crc32(name.encode()) % TYPE_COLUMNS for name in graph.types])
    held = np.bincount(graph.tensor_producer, graph.held_bytes, graph.num_ops)
    sizes = (held, graph.resident_bytes, graph.num_members)
    columns = [
        *(_relative(total(time_us[:, device])) for device in range(problem.num_devices)),
        *super_ops.allowed().T.astype(np.float64),
        *(_relative(column) for column in _exchanged(super_ops)),
        *(_relative(total(size)) for size in sizes),
        *_positions(super_ops),
        *(_share(total(graph.labels.role == role), count) for role in Role),
        *(_share(total(graph.labels.phase == phase), count) for phase in Phase),
        *(
            _share(total(np.where(types == column, problem.min_duration_us, 0.0)), work_us)
            for column in range(TYPE_COLUMNS)
        ),
    ]
    return _standardised(np.column_stack(columns))


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
    num_bytes = np.where(graph.consumer_on_host, 0, graph.tensor_bytes[graph.consumer_tensor])
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
    return np.divide(values, totals, out=np.zeros(len(values)), where=totals > 0)
