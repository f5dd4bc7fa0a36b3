"""Select, whose condition is a scalar, a vector over the first axis, or as large as the output."""

from collections.abc import Iterator

from pesto_cli.data.specs import OpSpec
from pesto_cli.sharding.alternative import Alternative, Rule
from pesto_cli.sharding.layouts import WHOLE, Split


def select(spec: OpSpec) -> Iterator[Alternative]:
    """Factors: the axes of the output. The condition is split along the axes that it has."""
    condition = len(spec.inputs[0].sizes)
    for axis, size in enumerate(spec.outputs[0].sizes):
        split = Split(axis)
        first = split if axis < condition else WHOLE
        yield Alternative(f"axis {axis}", size, (first, split, split), (split,))


RULES: dict[str, Rule] = {"Select": select}
