"""Runs the parts of an op in TensorFlow, and compares their merged outputs with those of the op."""

import re
from collections.abc import Sequence

import numpy as np
from sharding_ops import (
    Array,
    Case,
    Input,
    Known,
    Variable,
    attribute_names,
    computed,
    updated,
)

from pesto_cli.data.specs import Operand, OpSpec
from pesto_cli.sharding.alternative import Alternative, FromOp, FromSlot, PartOp, Program, scaled
from pesto_cli.sharding.layouts import Layout, Partial, Reduction, Replicated, Split, Whole

REDUCTIONS = {
    Reduction.SUM: np.add,
    Reduction.MIN: np.minimum,
    Reduction.MAX: np.maximum,
    Reduction.ALL: np.logical_and,
    Reduction.ANY: np.logical_or,
}
TOLERANCES = {"float64": 1e-9, "float32": 1e-5, "float16": 1e-2, "bfloat16": 5e-2}


def prove(case: Case, alternative: Alternative, sizes: Sequence[int]) -> None:
    """Compare the merged outputs of the parts of an op with its outputs.

    sizes: `[num_parts]`, units of the factor that is split.

    Raises:
        AssertionError: an output is different, or the program contradicts its specs.
    """
    spec = case.spec
    whole = [case.value] if case.value is not None else computed(spec, case.inputs)
    generator = np.random.default_rng(0)
    pieces = [
        _pieces(given, layout, alternative.size, sizes, generator)
        for given, layout in zip(case.inputs, alternative.inputs, strict=True)
    ]
    program = alternative.program(spec, alternative, tuple(sizes))
    _check_names(program)
    if case.value is None:
        produced = _run(program, pieces)
    else:
        produced = _cut_constants(program, case.value, alternative, sizes)
    assert len(program.outputs) == len(spec.outputs) == len(alternative.outputs)
    for number, layout in enumerate(alternative.outputs[: case.num_defined]):
        parts = [produced[source.op][source.output] for source in program.outputs[number]]
        _check_pieces(parts, spec.outputs[number], layout, alternative.size, sizes)
        merged = _merged(parts, layout)
        _check_equal(merged, whole[number], _tolerance(spec), f"output {number}, {layout}")


def run_parts(case: Case, alternative: Alternative, sizes: Sequence[int]) -> list[list[Array]]:
    """Return the pieces of each output of an op that is split."""
    generator = np.random.default_rng(0)
    pieces = [
        _pieces(given, layout, alternative.size, sizes, generator)
        for given, layout in zip(case.inputs, alternative.inputs, strict=True)
    ]
    program = alternative.program(case.spec, alternative, tuple(sizes))
    produced = _run(program, pieces)
    return [[produced[piece.op][piece.output] for piece in each] for each in program.outputs]


def prove_update(case: Case, alternative: Alternative, sizes: Sequence[int]) -> None:
    """Compare the variables that the parts of an op leave with those that the op leaves.

    Arguments and errors are those of `prove`. Outputs are compared too.
    """
    outputs, expected = updated(case.spec, case.inputs)
    generator = np.random.default_rng(0)
    pieces = [
        _pieces(given, layout, alternative.size, sizes, generator)
        for given, layout in zip(case.inputs, alternative.inputs, strict=True)
    ]
    program = alternative.program(case.spec, alternative, tuple(sizes))
    _check_names(program)
    produced: list[list[Array]] = []
    ran = []
    for op in program.ops:
        inputs = [_input(op, slot, pieces, produced) for slot in range(len(op.inputs))]
        found, state = updated(op.spec, inputs)
        produced.append(found)
        if not op.name:
            ran.append((found, state))
    handles = [
        layout
        for given, layout in zip(case.inputs, alternative.inputs, strict=True)
        if isinstance(given, Variable)
    ]
    for number, (layout, value) in enumerate(zip(handles, expected, strict=True)):
        merged = _merged([state[number] for _, state in ran], layout)
        _check_equal(merged, value, _tolerance(case.spec), f"variable {number}, {layout}")
    for number, layout in enumerate(alternative.outputs):
        merged = _merged([found[number] for found, _ in ran], layout)
        _check_equal(merged, outputs[number], _tolerance(case.spec), f"output {number}")


def _pieces(
    given: Input,
    layout: Layout,
    whole: int | None,
    sizes: Sequence[int],
    generator: np.random.Generator,
) -> list[Input]:
    """Return an input as each part takes it."""
    if isinstance(given, Variable) and isinstance(layout, Split):
        return [Variable(each) for each in _slices(given.array, layout.axis, whole, sizes)]
    array = given.array if isinstance(given, Known) else given
    if isinstance(layout, Split):
        assert not isinstance(array, Variable)
        return list(_slices(array, layout.axis, whole, sizes))
    if isinstance(layout, Partial):
        assert not isinstance(array, Variable), "a handle has no parts"
        return list(_summands(array, layout.reduction, len(sizes), generator))
    assert isinstance(layout, Whole | Replicated)
    return [array] * len(sizes)


def _slices(array: Array, axis: int, whole: int | None, sizes: Sequence[int]) -> list[Array]:
    extents = [scaled(array.shape[axis], size, whole) for size in sizes]
    assert sum(extents) == array.shape[axis], f"{extents} of {array.shape[axis]}"
    return np.split(array, np.cumsum(extents)[:-1], axis)


def _summands(
    array: Array, reduction: Reduction, count: int, generator: np.random.Generator
) -> list[Array]:
    """Return arrays whose reduction is `array`."""
    if reduction is Reduction.SUM:
        others = [_noise(array, generator) for _ in range(count - 1)]
        return [*others, (array - sum(others)).astype(array.dtype)]
    holder = generator.integers(count, size=array.shape)  # The part that has the result.
    if reduction in (Reduction.ALL, Reduction.ANY):
        neutral = reduction is Reduction.ALL
        return [
            np.where((holder == part) | (generator.random(array.shape) < 0.3), array, neutral)
            for part in range(count)
        ]
    sign = 1 if reduction is Reduction.MIN else -1
    distances = [sign * np.abs(_noise(array, generator)) for _ in range(count)]
    return [
        np.where(holder == part, array, array + distance).astype(array.dtype)
        for part, distance in enumerate(distances)
    ]


def _noise(array: Array, generator: np.random.Generator) -> Array:
    return np.asarray(generator.normal(scale=2, size=array.shape)).astype(array.dtype)


def _check_names(program: Program) -> None:
    names = [(op.part, op.name) for op in program.ops]
    assert len(set(names)) == len(names), f"two ops have one name: {names}"
    for _, name in names:
        assert re.fullmatch(r"[A-Za-z0-9_.>/\-]*", name), f"{name!r} is no name in TensorFlow"


def _run(program: Program, pieces: Sequence[Sequence[Input]]) -> list[list[Array]]:
    produced: list[list[Array]] = []
    for op in program.ops:
        assert {name for name, _ in op.spec.attributes} == attribute_names(op.spec.type), op
        assert len(op.inputs) == len(op.spec.inputs), op
        inputs = [_input(op, slot, pieces, produced) for slot in range(len(op.inputs))]
        outputs = computed(op.spec, inputs)
        for output, operand in zip(outputs, op.spec.outputs, strict=True):
            _check_operand(output, operand, op.spec)
        produced.append(outputs)
    return produced


def _input(
    op: PartOp, slot: int, pieces: Sequence[Sequence[Input]], produced: list[list[Array]]
) -> Input:
    """Return one input of an op of a program."""
    source, operand = op.inputs[slot], op.spec.inputs[slot]
    if isinstance(source, FromOp):
        given: Input = produced[source.op][source.output]
    elif isinstance(source, FromSlot):
        given = _of_part(pieces[source.slot], op.part)
    else:
        assert operand.value is not None, f"input {slot} of {op} has no value"
        given = np.array(operand.value, operand.dtype)
        given = given if given.size else given.reshape(operand.sizes)
    if not isinstance(given, Variable):
        _check_operand(given, operand, op.spec)
    return given


def _of_part(pieces: Sequence[Input], part: int | None) -> Input:
    if part is None:
        assert all(piece is pieces[0] for piece in pieces), "an op for all parts takes a piece"
    return pieces[part or 0]


def _cut_constants(
    program: Program, value: Array, alternative: Alternative, sizes: Sequence[int]
) -> list[list[Array]]:
    """Return the values of the parts of a Const, which are cut when they are written."""
    generator = np.random.default_rng(0)
    pieces = _pieces(value, alternative.outputs[0], alternative.size, sizes, generator)
    for op, piece in zip(program.ops, pieces, strict=True):
        _check_operand(piece, op.spec.outputs[0], op.spec)
    return [[piece] for piece in pieces]


def _check_operand(array: Array, operand: Operand, spec: OpSpec) -> None:
    found, stated = (array.shape, array.dtype.name), (operand.shape, operand.dtype)
    if operand.dtype != "string" and not _is_reserved(operand):
        assert found == stated, f"{found} is not {stated} of {spec}"


def _is_reserved(operand: Operand) -> bool:
    """Return whether the operand is scratch memory, whose shape each kernel chooses."""
    return operand.shape is None or operand.shape == (0,)


def _check_pieces(
    parts: list[Array],
    operand: Operand,
    layout: Layout,
    whole: int | None,
    sizes: Sequence[int],
) -> None:
    """Check the number of pieces of an output, and their shapes."""
    assert len(parts) == (1 if isinstance(layout, Whole) else len(sizes)), (layout, len(parts))
    for part, size in zip(parts, sizes, strict=False):
        stated = operand
        if isinstance(layout, Split):
            extent = scaled(operand.sizes[layout.axis], size, whole)
            stated = operand.resized(layout.axis, extent)
        assert part.shape == stated.shape or _is_reserved(stated), (
            f"{part.shape} is not {stated.shape} of {layout}"
        )


def _merged(parts: list[Array], layout: Layout) -> Array:
    if isinstance(layout, Split):
        return np.concatenate(parts, layout.axis)
    if isinstance(layout, Partial):
        merged = parts[0]
        for part in parts[1:]:
            merged = REDUCTIONS[layout.reduction](merged, part)
        return merged
    for part in parts[1:]:
        np.testing.assert_array_equal(part, parts[0], "copies differ")
    return parts[0]


def _tolerance(spec: OpSpec) -> float:
    """Return the relative tolerance of the least precise operand of an op."""
    types = {operand.dtype for operand in (*spec.inputs, *spec.outputs)}
    return max((TOLERANCES[each] for each in types & TOLERANCES.keys()), default=0)


def _check_equal(found: Array, expected: Array, tolerance: float, what: str) -> None:
    assert found.shape == expected.shape, f"{what}: {found.shape}, not {expected.shape}"
    if expected.dtype.name not in TOLERANCES:
        np.testing.assert_array_equal(found, expected, what)
        return
    finite = np.abs(expected[np.isfinite(expected)])
    scale = max(1.0, float(finite.max())) if finite.size else 1.0
    np.testing.assert_allclose(found, expected, tolerance, tolerance * scale, err_msg=what)
