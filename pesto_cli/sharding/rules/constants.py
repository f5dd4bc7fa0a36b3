"""Ops whose outputs do not depend on the data of a step."""

from collections.abc import Iterator

from pesto_cli.data.specs import OpSpec
from pesto_cli.sharding.alternative import Alternative, Rule
from pesto_cli.sharding.rules.axes import along

_WHOLE = """
    Range LinSpace Shape ShapeN Size Rank InvertPermutation ConcatOffset BroadcastArgs
    BroadcastGradientArgs
"""


def const(spec: OpSpec) -> Iterator[Alternative]:
    """Const. Factors: all axes. The value of each part is cut when its node is written."""
    for axis in range(len(spec.outputs[0].sizes)):
        yield along(spec, axis, {})


def stays_whole(spec: OpSpec) -> Iterator[Alternative]:
    """Factors: none. Replicated if the op has no state."""
    return iter(())


RULES: dict[str, Rule] = {"Const": const, **dict.fromkeys(_WHOLE.split(), stays_whole)}
