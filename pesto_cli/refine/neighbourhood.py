"""What moves know of a problem: its units, their neighbours, and the families they belong to."""

from typing import NamedTuple, Self

import numpy as np

from pesto_cli.data.graph import Adjacency, BoolArray, FloatArray, IntArray, OpGraph
from pesto_cli.data.problem import Problem
from pesto_cli.refine.families import Families


class Neighbourhood(NamedTuple):
    """Read by moves, never changed.

    A unit is a colocation group that has more than one device to go to. Rows are compressed: those
    of group g are `offsets[g]` to `offsets[g + 1]`.

    group_offsets, group_ops: the ops of every colocation group.
    allowed: `[num_groups, num_devices]`, where each may go.
    units: `[num_units]`, their colocation groups.
    near_offsets, near: for every colocation group, the units that an edge joins it to.
    near_tensors, near_bytes: for every such unit, how many tensors either of the two takes of the
        other, and their bytes.
    family_chances: `[num_families]`, the chance of drawing one of the families up to here.
    family_offsets: `[num_families + 1]`, the groups of every family.
    member_offsets, members: the units of every such group.
    latency_us, us_per_byte: `[num_devices, num_devices]`, of transfers.
    """

    group_offsets: IntArray
    group_ops: IntArray
    allowed: BoolArray
    units: IntArray
    near_offsets: IntArray
    near: IntArray
    near_tensors: FloatArray
    near_bytes: FloatArray
    family_chances: FloatArray
    family_offsets: IntArray
    member_offsets: IntArray
    members: IntArray
    latency_us: FloatArray
    us_per_byte: FloatArray

    @classmethod
    def of(cls, problem: Problem, families: Families) -> Self:
        """Of a problem, whose groups that move together are given."""
        near = _neighbours(problem.graph, families.units)
        tensors, num_bytes = _exchanged(problem.graph, near)
        return cls(
            group_offsets=problem.graph.groups.offsets,
            group_ops=problem.graph.groups.indices,
            allowed=problem.group_allowed,
            units=families.units,
            near_offsets=near.offsets,
            near=near.indices,
            near_tensors=tensors,
            near_bytes=num_bytes,
            family_chances=families.cumulative,
            family_offsets=families.family_offsets,
            member_offsets=families.group_offsets,
            members=families.members,
            latency_us=problem.machine.latency_us,
            us_per_byte=problem.machine.us_per_byte,
        )


def _neighbours(graph: OpGraph, units: IntArray) -> Adjacency:
    """For every colocation group, the units that an edge joins it to."""
    movable = np.zeros(graph.num_groups, dtype=np.bool_)
    movable[units] = True
    edges = graph.colocation_group[graph.edges]
    edges = np.concatenate((edges, edges[:, ::-1]))
    edges = np.unique(edges[(edges[:, 0] != edges[:, 1]) & movable[edges[:, 1]]], axis=0)
    return Adjacency.from_edges(graph.num_groups, edges[:, 0], edges[:, 1])


def _exchanged(graph: OpGraph, near: Adjacency) -> tuple[FloatArray, FloatArray]:
    """For every row of the neighbours, how many tensors either takes of the other; their bytes."""
    sent = ~graph.consumer_on_host
    tensor, group = graph.consumer_tensor[sent], graph.colocation_group
    rows = (tensor, group[graph.tensor_producer[tensor]], group[graph.consumers[sent]])
    tensor, source, target = np.unique(np.column_stack(rows), axis=0).T
    pairs = np.repeat(np.arange(graph.num_groups), near.degree) * graph.num_groups + near.indices
    tensors, num_bytes = np.zeros(len(pairs)), np.zeros(len(pairs))
    for one, other in ((source, target), (target, source)):
        pair = one * graph.num_groups + other
        known = np.isin(pair, pairs)
        place = np.searchsorted(pairs, pair[known])
        np.add.at(tensors, place, 1.0)
        np.add.at(num_bytes, place, graph.tensor_bytes[tensor[known]])
    return tensors, num_bytes
