"""OpGraph: the ops of one training step, their tensors, control edges and colocation groups."""

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import Self

import numpy as np
from numpy.typing import ArrayLike

from pesto_cli.data.adjacency import Adjacency, topological_order
from pesto_cli.data.columns import (
    BoolArray,
    FloatArray,
    IntArray,
    check_indices,
    check_length,
    first_repeated,
    unique_rows,
    whole_numbers,
)
from pesto_cli.data.graph_columns import consumer_columns, dense_groups, known, op_column
from pesto_cli.data.inputs import Inputs
from pesto_cli.data.labels import Labels
from pesto_cli.errors import BadInputError

__all__ = [
    "Adjacency",
    "BoolArray",
    "FloatArray",
    "IntArray",
    "OpGraph",
    "Shape",
    "Tensor",
    "topological_order",
]

Shape = tuple[int | None, ...]
"""Sizes of the dimensions; None is an open dimension."""


@dataclass(frozen=True)
class Tensor:
    """One output of an op, as an argument of `OpGraph.build`.

    producer: op index. num_bytes: size of the data. consumers: op indices.
    consumer_on_host: for each consumer, whether its data is in host memory at both endpoints. It
        then crosses devices as a signal and occupies no link. Empty: all False.
    shape, dtype: `(2, None)` and `float32`; None if unknown.
    """

    producer: int
    num_bytes: int
    consumers: Sequence[int] = ()
    consumer_on_host: Sequence[bool] = ()
    shape: Shape | None = None
    dtype: str | None = None


@dataclass(frozen=True, eq=False)
class OpGraph:
    """A directed acyclic graph of ops, as columns.

    Ops, `[num_ops]`:
        names: unique.
        types: op types (`MatMul`).
        colocation_group: ops with the same number share a device; numbered densely from 0.
        resident_bytes: bytes that the op holds throughout the step (variables, slots).
        alias_of: index of the op whose memory holds this op's outputs, or -1. The op's own index
            means that its outputs are in its resident bytes.
        num_members: how many ops of the full graph this op stands for.
        labels: the role of each op and its place in the model; see `Labels`.
        inputs: the input tensors of each op, by slot; None if the slots are unknown.

    Tensors, `[num_tensors]`, ordered by producer:
        tensor_producer: op index.
        tensor_bytes: size of the data.
        consumer_offsets: `[num_tensors + 1]`, row offsets of `consumers` and `consumer_on_host`.
        consumers: op indices, ascending and unique within a tensor.
        consumer_on_host: see `Tensor`.
        tensor_shape, tensor_dtype: see `Tensor`; empty if all are unknown.

    control_edges: `[num_control_edges, 2]`, op indices (before, after).
    """

    names: tuple[str, ...]
    types: tuple[str, ...]
    colocation_group: IntArray
    resident_bytes: IntArray
    alias_of: IntArray
    num_members: IntArray
    tensor_producer: IntArray
    tensor_bytes: IntArray
    consumer_offsets: IntArray
    consumers: IntArray
    consumer_on_host: BoolArray
    control_edges: IntArray
    labels: Labels
    inputs: Inputs | None = None
    tensor_shape: tuple[Shape | None, ...] = ()
    tensor_dtype: tuple[str | None, ...] = ()
    topological_order: IntArray = field(init=False)

    def __post_init__(self) -> None:
        """Check names, lengths, indices, sizes and that the graph has no cycle.

        Raises:
            BadInputError: an op or a tensor breaks a rule.
        """
        self._check_names()
        self._check_ranges()
        self._check_tensors()
        object.__setattr__(self, "topological_order", self._sorted_topologically())

    @classmethod
    def build(
        cls,
        names: Sequence[str],
        tensors: Sequence[Tensor] = (),
        *,
        types: Sequence[str] | None = None,
        control_edges: ArrayLike = (),
        colocation_group: Sequence[int | str | None] | None = None,
        resident_bytes: ArrayLike | None = None,
        alias_of: ArrayLike | None = None,
        num_members: ArrayLike | None = None,
        labels: Labels | None = None,
        inputs: Inputs | None = None,
    ) -> Self:
        """Build from rows; sort the tensors and their consumers, and drop repeated consumers.

        A consumer that takes a tensor both on the host and on its own device counts as one that
        takes the tensor on its device. `colocation_group[i]` may be None: then op i is a group of
        one. `inputs` refers to tensors by their position in `tensors`. Without `labels`, all ops
        have the role compute and the phase forward.

        Raises:
            BadInputError: a number does not fit into 64 bits, or breaks a rule of the graph.
        """
        num_ops = len(names)
        order = sorted(range(len(tensors)), key=lambda row: tensors[row].producer)
        ordered = [tensors[row] for row in order]
        offsets, consumers, on_host = _consumers(ordered)
        edges = whole_numbers("control_edges", control_edges).reshape(-1, 2)
        return cls(
            names=tuple(names),
            types=tuple(types) if types is not None else ("",) * num_ops,
            colocation_group=dense_groups(colocation_group, num_ops),
            resident_bytes=op_column("resident_bytes", resident_bytes, num_ops, 0),
            alias_of=op_column("alias_of", alias_of, num_ops, -1),
            num_members=op_column("num_members", num_members, num_ops, 1),
            tensor_producer=whole_numbers("tensors.producer", [t.producer for t in ordered]),
            tensor_bytes=whole_numbers("tensors.bytes", [t.num_bytes for t in ordered]),
            consumer_offsets=offsets,
            consumers=consumers,
            consumer_on_host=on_host,
            control_edges=unique_rows(edges),
            labels=labels or Labels.build(names),
            inputs=inputs and inputs.renumbered(np.argsort(order)),
            tensor_shape=known(tensor.shape for tensor in ordered),
            tensor_dtype=known(tensor.dtype for tensor in ordered),
        )

    def __repr__(self) -> str:
        return (
            f"<OpGraph: {self.num_ops:,} ops, {self.num_tensors:,} tensors, "
            f"{len(self.control_edges):,} control edges>"
        )

    @property
    def num_ops(self) -> int:
        """Number of ops."""
        return len(self.names)

    @property
    def num_tensors(self) -> int:
        """Number of tensors."""
        return len(self.tensor_producer)

    @cached_property
    def num_groups(self) -> int:
        """Number of colocation groups, groups of one op included."""
        return int(self.colocation_group.max(initial=-1)) + 1

    @cached_property
    def groups(self) -> Adjacency:
        """The ops of every colocation group; one row for each group."""
        return Adjacency.from_edges(
            self.num_groups, self.colocation_group, np.arange(self.num_ops, dtype=np.int64)
        )

    @cached_property
    def index_of(self) -> dict[str, int]:
        """Op index by name."""
        return {name: index for index, name in enumerate(self.names)}

    @cached_property
    def consumer_tensor(self) -> IntArray:
        """Tensor of every entry of `consumers`."""
        return np.repeat(
            np.arange(self.num_tensors, dtype=np.int64), np.diff(self.consumer_offsets)
        )

    @cached_property
    def edges(self) -> IntArray:
        """Unique precedence edges (before, after) of data and control, `[num_edges, 2]`."""
        data = np.column_stack((self.tensor_producer[self.consumer_tensor], self.consumers))
        edges = np.concatenate((data, self.control_edges))
        return unique_rows(edges)

    @cached_property
    def successors(self) -> Adjacency:
        """Direct successors by op."""
        return Adjacency.from_edges(self.num_ops, self.edges[:, 0], self.edges[:, 1])

    @cached_property
    def predecessors(self) -> Adjacency:
        """Direct predecessors by op."""
        return Adjacency.from_edges(self.num_ops, self.edges[:, 1], self.edges[:, 0])

    @cached_property
    def heights(self) -> IntArray:
        """`[num_ops]`: number of ops on the longest path from a root to the op, itself included."""
        order = self.topological_order
        place = np.argsort(order)
        # The order is that of a FIFO queue, so the last of an op's predecessors is the highest.
        last = np.full(self.num_ops, -1)
        np.maximum.at(last, self.edges[:, 1], place[self.edges[:, 0]])
        height = [0] * (self.num_ops + 1)
        for here, before in enumerate(last[order].tolist()):
            height[here] = height[before] + 1  # the entry at -1 stays 0
        return np.array(height, dtype=np.int64)[place]

    @cached_property
    def op_tensors(self) -> IntArray:
        """`[num_ops + 1]`: the tensors of op i are `range(op_tensors[i], op_tensors[i + 1])`."""
        return np.searchsorted(self.tensor_producer, np.arange(self.num_ops + 1))

    @cached_property
    def _first_tensor(self) -> list[int]:
        first: list[int] = self.op_tensors.tolist()
        return first

    @cached_property
    def alias_source(self) -> IntArray:
        """`[num_tensors]`: the tensor whose memory this one shares, or -1.

        The outputs of an op with `alias_of` j share the memory of the first tensor of op j that the
        op consumes.
        """
        source_of_op = np.full(self.num_ops, -1, dtype=np.int64)
        aliased = self.alias_of[self.consumers] == self.tensor_producer[self.consumer_tensor]
        # In reverse order, so that the first tensor is written last.
        source_of_op[self.consumers[aliased][::-1]] = self.consumer_tensor[aliased][::-1]
        return source_of_op[self.tensor_producer]

    @cached_property
    def held_bytes(self) -> IntArray:
        """`[num_tensors]`: memory of a tensor on its producer's device, without resident bytes.

        It is 0 if the tensor is stored in the resident bytes of its producer.
        """
        resident = self.alias_of[self.tensor_producer] == self.tensor_producer
        return np.where(resident, 0, self.tensor_bytes)

    def labelled(self, labels: Labels) -> Self:
        """Return the same graph with other labels.

        Raises:
            BadInputError: a column of the labels has another length than `num_ops`.
        """
        labels.check(self.num_ops)
        # A shallow copy keeps the cached properties and skips the checks.
        other = copy(self)
        object.__setattr__(other, "labels", labels)
        return other

    def tensors_of(self, op: int) -> range:
        """Return the tensors that an op produces, by output number."""
        return range(self._first_tensor[op], self._first_tensor[op + 1])

    def consumers_of(self, tensor: int) -> IntArray:
        """Return the ops that consume a tensor, ascending."""
        return self.consumers[self.consumer_offsets[tensor] : self.consumer_offsets[tensor + 1]]

    def _check_names(self) -> None:
        name = first_repeated(self.names)
        if name is not None:
            raise BadInputError(
                f"op {name!r} appears twice; op names must be unique: rename one of them."
            )

    def _check_ranges(self) -> None:
        num_ops, num_tensors = self.num_ops, self.num_tensors
        for column in ("types", "colocation_group", "resident_bytes", "alias_of", "num_members"):
            check_length(f"ops.{column}", len(getattr(self, column)), num_ops)
        check_length("tensors.bytes", len(self.tensor_bytes), num_tensors)
        check_length("tensors.consumers", len(self.consumer_offsets) - 1, num_tensors)
        check_length("tensors.consumer_on_host", len(self.consumer_on_host), len(self.consumers))
        self.labels.check(num_ops)
        check_indices("tensors.producer", self.tensor_producer, 0, num_ops)
        check_indices("tensors.consumers", self.consumers, 0, num_ops)
        check_indices("control_edges", self.control_edges.ravel(), 0, num_ops)
        check_indices("ops.alias_of", self.alias_of, -1, num_ops)
        for column, owners in (("resident_bytes", None), ("tensor_bytes", self.tensor_producer)):
            values = getattr(self, column)
            if (values < 0).any():
                row = int(np.argmax(values < 0))
                name = self.names[row if owners is None else owners[row]]
                raise BadInputError(
                    f"op {name!r} has {column} {values[row]}; a size of 0 or more was expected."
                )

    def _check_tensors(self) -> None:
        for column in ("shape", "dtype"):
            values = getattr(self, f"tensor_{column}")
            check_length(f"tensors.{column}", len(values) or self.num_tensors, self.num_tensors)
        for shape in set(self.tensor_shape):
            if shape is not None and any(size is not None and size < 0 for size in shape):
                producer = self.names[self.tensor_producer[self.tensor_shape.index(shape)]]
                raise BadInputError(
                    f"an output of op {producer!r} has shape {list(shape)}; sizes of 0 or more, "
                    "or null for an open dimension, were expected."
                )
        if self.inputs is not None:
            self.inputs.check(self.names, self.consumers, self.consumer_tensor, self.num_tensors)

    def _sorted_topologically(self) -> IntArray:
        order = topological_order(self.successors)
        if len(order) < self.num_ops:
            raise BadInputError(
                f"the graph has a cycle: {self._a_cycle()}; a training step must be acyclic "
                "(while loops are contracted to one op when a graph is read)."
            )
        return np.array(order, dtype=np.int64)

    def _a_cycle(self) -> str:
        import networkx as nx

        cycle = nx.find_cycle(nx.DiGraph(self.edges.tolist()))
        names = [self.names[tail] for tail, _ in cycle]
        if len(names) > 8:
            names = [*names[:4], f"... {len(names) - 8} more ...", *names[-4:]]
        return " -> ".join([*names, names[0]])


def _consumers(tensors: Sequence[Tensor]) -> tuple[IntArray, IntArray, BoolArray]:
    """Return the columns `consumer_offsets`, `consumers` and `consumer_on_host`."""
    if any(len(each.consumer_on_host) not in (0, len(each.consumers)) for each in tensors):
        raise ValueError("consumer_on_host must have one entry for each consumer")
    flags = [each.consumer_on_host or (False,) * len(each.consumers) for each in tensors]
    num_consumers = [len(each.consumers) for each in tensors]
    return consumer_columns(
        np.repeat(np.arange(len(tensors), dtype=np.int64), num_consumers),
        whole_numbers("tensors.consumers", [*chain(*(each.consumers for each in tensors))]),
        np.array([*chain(*flags)], dtype=np.bool_),
        len(tensors),
    )
