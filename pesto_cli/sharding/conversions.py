"""Conversions: the ops that bring a tensor into the layout in which an op takes it.

| from | to | ops |
|---|---|---|
| whole | split | Split, or SplitV for parts of unequal extents; see `pieces.cut` |
| split | whole | ConcatV2 |
| split | whole for each part | a ConcatV2 for each part |
| partial | whole | AddN (Minimum, Maximum, LogicalAnd, LogicalOr) |
| split or partial | split in another way | each piece is cut, and each part joins its cuts |
| replicated | split | a Slice of each copy |
| replicated | whole | none: the first copy |
| partial, in a bucket | whole for each part | see `bucket_sums` |

A conversion is made once, whatever the number of consumers. The handle of a variable cannot be
converted; copies of it can be read as one variable.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial

import numpy as np

from pesto_cli.data.graph import OpGraph
from pesto_cli.data.plan import Plan
from pesto_cli.data.specs import Operand, OpSpec
from pesto_cli.errors import BadInputError
from pesto_cli.sharding import added_ops
from pesto_cli.sharding.alternative import shares_of
from pesto_cli.sharding.bucket_sums import BucketSums, Summand
from pesto_cli.sharding.buckets import LARGE_BYTES, Bucket
from pesto_cli.sharding.layouts import Layout, Own, Partial, Reduction, Replicated, Split, Whole
from pesto_cli.sharding.new_ops import NewOps, Ref
from pesto_cli.sharding.pieces import Add, Pieces, cut, cut_again, joined, reduced, sliced
from pesto_cli.sharding.variables import is_handle

RELAYED_SHARE = 0.4
"""If there are islands, this share of the bytes of large tensors is sent to each island once. The
other tensors are sent directly to each part, so that the slow links carry some of them."""


class Conversions:
    """The tensors of the original graph in all layouts in which the new ops need them."""

    def __init__(
        self, graph: OpGraph, ops: NewOps, plan: Plan, buckets: Iterable[Bucket] = ()
    ) -> None:
        """plan: gives the hosts and the islands. buckets: see `buckets.buckets`."""
        self._graph, self._ops = graph, ops
        self._hosts, self._islands = plan.hosts, plan.islands
        self._bucket_of = {tensor: bucket for bucket in buckets for tensor in bucket}
        self._sums: dict[int, Sequence[Ref]] = {}
        self._num_buckets = 0
        self._produced: dict[int, Pieces] = {}
        self._whole: dict[int, Ref] = {}
        self._split: dict[tuple[int, int, tuple[int, ...]], list[Ref]] = {}
        self._for_each: dict[int, list[Ref]] = {}
        self._copies: dict[tuple[int, int], Ref] = {}
        self._is_relayed: dict[int, bool] = {}
        self._large_bytes = self._relayed_bytes = 0
        self._old_names: dict[int, int] = {}

    def produce(
        self, tensor: int, layout: Layout, extents: tuple[int, ...], refs: Sequence[Ref]
    ) -> None:
        """Record how a tensor of the original graph is computed.

        extents: of the parts on the axis of a `Split`; else empty.
        """
        self._produced[tensor] = Pieces(layout, extents, refs)

    def pieces(
        self, tensor: int, layout: Layout, extents: tuple[int, ...], num_parts: int
    ) -> Sequence[Ref] | None:
        """Return the tensor for each of some parts, in the layout in which they take it.

        None if that is impossible: parts take a handle or partial tensors, and the tensor is not
        computed as that many of them.
        """
        found = self._produced[tensor]
        is_bucketed = tensor in self._bucket_of and len(found.refs) == num_parts
        if is_bucketed and isinstance(layout, Whole):
            return self._sums_for_each(tensor)
        is_alike = len(found.refs) == num_parts and found.extents == extents
        if is_alike and found.layout == layout and not isinstance(layout, Whole):
            return found.refs
        if is_alike and isinstance(found.layout, Replicated) and isinstance(layout, Whole):
            return found.refs
        if isinstance(layout, Partial | Own) or isinstance(found.layout, Own):
            return None
        is_whole = isinstance(found.layout, Whole) and isinstance(layout, Whole)
        if is_handle(self._graph, tensor) and not is_whole:
            return None
        if isinstance(layout, Split):
            return self._slices(tensor, layout.axis, extents)
        if len(found.refs) == num_parts > 1:
            return self._whole_for_each(tensor, found)
        return self._passed_on(tensor, num_parts)

    def is_own(self, tensor: int) -> bool:
        """Return whether each part has a tensor of its own, so that there is no whole tensor."""
        return isinstance(self._produced[tensor].layout, Own)

    def is_copied(self, tensor: int) -> bool:
        """Return whether a tensor is a handle of which there are several copies."""
        return is_handle(self._graph, tensor) and isinstance(
            self._produced[tensor].layout, Replicated
        )

    def whole(self, tensor: int) -> Ref:
        """Return the whole tensor, or the first of several copies."""
        if tensor not in self._whole:
            self._whole[tensor] = self._merged(tensor)
        return self._whole[tensor]

    def merged_under_old_name(self, op: int) -> int:
        """Return an op with the name and the outputs of an op that was split."""
        if op not in self._old_names:
            tensors = self._graph.tensors_of(op)
            merged = [self.whole(tensor) for tensor in tensors]
            name = self._graph.names[op]
            if [self._ops.names[new] for new, _ in merged] == [name]:
                self._old_names[op] = merged[0][0]
            else:
                operands = tuple(map(self._operand, tensors))
                one = len(operands) == 1
                spec = added_ops.copied(operands[0]) if one else added_ops.bundled(operands)
                self._old_names[op] = self._ops.add(name, merged, serves=op, spec=spec)
        return self._old_names[op]

    def _merged(self, tensor: int) -> Ref:
        found = self._produced[tensor]
        if tensor in self._bucket_of:
            return self._sums_for_each(tensor)[0]
        if isinstance(found.layout, Whole | Replicated | Own):
            return found.refs[0]
        producer = int(self._graph.tensor_producer[tensor])
        operand, name = self._operand(tensor), self._graph.names[producer]
        if is_handle(self._graph, tensor):
            raise BadInputError(
                f"the plan splits variable {name!r}, but not all ops that take it; the same way "
                "was expected for all of them: complete the plan, or leave the variable whole."
            )
        if len(self._graph.tensors_of(producer)) > 1:
            name = f"{name}.merged_{self._output(tensor)}"
        if isinstance(found.layout, Split):
            add = self._adding(tensor)
            return joined(add, name, operand, found.layout.axis, found.extents, found.refs)
        return self._combined(tensor, name, found.layout.reduction, found.refs)

    def _sums_for_each(self, tensor: int) -> Sequence[Ref]:
        """Return the sum of a tensor of a bucket for each part."""
        if tensor not in self._sums:
            self._sums.update(self._sums_of(self._bucket_of[tensor]))
        return self._sums[tensor]

    def _sums_of(self, bucket: Bucket) -> Mapping[int, Sequence[Ref]]:
        """Add the tensors of a bucket together; return the sums for each part, by tensor."""
        self._num_buckets += 1
        summands = [
            Summand(
                self._tensor_name(tensor),
                int(self._graph.tensor_producer[tensor]),
                self._operand(tensor),
                self._produced[tensor].refs,
            )
            for tensor in bucket
        ]
        hosts = [self._host(part) for part in range(len(summands[0].refs))]
        sums = BucketSums(self._ops, summands, hosts, self._num_buckets).sums()
        return dict(zip(bucket, sums, strict=True))

    def _combined(self, tensor: int, name: str, reduction: Reduction, refs: Sequence[Ref]) -> Ref:
        """Combine partial tensors: those of each host first, if the plan says so."""
        operand = self._operand(tensor)
        by_host: dict[int, list[Ref]] = {}
        for part, ref in enumerate(refs):
            by_host.setdefault(self._host(part), []).append(ref)
        if len(by_host) > 1:
            refs = [
                reduced(
                    self._adding(tensor, host),
                    f"{name}.sum_host_{host}",
                    operand,
                    reduction,
                    of_host,
                )
                for host, of_host in by_host.items()
            ]
        return reduced(self._adding(tensor), name, operand, reduction, refs)

    def _adding(self, tensor: int, host: int | None = None) -> Add:
        """Return a function that adds ops that serve the producer of a tensor."""
        return partial(self._add, int(self._graph.tensor_producer[tensor]), host)

    def _add(
        self, serves: int, host: int | None, name: str, inputs: Sequence[Ref | None], spec: OpSpec
    ) -> int:
        return self._ops.add(name, inputs, serves=serves, spec=spec, host=host)

    def _slices(self, tensor: int, axis: int, extents: tuple[int, ...]) -> list[Ref]:
        key = (tensor, axis, extents)
        if key not in self._split:
            found, operand = self._produced[tensor], self._operand(tensor)
            name, add = self._split_name(key), self._adding(tensor)
            if isinstance(found.layout, Replicated) and len(found.refs) == len(extents):
                self._split[key] = sliced(add, name, operand, axis, extents, found.refs)
            elif isinstance(found.layout, Split | Partial) and not self._hosts:
                self._split[key] = cut_again(add, name, operand, found, axis, extents)
            else:
                self._split[key] = cut(add, name, operand, axis, extents, self.whole(tensor))
        return self._split[key]

    def _whole_for_each(self, tensor: int, found: Pieces) -> Sequence[Ref]:
        """Return the whole tensor for each part: an all-gather, or an all-reduce by shares.

        With several hosts, small tensors and sums are made once, and passed on.
        """
        num_parts, operand = len(found.refs), self._operand(tensor)
        is_large = operand.num_bytes >= LARGE_BYTES
        if isinstance(found.layout, Partial) and is_large and not self._hosts:
            axis = int(np.argmax(operand.sizes))
            extents = shares_of(operand.sizes[axis], [1.0] * num_parts)
            found = Pieces(Split(axis), extents, self._slices(tensor, axis, extents))
        if not isinstance(found.layout, Split) or (self._hosts and not is_large):
            return self._passed_on(tensor, num_parts)
        if tensor not in self._for_each:
            name, add, axis = self._tensor_name(tensor), self._adding(tensor), found.layout.axis
            pieces_of = self._pieces_for_hosts(tensor, found)
            self._for_each[tensor] = [
                joined(
                    add,
                    f"{name}.whole_{part}",
                    operand,
                    axis,
                    found.extents,
                    pieces_of[self._host(part)],
                )
                for part in range(num_parts)
            ]
        return self._for_each[tensor]

    def _pieces_for_hosts(self, tensor: int, found: Pieces) -> Mapping[int, Sequence[Ref]]:
        """Return the pieces of a split tensor for each host; they are sent to each host once."""
        assert isinstance(found.layout, Split)
        hosts = [self._host(part) for part in range(len(found.refs))]
        pieces_of: dict[int, list[Ref]] = {host: [] for host in hosts}
        for host, pieces in pieces_of.items():
            for part, (ref, extent) in enumerate(zip(found.refs, found.extents, strict=True)):
                if hosts[part] != host and hosts.count(host) > 1:
                    spec = added_ops.copied(
                        self._operand(tensor).resized(found.layout.axis, extent)
                    )
                    name = f"{self._tensor_name(tensor)}.copy_host_{host}_of_{part}"
                    ref = self._adding(tensor, host)(name, (ref,), spec), 0
                pieces.append(ref)
        return pieces_of

    def _passed_on(self, tensor: int, num_parts: int) -> list[Ref]:
        """Return the whole tensor for each part, passed on once for each host with several.

        If there are islands, some tensors are passed on once for each island. A handle stays where
        its data is, and an empty tensor has nothing to pass on.
        """
        whole, kind = self.whole(tensor), "host"
        groups = [self._host(part) for part in range(num_parts)]
        if 1 < num_parts <= len(self._islands) and self._relays(tensor):
            kind, groups = "island", list(self._islands[:num_parts])
        is_alone = len(set(groups)) < 2 or is_handle(self._graph, tensor)
        if is_alone or 0 in self._operand(tensor).sizes:
            return [whole] * num_parts
        passed = {
            group: self._copy(tensor, kind, group) if groups.count(group) > 1 else whole
            for group in dict.fromkeys(groups)
        }
        return [passed[group] for group in groups]

    def _relays(self, tensor: int) -> bool:
        """Return whether a tensor is sent to each island once: a share of the large ones is."""
        if tensor not in self._is_relayed:
            num_bytes = int(self._graph.tensor_bytes[tensor])
            is_large = num_bytes >= LARGE_BYTES and not is_handle(self._graph, tensor)
            self._large_bytes += num_bytes if is_large else 0
            wanted = RELAYED_SHARE * self._large_bytes
            relays = is_large and self._relayed_bytes + num_bytes / 2 <= wanted
            self._relayed_bytes += num_bytes if relays else 0
            self._is_relayed[tensor] = relays
        return self._is_relayed[tensor]

    def _copy(self, tensor: int, kind: str, group: int) -> Ref:
        if (tensor, group) not in self._copies:
            new = self._ops.add(
                f"{self._tensor_name(tensor)}.copy_{kind}_{group}",
                (self.whole(tensor),),
                serves=int(self._graph.tensor_producer[tensor]),
                spec=added_ops.copied(self._operand(tensor)),
                host=group,
            )
            self._copies[tensor, group] = new, 0
        return self._copies[tensor, group]

    def _host(self, part: int) -> int:
        return self._hosts[part] if part < len(self._hosts) else 0

    def _operand(self, tensor: int) -> Operand:
        return Operand(self._graph.tensor_shape[tensor], self._graph.tensor_dtype[tensor])

    def _output(self, tensor: int) -> int:
        return self._graph.tensors_of(self._graph.tensor_producer[tensor]).index(tensor)

    def _tensor_name(self, tensor: int) -> str:
        """Return the name of a tensor: that of its producer, with the output number if not 0."""
        name, output = self._graph.names[self._graph.tensor_producer[tensor]], self._output(tensor)
        return f"{name}.output_{output}" if output else name

    def _split_name(self, key: tuple[int, int, tuple[int, ...]]) -> str:
        """Return the name of a split of a tensor; it contains the axis and the extents."""
        tensor, axis, extents = key
        sizes = str(len(extents)) if len(set(extents)) == 1 else "_".join(map(str, extents))
        uneven = "" if len(set(extents)) == 1 else "_of"
        return f"{self._tensor_name(tensor)}.split_{axis}{uneven}_{sizes}"
