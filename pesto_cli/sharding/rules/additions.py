"""Additions and differences. Factors: the axes of the output; sums of terms stay open.

A sum stays open if all terms are partial, or all but one: a whole term joins the first part, and
the other parts add up their remaining terms.
"""

from collections.abc import Iterator
from dataclasses import replace

from pesto_cli.data.specs import OpSpec
from pesto_cli.sharding.alternative import (
    Alternative,
    FromOp,
    FromSlot,
    PartOp,
    Program,
    Rule,
    part_spec,
    sources,
)
from pesto_cli.sharding.layouts import WHOLE
from pesto_cli.sharding.rules.axes import along
from pesto_cli.sharding.rules.elementwise import elementwise
from pesto_cli.sharding.rules.open_sums import UNSIGNED, open_sum

# Each term that may be whole is an alternative, which has a price of its own.
MAX_TERMS = 4


def addition(spec: OpSpec) -> Iterator[Alternative]:
    """Factors: all axes, with broadcasting. Linear in all terms together; one may be whole."""
    yield from elementwise(spec)
    yield from open_additions(spec)


def bias_add(spec: OpSpec) -> Iterator[Alternative]:
    """Factors: all axes; the bias is split with the channels. Linear; one term may be whole."""
    channels = channel_axis(spec)
    for axis in range(len(spec.outputs[0].sizes)):
        yield along(spec, axis, {0: axis, 1: 0} if axis == channels else {0: axis})
    yield from open_additions(spec)


def channel_axis(spec: OpSpec) -> int:
    """Return the axis of the channels of the first input of BiasAdd and BiasAddGrad."""
    is_second = spec.attribute["data_format"] == "NCHW"
    return 1 if is_second else len(spec.inputs[0].sizes) - 1


def open_additions(spec: OpSpec) -> Iterator[Alternative]:
    """Yield the alternatives with partial terms: all of them, or all but one."""
    slots = range(len(spec.inputs))
    yield from open_sum(spec, *slots)
    for whole in slots if 1 < len(slots) <= MAX_TERMS else ():
        others = [slot for slot in slots if slot != whole]
        if spec.type == "Sub" and whole == 0 and spec.outputs[0].dtype in UNSIGNED:
            continue  # `Neg` has no kernel for unsigned numbers
        if all(spec.inputs[slot].shape == spec.outputs[0].shape for slot in others):
            name = f"sum, input {whole} whole"
            for alternative in open_sum(spec, *others, name=name):
                yield replace(alternative, program=_first_part_adds_whole)


def _first_part_adds_whole(
    spec: OpSpec, alternative: Alternative, sizes: tuple[int, ...]
) -> Program:
    """Return the program of a sum with one whole term, which only part 0 adds."""
    own = part_spec(spec, alternative, sizes[0])
    whole = alternative.inputs.index(WHOLE)
    rest, slots = _without(own, whole)
    terms = tuple(FromSlot(slot) for slot in slots)
    others = (PartOp(part, rest, terms, "terms") for part in range(1, len(sizes)))
    ops = (PartOp(0, own, sources(own)), *others)
    return Program(ops, (tuple(FromOp(part) for part in range(len(sizes))),))


def _without(spec: OpSpec, whole: int) -> tuple[OpSpec, list[int]]:
    """Return the op that computes the same without one of the terms, and the slots of its terms."""
    slots = [slot for slot in range(len(spec.inputs)) if slot != whole]
    inputs = tuple(spec.inputs[slot] for slot in slots)
    if len(slots) > 1:
        return replace(spec, inputs=inputs).with_attributes(N=len(slots)), slots
    op_type = "Neg" if spec.type == "Sub" and whole == 0 else "Identity"
    attributes = (("T", spec.attribute["T"]),)
    return replace(spec, type=op_type, attributes=attributes, inputs=inputs), slots


RULES: dict[str, Rule] = {
    **dict.fromkeys(("Add", "AddN", "AddV2", "Sub"), addition),
    "BiasAdd": bias_add,
}
