"""The pieces of a tensor: how they are cut, combined, and cut again without the whole tensor."""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from pesto_cli.data.specs import SMALL_CONSTANT_ELEMENTS, Operand, OpSpec
from pesto_cli.sharding import added_ops
from pesto_cli.sharding.layouts import Layout, Partial, Reduction, Split
from pesto_cli.sharding.new_ops import Ref

Add = Callable[[str, Sequence[Ref | None], OpSpec], int]
"""Adds an op with a name, inputs and a spec; returns its index."""

LARGE_BYTES = 2**22
"""To copy a tensor of this size takes longer than the two further ops of a view."""


class Pieces(NamedTuple):
    """How a tensor is computed: its layout, the extents of the parts on its axis, and the pieces.

    extents: empty if the layout has no axis.
    """

    layout: Layout
    extents: tuple[int, ...]
    refs: Sequence[Ref]


def cut(
    add: Add, name: str, operand: Operand, axis: int, extents: tuple[int, ...], whole: Ref
) -> list[Ref]:
    """Return the parts of a whole tensor along an axis.

    TensorFlow copies no data if rows of the first dimension are cut and each is aligned
    (`OpSpec.shares_memory`). If they are not, several rows together may be. So a large tensor is
    cut through a view in which as many rows are one as divide all parts. For example, 32 images
    of 299 x 299 x 3 floats are aligned, and one is not. If no view helps, one op copies each large
    part, so that the first parts can be sent while TensorFlow copies the others.

    Args:
        add: adds an op.
        name: of the op that cuts.
        operand: the whole tensor.
        axis: along which it is cut.
        extents: of the parts.
        whole: the tensor.
    """
    wide = _with_wide_rows(operand, axis, extents)
    if wide is None:
        if _are_large_copies(operand, axis, extents):
            return sliced(add, name, operand, axis, extents, [whole] * len(extents))
        return divided(add, name, operand, axis, extents, whole)
    num_rows = math.gcd(*extents)
    view = add(f"{name}.view", (whole, None), added_ops.reshaped(operand, wide.sizes)), 0
    wide_extents = tuple(extent // num_rows for extent in extents)
    parts = []
    for part, ref in enumerate(divided(add, name, wide, 0, wide_extents, view)):
        spec = added_ops.reshaped(
            wide.resized(0, wide_extents[part]), operand.resized(0, extents[part]).sizes
        )
        parts.append((add(f"{name}.part_{part}", (ref, None), spec), 0))
    return parts


def _with_wide_rows(operand: Operand, axis: int, extents: tuple[int, ...]) -> Operand | None:
    """Return the view through which a tensor is cut without copies; None if it needs none."""
    num_rows = math.gcd(*extents)
    if axis > 0 or num_rows < 2 or operand.num_bytes < LARGE_BYTES:
        return None
    size, *others = operand.sizes
    wide = Operand((size // num_rows, num_rows * math.prod(others)), operand.dtype)
    specs = (added_ops.split(each, 0, extents) for each in (operand, wide))
    is_shared, becomes_shared = (spec.shares_memory for spec in specs)
    return wide if becomes_shared and not is_shared else None


def _are_large_copies(operand: Operand, axis: int, extents: tuple[int, ...]) -> bool:
    """Return whether a cut along the first dimension copies the parts, and all parts are large."""
    if axis > 0 or operand.resized(axis, min(extents)).num_bytes < LARGE_BYTES:
        return False
    return not added_ops.split(operand, axis, extents).shares_memory


def sliced(
    add: Add, name: str, operand: Operand, axis: int, extents: Sequence[int], wholes: Sequence[Ref]
) -> list[Ref]:
    """Return the parts of a whole tensor along an axis, each cut by an op of its own.

    wholes: for each part, the tensor or the copy of it from which the part is cut.
    """
    parts, begin = list[Ref](), 0
    for part, (extent, whole) in enumerate(zip(extents, wholes, strict=True)):
        spec = added_ops.sliced(operand, axis, begin, extent)
        parts.append((add(f"{name}.part_{part}", (whole, None, None), spec), 0))
        begin += extent
    return parts


def divided(
    add: Add, name: str, operand: Operand, axis: int, extents: tuple[int, ...], whole: Ref
) -> list[Ref]:
    """Return the parts of a whole tensor along an axis, cut without a view.

    One op cuts all parts. Its list of unequal extents is a constant, which would be an op of the
    step if it were longer than `SMALL_CONSTANT_ELEMENTS`. Then pieces are cut first.
    """
    if len(extents) == 1:
        return [whole]
    spec = added_ops.split(operand, axis, extents)
    if spec.type == "SplitV" and len(extents) > SMALL_CONSTANT_ELEMENTS:
        return _divided_twice(add, name, operand, axis, extents, whole)
    inputs = (None, whole) if spec.type == "Split" else (whole, None, None)
    new = add(name, inputs, spec)
    return [(new, part) for part in range(len(extents))]


def _divided_twice(
    add: Add, name: str, operand: Operand, axis: int, extents: tuple[int, ...], whole: Ref
) -> list[Ref]:
    """Cut a tensor into pieces of several parts, and then these into parts."""
    most = SMALL_CONSTANT_ELEMENTS
    runs = [extents[at : at + most] for at in range(0, len(extents), most)]
    pieces = divided(add, f"{name}.first", operand, axis, tuple(map(sum, runs)), whole)
    parts = list[Ref]()
    for place, (run, piece) in enumerate(zip(runs, pieces, strict=True)):
        wide = operand.resized(axis, sum(run))
        parts += divided(add, f"{name}.of_{place}", wide, axis, run, piece)
    return parts


def reduced(
    add: Add, name: str, operand: Operand, reduction: Reduction, refs: Sequence[Ref]
) -> Ref:
    """Combine partial tensors by one op, or by a chain of ops that take two.

    name: of the last op. operand: one of the tensors.
    """
    if len(refs) == 1:
        return refs[0]
    if reduction is Reduction.SUM:
        return add(name, refs, added_ops.combined(operand, reduction, len(refs))), 0
    spec, found = added_ops.combined(operand, reduction, 2), refs[0]
    for place, ref in enumerate(refs[1:], start=1):
        is_last = place == len(refs) - 1
        found = add(name if is_last else f"{name}.first_{place + 1}", (found, ref), spec), 0
    return found


def joined(
    add: Add, name: str, operand: Operand, axis: int, extents: tuple[int, ...], refs: Sequence[Ref]
) -> Ref:
    """Join pieces along an axis. operand: the tensor that they make."""
    if len(refs) == 1:
        return refs[0]
    return add(name, (*refs, None), added_ops.concat(operand, axis, extents)), 0


def cut_again(
    add: Add, name: str, operand: Operand, pieces: Pieces, axis: int, extents: tuple[int, ...]
) -> list[Ref]:
    """Return the parts of a split tensor along another axis, or of other extents.

    Each piece is cut, and each part is joined or added from cuts. So no device needs the whole
    tensor. With as many parts as pieces this is an all-to-all, for partial tensors a
    reduce-scatter.

    Args:
        add: adds an op.
        name: of the ops that cut and combine, with a suffix.
        operand: the whole tensor.
        pieces: how it is computed: split or partial.
        axis: along which it is cut.
        extents: of the new parts.
    """
    layout = pieces.layout
    cut_by = (
        _overlaps(add, name, operand, pieces, extents)
        if layout == Split(axis)
        else _cuts(add, name, operand, pieces, axis, extents)
    )
    parts = []
    for part, (refs, sizes) in enumerate(cut_by):
        whole = operand.resized(axis, extents[part])
        place = f"{name}.part_{part}"
        if isinstance(layout, Partial):
            parts.append(reduced(add, place, whole, layout.reduction, refs))
        elif isinstance(layout, Split):
            parts.append(joined(add, place, whole, layout.axis, sizes, refs))
    return parts


_Terms = tuple[list[Ref], tuple[int, ...]]
"""What a part is made of, and the extents of these on the axis along which they are joined."""


def _cuts(
    add: Add, name: str, operand: Operand, pieces: Pieces, axis: int, extents: tuple[int, ...]
) -> Iterator[_Terms]:
    """Cut every piece into as many parts as there are."""
    cuts = []
    for place, ref in enumerate(pieces.refs):
        piece = operand
        if isinstance(pieces.layout, Split):
            piece = operand.resized(pieces.layout.axis, pieces.extents[place])
        cuts.append(divided(add, f"{name}.of_{place}", piece, axis, extents, ref))
    for refs in zip(*cuts, strict=True):
        yield [*refs], pieces.extents


def _overlaps(
    add: Add, name: str, operand: Operand, pieces: Pieces, extents: tuple[int, ...]
) -> Iterator[_Terms]:
    """Slice each piece where it overlaps with a part, along the axis that is split."""
    assert isinstance(pieces.layout, Split)
    axis, begin = pieces.layout.axis, 0
    for part, extent in enumerate(extents):
        refs, sizes, first = [], [], 0
        for place, (ref, size) in enumerate(zip(pieces.refs, pieces.extents, strict=True)):
            low, high = max(begin, first), min(begin + extent, first + size)
            if low < high:
                if high - low < size:
                    piece = operand.resized(axis, size)
                    spec = added_ops.sliced(piece, axis, low - first, high - low)
                    ref = add(f"{name}.of_{place}_{part}", (ref, None, None), spec), 0
                refs.append(ref)
                sizes.append(high - low)
            first += size
        yield refs, tuple(sizes)
        begin += extent
