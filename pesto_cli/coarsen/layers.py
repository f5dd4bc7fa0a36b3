"""The layers of a model and their branches, read from the scopes of its ops (see `Labels`).

A layer is one of several numbered sibling scopes (`layer_0`, `layer_1`; `conv2d`, `conv2d_1`), or a
scope with most of its work outside of numbered siblings (`embedding`, `softmax`). These are not
layers: scopes of repetitions, siblings that share a variable, and scopes without an op that leads
to a gradient (those of variables and optimisers). Gradients and updates have the scope of the op or
variable that they belong to. An op outside of all layers belongs to the layer of its variable, or
to the layer of its largest input, such as the sum of two gradients. A graph without scopes is
divided by height. The branches of a layer are the scopes within it.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass

import numpy as np

from pesto_cli.bounds.canonical import rounded
from pesto_cli.bounds.chains import longest_before
from pesto_cli.data.adjacency import reached
from pesto_cli.data.graph import Adjacency, BoolArray, FloatArray, IntArray, OpGraph
from pesto_cli.data.labels import Path, Phase

MAX_SLICES = 200

_NUMBERED = re.compile(r"^(?P<stem>.*?)_?(?P<number>\d+)$")


@dataclass(frozen=True, eq=False)
class Layers:
    """The layers of a model, and the layer and branch of each colocation group.

    names: the scopes of the layers, ordered by the greatest height of a forward op.
    of_group: the layer of each group, `[num_groups]`.
    branch_of_group: the number of each group's branch, `[num_groups]`.
    longest_chain: share of each layer's forward work that is on its longest path, `[num_layers]`.
    """

    names: list[str]
    of_group: IntArray
    branch_of_group: IntArray
    longest_chain: FloatArray


def layers_of_groups(graph: OpGraph, work_us: FloatArray) -> Layers:
    """Find the layer and the branch of each colocation group.

    Args:
        graph: the op graph.
        work_us: time of each op, `[num_ops]`.
    """
    paths = graph.labels.layer_paths(graph.names)
    own_scope = graph.labels.has_own_scope()
    forward = own_scope & ~behind_gradients(graph)
    height = graph.heights
    scopes = _layer_scopes(
        paths, forward & _computes(graph), work_us, _time_steps(graph, paths, forward)
    )
    scopes = _forward_scopes(scopes, paths, own_scope, forward)
    if len(scopes) < 2:
        tallest = int(height.max(initial=0))
        slices = height * min(MAX_SLICES, tallest) // (tallest + 1)
        names = [f"slice {index}" for index in range(int(slices.max(initial=0)) + 1)]
        of_group = _by_group(graph, slices, work_us)
        return Layers(names, of_group, of_group, np.ones(len(names)))
    number = {scope: index for index, scope in enumerate(scopes)}
    longest = max(map(len, number))
    found = [_innermost(path, number, longest) for path in paths]
    layer = np.array([index for index, _ in found], dtype=np.int64)
    top = np.zeros(len(scopes), dtype=np.int64)
    own = forward & (layer >= 0)
    np.maximum.at(top, layer[own], height[own])
    order = np.argsort(top, kind="stable")
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    layer = _spread(graph, np.where(layer >= 0, place[layer], -1))
    branch = _spread(graph, _branches(found))
    return Layers(
        ["/".join(scopes[index]) for index in order],
        _by_group(graph, layer, work_us),
        _by_group(graph, branch, work_us),
        _longest_chains(graph, layer, np.where(own, work_us, 0.0)),
    )


def _longest_chains(graph: OpGraph, layer: IntArray, work_us: FloatArray) -> FloatArray:
    """Return the longest path within each layer as a share of the layer's work, `[num_layers]`."""
    tail, head = graph.edges[layer[graph.edges[:, 0]] == layer[graph.edges[:, 1]]].T
    before = Adjacency.from_edges(graph.num_ops, head, tail)
    head_us = work_us + longest_before(
        graph.topological_order, before.offsets, before.indices, work_us
    )
    longest_us = np.zeros(int(layer.max()) + 1)
    np.maximum.at(longest_us, layer, head_us)
    total_us = np.bincount(layer, work_us)
    return np.divide(longest_us, total_us, out=np.ones_like(total_us), where=total_us > 0)


def _branches(found: Sequence[tuple[int, Path]]) -> IntArray:
    """Number the outermost scopes within layers, from the results of `_innermost`; -1 elsewhere."""
    keys = [(layer, rest[0]) if len(rest) > 1 else None for layer, rest in found]
    number = {key: place for place, key in enumerate(sorted({key for key in keys if key}))}
    return np.array([-1 if key is None else number[key] for key in keys], dtype=np.int64)


def behind_gradients(graph: OpGraph) -> BoolArray:
    """Return whether each op is a gradient or comes after one, `[num_ops]`."""
    gradients = np.flatnonzero(graph.labels.phase == Phase.BACKWARD)
    return reached(graph.successors, gradients.tolist())


def _layer_scopes(
    paths: Sequence[Path], computes: BoolArray, work_us: FloatArray, steps: Set[Path]
) -> list[Path]:
    work: defaultdict[Path, float] = defaultdict(float)
    children: defaultdict[Path, dict[str, None]] = defaultdict(dict)
    for op in np.flatnonzero(computes).tolist():
        scopes = paths[op][:-1]
        for depth in range(len(scopes) + 1):
            work[scopes[:depth]] += float(work_us[op])
            if depth:
                children[scopes[: depth - 1]][scopes[depth - 1]] = None
    too_much = work[()] / 2

    def opened(scope: Path) -> tuple[list[Path], float]:
        """Return the layers within a scope, and the work of those that are numbered siblings.

        If most of the scope's work is outside of numbered siblings, the scope itself is one layer,
        unless it has more than half of all work.
        """
        numbered = _numbered(children[scope]) - {path[-1] for path in steps if path[:-1] == scope}
        layers: list[Path] = []
        in_numbered = 0.0
        for child in children[scope]:
            path = (*scope, child)
            within, inside = [path], 0.0
            if child not in numbered or work[path] > too_much:
                within, inside = opened(path)
            if child in numbered and within == [path]:
                inside = work[path]
            layers += within
            in_numbered += inside
        if in_numbered > work[scope] / 2 or work[scope] > too_much:
            return layers or [scope], in_numbered
        return [scope], 0.0

    return opened(())[0]


def _forward_scopes(
    scopes: Sequence[Path], paths: Sequence[Path], own_scope: BoolArray, forward: BoolArray
) -> list[Path]:
    """Return the scopes with most ops before the gradients, which excludes optimisers."""
    majority = dict.fromkeys(scopes, 0)
    for op in np.flatnonzero(own_scope).tolist():
        for depth in range(len(paths[op]) + 1):
            if paths[op][:depth] in majority:
                majority[paths[op][:depth]] += 1 if forward[op] else -1
    return sorted(scope for scope in scopes if majority[scope] > 0)


def _time_steps(graph: OpGraph, paths: Sequence[Path], forward: BoolArray) -> set[Path]:
    """Return the scopes that use the same variable as a numbered sibling: time steps of a layer.

    An unrolled recurrent layer has such scopes: `gru/gru_cell_1`, `gru/gru_cell_3`.
    """
    found: set[Path] = set()
    for variable in np.flatnonzero(graph.resident_bytes).tolist():
        by_parent: defaultdict[Path, set[str]] = defaultdict(set)
        for op in _takers(graph, variable):
            scopes = paths[op][:-1] if forward[op] else ()
            for depth in range(len(scopes)):
                by_parent[scopes[:depth]].add(scopes[depth])
        for parent, names in by_parent.items():
            found.update((*parent, name) for name in _numbered(names))
    return found


def _takers(graph: OpGraph, variable: int) -> set[int]:
    """Return the ops that consume a variable's value, directly or through aliases such as reads."""
    takers: set[int] = set()
    waiting = [variable]
    while waiting:
        for op in graph.successors[waiting.pop()].tolist():
            if op not in takers:
                takers.add(op)
                if graph.alias_of[op] >= 0:
                    waiting.append(op)
    return takers


def _computes(graph: OpGraph) -> BoolArray:
    """Return whether each op is not a variable and leads to a gradient, `[num_ops]`.

    If the graph has no gradients, only variables are excluded. Variables may be in scopes of their
    own (`conv/kernel` for ops in `model/conv_1`), and scopes of optimisers have reads without
    predecessors.
    """
    gradients = np.flatnonzero(graph.labels.phase == Phase.BACKWARD).tolist()
    computes: BoolArray = graph.resident_bytes == 0
    if gradients:
        computes &= reached(graph.predecessors, gradients)
    return computes


def _numbered(names: Iterable[str]) -> set[str]:
    """Return the names that differ from another name only in a number at their end."""
    family: defaultdict[str, set[str]] = defaultdict(set)
    for name in names:
        match = _NUMBERED.match(name)
        family[match["stem"] if match else name].add(name)
    return {name for members in family.values() if len(members) > 1 for name in members}


def _innermost(path: Path, number: dict[Path, int], longest: int) -> tuple[int, Path]:
    """Return the layer with the longest scope that a path contains, or -1, and the path's rest.

    longest: number of parts of the longest scope.
    """
    for length in range(min(longest, len(path)), 0, -1):
        for start in range(len(path) - length + 1):
            found = number.get(path[start : start + length])
            if found is not None:
                return found, path[start + length :]
    return -1, ()


def _spread(graph: OpGraph, layer: IntArray) -> IntArray:
    """Give ops without a layer the layer of their group, their largest input, or a consumer.

    An update of a slot variable consumes the gradient. So all users of the slot get the layer of
    the gradient.
    """
    if (layer >= 0).all() or (layer < 0).all():  # there is nothing to spread
        return np.maximum(layer, 0)
    # Single elements are read several times faster from lists.
    found, group, order = (
        column.tolist() for column in (layer, graph.colocation_group, graph.topological_order)
    )
    of_group = [-1] * graph.num_groups
    producer, num_bytes = graph.tensor_producer.tolist(), graph.tensor_bytes.tolist()
    inputs: list[list[tuple[int, int]]] = [[] for _ in order]  # -bytes, producer
    for tensor, consumer in zip(
        graph.consumer_tensor.tolist(), graph.consumers.tolist(), strict=True
    ):
        inputs[consumer].append((-num_bytes[tensor], producer[tensor]))
    for op in order:
        if found[op] < 0:
            found[op] = of_group[group[op]]
        if found[op] < 0:
            known = [(size, found[row]) for size, row in inputs[op] if found[row] >= 0]
            found[op] = min(known)[1] if known else -1
        of_group[group[op]] = max(of_group[group[op]], found[op])
    for op in reversed(order):
        if found[op] < 0:
            found[op] = of_group[group[op]]
        if found[op] < 0:
            found[op] = max((found[head] for head in graph.successors[op].tolist()), default=-1)
    return np.maximum(np.array(found, dtype=np.int64), 0)


def _by_group(graph: OpGraph, layer: IntArray, work_us: FloatArray) -> IntArray:
    """Return the layer of each group, `[num_groups]`.

    It is the layer of the op with the largest variables; of equal ones, of the longest op; of
    equally long ones, the layer with the highest number.
    """
    weight = np.lexsort((layer, rounded(work_us), graph.resident_bytes))
    group_layer = np.zeros(graph.num_groups, dtype=np.int64)
    group_layer[graph.colocation_group[weight]] = layer[weight]  # the last assignment wins
    return group_layer
