"""Buckets: groups of gradients of mirrored variables. A bucket is added as one tensor.

A message takes at least the latency of its link, however small it is. Each copy of a variable needs
the sum of the gradients of all parts, and a model has hundreds of variables. So the parts of
several gradients are joined, added together, and cut again on each device. Horovod calls this
tensor fusion (Sergeev and Del Balso, 2018), PyTorch gradient bucketing (Li et al., VLDB '20).
`bucket_sums` has the ops.

A bucket waits for all of its gradients. So no gradient may depend on an op that takes the sum of
another one, as the statistics of batch normalisation do: such sums are in no bucket.
"""

from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from pesto_cli.data.adjacency import reached
from pesto_cli.data.columns import BoolArray
from pesto_cli.data.graph import OpGraph
from pesto_cli.sharding.decisions import Decision
from pesto_cli.sharding.layouts import Partial, Reduction, Whole

Bucket = tuple[int, ...]
"""Tensors of the original graph."""

LARGE_BYTES = 2**20
"""A tensor of this size is added by shares if each part takes the whole sum."""


def buckets(graph: OpGraph, decided: Mapping[int, Decision], most_bytes: int) -> list[Bucket]:
    """Return the buckets, each with tensors of one data type and number of parts.

    They are in the order in which their gradients are computed. A bucket has several tensors, or
    one that is large, because its ops use the links of all devices.

    Args:
        graph: the original graph.
        decided: the decision for each op that is split.
        most_bytes: the largest size of a bucket; 0: no buckets.
    """
    if not most_bytes or graph.inputs is None:
        return []
    sums = dict(_sums(graph, decided))
    needed = reached(graph.predecessors, graph.tensor_producer[list(sums)].tolist())
    position = np.argsort(graph.topological_order)
    open_ones: dict[tuple[str, int], list[int]] = {}
    sizes: dict[tuple[str, int], int] = {}
    found = list[list[int]]()
    for tensor in sorted(sums, key=lambda each: position[graph.tensor_producer[each]]):
        if needed[graph.consumers_of(tensor)].any():
            continue
        kind = graph.tensor_dtype[tensor] or "", sums[tensor]
        size = int(graph.tensor_bytes[tensor])
        if kind not in sizes or sizes[kind] + size > most_bytes:
            open_ones[kind], sizes[kind] = [], 0
            found.append(open_ones[kind])
        open_ones[kind].append(tensor)
        sizes[kind] += size
    return [
        tuple(each) for each in found if len(each) > 1 or graph.tensor_bytes[each[0]] >= LARGE_BYTES
    ]


def ops_after(graph: OpGraph, tensors: Iterable[int]) -> BoolArray:
    """Return whether each op takes one of some tensors, or depends on an op that does."""
    takers = [op for tensor in tensors for op in graph.consumers_of(tensor).tolist()]
    return reached(graph.successors, takers)


def _sums(graph: OpGraph, decided: Mapping[int, Decision]) -> Iterator[tuple[int, int]]:
    """Yield each tensor that parts compute as summands and mirrored ops take, with their number."""
    assert graph.inputs is not None
    summands: dict[int, int] = {}
    for op, decision in decided.items():
        tensors = graph.tensors_of(op)
        for tensor, layout in zip(tensors, decision.alternative.outputs, strict=True):
            shape = graph.tensor_shape[tensor]
            is_static = shape is not None and None not in shape and 0 not in shape
            if layout == Partial(Reduction.SUM) and is_static:
                summands[tensor] = len(decision.sizes)
    rows = list(graph.inputs.rows())
    for op, decision in decided.items():
        for taken, layout in zip(rows[op], decision.alternative.inputs, strict=False):
            number = 0 if taken is None else summands.get(taken, 0)
            if taken is not None and isinstance(layout, Whole) and number == len(decision.sizes):
                yield taken, number
