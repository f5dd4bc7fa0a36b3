"""Calls of functions: an op of the graph that runs the ops of a body.

A call can be split if the same function, called with pieces of its arguments, returns pieces of its
results. So each op of the body must compute pieces from pieces as it is, with its own attributes
and constants. The alternatives of a call follow from those of the ops:

    for each argument and each of its axes:
        split the argument along the axis
        for each op of the body, in topological order:
            take an alternative whose inputs have the layouts that they already have,
                or leave the op whole if all its inputs are;
            arguments that no op has taken before get the layouts that the alternative takes
            go back to the op before, and take its next alternative, if there is none

A size that an op of the body takes, such as the shape of the images in the gradient of a
convolution, is that of a piece if the body computes it as the shape of a tensor that is split, not
if it is a constant.

XLA compiles the function again for the shapes of the pieces.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache, partial

from pesto_cli.data.specs import ARGUMENT, Body, BodyOp, Operand, OpSpec, Taken, Value
from pesto_cli.sharding import rules
from pesto_cli.sharding.alternative import (
    Alternative,
    Program,
    Rule,
    one_op_each,
    scaled,
)
from pesto_cli.sharding.layouts import REPLICATED, WHOLE, Layout, Own, Replicated, Split, Whole

MAX_STEPS = 2000
"""Most alternatives of ops that are looked at for one axis of an argument."""
SHAPES = frozenset({"Shape", "ShapeN"})

Layouts = Mapping[Taken, Layout]
"""The layout of each argument and result that has one. A whole result is computed by each part."""


@dataclass(frozen=True)
class _Way:
    """How the first ops of a body are split.

    size: the extent of the factor: each alternative has that many units, or a multiple.
    chosen: for each op its alternative; None if it is whole, or returns shapes.
    """

    size: int
    layouts: Layouts
    chosen: tuple[Alternative | None, ...] = ()


def split_calls(spec: OpSpec) -> Iterator[Alternative]:
    """Factors: those by which all ops of the function can be split together, as they are."""
    if spec.body is None:
        return
    found: dict[tuple[tuple[Layout, ...], tuple[Layout, ...]], Alternative] = {}
    names = set[str]()
    for slot, operand in enumerate(spec.inputs):
        for axis, extent in enumerate(operand.sizes):
            first = _Way(extent, {(ARGUMENT, slot): Split(axis)})
            way = next(_Search(spec.body).ways(first), None) if extent > 1 else None
            if way is None or not any(way.chosen):
                continue
            inputs = tuple(way.layouts.get((ARGUMENT, at), WHOLE) for at in range(len(spec.inputs)))
            outputs = tuple(_returned(way.layouts.get(each, WHOLE)) for each in spec.body.outputs)
            if (inputs, outputs) not in found:
                name = _unused(_name(way), names)
                names.add(name)
                program = partial(_parts, way)
                found[inputs, outputs] = Alternative(
                    name, way.size, inputs, outputs, program=program
                )
    yield from found.values()


class _Search:
    def __init__(self, body: Body) -> None:
        self._body, self._steps_left = body, MAX_STEPS
        self._shape_of = {
            (place, output): source
            for place, op in enumerate(body.ops)
            if op.spec.type in SHAPES
            for output, source in enumerate(op.inputs)
        }

    def ways(self, way: _Way) -> Iterator[_Way]:
        """Yield the ways to split all ops that begin with the alternatives of a way."""
        place = len(way.chosen)
        if place == len(self._body.ops):
            if all(self._is_known(each, way.layouts) for each in self._body.outputs):
                yield way
            return
        op = self._body.ops[place]
        if op.spec.type in SHAPES:
            yield from self.ways(replace(way, chosen=(*way.chosen, None)))
            return
        for alternative in _in_order(op.spec, way.size):
            self._steps_left -= 1
            if self._steps_left < 0:
                return
            layouts = self._taken(op, alternative, way.layouts)
            if layouts is not None:
                for output in range(len(op.spec.outputs)):
                    layout = WHOLE if alternative is None else alternative.outputs[output]
                    layouts[place, output] = _of_each_part(layout)
                size = math.gcd(way.size, 0 if alternative is None else alternative.size or 0)
                yield from self.ways(_Way(size, layouts, (*way.chosen, alternative)))

    def _is_known(self, result: Taken, layouts: Layouts) -> bool:
        """Return whether a result of the function is not the shape of a tensor that is split."""
        source = self._shape_of.get(result)
        return source is None or layouts.get(source, WHOLE) == WHOLE

    def _taken(
        self, op: BodyOp, alternative: Alternative | None, layouts: Layouts
    ) -> dict[Taken, Layout] | None:
        """Return the layouts with those of the inputs of an op; None if it has others already."""
        found = dict(layouts)
        resized = {} if alternative is None else dict(alternative.resized)
        for slot, source in enumerate(op.inputs):
            layout = WHOLE if alternative is None else alternative.inputs[slot]
            if source in self._shape_of and layout == WHOLE:
                source = self._shape_of[source]
                layout = Split(resized[slot]) if slot in resized else WHOLE
            elif slot in resized and not _is_open(op.spec.inputs[slot].value, resized[slot]):
                return None
            is_free = source[0] == ARGUMENT and isinstance(layout, Split | Whole)
            if (found.setdefault(source, layout) if is_free else found.get(source)) != layout:
                return None
        return found


def _in_order(spec: OpSpec, size: int) -> list[Alternative | None]:
    """Return the alternatives of an op, first those with as many units as the ops before it."""
    ways = [way for way in _as_they_are(spec) if math.gcd(size, way.size or 0) > 1]
    alike = [way for way in ways if way.size in (None, size)]
    return [*alike, None, *(way for way in ways if way.size not in (None, size))]


@lru_cache(maxsize=2**12)
def _as_they_are(spec: OpSpec) -> tuple[Alternative, ...]:
    """Return the alternatives whose parts are the op as it is, with pieces of its inputs."""
    return tuple(way for way in rules.alternatives(spec) if _is_as_it_is(spec, way))


def _is_as_it_is(spec: OpSpec, way: Alternative) -> bool:
    """Return whether each part is the op with its attributes, and differs only by what it takes."""
    takes_own = any(isinstance(each, Replicated | Own) for each in way.inputs)
    takes_the_same = all(each == WHOLE for each in way.inputs) and not way.resized
    if takes_own or takes_the_same or all(map(_is_whole, way.outputs)):
        return False
    if len(dict(way.resized)) < len(way.resized):  # Two sizes in one constant.
        return False
    sizes = (1, 1 if way.size is None else way.size - 1)
    own, plain = (make(spec, way, sizes) for make in (way.program, one_op_each))
    return _without_bodies(own) == _without_bodies(plain) and all(
        op.spec.attributes == spec.attributes for op in own.ops
    )


def _without_bodies(program: Program) -> Program:
    ops = (op._replace(spec=replace(op.spec, body=None)) for op in program.ops)
    return replace(program, ops=tuple(ops))


def _is_whole(layout: Layout) -> bool:
    return isinstance(layout, Whole | Replicated)


def _of_each_part(layout: Layout) -> Layout:
    """Return the layout of a result for the parts of the ops that take it."""
    return WHOLE if isinstance(layout, Replicated) else layout


def _returned(layout: Layout) -> Layout:
    """Return the layout of a result of the function: each part returns what is whole."""
    return REPLICATED if isinstance(layout, Whole) else layout


def _is_open(sizes: Value | None, position: int) -> bool:
    """Return whether a size follows from the others: -1 in the shape of a Reshape."""
    if position < 0 or not isinstance(sizes, tuple):
        return False
    size = sizes[position]
    return isinstance(size, int) and size < 0


def _name(way: _Way) -> str:
    """Return the name of the first alternative that says more than the number of an axis."""
    names = [each.name for each in way.chosen if each is not None and each.size]
    return next((name for name in names if not name.startswith("axis")), names[0])


def _unused(name: str, names: set[str]) -> str:
    return next(
        each
        for each in (name, *(f"{name} ({number})" for number in range(2, len(names) + 2)))
        if each not in names
    )


def _parts(way: _Way, spec: OpSpec, alternative: Alternative, sizes: tuple[int, ...]) -> Program:
    """Return one call for each part, with the ops that it runs."""
    program = one_op_each(spec, alternative, sizes)
    ops = [
        op._replace(spec=replace(op.spec, body=_part_of_body(way, spec, size)))
        for op, size in zip(program.ops, sizes, strict=True)
    ]
    return replace(program, ops=tuple(ops))


def _part_of_body(way: _Way, spec: OpSpec, size: int) -> Body:
    assert spec.body is not None
    ops = []
    for op, chosen in zip(spec.body.ops, way.chosen, strict=True):
        part = op.spec
        if op.spec.type in SHAPES:
            part = _part_of_shapes(op, way, size)
        elif chosen is not None:
            units = size if chosen.size is None else scaled(chosen.size, size, way.size)
            part = chosen.program(op.spec, chosen, (units, units)).ops[0].spec
        ops.append(replace(op, spec=part))
    return replace(spec.body, ops=tuple(ops))


def _part_of_shapes(op: BodyOp, way: _Way, size: int) -> OpSpec:
    inputs, outputs = list[Operand](), list[Operand]()
    for source, taken, shape in zip(op.inputs, op.spec.inputs, op.spec.outputs, strict=True):
        layout = way.layouts.get(source, WHOLE)
        if isinstance(layout, Split):
            extent = scaled(taken.sizes[layout.axis], size, way.size)
            taken = taken.resized(layout.axis, extent)
            shape = replace(shape, value=taken.sizes)
        inputs.append(taken)
        outputs.append(shape)
    return replace(op.spec, inputs=tuple(inputs), outputs=tuple(outputs))


RULES: dict[str, Rule] = dict.fromkeys(("PartitionedCall", "StatefulPartitionedCall"), split_calls)
