"""The ops that every plan of a step needs."""

from dataclasses import replace
from functools import lru_cache

import numpy as np

from pesto_cli.data.columns import BoolArray
from pesto_cli.data.graph import Adjacency, OpGraph
from pesto_cli.data.parts import Parts
from pesto_cli.data.specs import OpSpec
from pesto_cli.sharding.layouts import Replicated
from pesto_cli.sharding.rules import all_alternatives


def needed_in_all_plans(graph: OpGraph, parts: Parts) -> tuple[OpGraph, BoolArray]:
    """Return the graph without edges that plans may lack, and the ops that all plans need.

    The ops are a mask, `[num_ops]`.

    Parts take inputs of known value as constants. So an op whose outputs are only taken in this way
    may be no op of a split step, nor is what it alone needs. A split step does not contain small
    parts of constants either, so nothing waits for an op through these.

    A plan needs all parts of an op that is counted. If only copies are taken, of which each part
    computes one, it may need the first part alone; such an op is not counted.
    """
    if graph.inputs is None:
        return graph, np.ones(graph.num_ops, dtype=np.bool_)
    specs = parts.op_specs
    taken = [
        tensor * graph.num_ops + op
        for op, (spec, row) in enumerate(zip(specs, graph.inputs.rows(), strict=True))
        for slot, tensor in enumerate(row)
        if tensor is not None and (spec is None or spec.inputs[slot].value is None)
    ]
    is_taken = np.zeros(len(graph.consumers), dtype=np.bool_)
    is_taken[np.searchsorted(graph.consumer_tensor * graph.num_ops + graph.consumers, taken)] = True
    is_constant = np.array(graph.types) == "Const"
    without = replace(
        _with_consumers(graph, is_taken),
        control_edges=graph.control_edges[~is_constant[graph.control_edges[:, 1]]],
    )
    controlled = Adjacency.from_edges(graph.num_ops, *without.control_edges.T)
    is_needed = graph.successors.degree == 0
    for op in graph.topological_order[::-1].tolist():
        after = without.successors[op]
        if not is_needed[op] and is_needed[after].any():
            takes_control = bool(is_needed[controlled[op]].any())
            is_needed[op] = takes_control or not _takes_copies_alone(
                without, op, specs[op], is_needed
            )
    return without, is_needed & ~is_constant


def after_all_parts(graph: OpGraph, parts: Parts) -> OpGraph:
    """Return the graph without edges through which an op may wait for one part of another only.

    Each part may compute a copy of some outputs; an op that takes one waits for the copy it takes.
    """
    is_copied = np.zeros(graph.num_tensors, dtype=np.bool_)
    for op, spec in enumerate(parts.op_specs):
        for output in frozenset[int]().union(*(() if spec is None else _copied_outputs(spec))):
            is_copied[graph.tensors_of(op)[output]] = True
    return _with_consumers(graph, ~is_copied[graph.consumer_tensor])


def _with_consumers(graph: OpGraph, is_kept: BoolArray) -> OpGraph:
    """Return the graph with some entries of `consumers`; it lacks `inputs`."""
    return replace(
        graph,
        consumers=graph.consumers[is_kept],
        consumer_on_host=graph.consumer_on_host[is_kept],
        consumer_offsets=np.append(0, np.cumsum(is_kept))[graph.consumer_offsets],
        inputs=None,
    )


def _takes_copies_alone(graph: OpGraph, op: int, spec: OpSpec | None, is_needed: BoolArray) -> bool:
    """Return whether needed ops only take copies of an op's outputs, if it is split in some way."""
    copies = () if spec is None else _copied_outputs(spec)
    if not copies:
        return False
    takers = {
        output: set(graph.consumers_of(tensor)[is_needed[graph.consumers_of(tensor)]].tolist())
        for output, tensor in enumerate(graph.tensors_of(op))
    }
    taken = {output for output, ops in takers.items() if ops}
    return any(taken <= outputs for outputs in copies)


@lru_cache(maxsize=2**14)
def _copied_outputs(spec: OpSpec) -> tuple[frozenset[int], ...]:
    """Return the outputs that each part computes, for each way to split an op that has some."""
    found = (
        frozenset(output for output, each in enumerate(way.outputs) if isinstance(each, Replicated))
        for way in all_alternatives(spec)
        if way.size is not None
    )
    return tuple(outputs for outputs in found if outputs)
