"""Ops that look up rows of a table. Factors: the axes of the indices, and the kept axes of rows.

The axis of the table that the indices refer to is not split, unless the table is a variable: each
part would need a part of the indices that is not known before the step runs. Lookups are linear in
the table.
"""

from collections.abc import Iterator
from dataclasses import replace

from pesto_cli.data.specs import OpSpec
from pesto_cli.sharding.alternative import Alternative, Rule
from pesto_cli.sharding.rules.axes import along, constant_axis
from pesto_cli.sharding.rules.open_sums import open_sum
from pesto_cli.sharding.rules.table_rows import looked_up_rows
from pesto_cli.sharding.rules.variables import along_axis


def gather(spec: OpSpec) -> Iterator[Alternative]:
    """Factors: the axes of the indices and the other axes of the table. Linear in the table.

    Inputs: table, indices, axis; Gather has no axis, and takes 0.
    """
    table, indices = (len(operand.sizes) for operand in spec.inputs[:2])
    looked_up = constant_axis(spec, 2, table) if spec.type == "GatherV2" else 0
    if looked_up is not None:
        batch = _batch_dims(spec)
        for axis in range(batch):
            yield along(spec, axis, {0: axis, 1: axis})
        for axis in range(batch, looked_up):
            yield along(spec, axis, {0: axis})
        for axis in range(batch, indices):
            yield along(spec, looked_up + axis - batch, {1: axis})
        for axis in range(looked_up + 1, table):
            yield along(spec, axis - 1 + indices - batch, {0: axis})
    yield from open_sum(spec, 0)


def resource_gather(spec: OpSpec) -> Iterator[Alternative]:
    """Factors: the axes of the indices, and all axes of the variable.

    Parts along the indices take the whole variable. If it is mirrored, each takes its own copy.
    """
    table, indices = (len(operand.sizes) for operand in spec.inputs)
    batch = _batch_dims(spec)
    for axis in range(batch, indices):
        yield along(spec, axis, {1: axis})
    for axis in range(batch + 1, table):
        row = along(spec, axis - 1 + indices - batch, {0: axis})
        yield replace(row, name=along_axis(axis))
    yield from looked_up_rows(spec, along_axis(0))


def gather_nd(spec: OpSpec) -> Iterator[Alternative]:
    """Factors: the axes of the indices and the other axes of the table. Linear in the table.

    The last axis of the indices refers to the first axes of the table.
    """
    table, indices = (len(operand.sizes) for operand in spec.inputs)
    looked_up = spec.inputs[1].sizes[-1]
    for axis in range(indices - 1):
        yield along(spec, axis, {1: axis})
    for axis in range(looked_up, table):
        yield along(spec, indices - 1 + axis - looked_up, {0: axis})
    yield from open_sum(spec, 0)


def one_hot(spec: OpSpec) -> Iterator[Alternative]:
    """Factors: the axes of the indices, not the new axis."""
    rank = len(spec.outputs[0].sizes)
    new = spec.attribute["axis"]
    new = new % rank if isinstance(new, int) else rank - 1
    for own in range(rank - 1):
        yield along(spec, own + (own >= new), {0: own})


def _batch_dims(spec: OpSpec) -> int:
    batch = spec.attribute.get("batch_dims", 0)
    if not isinstance(batch, int):
        return 0
    return batch if batch >= 0 else batch + len(spec.inputs[1].sizes)


RULES: dict[str, Rule] = {
    "Gather": gather,
    "GatherV2": gather,
    "ResourceGather": resource_gather,
    "GatherNd": gather_nd,
    "OneHot": one_hot,
}
