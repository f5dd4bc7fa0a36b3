"""Labels: the role of each op in a training step, and its place in the model.

A front end fills these columns from the types and names of its ops and the layers of its program.
No other code interprets op types and names.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from enum import IntEnum
from functools import lru_cache
from typing import Self, TypeVar

import numpy as np

from pesto_cli.data.columns import BoolArray, IntArray, check_length
from pesto_cli.errors import BadInputError

Path = tuple[str, ...]
"""Scopes, outermost first, followed by the op's own name within them."""

TEXT_LABELS = ("role", "phase", "compound", "forward_op", "scope", "repetition")
"""The names of the columns of `Labels`; all are arguments of `Labels.build`."""
USUAL = (None, "compute", "forward")
"""Values that need not be shown, because most ops have them."""


class Role(IntEnum):
    """What an op does in the step."""

    COMPUTE = 0
    FEED = 1  # provides an input of the step
    FETCH = 2  # returns a fetched tensor to the host
    VARIABLE = 3  # holds a value that is kept from step to step
    UPDATE = 4  # changes a variable


class Phase(IntEnum):
    """The part of the step in which an op runs."""

    FORWARD = 0
    BACKWARD = 1  # computes gradients
    UPDATE = 2  # comes after gradients: clipping, the optimiser


class Compound(IntEnum):
    """The kind of body that an op stands for."""

    NONE = 0
    LOOP = 1
    CONDITIONAL = 2
    CALL = 3


_Label = TypeVar("_Label", Role, Phase, Compound)


@dataclass(frozen=True, eq=False)
class Labels:
    """Columns of `OpGraph` that describe the purpose of its ops, `[num_ops]` each.

    role, phase, compound: values of `Role`, `Phase` and `Compound`.
    forward_op: name of the op whose gradient an op computes, or None. In a coarse problem that op
        may be a member of a node with another name.
    scope: the scopes of the model that an op belongs to, joined by `/`, if they differ from the
        scopes in its own name: `layer_0/step_3` for `gradients/layer_0/step_3/MatMul_1`. Otherwise
        None.
    repetition: the scopes of an op that distinguish repetitions of the same ops, such as the time
        step `step_3`. Joined by `/`; None if there are no such scopes.
    """

    role: IntArray
    phase: IntArray
    compound: IntArray
    forward_op: tuple[str | None, ...]
    scope: tuple[str | None, ...]
    repetition: tuple[str | None, ...]

    @classmethod
    def build(
        cls,
        names: Sequence[str],
        *,
        role: Sequence[str | None] | None = None,
        phase: Sequence[str | None] | None = None,
        compound: Sequence[str | None] | None = None,
        forward_op: Sequence[str | None] | None = None,
        scope: Sequence[str | None] | None = None,
        repetition: Sequence[str | None] | None = None,
    ) -> Self:
        """Build from texts (`"feed"`) for ops of these names; None is the default of a column.

        Raises:
            BadInputError: a text is not a value of its column, or a column has another length.
        """
        nothing: tuple[None, ...] = (None,) * len(names)
        return cls(
            role=_numbers(Role, "role", role, names),
            phase=_numbers(Phase, "phase", phase, names),
            compound=_numbers(Compound, "compound", compound, names),
            forward_op=nothing if forward_op is None else tuple(forward_op),
            scope=nothing if scope is None else tuple(scope),
            repetition=nothing if repetition is None else tuple(repetition),
        )

    def check(self, num_ops: int) -> None:
        """Check that every column has `num_ops` entries.

        Raises:
            BadInputError: a column has another length.
        """
        for column in fields(self):
            check_length(f"ops.{column.name}", len(getattr(self, column.name)), num_ops)

    def of(self, ops: Sequence[int]) -> Self:
        """Return the labels of some ops."""
        rows = np.asarray(ops, dtype=np.int64)
        return type(self)(
            role=self.role[rows],
            phase=self.phase[rows],
            compound=self.compound[rows],
            forward_op=tuple(map(self.forward_op.__getitem__, ops)),
            scope=tuple(map(self.scope.__getitem__, ops)),
            repetition=tuple(map(self.repetition.__getitem__, ops)),
        )

    def texts(self) -> dict[str, Sequence[str | None]]:
        """Return all columns as texts, by name, as `build` takes them."""
        return {
            "role": _texts(Role, self.role),
            "phase": _texts(Phase, self.phase),
            "compound": _texts(Compound, self.compound),
            "forward_op": self.forward_op,
            "scope": self.scope,
            "repetition": self.repetition,
        }

    def has_role(self, *roles: Role) -> BoolArray:
        """Return whether each op has one of these roles, `[num_ops]`."""
        has: BoolArray = np.isin(self.role, roles)
        return has

    def has_own_scope(self) -> BoolArray:
        """Return whether the name of each op has its scopes, `[num_ops]`.

        This holds for forward ops, and for ops without an entry in `scope`.
        """
        in_name = np.array([scope is None for scope in self.scope], dtype=np.bool_)
        own: BoolArray = in_name | (self.phase == Phase.FORWARD)
        return own

    def paths(self, names: Sequence[str]) -> list[Path]:
        """Return the path of every op in the model, `[num_ops]`."""
        return [
            (*_parts(name.rpartition("/")[0] if scope is None else scope), name.rpartition("/")[2])
            for name, scope in zip(names, self.scope, strict=True)
        ]

    def layer_paths(self, names: Sequence[str]) -> list[Path]:
        """Return `paths` without the scopes that distinguish repetitions, `[num_ops]`."""
        return [
            path if repetition is None else _without(path, repetition)
            for path, repetition in zip(self.paths(names), self.repetition, strict=True)
        ]


def _texts(kind: type[_Label], numbers: IntArray) -> list[str | None]:
    text_of = [None if label.name == "NONE" else label.name.lower() for label in kind]
    return [text_of[number] for number in numbers.tolist()]


def _numbers(
    kind: type[_Label], column: str, values: Sequence[str | None] | None, names: Sequence[str]
) -> IntArray:
    if values is None:
        return np.zeros(len(names), dtype=np.int64)
    check_length(f"ops.{column}", len(values), len(names))
    number_of: dict[str | None, int] = {label.name.lower(): int(label) for label in kind}
    number_of.pop("none", None)
    known = ", ".join(map(str, number_of))
    number_of[None] = 0
    for name, text in zip(names, values, strict=True):
        if text not in number_of:
            raise BadInputError(
                f"op {name!r} has {column} {text!r}; one of {known} was expected: correct it."
            )
    return np.array([number_of[text] for text in values], dtype=np.int64)


@lru_cache(maxsize=2**14)  # many ops share a scope
def _parts(scope: str) -> Path:
    return tuple(scope.split("/")) if scope else ()


def _without(path: Path, repetition: str) -> Path:
    left_out = _parts(repetition)
    return (*(scope for scope in path[:-1] if scope not in left_out), path[-1])
