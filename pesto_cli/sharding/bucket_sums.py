"""The ops that add the gradients of a bucket, and give each part all sums.

| op | what it does |
|---|---|
| packed_i | concatenates the gradients of part i: a vector |
| local_i | with several hosts: adds the vectors of one host, on the device of part i |
| sum_i | of two vectors, or of small ones: adds all of them, on the device of part i |
| cut_i | cuts vector i into as many shares as there are vectors |
| share_i | adds one share of all vectors, on the device of vector i |
| whole_i | joins all shares, on the device of vector i |
| unpacked_i | cuts the sum into the gradients, for part i |

To cut, add and join shares is a reduce-scatter, followed by an all-gather: two transfers one after
the other, where a sum on each device takes one. Two vectors need as many bytes either way. There is
one vector for each part. If there are several hosts, there is one vector for each host.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from pesto_cli.data.specs import Operand, OpSpec
from pesto_cli.sharding import added_ops
from pesto_cli.sharding.alternative import shares_of
from pesto_cli.sharding.layouts import Reduction
from pesto_cli.sharding.new_ops import NewOps, Ref

DIRECT_BYTES = 2**21
"""If all vectors together have fewer bytes, each device adds all of them."""


@dataclass(frozen=True)
class Summand:
    """A gradient of a bucket.

    name: of the tensor. serves: its producer in the original graph. refs: the summand of each part.
    """

    name: str
    serves: int
    operand: Operand
    refs: Sequence[Ref]

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.operand.sizes)


@dataclass(frozen=True)
class BucketSums:
    """Adds the ops for one bucket.

    ops: the ops, which grow. summands: the gradients. hosts: the host of each part; all are equal
    if sums are flat. number: of the bucket; with several hosts, it decides on the device that adds.
    """

    ops: NewOps
    summands: Sequence[Summand]
    hosts: Sequence[int]
    number: int

    def sums(self) -> list[list[Ref]]:
        """Return the sums for each part, `[num_summands][num_parts]`."""
        packed = [self._packed(part) for part in range(len(self.hosts))]
        by_host: dict[int, list[int]] = {}
        for part, host in enumerate(self.hosts):
            by_host.setdefault(host, []).append(part)
        if len(by_host) == 1:
            wholes = dict(enumerate(self._added(dict(enumerate(packed)))))
        else:
            leads = {parts[self.number % len(parts)]: parts for parts in by_host.values()}
            local = {
                lead: self._sum(f"local_{lead}", [packed[part] for part in parts], lead)
                for lead, parts in leads.items()
            }
            added = self._added(local)
            wholes = {
                part: whole
                for whole, parts in zip(added, leads.values(), strict=True)
                for part in parts
            }
        return self._unpacked([wholes[part] for part in range(len(self.hosts))])

    @cached_property
    def _vector(self) -> Operand:
        sizes = sum(each.size for each in self.summands)
        return Operand((sizes,), self.summands[0].operand.dtype)

    @property
    def _sizes(self) -> tuple[int, ...]:
        return tuple(each.size for each in self.summands)

    def _packed(self, part: int) -> Ref:
        flat = [self._flat(each, part) for each in self.summands]
        return self._add(f"packed_{part}", (*flat, None), self._joining(self._sizes), part)

    def _flat(self, summand: Summand, part: int) -> Ref:
        operand, ref = summand.operand, summand.refs[part]
        if len(operand.sizes) == 1:
            return ref
        spec, name = added_ops.reshaped(operand, (summand.size,)), f"{summand.name}.flat_{part}"
        new = self.ops.add(name, (ref, None), serves=summand.serves, spec=spec, for_part=part)
        return new, 0

    def _added(self, vectors: dict[int, Ref]) -> list[Ref]:
        """Return the sum of vectors for each of them; vectors: by the part of their device."""
        number = len(vectors)
        if number == 2 or number * self._vector.num_bytes < DIRECT_BYTES:
            return [self._sum(f"sum_{part}", [*vectors.values()], part) for part in vectors]
        extents = shares_of(self._vector.sizes[0], [1.0] * number)
        cuts = [self._cut(f"cut_{part}", ref, extents, part) for part, ref in vectors.items()]
        shares = [
            self._sum(f"share_{part}", [(cut, share) for cut in cuts], part, extents[share])
            for share, part in enumerate(vectors)
        ]
        return [
            self._add(f"whole_{part}", (*shares, None), self._joining(extents), part)
            for part in vectors
        ]

    def _unpacked(self, wholes: Sequence[Ref]) -> list[list[Ref]]:
        found: list[list[Ref]] = [[] for _ in self.summands]
        for part, whole in enumerate(wholes):
            cut = self._cut(f"unpacked_{part}", whole, self._sizes, part)
            for output, summand in enumerate(self.summands):
                ref, sizes = (cut, output), summand.operand.sizes
                if len(sizes) != 1:
                    flat = Operand((summand.size,), summand.operand.dtype)
                    spec, name = added_ops.reshaped(flat, sizes), f"{summand.name}.sum_{part}"
                    serves = summand.serves
                    new = self.ops.add(name, (ref, None), serves=serves, spec=spec, for_part=part)
                    ref = new, 0
                found[output].append(ref)
        return found

    def _joining(self, sizes: tuple[int, ...]) -> OpSpec:
        return added_ops.concat(self._vector, 0, sizes)

    def _sum(self, name: str, refs: Sequence[Ref], part: int, size: int | None = None) -> Ref:
        if len(refs) == 1:
            return refs[0]
        vector = self._vector if size is None else self._vector.resized(0, size)
        return self._add(name, refs, added_ops.combined(vector, Reduction.SUM, len(refs)), part)

    def _cut(self, name: str, ref: Ref, extents: tuple[int, ...], part: int) -> int:
        spec = added_ops.split(self._vector, 0, extents)
        inputs = (None, ref) if spec.type == "Split" else (ref, None, None)
        return self._add(name, inputs, spec, part)[0]

    def _add(self, name: str, inputs: Sequence[Ref | None], spec: OpSpec, part: int) -> Ref:
        """Add an op for the device of a part."""
        first = self.summands[0]
        name = f"{first.name}.bucket.{name}"
        return self.ops.add(name, inputs, serves=first.serves, spec=spec, for_part=part), 0
