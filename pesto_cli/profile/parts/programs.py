"""The ops that parts consist of, for each way to split each op and each number of parts."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pesto_cli.data.parts import added_dtype
from pesto_cli.data.specs import Operand, OpSpec
from pesto_cli.sharding.alternative import Alternative, Program
from pesto_cli.sharding.rules import all_alternatives


@dataclass(frozen=True)
class Split:
    """One way to split an op.

    parts: for each number of parts, the ops of a part that have the type of the whole op.
    """

    whole: OpSpec
    alternative: str
    size: int
    parts: tuple[tuple[OpSpec, ...], ...]


def splits(spec: OpSpec, numbers: Sequence[int]) -> Iterator[Split]:
    """Yield the ways to split an op whose parts have a price of their own."""
    for alternative in all_alternatives(spec):
        if alternative.size is not None and alternative.size > 1:
            parts = tuple(_main_ops(spec, alternative, number) for number in numbers)
            if any(parts):
                yield Split(spec, alternative.name, alternative.size, parts)


def helpers(spec: OpSpec) -> Iterator[tuple[tuple[str, str], OpSpec]]:
    """Yield the ops that the programs of an op add: ((type, data type), an example).

    Ops whose inputs have open shapes or handles are left out: their times cannot be estimated.
    """
    for alternative in all_alternatives(spec):
        size = 2 if alternative.size is None else alternative.size
        for op in _program(spec, alternative, (size // 2, size - size // 2)).ops:
            if op.name and all(map(_has_data, op.spec.inputs)):
                yield (op.spec.type, added_dtype(op.spec)), op.spec


def _has_data(operand: Operand) -> bool:
    return operand.is_static and not operand.is_handle


def _main_ops(spec: OpSpec, alternative: Alternative, number: int) -> tuple[OpSpec, ...]:
    """Return the ops of one of `number` equal parts that have the type of the whole op."""
    assert alternative.size is not None
    units = max(1, alternative.size // number)
    program = _program(spec, alternative, (units, alternative.size - units))
    return tuple(op.spec for op in program.ops if op.part == 0 and not op.name)


def _program(spec: OpSpec, alternative: Alternative, sizes: tuple[int, ...]) -> Program:
    return alternative.program(spec, alternative, sizes)
