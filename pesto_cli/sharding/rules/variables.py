"""Variables, and the ops that read and write them.

The handle of a variable has the layout of the variable. It cannot be converted, so all ops that
take it must agree: a split handle refers to the pieces of the variable, a replicated one to copies.
An op that writes a variable takes its handle as it is, so each piece and each copy is written once.

Variables by reference (`VariableV2`) stay whole.
"""

from collections.abc import Iterator, Sequence

from pesto_cli.data.plan import MIRRORED
from pesto_cli.data.specs import OpSpec
from pesto_cli.sharding.alternative import Alternative, Rule
from pesto_cli.sharding.layouts import REPLICATED, WHOLE, Layout, Split
from pesto_cli.sharding.rules.constants import stays_whole
from pesto_cli.sharding.rules.table_rows import added_rows

READS = frozenset(
    {"ReadVariableOp", "ResourceGather", "ResourceGatherNd", "VariableShape", "VarIsInitializedOp"}
)
"""Op types that take a handle and do not write the variable."""
_OPTIMISERS = """
    AdaMax Adadelta Adagrad AdagradDA AdagradV2 Adam AdamWithAmsgrad AddSign CenteredRMSProp Ftrl
    FtrlV2 GradientDescent KerasMomentum Momentum PowerSign ProximalAdagrad ProximalGradientDescent
    RMSProp
"""
_SCATTERS = """
    ScatterAdd ScatterDiv ScatterMax ScatterMin ScatterMul ScatterSub ScatterUpdate
"""
_SUMS = frozenset({"ResourceScatterAdd", "ResourceScatterSub"})
_OTHER_SCATTERS = """
    ScatterNdAdd ScatterNdMax ScatterNdMin ScatterNdSub ScatterNdUpdate StridedSliceAssign
"""
_WHOLE = """
    Assign AssignAdd AssignSub DestroyResourceOp IsVariableInitialized VarIsInitializedOp Variable
    VariableShape VariableV2
"""


def is_variable(spec: OpSpec) -> bool:
    """Return whether an op is the handle of a variable."""
    return spec.type == "VarHandleOp"


def along_axis(axis: int) -> str:
    """Return the name of the alternatives of all ops on a variable that is split along an axis."""
    return f"variable {axis}"


def variable(spec: OpSpec) -> Iterator[Alternative]:
    """VarHandleOp. Factors: all axes; or mirrored: a copy for each part."""
    for axis, size in enumerate(spec.outputs[0].sizes):
        yield Alternative(
            along_axis(axis), size, (), (Split(axis),), resized_attributes=(("shape", axis),)
        )
    yield Alternative(MIRRORED, None, (), (REPLICATED,))


def whole_value(spec: OpSpec) -> Iterator[Alternative]:
    """Inputs of the variable's shape and scalars. Factors: all axes; or mirrored."""
    sizes = spec.inputs[0].sizes
    if all(operand.sizes in (sizes, ()) for operand in spec.inputs):
        for axis in range(len(sizes)):
            yield _along(
                spec, axis, [axis if each.sizes == sizes else None for each in spec.inputs]
            )
    yield _mirrored(spec)


def sparse_update(spec: OpSpec) -> Iterator[Alternative]:
    """Inputs: handles, scalars, rows of a gradient, their indices. Factors: axes of a row."""
    rank = len(spec.inputs[0].sizes)
    for axis in range(1, rank):
        places = [axis if len(operand.sizes) == rank else None for operand in spec.inputs]
        yield _along(spec, axis, places)
    yield _mirrored(spec)


def scatter(spec: OpSpec) -> Iterator[Alternative]:
    """Inputs: handle, indices of rows, rows or one scalar. Factors: axes of a row; sums: rows."""
    handle, indices, updates = spec.inputs
    for axis in range(1, len(handle.sizes)):
        place = len(indices.sizes) + axis - 1
        yield _along(spec, axis, [axis, None, place if updates.sizes else None])
    if spec.type in _SUMS:
        yield from added_rows(spec, along_axis(0))
    yield _mirrored(spec)


def _along(spec: OpSpec, axis: int, places: Sequence[int | None]) -> Alternative:
    """Return the alternative that splits an axis of the variable.

    places: for each input, which of its axes is this axis; None if the input is whole.
    """
    inputs = tuple(WHOLE if place is None else Split(place) for place in places)
    outputs = tuple(Split(axis) for _ in spec.outputs)
    return Alternative(along_axis(axis), spec.inputs[0].sizes[axis], inputs, outputs)


def _mirrored(spec: OpSpec) -> Alternative:
    inputs: list[Layout] = [REPLICATED if operand.is_handle else WHOLE for operand in spec.inputs]
    return Alternative(MIRRORED, None, tuple(inputs), (REPLICATED,) * len(spec.outputs))


def _named(prefix: str, types: str) -> list[str]:
    return [f"{prefix}{each}" for each in types.split()]


RULES: dict[str, Rule] = {
    "VarHandleOp": variable,
    **dict.fromkeys(
        [
            "ReadVariableOp",
            *("AssignVariableOp", "AssignAddVariableOp", "AssignSubVariableOp"),
            *_named("ResourceApply", _OPTIMISERS),
        ],
        whole_value,
    ),
    **dict.fromkeys(_named("ResourceSparseApply", _OPTIMISERS), sparse_update),
    **dict.fromkeys(_named("Resource", _SCATTERS), scatter),
    **dict.fromkeys(
        [
            *_WHOLE.split(),
            *_named("Apply", _OPTIMISERS),
            *_named("SparseApply", _OPTIMISERS),
            *_named("", _SCATTERS),
            *_named("", _OTHER_SCATTERS),
            *_named("Resource", _OTHER_SCATTERS),
        ],
        stays_whole,
    ),
}
