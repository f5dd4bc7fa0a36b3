"""OpGraph: the ops of one training step, what they exchange, and what must move together."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pesto_cli.errors import BadInputError

BoolArray = NDArray[np.bool_]
FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

FEED_TYPES = frozenset({"Placeholder", "PlaceholderV2", "_Arg"})
FETCH_TYPES = frozenset({"_Retval"})


@dataclass(frozen=True)
class Tensor:
    """One output of an op, as `OpGraph.build` takes it.

    `consumers` are op indices; `consumer_on_host[k]` says that the data which consumer k takes lies
    in host memory at both ends, so that it crosses devices as a signal and occupies no link.
    """

    producer: int
    num_bytes: int
    consumers: Sequence[int] = ()
    consumer_on_host: Sequence[bool] = ()


@dataclass(frozen=True)
class Adjacency:
    """Neighbours of every op in compressed rows: `indices[offsets[i]:offsets[i + 1]]`."""

    offsets: IntArray
    indices: IntArray

    def __getitem__(self, op: int) -> IntArray:
        """The neighbours of one op, ascending."""
        return self.indices[self.offsets[op] : self.offsets[op + 1]]

    @cached_property
    def degree(self) -> IntArray:
        """Number of neighbours, `[num_ops]`."""
        return np.diff(self.offsets)

    @classmethod
    def from_edges(cls, num_ops: int, tails: IntArray, heads: IntArray) -> Self:
        """Rows of heads by tail, from unique edges."""
        order = np.lexsort((heads, tails))
        offsets = np.zeros(num_ops + 1, dtype=np.int64)
        np.cumsum(np.bincount(tails, minlength=num_ops), out=offsets[1:])
        return cls(offsets, heads[order])


@dataclass(frozen=True, eq=False)
class OpGraph:
    """A directed acyclic graph of ops, as columns.

    Ops, `[num_ops]`:
        names: unique.
        types: op types (`MatMul`). Placeholders are feeds, `_Retval` ops are returns of a fetch.
        colocation_group: ops with the same number share a device; numbered densely from 0.
        resident_bytes: what the op keeps in memory throughout the step (variables, slots).
        alias_of: the op in whose memory the outputs live, itself if that is resident, or -1.
        num_members: how many ops of the full graph this op stands for.

    Tensors, `[num_tensors]`, ordered by producer:
        tensor_producer: op index.
        tensor_bytes: size of the data.
        consumer_offsets: `[num_tensors + 1]`, rows of `consumers` and `consumer_on_host`.
        consumers: op indices, ascending and unique within a tensor.
        consumer_on_host: see `Tensor`.

    control_edges: `[num_control_edges, 2]`, (before, after).
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
    topological_order: IntArray = field(init=False)

    def __post_init__(self) -> None:
        """Check everything that later code relies on.

        Raises:
            BadInputError: naming the op or tensor that breaks a rule.
        """
        self._check_names()
        self._check_ranges()
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
    ) -> Self:
        """Build from rows; tensors and their consumers are put in order, repeats dropped.

        A consumer that takes a tensor both on the host and on its device counts as taking the data.
        `colocation_group[i]` may be None: the op moves alone.

        Raises:
            BadInputError: a number does not fit into 64 bits, or breaks a rule of the graph.
        """
        num_ops = len(names)
        ordered = sorted(tensors, key=lambda tensor: tensor.producer)
        offsets: list[int] = [0]
        consumers: list[int] = []
        on_host: list[bool] = []
        for tensor in ordered:
            host = dict.fromkeys(tensor.consumers, True)
            flags = tensor.consumer_on_host or [False] * len(tensor.consumers)
            for consumer, flag in zip(tensor.consumers, flags, strict=True):
                host[consumer] = host[consumer] and bool(flag)
            consumers.extend(sorted(host))
            on_host.extend(host[consumer] for consumer in sorted(host))
            offsets.append(len(consumers))
        edges = _whole_numbers("control_edges", control_edges).reshape(-1, 2)
        return cls(
            names=tuple(names),
            types=tuple(types) if types is not None else ("",) * num_ops,
            colocation_group=_dense_groups(colocation_group, num_ops),
            resident_bytes=_column("resident_bytes", resident_bytes, num_ops, 0),
            alias_of=_column("alias_of", alias_of, num_ops, -1),
            num_members=_column("num_members", num_members, num_ops, 1),
            tensor_producer=_whole_numbers("tensors.producer", [t.producer for t in ordered]),
            tensor_bytes=_whole_numbers("tensors.bytes", [t.num_bytes for t in ordered]),
            consumer_offsets=np.array(offsets, dtype=np.int64),
            consumers=_whole_numbers("tensors.consumers", consumers),
            consumer_on_host=np.array(on_host, dtype=np.bool_),
            control_edges=np.unique(edges, axis=0) if len(edges) else edges,
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
        """Number of colocation groups; an op that moves alone is a group of one."""
        return int(self.colocation_group.max(initial=-1)) + 1

    @cached_property
    def groups(self) -> Adjacency:
        """The ops of every colocation group, rows by group."""
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
        return np.unique(edges, axis=0) if len(edges) else edges

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
        """`[num_ops]`: ops on the longest path from a root to each, itself included."""
        height = np.ones(self.num_ops, dtype=np.int64)
        for op in self.topological_order:
            heads = self.successors[op]
            height[heads] = np.maximum(height[heads], height[op] + 1)
        return height

    @cached_property
    def op_tensors(self) -> IntArray:
        """`[num_ops + 1]`: the tensors of op i are `range(op_tensors[i], op_tensors[i + 1])`."""
        return np.searchsorted(self.tensor_producer, np.arange(self.num_ops + 1))

    @cached_property
    def alias_source(self) -> IntArray:
        """`[num_tensors]`: the tensor whose memory this one shares, or -1.

        For an op that aliases j, the first tensor of j that it consumes.
        """
        source_of_op = np.full(self.num_ops, -1, dtype=np.int64)
        aliased = self.alias_of[self.consumers] == self.tensor_producer[self.consumer_tensor]
        # Written backwards, so that the first tensor stays.
        source_of_op[self.consumers[aliased][::-1]] = self.consumer_tensor[aliased][::-1]
        return source_of_op[self.tensor_producer]

    @cached_property
    def held_bytes(self) -> IntArray:
        """`[num_tensors]`: what a tensor takes at home on top of its producer's resident bytes."""
        resident = self.alias_of[self.tensor_producer] == self.tensor_producer
        return np.where(resident, 0, self.tensor_bytes)

    def consumers_of(self, tensor: int) -> IntArray:
        """Op indices that take a tensor, ascending."""
        return self.consumers[self.consumer_offsets[tensor] : self.consumer_offsets[tensor + 1]]

    def _check_names(self) -> None:
        seen: set[str] = set()
        for name in self.names:
            if name in seen:
                raise BadInputError(
                    f"op {name!r} appears twice; op names must be unique: rename one of them."
                )
            seen.add(name)

    def _check_ranges(self) -> None:
        num_ops, num_tensors = self.num_ops, self.num_tensors
        for column in ("types", "colocation_group", "resident_bytes", "alias_of", "num_members"):
            _check_length(f"ops.{column}", len(getattr(self, column)), num_ops)
        _check_length("tensors.bytes", len(self.tensor_bytes), num_tensors)
        _check_length("tensors.consumers", len(self.consumer_offsets) - 1, num_tensors)
        _check_length("tensors.consumer_on_host", len(self.consumer_on_host), len(self.consumers))
        _check_indices("tensors.producer", self.tensor_producer, 0, num_ops)
        _check_indices("tensors.consumers", self.consumers, 0, num_ops)
        _check_indices("control_edges", self.control_edges.ravel(), 0, num_ops)
        _check_indices("ops.alias_of", self.alias_of, -1, num_ops)
        for column, owners in (("resident_bytes", None), ("tensor_bytes", self.tensor_producer)):
            values = getattr(self, column)
            if (values < 0).any():
                row = int(np.argmax(values < 0))
                name = self.names[row if owners is None else owners[row]]
                raise BadInputError(
                    f"op {name!r} has {column} {values[row]}; a size of 0 or more was expected."
                )

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


def topological_order(successors: Adjacency) -> list[int]:
    """Sort topologically; what is on a cycle or behind one is left out.

    Kahn's algorithm, first come first served, so that the order is deterministic.
    """
    offsets, heads = successors.offsets.tolist(), successors.indices.tolist()
    waiting = np.bincount(successors.indices, minlength=len(successors.degree)).tolist()
    order = [op for op, count in enumerate(waiting) if count == 0]
    for op in order:
        for head in heads[offsets[op] : offsets[op + 1]]:
            waiting[head] -= 1
            if waiting[head] == 0:
                order.append(head)
    return order


def _column(name: str, values: ArrayLike | None, num_ops: int, default: int) -> IntArray:
    if values is None:
        return np.full(num_ops, default, dtype=np.int64)
    return _whole_numbers(f"ops.{name}", values)


def _whole_numbers(column: str, values: ArrayLike) -> IntArray:
    try:
        return np.asarray(values, dtype=np.int64)
    except OverflowError:
        raise BadInputError(
            f"{column} has a number that 64 bits cannot hold; whole numbers from -2^63 to 2^63 - 1 "
            "were expected."
        ) from None


def _dense_groups(groups: Sequence[int | str | None] | None, num_ops: int) -> IntArray:
    """Number groups from 0 in order of appearance; None becomes a group of its own."""
    if groups is None:
        return np.arange(num_ops, dtype=np.int64)
    number: dict[object, int] = {}
    keys = (("alone", op) if group is None else group for op, group in enumerate(groups))
    return np.array([number.setdefault(key, len(number)) for key in keys], dtype=np.int64)


def _check_length(column: str, found: int, expected: int) -> None:
    if found != expected:
        raise BadInputError(
            f"{column} has {found} entries where {expected} were expected; "
            "every column lists one entry for each row."
        )


def _check_indices(column: str, values: IntArray, low: int, high: int) -> None:
    outside = (values < low) | (values >= high)
    if outside.any():
        raise BadInputError(
            f"{column} names op {values[np.argmax(outside)]}; "
            f"an index between {low} and {high - 1} was expected."
        )
