"""Operands: everything that the ops of a split graph can take and give, as columns.

A copy of an op takes and gives what the op does, and a part or an added op what its spec says. So
the rows are those of the ops of the original graph, then those of the specs of an expansion.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from pesto_cli.data.columns import BoolArray, IntArray
from pesto_cli.data.graph import OpGraph, Shape
from pesto_cli.data.inputs import Inputs
from pesto_cli.data.parts import Parts, added_dtype
from pesto_cli.data.specs import OpSpec
from pesto_cli.sharding.expansion import Expansion


@dataclass(frozen=True, eq=False)
class Rows:
    """The rows of the operands of each new op, `first[op] + slot`.

    first: `[num_ops]`. count: `[num_ops]`, the number of rows.
    """

    first: IntArray
    count: IntArray

    @classmethod
    def of(cls, expansion: Expansion, offsets: IntArray, counts: Sequence[int]) -> Self:
        """Return the rows of the kept ops of an expansion.

        offsets: the rows of the ops of the graph. counts: the numbers of rows of the specs.
        """
        spec_of, is_copy = expansion.spec_of, expansion.spec_of < 0
        of_spec = offsets[-1] + np.cumsum([0, *counts])
        count = np.append(np.diff(offsets), 0)[expansion.origin]
        return cls(
            np.where(is_copy, offsets[expansion.origin], of_spec[spec_of]),
            np.where(is_copy, count, np.array([*counts, 0])[spec_of]),
        )


@dataclass(frozen=True, eq=False)
class Outputs:
    """The outputs of the ops of a graph, which are its tensors, then those of specs.

    of: the rows of each new op.
    num_bytes, shape, dtype: see `OpGraph`.
    on_host: whether an output is in host memory.
    """

    of: Rows
    num_bytes: IntArray
    shape: list[Shape | None]
    dtype: list[str | None]
    on_host: BoolArray

    @classmethod
    def build(cls, graph: OpGraph, parts: Parts, expansion: Expansion) -> Self:
        """Build from a graph, what its profile knows of memory, and the specs of an expansion."""
        unknown = (None,) * graph.num_tensors
        outputs = [each for spec in expansion.specs for each in spec.outputs]
        on_host = [
            spec is None or spec.outputs[output].on_host
            for op, spec in enumerate(parts.op_specs)
            for output in range(len(graph.tensors_of(op)))
        ]
        for spec in expansion.specs:
            always = _is_always_on_host(parts, spec)
            on_host += [always or each.on_host for each in spec.outputs]
        return cls(
            Rows.of(expansion, graph.op_tensors, [len(spec.outputs) for spec in expansion.specs]),
            np.array(
                [*graph.tensor_bytes.tolist(), *(each.num_bytes for each in outputs)],
                dtype=np.int64,
            ),
            [
                *(graph.tensor_shape or unknown),
                *(() if each.is_handle else each.shape for each in outputs),
            ],
            [*(graph.tensor_dtype or unknown), *(each.dtype for each in outputs)],
            np.array(on_host, dtype=np.bool_),
        )


@dataclass(frozen=True, eq=False)
class Slots:
    """The inputs of the ops of a graph, then those of specs.

    of: the rows of each new op.
    offsets: the first row of each op of the graph.
    producer: `[num_inputs of the graph]`, the op that computes an input, or -1.
    was_on_host: `[num_inputs of the graph]`, whether an op of the graph took it in host memory.
    on_host: whether the op takes an input in host memory, as its spec says if it has one.
    """

    of: Rows
    offsets: IntArray
    producer: IntArray
    was_on_host: BoolArray
    on_host: BoolArray

    @classmethod
    def build(cls, graph: OpGraph, parts: Parts, expansion: Expansion) -> Self:
        """Build from a graph, what its profile knows of memory, and the specs of an expansion."""
        inputs = graph.inputs or Inputs.build([()] * graph.num_ops)
        producer = np.append(graph.tensor_producer, -1)[inputs.tensors]
        taken = graph.consumer_tensor * graph.num_ops + graph.consumers
        place = np.searchsorted(taken, inputs.tensors * graph.num_ops + inputs.op)
        was_on_host = np.append(graph.consumer_on_host, False)[place] & (producer >= 0)
        on_host = was_on_host.tolist()
        for spec, first in zip(parts.op_specs, inputs.offsets[:-1].tolist(), strict=True):
            if spec is not None and graph.inputs is not None:
                on_host[first : first + len(spec.inputs)] = [each.on_host for each in spec.inputs]
        for spec in expansion.specs:
            always = _is_always_on_host(parts, spec)
            on_host += [always or each.on_host for each in spec.inputs]
        rows = Rows.of(expansion, inputs.offsets, [len(spec.inputs) for spec in expansion.specs])
        return cls(rows, inputs.offsets, producer, was_on_host, np.array(on_host, dtype=np.bool_))


def _is_always_on_host(parts: Parts, spec: OpSpec) -> bool:
    return parts.added_on_host(spec.type, added_dtype(spec))
