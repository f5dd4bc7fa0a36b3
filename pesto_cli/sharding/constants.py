"""Small constants among the inputs of parts: each part has the slice that it takes."""

from dataclasses import replace

from pesto_cli.data.specs import Operand, Value
from pesto_cli.sharding.alternative import FromSlot, PartOp, Program, Source, scaled
from pesto_cli.sharding.decisions import Decision
from pesto_cli.sharding.layouts import Partial, Split


def program_of(decision: Decision) -> Program:
    """Return the program of a decision; inputs with known values are constants of its ops."""
    program = decision.alternative.program(decision.spec, decision.alternative, decision.sizes)
    if not any(is_replaced(decision, slot) for slot in range(len(decision.spec.inputs))):
        return program
    return replace(program, ops=tuple(_with_constants(op, decision) for op in program.ops))


def is_replaced(decision: Decision, slot: int) -> bool:
    """Return whether parts have constants in place of the tensor in a slot."""
    is_known = decision.spec.inputs[slot].value is not None
    return is_known and not isinstance(decision.alternative.inputs[slot], Partial)


def _with_constants(op: PartOp, decision: Decision) -> PartOp:
    operands, sources = list(op.spec.inputs), list(op.inputs)
    for place, source in enumerate(op.inputs):
        if isinstance(source, FromSlot):
            operands[place], sources[place] = _input(op, operands[place], source, decision)
    if sources == list(op.inputs):
        return op
    return op._replace(spec=replace(op.spec, inputs=tuple(operands)), inputs=tuple(sources))


def _input(
    op: PartOp, operand: Operand, source: FromSlot, decision: Decision
) -> tuple[Operand, Source]:
    value = decision.spec.inputs[source.slot].value
    layout = decision.alternative.inputs[source.slot]
    if value is None or not is_replaced(decision, source.slot):
        return operand, source
    if isinstance(layout, Split) and op.part is not None:
        sizes, whole = decision.sizes, decision.alternative.size
        extent = decision.spec.inputs[source.slot].sizes[layout.axis]
        begin = scaled(extent, sum(sizes[: op.part]), whole)
        value = _cut(value, layout.axis, begin, begin + scaled(extent, sizes[op.part], whole))
    return replace(operand, value=value), None


def _cut(value: Value, axis: int, begin: int, end: int) -> Value:
    if not isinstance(value, tuple):
        raise ValueError(f"{value} has no axis {axis}")
    if axis == 0:
        return value[begin:end]
    return tuple(_cut(row, axis - 1, begin, end) for row in value)
