"""The ops of a graph that is being rewritten, as columns that grow."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import chain

from pesto_cli.data.specs import OpSpec

Ref = tuple[int, int]
"""An output of a new op: op index and output number."""


class NewOps:
    """Columns with one entry for each op.

    names: unique.
    origin: the op of the original graph of which the op is a copy or a part; else -1.
    serves: the origin, or the producer of the tensor that an added op converts.
    part: index of the part, or -1.
    host: the host for which an added op adds parts or passes a tensor on, or -1.
    for_part: the part on whose device an added op is best, or -1.
    specs: None for an op that is a copy.
    is_priced: whether the op is the part whose time the profile gives: the op of its program that
        has no name of its own. False for copies and all other ops.
    inputs: by slot; None for a small constant.
    controls: pairs (before, after).
    """

    def __init__(self) -> None:
        self.names: list[str] = []
        self.origin: list[int] = []
        self.serves: list[int] = []
        self.part: list[int] = []
        self.host: list[int] = []
        self.for_part: list[int] = []
        self.specs: list[OpSpec | None] = []
        self.is_priced: list[bool] = []
        self.inputs: list[tuple[Ref | None, ...]] = []
        self.controls: list[tuple[int, int]] = []

    def __len__(self) -> int:
        return len(self.names)

    def add(
        self,
        name: str,
        inputs: Iterable[Ref | None],
        *,
        serves: int,
        origin: int = -1,
        part: int | None = None,
        host: int | None = None,
        for_part: int = -1,
        spec: OpSpec | None = None,
        is_priced: bool = False,
    ) -> int:
        """Add an op, and return its index."""
        self.names.append(name)
        self.origin.append(origin)
        self.serves.append(serves)
        self.part.append(-1 if part is None else part)
        self.host.append(-1 if host is None else host)
        self.for_part.append(for_part)
        self.specs.append(spec)
        self.is_priced.append(is_priced)
        self.inputs.append(tuple(inputs))
        return len(self.names) - 1

    def extend(
        self,
        names: Sequence[str],
        inputs: Sequence[tuple[Ref | None, ...]],
        *,
        origin: int,
        parts: Sequence[int],
        specs: Sequence[OpSpec | None],
        is_priced: Sequence[bool],
    ) -> None:
        """Add the ops of the program of an op `origin`; see `ProgramColumns`."""
        count = len(names)
        self.names += names
        self.origin += [origin] * count
        self.serves += [origin] * count
        self.part += parts
        self.host += [-1] * count
        self.for_part += [-1] * count
        self.specs += specs
        self.is_priced += is_priced
        self.inputs += inputs

    def ancestors(self, roots: Iterable[int]) -> list[int]:
        """Return the ops that are among `roots` or that these need, ascending."""
        before = defaultdict[int, list[int]](list)
        for tail, head in self.controls:
            before[head].append(tail)
        found = waiting = {*roots}
        while waiting:
            refs = chain.from_iterable(self.inputs[op] for op in waiting)
            tails = chain.from_iterable(before[op] for op in waiting if op in before)
            waiting = {*tails, *(ref[0] for ref in refs if ref is not None)} - found
            found |= waiting
        return sorted(found)
