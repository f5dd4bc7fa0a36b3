"""The ops that add the gradients of a bucket, and give each part all sums.

| op | what it does |
|---|---|
| packed_i | concatenates the gradients of part i: a vector |
| divided_i | with several hosts: cuts vector i into the shares that devices of its host add |
| local_i | with several hosts: adds a share of the vectors of one host, on the device of part i |
| sum_i | of two vectors, or of small ones: adds all of them, on the device of part i |
| cut_i | cuts vector i into as many shares as there are vectors |
| share_i | adds one share of all vectors, on the device of vector i |
| whole_i | joins all shares, on the device of vector i |
| joined_i | with several hosts: joins the shares that devices of the host have added, for part i |
| unpacked_i | cuts the sum into the gradients, for part i |

To cut, add and join shares is a reduce-scatter, followed by an all-gather: two transfers one after
the other, where a sum on each device takes one. Two vectors need as many bytes either way.

There is one vector for each part. If there are several hosts, each adds its vectors first, and the
sums of the hosts are the vectors that are added then. On each host, the same number of devices adds
one share each. So the links of all these devices are used.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial

from pesto_cli.data.specs import Operand, OpSpec
from pesto_cli.sharding import added_ops
from pesto_cli.sharding.alternative import shares_of
from pesto_cli.sharding.layouts import Reduction
from pesto_cli.sharding.new_ops import NewOps, Ref
from pesto_cli.sharding.pieces import Add, divided, joined, reduced

DIRECT_BYTES = 2**21
"""If all vectors together have fewer bytes, each device adds all of them."""
SHARE_BYTES = 2**20
"""The shares of the devices of one host have about this size or more."""


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
        parts_of: dict[int, list[int]] = {}
        for part, host in enumerate(self.hosts):
            parts_of.setdefault(host, []).append(part)
        if len(parts_of) == 1:
            return self._unpacked(self._added(dict(enumerate(packed)), self._vector))
        most = min(map(len, parts_of.values()))
        num_shares = min(most, max(1, self._vector.num_bytes // SHARE_BYTES))
        extents = shares_of(self._vector.sizes[0], [1.0] * num_shares)
        divided = [
            self._divided(f"divided_{part}", ref, self._vector, extents, part)
            for part, ref in enumerate(packed)
        ]
        shares: dict[int, list[Ref]] = {host: [] for host in parts_of}
        for share, extent in enumerate(extents):
            vector, local = self._vector.resized(0, extent), dict[int, Ref]()
            for parts in parts_of.values():
                adding = parts[(self.number + share) % len(parts)]
                refs = [divided[part][share] for part in parts]
                local[adding] = self._sum(f"local_{adding}", refs, adding, vector)
            for host, ref in zip(parts_of, self._added(local, vector), strict=True):
                shares[host].append(ref)
        return self._unpacked(
            [
                self._joined(f"joined_{part}", shares[host], extents, part)
                for part, host in enumerate(self.hosts)
            ]
        )

    @cached_property
    def _vector(self) -> Operand:
        sizes = sum(each.size for each in self.summands)
        return Operand((sizes,), self.summands[0].operand.dtype)

    @property
    def _sizes(self) -> tuple[int, ...]:
        return tuple(each.size for each in self.summands)

    def _packed(self, part: int) -> Ref:
        flat = [self._flat(each, part) for each in self.summands]
        return self._joined(f"packed_{part}", flat, self._sizes, part)

    def _flat(self, summand: Summand, part: int) -> Ref:
        operand, ref = summand.operand, summand.refs[part]
        if len(operand.sizes) == 1:
            return ref
        spec, name = added_ops.reshaped(operand, (summand.size,)), f"{summand.name}.flat_{part}"
        new = self.ops.add(name, (ref, None), serves=summand.serves, spec=spec, for_part=part)
        return new, 0

    def _added(self, vectors: dict[int, Ref], vector: Operand) -> list[Ref]:
        """Return the sum of vectors for each of them.

        vectors: by the part of their device. vector: one of them.
        """
        number = len(vectors)
        if number == 2 or number * vector.num_bytes < DIRECT_BYTES:
            return [self._sum(f"sum_{part}", [*vectors.values()], part, vector) for part in vectors]
        extents = shares_of(vector.sizes[0], [1.0] * number)
        cuts = [
            self._divided(f"cut_{part}", ref, vector, extents, part)
            for part, ref in vectors.items()
        ]
        shares = [
            self._sum(
                f"share_{part}",
                [cut[share] for cut in cuts],
                part,
                vector.resized(0, extents[share]),
            )
            for share, part in enumerate(vectors)
        ]
        return [self._joined(f"whole_{part}", shares, extents, part) for part in vectors]

    def _unpacked(self, wholes: Sequence[Ref]) -> list[list[Ref]]:
        found: list[list[Ref]] = [[] for _ in self.summands]
        for part, whole in enumerate(wholes):
            refs = self._divided(f"unpacked_{part}", whole, self._vector, self._sizes, part)
            for output, (ref, summand) in enumerate(zip(refs, self.summands, strict=True)):
                sizes = summand.operand.sizes
                if len(sizes) != 1:
                    flat = Operand((summand.size,), summand.operand.dtype)
                    spec, name = added_ops.reshaped(flat, sizes), f"{summand.name}.sum_{part}"
                    serves = summand.serves
                    new = self.ops.add(name, (ref, None), serves=serves, spec=spec, for_part=part)
                    ref = new, 0
                found[output].append(ref)
        return found

    def _joined(self, name: str, refs: Sequence[Ref], extents: tuple[int, ...], part: int) -> Ref:
        vector = self._vector.resized(0, sum(extents))
        return joined(self._adding(part), name, vector, 0, extents, refs)

    def _sum(self, name: str, refs: Sequence[Ref], part: int, vector: Operand) -> Ref:
        return reduced(self._adding(part), name, vector, Reduction.SUM, refs)

    def _divided(
        self, name: str, ref: Ref, vector: Operand, extents: tuple[int, ...], part: int
    ) -> list[Ref]:
        return divided(self._adding(part), name, vector, 0, extents, ref)

    def _adding(self, part: int) -> Add:
        """Return a function that adds ops for the device of a part."""
        return partial(self._add, part)

    def _add(self, part: int, name: str, inputs: Sequence[Ref | None], spec: OpSpec) -> int:
        first = self.summands[0]
        name = f"{first.name}.bucket.{name}"
        return self.ops.add(name, inputs, serves=first.serves, spec=spec, for_part=part)
