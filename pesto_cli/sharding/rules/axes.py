"""The common case of an alternative: one axis of the output, and of some inputs, is split."""

from collections.abc import Mapping

from pesto_cli.data.specs import OpSpec
from pesto_cli.sharding.alternative import Alternative
from pesto_cli.sharding.layouts import WHOLE, Layout, Split


def along(
    spec: OpSpec,
    axis: int,
    slots: Mapping[int, int],
    resized: tuple[tuple[int, int], ...] = (),
    size: int | None = None,
) -> Alternative:
    """Return the alternative that splits an axis of the outputs.

    axis: of each output.
    slots: the axis that is split of an input, by slot; the other inputs are whole.
    resized: as in `Alternative`.
    size: the extent of the factor if it is not that of the axis.
    """
    size = spec.outputs[0].sizes[axis] if size is None else size
    outputs = (Split(axis),) * len(spec.outputs)
    return Alternative(f"axis {axis}", size, input_layouts(spec, slots), outputs, resized)


def input_layouts(spec: OpSpec, slots: Mapping[int, int]) -> tuple[Layout, ...]:
    """Return the layout of each input: split along the axis in `slots`, or whole."""
    return tuple(Split(slots[slot]) if slot in slots else WHOLE for slot in range(len(spec.inputs)))


def constant(spec: OpSpec, slot: int) -> tuple[int, ...] | None:
    """Return the integers of a constant input, a scalar or a vector; None if it is not known."""
    value = spec.inputs[slot].value
    values = value if isinstance(value, tuple) else (value,)
    integers = tuple(each for each in values if isinstance(each, int))
    return integers if len(integers) == len(values) else None


def constant_axis(spec: OpSpec, slot: int, rank: int) -> int | None:
    """Return the axis in a constant input, a scalar; None if it is not known."""
    found = constant(spec, slot)
    return None if found is None else found[0] % rank
