"""The problem whose ops are the nodes of a quotient."""

from dataclasses import dataclass

import numpy as np

from pesto_cli.coarsen.quotient import Quotient
from pesto_cli.data.columns import unique_rows
from pesto_cli.data.graph import IntArray, OpGraph
from pesto_cli.data.problem import Problem


def coarse_problem(problem: Problem, quotient: Quotient) -> Problem:
    """Return the problem in which each node is one op that runs its members back to back.

    A node starts when the inputs of all members have arrived, and sends its outputs when its last
    member ends. Its time on a device kind is the sum over its members, or NaN where a member cannot
    run. Its type is that of its heaviest member, and so is its slow-down by contention. The coarse
    problem is less precise than the original in these, in times and in the merged tensors
    (`_tensors`).
    """
    graph, node_of_op = problem.graph, quotient.node_of_op
    named_after = heaviest(problem, quotient)
    tensors = _tensors(graph, node_of_op)
    coarse = OpGraph(
        names=tuple(graph.names[op] for op in named_after),
        types=tuple(graph.types[op] for op in named_after),
        colocation_group=quotient.group,
        resident_bytes=_sums(node_of_op, graph.resident_bytes, quotient.num_nodes),
        alias_of=_alias_of(graph, node_of_op, quotient.num_nodes),
        num_members=quotient.num_members,
        tensor_producer=tensors.producer,
        tensor_bytes=tensors.num_bytes,
        consumer_offsets=tensors.consumer_offsets,
        consumers=tensors.consumers,
        consumer_on_host=np.zeros(len(tensors.consumers), dtype=np.bool_),
        control_edges=_signals(problem, node_of_op, tensors),
        labels=graph.labels.of(named_after),
    )
    time_us = np.zeros((quotient.num_nodes, len(problem.kinds)))
    np.add.at(time_us, node_of_op, problem.time_us)
    return Problem(
        graph=coarse,
        kinds=problem.kinds,
        time_us=time_us,
        machine=problem.machine,
        permitted=quotient.group_allowed[quotient.group],
        headroom=problem.headroom,
    )


def heaviest(problem: Problem, quotient: Quotient) -> list[int]:
    """Return the member with the most work of each node, `[num_nodes]`; it names the node.

    Of members with equal work, the first is returned.
    """
    order = np.lexsort((-problem.min_duration_us, quotient.node_of_op))
    _, first = np.unique(quotient.node_of_op[order], return_index=True)
    return [int(op) for op in order[first]]


def _sums(node_of_op: IntArray, values: IntArray, num_nodes: int) -> IntArray:
    """Return the sum of integer values of each node's members, `[num_nodes]`."""
    sums = np.zeros(num_nodes, dtype=np.int64)
    np.add.at(sums, node_of_op, values)
    return sums


def _alias_of(graph: OpGraph, node_of_op: IntArray, num_nodes: int) -> IntArray:
    """Return the node that each node is an alias of, `[num_nodes]`, or -1.

    A node is an alias if the outputs of all its members live in the memory of one other node.
    """
    has_output = np.diff(graph.op_tensors) > 0
    target = np.where(graph.alias_of >= 0, node_of_op[graph.alias_of], -1)
    # An alias of an op of the same node says nothing about other nodes.
    is_counted = has_output & (target != node_of_op)
    low = np.full(num_nodes, num_nodes, dtype=np.int64)
    high = np.full(num_nodes, -1, dtype=np.int64)
    np.minimum.at(low, node_of_op[is_counted], target[is_counted])
    np.maximum.at(high, node_of_op[is_counted], target[is_counted])
    return np.where(low == high, high, -1)


@dataclass(frozen=True, eq=False)
class _Tensors:
    """Columns of `OpGraph`."""

    producer: IntArray
    num_bytes: IntArray
    consumer_offsets: IntArray
    consumers: IntArray


def _tensors(graph: OpGraph, node_of_op: IntArray) -> _Tensors:
    """Return the tensors between nodes.

    Tensors of one node with the same set of consumer nodes become one tensor of summed bytes, as
    they go to the same devices. This is an approximation: in the original problem each tensor has
    its own latency and can be sent when its own producer ends.
    """
    producer = node_of_op[graph.tensor_producer]
    consumers = node_of_op[graph.consumers]
    outside = ~graph.consumer_on_host & (consumers != producer[graph.consumer_tensor])
    num_bytes: dict[tuple[int, bytes], int] = {}
    rows = unique_rows(np.column_stack((graph.consumer_tensor[outside], consumers[outside])))
    starts = np.flatnonzero(np.diff(rows[:, 0], prepend=-1))
    for row in np.split(rows, starts[1:]) if len(rows) else []:
        tensor = int(row[0, 0])
        key = (int(producer[tensor]), row[:, 1].tobytes())
        num_bytes[key] = num_bytes.get(key, 0) + int(graph.tensor_bytes[tensor])
    ordered = sorted(num_bytes, key=lambda key: key[0])
    sets = [np.frombuffer(taken, dtype=np.int64) for _, taken in ordered]
    return _Tensors(
        producer=np.array([node for node, _ in ordered], dtype=np.int64),
        num_bytes=np.array([num_bytes[key] for key in ordered], dtype=np.int64),
        consumer_offsets=np.cumsum([0, *map(len, sets)], dtype=np.int64),
        consumers=np.concatenate([*sets, np.zeros(0, dtype=np.int64)]),
    )


def _signals(problem: Problem, node_of_op: IntArray, tensors: _Tensors) -> IntArray:
    """Return the control edges between nodes, `[num_signals, 2]`; data in host memory is one too.

    If no link is faster than a signal, an edge between two nodes that also have a tensor is
    redundant and is left out.
    """
    graph = problem.graph
    tail = graph.tensor_producer[graph.consumer_tensor[graph.consumer_on_host]]
    on_host = np.column_stack((tail, graph.consumers[graph.consumer_on_host]))
    edges = node_of_op[np.concatenate((graph.control_edges, on_host))]
    edges = unique_rows(edges[edges[:, 0] != edges[:, 1]])
    if _signals_are_fastest(problem):
        base = (int(node_of_op.max(initial=0)) + 1, 1)
        data = np.repeat(tensors.producer, np.diff(tensors.consumer_offsets))
        edges = edges[~np.isin(edges @ base, np.column_stack((data, tensors.consumers)) @ base)]
    return edges


def _signals_are_fastest(problem: Problem) -> bool:
    machine = problem.machine
    empty = np.maximum(machine.latency_us, machine.min_us)[~np.eye(machine.num_devices, dtype=bool)]
    return bool((empty >= machine.signal_us).all())
