"""The data of a problem that moves read: its units, their neighbours and their families."""

from typing import NamedTuple, Self

import numpy as np

from pesto_cli.data.columns import unique_rows
from pesto_cli.data.graph import Adjacency, BoolArray, FloatArray, IntArray, OpGraph
from pesto_cli.data.problem import Problem
from pesto_cli.refine.families import Families


class Neighbourhood(NamedTuple):
    """The data of a problem that moves read and never change.

    A unit is a colocation group with more than one allowed device. Rows are compressed: those of
    group g are `offsets[g]` to `offsets[g + 1]`.

    group_offsets, group_ops: the ops of each colocation group.
    allowed: the allowed devices of each colocation group, `[num_groups, num_devices]`.
    units: the colocation group of each unit, `[num_units]`.
    near_offsets, near: the neighbours of each colocation group: the groups that have an edge with
        it, apart from those on devices that no unit may use.
    near_tensors, near_bytes: for each entry of `near`, the number and the bytes of the tensors
        between the two, in both directions.
    family_chances: cumulative probabilities of the families, `[num_families]`.
    family_offsets: the groups of each family, `[num_families + 1]`.
    member_offsets, members: the units of each of these groups.
    latency_us, us_per_byte: of transfers, `[num_devices, num_devices]`.
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
        """Return the neighbourhood of a problem and its families."""
        near = _neighbours(problem, families.units)
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


def _neighbours(problem: Problem, units: IntArray) -> Adjacency:
    """Return the neighbours of each colocation group."""
    graph, reachable = problem.graph, problem.group_allowed[units].any(axis=0)
    counts = np.any(problem.group_allowed & reachable, axis=1)
    edges = graph.colocation_group[graph.edges]
    edges = np.concatenate((edges, edges[:, ::-1]))
    edges = unique_rows(edges[(edges[:, 0] != edges[:, 1]) & counts[edges[:, 1]]])
    return Adjacency.from_edges(graph.num_groups, edges[:, 0], edges[:, 1])


def _exchanged(graph: OpGraph, near: Adjacency) -> tuple[FloatArray, FloatArray]:
    """Return the number and the bytes of tensors between the two groups of each entry of `near`."""
    sent = ~graph.consumer_on_host
    tensor, group = graph.consumer_tensor[sent], graph.colocation_group
    rows = (tensor, group[graph.tensor_producer[tensor]], group[graph.consumers[sent]])
    tensor, source, target = unique_rows(np.column_stack(rows)).T
    pairs = np.repeat(np.arange(graph.num_groups), near.degree) * graph.num_groups + near.indices
    tensors, num_bytes = np.zeros(len(pairs)), np.zeros(len(pairs))
    for one, other in ((source, target), (target, source)):
        pair = one * graph.num_groups + other
        known = np.isin(pair, pairs)
        place = np.searchsorted(pairs, pair[known])
        np.add.at(tensors, place, 1.0)
        np.add.at(num_bytes, place, graph.tensor_bytes[tensor[known]])
    return tensors, num_bytes
