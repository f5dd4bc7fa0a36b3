"""The values of small tensors that are the same in every step."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from pesto_cli.data.specs import SMALL_CONSTANT_ELEMENTS, Value
from pesto_cli.graphdef.attributes import attributes_key
from pesto_cli.graphdef.branches import SWITCH
from pesto_cli.graphdef.fetches import SHAPED_TYPES
from pesto_cli.graphdef.frames import ENTER, EXIT
from pesto_cli.graphdef.kernel_calls import Array, computed
from pesto_cli.graphdef.nodes import MERGE, NEXT_ITERATION, Node
from pesto_cli.graphdef.read import StepGraph
from pesto_cli.graphdef.signature import constant_value
from pesto_cli.graphdef.sizes import TensorSize

# Op types whose outputs follow from the static shapes of their inputs.
SHAPES = frozenset({"Shape", "ShapeN", "Size", "Rank"})
# Op types whose outputs have no more elements than their inputs, and no static shapes.
SHORTENING = frozenset({"BroadcastGradientArgs"})
# Op types that have no kernel of their own, or whose output may be fed.
NEVER_COMPUTED = SWITCH | MERGE | ENTER | EXIT | NEXT_ITERATION | frozenset(SHAPED_TYPES)

Known = tuple[Array | None, ...]
"""The values of a node's outputs; None, and all further outputs, are unknown."""


def constant_values(step: StepGraph) -> list[Known]:
    """Return the known values of each node's outputs, `[num_nodes]`.

    A value is known if it has at most SMALL_CONSTANT_ELEMENTS elements and is that of a Const, the
    shape of a static tensor, or computed from known values alone by an op without a state. Values
    inside while loops are unknown: they may differ between iterations.
    """
    return _Folding(step).values()


def plain(value: Array | None) -> Value | None:
    """Return a value as nested tuples of Python numbers; None if it is unknown or has others.

    NaN and -0.0 are others: specs with them could be equal to specs with different values, or
    different from themselves.
    """
    if value is None or not all(map(_is_plain, value.ravel().tolist())):
        return None
    return _nested(value.tolist())


def _is_plain(number: Any) -> bool:
    if isinstance(number, float):
        return not math.isnan(number) and (number != 0 or math.copysign(1, number) > 0)
    return isinstance(number, bool | int)


def _nested(value: Any) -> Value:
    return tuple(map(_nested, value)) if isinstance(value, list) else value


class _Folding:
    """Computes the values node by node; equal nodes with equal inputs only once."""

    def __init__(self, step: StepGraph) -> None:
        self._step, self._nodes, self._op_defs = step, step.wiring.nodes, step.wiring.op_defs
        self._values: list[Known] = [()] * len(self._nodes)
        self._computed: dict[Any, Known] = {}

    def values(self) -> list[Known]:
        for index in self._step.wiring.order:
            if self._step.wiring.frames[index] is None:
                self._values[index] = self._known(index, self._nodes[index])
        return self._values

    def _known(self, index: int, node: Node) -> Known:
        sizes = self._step.sizes[index]
        if node.type in SHAPES:
            return tuple(
                _shape_value(node, source, size.dtype)
                for source, size in zip(self._input_sizes(node), sizes, strict=True)
            )
        if not sizes or not (node.type in SHORTENING or all(map(_is_small, sizes))):
            return ()
        if node.type == "Const":
            return (constant_value(node.proto),)
        inputs = [self._value(*source) for source in node.inputs]
        given = [value for value in inputs if value is not None]
        if not given or len(given) < len(inputs) or not self._is_pure(node):
            return ()
        return self._computed_once(node, given, len(sizes))

    def _input_sizes(self, node: Node) -> list[TensorSize]:
        return [self._step.sizes[source][output] for source, output in node.inputs]

    def _value(self, source: int, output: int) -> Array | None:
        known = self._values[source]
        return known[output] if output < len(known) else None

    def _is_pure(self, node: Node) -> bool:
        op_def = self._op_defs.of(node.proto)
        return (
            node.type not in NEVER_COMPUTED
            and node.type not in self._op_defs.functions
            and not op_def.is_stateful
            and not any("func" in attribute.type for attribute in op_def.attr)
        )

    def _computed_once(self, node: Node, inputs: Sequence[Array], num_outputs: int) -> Known:
        arrays = tuple((value.dtype.name, value.shape, value.tobytes()) for value in inputs)
        key = (node.type, attributes_key(node.proto), arrays)
        if key not in self._computed:
            self._computed[key] = computed(node.proto, self._op_defs, inputs, num_outputs)
        return self._computed[key]


def _is_small(size: TensorSize) -> bool:
    return not size.is_handle and size.is_exact and size.known_elements <= SMALL_CONSTANT_ELEMENTS


def _shape_value(node: Node, size: TensorSize, dtype: str | None) -> Array | None:
    if size.shape is None:
        return None
    if node.type == "Rank":
        return np.array(len(size.shape), np.int32)
    if None in size.shape:
        return None
    found = size.known_elements if node.type == "Size" else size.shape
    return np.array(found, dtype)
