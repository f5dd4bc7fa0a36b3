"""Plans: which ops are split, in which way, and how sums and copies cross hosts."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

MIRRORED = "mirrored"
"""The alternative with one copy of the variable for each part; all are updated alike."""
REPLICATED_NAME = "replicated"
"""The alternative of an op of which each part computes the whole op."""
COPIES = frozenset({MIRRORED, REPLICATED_NAME})
"""Names of alternatives whose parts are copies: each part computes what the whole op computes."""


@dataclass(frozen=True)
class Choice:
    """The decision for one op that is split.

    alternative: name of one of the op's alternatives.
    sizes: `[num_parts]`, the number of units of the alternative's factor in each part; all 1 if the
        alternative has no factor (open sums, copies).
    """

    alternative: str
    sizes: tuple[int, ...]

    @property
    def num_parts(self) -> int:
        """Number of parts."""
        return len(self.sizes)

    @property
    def is_copied(self) -> bool:
        """Whether the parts are copies of the op, such as those of a mirrored variable."""
        return self.alternative in COPIES


LOCAL = " local"
"""The end of the names of alternatives that compute something else than the whole op."""


class Local(StrEnum):
    """What parts may compute in another way than the whole op, if the user allows it.

    BATCH_NORM: fused batch normalisation uses the mean and variance of the rows of each part.
    RANDOM: random ops draw other numbers: each part draws its own.
    """

    BATCH_NORM = "batch-norm"
    RANDOM = "random"


ALL_LOCAL = frozenset(Local)


@dataclass(frozen=True)
class Plan:
    """The decision for every op of a graph.

    choices: op name -> choice. All other ops stay whole, also variables.
    hosts: the host for which part i of an op is meant. If it is not empty, partial sums are added
        on each host before they are added over all hosts, and a tensor that several parts of a host
        take is sent to this host once and passed on.
    bucket_bytes: gradients of mirrored variables are added in buckets of at most so many bytes; 0:
        each on its own.
    islands: the island of part i: a group of devices of one host whose links to each other are
        faster than those to other groups. If it is not empty, a share of the large tensors that
        parts take whole is sent to each island once and passed on. Not together with `hosts`.
    """

    choices: Mapping[str, Choice] = field(default_factory=dict)
    hosts: tuple[int, ...] = ()
    bucket_bytes: int = 0
    islands: tuple[int, ...] = ()

    def __bool__(self) -> bool:
        """Whether an op is split."""
        return bool(self.choices)

    @property
    def num_local(self) -> int:
        """The number of ops that compute something else than the whole op; see `Local`."""
        return sum(choice.alternative.endswith(LOCAL) for choice in self.choices.values())

    @property
    def num_parts(self) -> int:
        """The largest number of parts of an op; 1 if no op is split."""
        return max((choice.num_parts for choice in self.choices.values()), default=1)


WHOLE_OPS = Plan()
"""The plan that splits no op."""
