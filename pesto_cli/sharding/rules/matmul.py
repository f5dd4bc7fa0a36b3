"""Products of matrices and tensors. Factors: the axes of the output, and the contracted axes.

A contracted axis is summed over, so the outputs of its parts are partial. All products are linear
in each operand: a sum of one operand stays open if the other operands are whole.
"""

from collections.abc import Iterator, Sequence

from pesto_cli.data.specs import Operand, OpSpec
from pesto_cli.sharding.alternative import Alternative, Rule
from pesto_cli.sharding.layouts import SUM, WHOLE, Layout, Split
from pesto_cli.sharding.rules.axes import along
from pesto_cli.sharding.rules.open_sums import FLOATS, open_sum

ROWS, COLUMNS, CONTRACTED = "rows", "columns", "contracted"

Labels = Sequence[str]
"""The factor of each axis of an operand."""


def matmul(spec: OpSpec) -> Iterator[Alternative]:
    """MatMul. Factors: rows m, columns n, contracted k: [m, k] x [k, n] = [m, n]."""
    first = _matrix(ROWS, CONTRACTED, spec.attribute["transpose_a"])
    second = _matrix(CONTRACTED, COLUMNS, spec.attribute["transpose_b"])
    yield from product(spec, [first, second], [ROWS, COLUMNS])


def batch_matmul(spec: OpSpec) -> Iterator[Alternative]:
    """BatchMatMul. Factors: the batch axes, with broadcasting, and those of a MatMul."""
    batch = [f"axis {axis}" for axis in range(len(spec.outputs[0].sizes) - 2)]
    first = _matrix(ROWS, CONTRACTED, spec.attribute["adj_x"])
    second = _matrix(CONTRACTED, COLUMNS, spec.attribute["adj_y"])
    labels = [
        [*batch[len(batch) + 2 - len(operand.sizes) :], *matrix]
        for operand, matrix in zip(spec.inputs, (first, second), strict=True)
    ]
    yield from product(spec, labels, [*batch, ROWS, COLUMNS])


def einsum(spec: OpSpec) -> Iterator[Alternative]:
    """Einsum. Factors: the labels of the equation, and the axes of its ellipsis.

    Axes of an ellipsis are broadcast, so they are numbered from the last one. An equation whose
    output lacks the ellipsis has no rule.
    """
    left, _, right = str(spec.attribute["equation"]).replace(" ", "").partition("->")
    if "..." in left and "..." not in right:
        return
    output = _expanded(right, len(spec.outputs[0].sizes))
    names = {label: f"axis {axis}" for axis, label in enumerate(output)}
    inputs = [
        [names.get(label, f"{CONTRACTED} {label}") for label in _expanded(text, len(operand.sizes))]
        for text, operand in zip(left.split(","), spec.inputs, strict=True)
    ]
    yield from product(spec, inputs, [names[label] for label in output])


def _expanded(text: str, rank: int) -> list[str]:
    """Return the label of each axis; those of an ellipsis are their numbers from its last axis."""
    before, _, after = text.partition("...")
    num_others = rank - len(before) - len(after)
    return [*before, *(str(number) for number in reversed(range(num_others))), *after]


def product(spec: OpSpec, inputs: Sequence[Labels], output: Labels) -> Iterator[Alternative]:
    """Yield the alternatives of a product of tensors.

    inputs, output: the factors of the axes. A factor that is missing in the output is contracted.
        An axis of size 1 is broadcast. A factor with two axes of one operand is not split.
    """
    sizes: dict[str, int] = {}
    for operand, labels in zip(spec.inputs, inputs, strict=True):
        for label, size in zip(labels, operand.sizes, strict=True):
            sizes[label] = max(size, sizes.get(label, 1))
    for label in (*output, *sorted(set(sizes) - set(output))):
        is_diagonal = any(list(labels).count(label) > 1 for labels in (*inputs, output))
        if not is_diagonal:
            layouts: tuple[Layout, ...] = tuple(
                _layout(operand, labels, label, sizes[label])
                for operand, labels in zip(spec.inputs, inputs, strict=True)
            )
            result: Layout = Split(output.index(label)) if label in output else SUM
            yield Alternative(label, sizes[label], layouts, (result,))
    for slot, operand in enumerate(spec.inputs):
        name = f"sum of input {slot}" if len(inputs) > 1 else "sum"
        # A summand of a small integer type may overflow, and a product of a wider type keeps that.
        if operand.dtype == spec.outputs[0].dtype or operand.dtype in FLOATS:
            yield from open_sum(spec, slot, name=name)


def band_part(spec: OpSpec) -> Iterator[Alternative]:
    """MatrixBandPart. Factors: the batch axes. Linear."""
    for axis in range(len(spec.outputs[0].sizes) - 2):
        yield along(spec, axis, {0: axis})
    yield from open_sum(spec, 0)


def _matrix(row: str, column: str, is_transposed: object) -> list[str]:
    return [column, row] if is_transposed else [row, column]


def _layout(operand: Operand, labels: Labels, label: str, size: int) -> Layout:
    if label not in labels or operand.sizes[labels.index(label)] != size:
        return WHOLE
    return Split(labels.index(label))


RULES: dict[str, Rule] = {
    "MatMul": matmul,
    "BatchMatMul": batch_matmul,
    "BatchMatMulV2": batch_matmul,
    "BatchMatMulV3": batch_matmul,
    "Einsum": einsum,
    "MatrixBandPart": band_part,
}
