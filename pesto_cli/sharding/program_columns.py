"""The program of a decision as columns, so that an expansion adds all its ops at once."""

import math
from dataclasses import dataclass
from functools import lru_cache

from pesto_cli.data.plan import MIRRORED
from pesto_cli.data.specs import SMALL_CONSTANT_ELEMENTS, OpSpec
from pesto_cli.sharding import added_ops
from pesto_cli.sharding.alternative import FromOp, FromSlot, PartOp, Program
from pesto_cli.sharding.constants import program_of
from pesto_cli.sharding.decisions import Decision
from pesto_cli.sharding.rules.variables import is_variable

Place = int
"""A position in the refs that an expansion gives to the ops of a program; see `ProgramColumns`."""


@dataclass(frozen=True, eq=False)
class ProgramColumns:
    """The ops of a program, in an order in which inputs come before the ops that take them.

    suffixes: what follows the name of the split op in the name of each op: `.part_0.share`. The
        first copy of a mirrored variable has the name of the variable.
    parts: the part of each op; -1 if the op serves all parts.
    specs: the spec of each op.
    is_priced: whether the profile gives the time of each op.
    slots: the inputs of the split op that the ops take: (slot, whether each part takes a piece).
    constants: the constants that are ops: (op of the program, slot, spec).
    results: the outputs that ops take from each other: (op of the program, output number).
    inputs: the place of each input of each op. Place 0 has None, which is a small constant. The
        next places have the slots (one place for each part if it takes a piece), then come the
        constants, then the results.
    outputs: for each output of the split op, its pieces: (op of the program, output number).
    """

    suffixes: list[str]
    parts: list[int]
    specs: list[OpSpec | None]
    is_priced: list[bool]
    slots: list[tuple[int, bool]]
    constants: list[tuple[int, int, OpSpec]]
    results: list[tuple[int, int]]
    inputs: list[list[Place]]
    outputs: list[list[tuple[int, int]]]


@lru_cache(maxsize=2**14)
def columns_of(decision: Decision) -> ProgramColumns:
    """Return the program of a decision as columns."""
    program = program_of(decision)
    is_copied = is_variable(decision.spec) and decision.alternative.name == MIRRORED
    places = _Places(program, len(decision.sizes))
    return ProgramColumns(
        suffixes=["" if is_copied and op.part == 0 else _suffix(op) for op in program.ops],
        parts=[-1 if op.part is None else op.part for op in program.ops],
        specs=[op.spec for op in program.ops],
        is_priced=[op.part is not None and not op.name for op in program.ops],
        slots=[*places.slots],
        constants=[*places.constants.values()],
        results=[*places.results],
        inputs=[places.of(number, op) for number, op in enumerate(program.ops)],
        outputs=[[(piece.op, piece.output) for piece in pieces] for pieces in program.outputs],
    )


class _Places:
    """The places of the inputs of all ops of a program."""

    def __init__(self, program: Program, num_parts: int) -> None:
        self.slots: dict[tuple[int, bool], Place] = {}
        self.constants: dict[tuple[int, int], tuple[int, int, OpSpec]] = {}
        self.results: dict[tuple[int, int], Place] = {}
        for number, op in enumerate(program.ops):
            for slot, source in enumerate(op.inputs):
                if isinstance(source, FromSlot):
                    self.slots.setdefault((source.slot, op.part is not None), 0)
                elif isinstance(source, FromOp):
                    self.results.setdefault((source.op, source.output), 0)
                elif math.prod(op.spec.inputs[slot].sizes) > SMALL_CONSTANT_ELEMENTS:
                    value = op.spec.inputs[slot]  # slots with the same object share it
                    if (number, id(value)) not in self.constants:
                        constant = number, slot, added_ops.constant(value)
                        self.constants[number, id(value)] = constant
        next_place = 1
        for taken in self.slots:
            self.slots[taken] = next_place
            next_place += num_parts if taken[1] else 1
        self._constant = {key: next_place + each for each, key in enumerate(self.constants)}
        next_place += len(self.constants)
        self.results = {key: next_place + each for each, key in enumerate(self.results)}

    def of(self, number: int, op: PartOp) -> list[Place]:
        """Return the place of each input of an op."""
        found = []
        for slot, source in enumerate(op.inputs):
            if isinstance(source, FromSlot):
                part = op.part or 0
                found.append(self.slots[source.slot, op.part is not None] + part)
            elif isinstance(source, FromOp):
                found.append(self.results[source.op, source.output])
            else:
                found.append(self._constant.get((number, id(op.spec.inputs[slot])), 0))
        return found


def _suffix(op: PartOp) -> str:
    of_part = "" if op.part is None else f".part_{op.part}"
    return f"{of_part}.{op.name}" if op.name else of_part
