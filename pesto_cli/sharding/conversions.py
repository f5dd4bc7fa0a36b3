"""Conversions: the ops that bring a tensor into the layout in which an op takes it.

| from | to | ops |
|---|---|---|
| whole | split | Split, or SplitV for parts of unequal extents |
| split | whole | ConcatV2 |
| partial | whole | AddN (Minimum, Maximum, LogicalAnd, LogicalOr) |
| replicated | split | a Slice of each copy |
| replicated | whole | none: the first copy |
| split or partial | split in another way | first whole, then split |

A conversion is made once, whatever the number of consumers.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from pesto_cli.data.graph import OpGraph
from pesto_cli.data.specs import Operand
from pesto_cli.sharding import added_ops
from pesto_cli.sharding.layouts import Layout, Partial, Reduction, Replicated, Split, Whole
from pesto_cli.sharding.new_ops import NewOps, Ref
from pesto_cli.sharding.rules import HANDLES


@dataclass(frozen=True)
class _Produced:
    """How a tensor of the original graph is computed: its layout, extents on the axis, pieces."""

    layout: Layout
    extents: tuple[int, ...]
    refs: Sequence[Ref]


class Conversions:
    """The tensors of the original graph in all layouts in which the new ops need them."""

    def __init__(self, graph: OpGraph, ops: NewOps, hosts: Sequence[int]) -> None:
        """hosts: see `Plan`."""
        self._graph, self._ops, self._hosts = graph, ops, hosts
        self._produced: dict[int, _Produced] = {}
        self._whole: dict[int, Ref] = {}
        self._split: dict[tuple[int, int, tuple[int, ...]], list[Ref]] = {}
        self._copies: dict[tuple[int, int], Ref] = {}
        self._old_names: dict[int, int] = {}

    def produce(
        self, tensor: int, layout: Layout, extents: tuple[int, ...], refs: Sequence[Ref]
    ) -> None:
        """Record how a tensor of the original graph is computed.

        extents: of the parts on the axis of a `Split`; else empty.
        """
        self._produced[tensor] = _Produced(layout, extents, refs)

    def pieces(
        self, tensor: int, layout: Layout, extents: tuple[int, ...], num_parts: int
    ) -> Sequence[Ref] | None:
        """Return the tensor for each of some parts, in the layout in which they take it.

        None if the parts take partial tensors and the tensor is not computed as that many of them.
        """
        found = self._produced[tensor]
        matches = found.layout == layout and len(found.refs) == num_parts
        if matches and found.extents == extents and not isinstance(layout, Whole):
            return found.refs
        if isinstance(layout, Partial):
            return None
        if isinstance(layout, Split):
            return self._slices(tensor, layout.axis, extents)
        if isinstance(found.layout, Replicated) and len(found.refs) == num_parts:
            return found.refs
        return self._passed_on(tensor, num_parts)

    def whole(self, tensor: int) -> Ref:
        """Return the whole tensor."""
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
        if isinstance(found.layout, Whole | Replicated):
            return found.refs[0]
        producer = int(self._graph.tensor_producer[tensor])
        operand, name = self._operand(tensor), self._graph.names[producer]
        if len(self._graph.tensors_of(producer)) > 1:
            name = f"{name}.merged_{self._output(tensor)}"
        if isinstance(found.layout, Split):
            spec = added_ops.concat(operand, found.layout.axis, found.extents)
            return self._ops.add(name, (*found.refs, None), serves=producer, spec=spec), 0
        return self._combined(tensor, name, found.layout.reduction, found.refs)

    def _combined(self, tensor: int, name: str, reduction: Reduction, refs: Sequence[Ref]) -> Ref:
        """Combine partial tensors: those of each host first, if the plan says so."""
        by_host: dict[int, list[Ref]] = {}
        for part, ref in enumerate(refs):
            by_host.setdefault(self._host(part), []).append(ref)
        if len(by_host) > 1:
            refs = [
                self._reduced(tensor, f"{name}.sum_host_{host}", reduction, of_host, host)
                for host, of_host in by_host.items()
            ]
        return self._reduced(tensor, name, reduction, refs)

    def _reduced(
        self,
        tensor: int,
        name: str,
        reduction: Reduction,
        refs: Sequence[Ref],
        host: int | None = None,
    ) -> Ref:
        if len(refs) == 1:
            return refs[0]
        producer, operand = int(self._graph.tensor_producer[tensor]), self._operand(tensor)
        if reduction is Reduction.SUM:
            spec = added_ops.combined(operand, reduction, len(refs))
            return self._ops.add(name, refs, serves=producer, spec=spec, host=host), 0
        spec, found = added_ops.combined(operand, reduction, 2), refs[0]
        for place, ref in enumerate(refs[1:], start=1):
            is_last = place == len(refs) - 1
            step = name if is_last else f"{name}.first_{place + 1}"
            found = self._ops.add(step, (found, ref), serves=producer, spec=spec, host=host), 0
        return found

    def _slices(self, tensor: int, axis: int, extents: tuple[int, ...]) -> list[Ref]:
        key = (tensor, axis, extents)
        if key not in self._split:
            found = self._produced[tensor]
            if isinstance(found.layout, Replicated) and len(found.refs) == len(extents):
                self._split[key] = self._sliced_copies(tensor, axis, extents, found.refs)
            else:
                spec = added_ops.split(self._operand(tensor), axis, extents)
                whole = self.whole(tensor)
                inputs = (None, whole) if spec.type == "Split" else (whole, None, None)
                new = self._ops.add(
                    self._split_name(key),
                    inputs,
                    serves=int(self._graph.tensor_producer[tensor]),
                    spec=spec,
                )
                self._split[key] = [(new, part) for part in range(len(extents))]
        return self._split[key]

    def _sliced_copies(
        self, tensor: int, axis: int, extents: tuple[int, ...], copies: Sequence[Ref]
    ) -> list[Ref]:
        name, begin, found = self._split_name((tensor, axis, extents)), 0, []
        for part, (extent, copy) in enumerate(zip(extents, copies, strict=True)):
            spec = added_ops.sliced(self._operand(tensor), axis, begin, extent)
            producer = int(self._graph.tensor_producer[tensor])
            inputs = (copy, None, None)
            new = self._ops.add(f"{name}.part_{part}", inputs, serves=producer, spec=spec)
            found.append((new, 0))
            begin += extent
        return found

    def _passed_on(self, tensor: int, num_parts: int) -> list[Ref]:
        """Return the whole tensor for each part, passed on once for each host with several.

        A handle stays where its data is, and an empty tensor has nothing to pass on.
        """
        whole = self.whole(tensor)
        hosts = [self._host(part) for part in range(num_parts)]
        operand = self._operand(tensor)
        if len(set(hosts)) < 2 or operand.dtype in HANDLES or 0 in operand.sizes:
            return [whole] * num_parts
        return [self._copy(tensor, host) if hosts.count(host) > 1 else whole for host in hosts]

    def _copy(self, tensor: int, host: int) -> Ref:
        if (tensor, host) not in self._copies:
            new = self._ops.add(
                f"{self._tensor_name(tensor)}.copy_host_{host}",
                (self.whole(tensor),),
                serves=int(self._graph.tensor_producer[tensor]),
                spec=added_ops.copied(self._operand(tensor)),
                host=host,
            )
            self._copies[tensor, host] = new, 0
        return self._copies[tensor, host]

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
