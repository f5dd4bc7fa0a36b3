"""Ranges, padding, reversed and rolled axes: full and partial ranges, masks, negative strides."""

from typing import Any, NamedTuple

import numpy as np
from hypothesis import strategies as st
from sharding_ops import Case, Known, case, known
from sharding_tensors import shapes, tensors

indices = st.sampled_from(("int32", "int64"))


@st.composite
def slice_(draw: st.DrawFn) -> Case:
    shape = draw(shapes())
    begin = [draw(st.sampled_from((0, 0, size - 1))) for size in shape]
    end = [draw(st.integers(start, size)) for start, size in zip(begin, shape, strict=True)]
    ranges = zip(begin, end, shape, strict=True)
    extent = [
        draw(st.sampled_from((size - start, -1, stop - start))) for start, stop, size in ranges
    ]
    dtype = draw(indices)
    return case("Slice", draw(tensors(shape)), known(begin, dtype), known(extent, dtype))


class Ranges(NamedTuple):
    """The constants and masks of a strided slice, and the shape of its result."""

    bounds: tuple[Known, Known, Known]
    masks: dict[str, int]
    result: tuple[int, ...]


@st.composite
def ranges(draw: st.DrawFn, shape: tuple[int, ...]) -> Ranges:
    entries = [draw(_entry(size)) for size in shape[: draw(st.integers(0, len(shape)))]]
    if draw(st.booleans()):
        missing = len(shape) - len(entries)
        first = draw(st.integers(0, len(entries)))
        entries[first:first] = [(0, 0, 1, "ellipsis")]
        entries[first + 1 :] = [draw(_entry(size)) for size in shape[first + missing :]]
    for _ in range(draw(st.integers(0, 2))):
        entries.insert(draw(st.integers(0, len(entries))), (0, 0, 1, "new_axis"))
    dtype = draw(indices)
    bounds = [known([entry[column] for entry in entries], dtype) for column in range(3)]
    names = ("begin", "end", "ellipsis", "new_axis", "shrink_axis")
    masks = {f"{name}_mask": _mask(entries, name) for name in names}
    return Ranges(tuple(bounds), masks, np.empty(shape)[_selection(entries)].shape)


def _mask(entries: list[tuple[int, int, int, str]], name: str) -> int:
    return sum(1 << index for index, entry in enumerate(entries) if name in entry[3].split())


@st.composite
def _entry(draw: st.DrawFn, size: int) -> tuple[int, int, int, str]:
    """Draw begin, end, stride and masks of an axis; often the whole axis."""
    kind = draw(st.sampled_from(("full", "full", "range", "backward", "shrink_axis")))
    if kind == "shrink_axis":
        begin = draw(st.integers(-size, size - 1))
        return begin, begin + 1 or size, 1, kind
    if kind == "backward":
        return 0, 0, -1, "begin end"
    if kind == "full":
        ways = (0, size, 1, ""), (-size, size + 3, 1, ""), (1, 1, 1, "begin end")
        return draw(st.sampled_from(ways))
    begin = draw(st.integers(0, size - 1))
    return begin, draw(st.integers(begin + 1, size)), draw(st.integers(1, 2)), ""


def _selection(entries: list[tuple[int, int, int, str]]) -> tuple[Any, ...]:
    """Return the entries as numpy takes them."""
    special = {"ellipsis": ..., "new_axis": None}
    return tuple(
        begin
        if masks == "shrink_axis"
        else special.get(masks, slice(*(None, None) if masks else (begin, end), stride))
        for begin, end, stride, masks in entries
    )


@st.composite
def strided_slice(draw: st.DrawFn) -> Case:
    shape = draw(shapes())
    chosen = draw(ranges(shape))
    return case("StridedSlice", draw(tensors(shape)), *chosen.bounds, **chosen.masks)


@st.composite
def strided_slice_grad(draw: st.DrawFn) -> Case:
    shape = draw(shapes())
    chosen = draw(ranges(shape))
    dtype = chosen.bounds[0].array.dtype.name
    inputs = known(shape, dtype), *chosen.bounds, draw(tensors(chosen.result))
    return case("StridedSliceGrad", *inputs, **chosen.masks)


@st.composite
def pad(draw: st.DrawFn, op_type: str) -> Case:
    shape = draw(shapes(max_rank=3))
    one = st.sampled_from((0, 0, 1))
    rows = [[draw(one), draw(one)] if size > 2 else [0, 0] for size in shape]
    paddings = Known(np.array(rows, draw(indices)).reshape(len(shape), 2))
    if op_type == "MirrorPadGrad":
        shape = tuple(int(size) for size in np.array(shape) + paddings.array.sum(1))
    arguments: list[Any] = [draw(tensors(shape)), paddings]
    if op_type == "PadV2":
        arguments.append(known(draw(st.sampled_from((0, 1.5))), "float64"))
    mode = {"mode": draw(st.sampled_from(("REFLECT", "SYMMETRIC")))} if "Mirror" in op_type else {}
    return case(op_type, *arguments, **mode)


@st.composite
def reverse(draw: st.DrawFn) -> Case:
    shape = draw(shapes(min_rank=1))
    axes = [draw(st.booleans()) for _ in shape]
    return case("Reverse", draw(tensors(shape)), known(axes, "bool"))


@st.composite
def reverse_v2(draw: st.DrawFn) -> Case:
    shape = draw(shapes(min_rank=1))
    axes = draw(st.sets(st.integers(0, len(shape) - 1)))
    values = [axis - draw(st.sampled_from((0, len(shape)))) for axis in axes]
    return case("ReverseV2", draw(tensors(shape)), known(values, draw(indices)))


@st.composite
def reverse_sequence(draw: st.DrawFn) -> Case:
    shape = draw(shapes(min_rank=2))
    batch, sequence = draw(st.permutations(range(len(shape))))[:2]
    lengths = draw(tensors((shape[batch],), draw(indices), 0, shape[sequence]))
    return case("ReverseSequence", draw(tensors(shape)), lengths, seq_dim=sequence, batch_dim=batch)


@st.composite
def roll(draw: st.DrawFn) -> Case:
    shape = draw(shapes(min_rank=1))
    axes = draw(st.lists(st.integers(-len(shape), len(shape) - 1), max_size=2))
    shifts = [draw(st.integers(-3, 3)) for _ in axes]
    if len(axes) == 1 and draw(st.booleans()):
        return case("Roll", draw(tensors(shape)), known(shifts[0]), known(axes[0]))
    return case("Roll", draw(tensors(shape)), known(shifts), known(axes))


CASES = {
    "Slice": slice_(),
    "StridedSlice": strided_slice(),
    "StridedSliceGrad": strided_slice_grad(),
    **{op_type: pad(op_type) for op_type in ("Pad", "PadV2", "MirrorPad", "MirrorPadGrad")},
    "Reverse": reverse(),
    "ReverseV2": reverse_v2(),
    "ReverseSequence": reverse_sequence(),
    "Roll": roll(),
}
