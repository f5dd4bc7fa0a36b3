"""Layouts: how a tensor is stored as parts.

| layout | parts |
|---|---|
| `WHOLE` | one: the tensor itself |
| `Split(axis)` | slices whose concatenation along an axis is the tensor |
| `Partial(reduction)` | tensors of the full shape; their sum (or minimum, ...) is the tensor |
| `REPLICATED` | copies, each computed by an op of its own |
| `OWN` | tensors that differ; each is only for the parts of its index |

GSPMD calls them maximal, tiled, partial and replicated; Shardy calls `Partial` unreduced.
"""

from dataclasses import dataclass
from enum import StrEnum


class Reduction(StrEnum):
    """How partial tensors are combined."""

    SUM = "sum"
    MIN = "min"
    MAX = "max"
    ALL = "all"
    ANY = "any"


@dataclass(frozen=True)
class Whole:
    """One tensor. As an input of parts: each part takes the whole tensor."""

    def __str__(self) -> str:
        return "whole"


@dataclass(frozen=True)
class Split:
    """Slices along an axis, in order."""

    axis: int

    def __str__(self) -> str:
        return f"split {self.axis}"


@dataclass(frozen=True)
class Partial:
    """Tensors of the full shape that a reduction combines."""

    reduction: Reduction = Reduction.SUM

    def __str__(self) -> str:
        return f"partial {self.reduction}"


@dataclass(frozen=True)
class Replicated:
    """A whole tensor for each part. They are equal, except for `Local` statistics of a part."""

    def __str__(self) -> str:
        return "replicated"


@dataclass(frozen=True)
class Own:
    """A tensor for each part that only parts of the same index can take; there is no whole one."""

    def __str__(self) -> str:
        return "own"


Layout = Whole | Split | Partial | Replicated | Own
WHOLE, REPLICATED, OWN, SUM = Whole(), Replicated(), Own(), Partial()
