"""Variables that were split or mirrored: the nodes outside the step that take their handles.

Initialisers and restores write every piece and every copy. Whatever reads the variable (a saver, an
evaluation) gets the whole value, so a checkpoint contains one variable under its old name and
does not depend on the plan.

Collections of a split variable list its pieces as slices of one variable, in TensorFlow's format,
so a saver that a program makes later writes and reads the same checkpoints. The further copies of a
mirrored variable are local variables, whose initialiser reads the first copy.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pesto_cli.data.plan import MIRRORED, Plan
from pesto_cli.data.specs import Operand, OpSpec
from pesto_cli.errors import BadInputError
from pesto_cli.graphdef.grappler import CONTEXT_COLLECTIONS
from pesto_cli.graphdef.outside_step import SHAPE, WRITES, Access
from pesto_cli.graphdef.spec_nodes import constant_def, node_def
from pesto_cli.graphdef.tensorflow import tensorflow
from pesto_cli.sharding import added_ops
from pesto_cli.sharding.decisions import Decision
from pesto_cli.sharding.layouts import Reduction, Split

LOCAL_VARIABLES = "local_variables"
IS_INITIALIZED = "VarIsInitializedOp"


@dataclass(frozen=True)
class Pieces:
    """The pieces or the copies of a variable.

    name: of the variable. names: of their handles. operand: the value of the variable.
    axis: along which it is split; None if it is mirrored. extents: of the pieces on this axis.
    """

    name: str
    names: tuple[str, ...]
    operand: Operand
    axis: int | None
    extents: tuple[int, ...]

    @classmethod
    def of(cls, name: str, names: Sequence[str], decision: Decision) -> "Pieces":
        """Return the pieces of the variable that a VarHandleOp with a decision stands for."""
        (layout,) = decision.alternative.outputs
        operand = Operand(decision.spec.outputs[0].sizes, str(decision.spec.attribute["dtype"]))
        if isinstance(layout, Split):
            return cls(name, tuple(names), operand, layout.axis, decision.sizes)
        return cls(name, tuple(names), operand, None, ())

    def passed_on(self, handle: str) -> "Pieces":
        """Return the pieces with the handles that replace `handle`, an output of a Switch."""
        if handle == self.name:
            return self
        node, _, output = handle.partition(":")
        names = [f"{node}.part_{part}" for part in range(len(self.names))]
        return replace(self, names=tuple(f"{name}:{output}" if output else name for name in names))


def note_on_copies(plan: Plan) -> str | None:
    """Return a note on the restore of mirrored variables; None if a plan mirrors none."""
    if all(choice.alternative != MIRRORED for choice in plan.choices.values()):
        return None
    return (
        "the placement mirrors variables: if your program makes a saver of its own, run "
        "tf.compat.v1.local_variables_initializer() after each restore, so that all copies get the "
        "restored values."
    )


def check_can_be_split(access: Access) -> None:
    """Check that a node outside the step can be rewritten for the pieces of a variable.

    Raises:
        BadInputError: the node may write the variable, and pesto does not know how.
    """
    if not access.can_be_split:
        raise BadInputError(
            f"the plan splits variable {access.variable!r}, which node {access.node.name!r} "
            f"({access.node.op}) takes outside the step; reads and assignments were expected: "
            "leave the variable whole."
        )


def outside_nodes(access: Access, pieces: Pieces) -> list[Any]:
    """Return the nodes that replace a node outside the step that takes the handle of a variable."""
    rewriting = _Outside(access.node, pieces.passed_on(access.handle))
    if access.node.op in WRITES:
        return rewriting.write()
    if access.node.op == "ReadVariableOp":
        return rewriting.read()
    if access.node.op == IS_INITIALIZED:
        return rewriting.is_initialized()
    if access.node.op == SHAPE:
        return rewriting.shape()
    if access.node.op == "ResourceGather":
        return rewriting.gather()
    return rewriting.each()


class _Outside:
    """Replaces one node; the node that ends the replacement has its name."""

    def __init__(self, node: Any, pieces: Pieces) -> None:
        self._node, self._pieces = node, pieces
        self._controls = [source for source in node.input if source.startswith("^")]

    def each(self, values: Sequence[str] = ()) -> list[Any]:
        """Return a copy of the node for each piece, and a NoOp. values: input 1 of each copy."""
        copies = []
        for part, handle in enumerate(self._pieces.names):
            copy = self._copy(f"{self._node.name}.part_{part}", handle)
            if values:
                copy.input[1] = values[part]
            copies.append(copy)
        end = node_def(self._node.name, added_ops.JOIN, (), [copy.name for copy in copies])
        return [*copies, end]

    def write(self) -> list[Any]:
        """Return an assignment of each piece."""
        pieces, value = self._pieces, self._node.input[1]
        if pieces.axis is None:
            return self.each([value] * len(pieces.names))
        spec = added_ops.split(pieces.operand, pieces.axis, pieces.extents)
        name = f"{self._node.name}.split"
        constants = self._constants(name, spec)
        names = [constant.name for constant in constants]
        inputs = [*names, value] if spec.type == "Split" else [value, *names]
        cut = node_def(name, spec, inputs)
        values = [f"{name}:{part}" if part else name for part in range(len(pieces.names))]
        return [*constants, cut, *self.each(values)]

    def read(self) -> list[Any]:
        """Return the whole value under the name of the node."""
        if self._pieces.axis is None:
            return [self._copy(self._node.name, self._pieces.names[0])]
        *copies, _ = self.each()
        spec = added_ops.concat(self._pieces.operand, self._pieces.axis, self._pieces.extents)
        constants = self._constants(self._node.name, spec)
        names = [each.name for each in (*copies, *constants)]
        return [*copies, *constants, node_def(self._node.name, spec, names)]

    def is_initialized(self) -> list[Any]:
        """Return whether all pieces are initialised."""
        *copies, _ = self.each()
        spec = added_ops.combined(Operand((), "bool"), Reduction.ALL, 2)
        found, nodes = copies[0].name, list(copies)
        for part, copy in enumerate(copies[1:], start=1):
            is_last = part == len(copies) - 1
            name = self._node.name if is_last else f"{self._node.name}.first_{part + 1}"
            nodes.append(node_def(name, spec, (found, copy.name)))
            found = name
        return nodes

    def shape(self) -> list[Any]:
        """Return the shape of the whole variable as a constant."""
        dtype = tensorflow().dtypes.as_dtype(self._node.attr["out_type"].type or "int32").name
        sizes = self._pieces.operand.sizes
        constant = constant_def(self._node.name, Operand((len(sizes),), dtype, sizes))
        constant.input.extend(self._controls)
        return [constant]

    def gather(self) -> list[Any]:
        """Return a lookup in the first copy, or in the whole value."""
        if self._pieces.axis is None:
            return [self._copy(self._node.name, self._pieces.names[0])]
        read = tensorflow().compat.v1.NodeDef(
            name=f"{self._node.name}.table", op="ReadVariableOp", input=[self._pieces.name]
        )
        read.attr["dtype"].CopyFrom(self._node.attr["dtype"])
        read.input.extend(self._controls)
        axis = constant_def(
            f"{self._node.name}.axis",
            Operand((), "int32", int(self._node.attr["batch_dims"].i)),
        )
        found = tensorflow().compat.v1.NodeDef(
            name=self._node.name,
            op="GatherV2",
            input=[read.name, self._node.input[1], axis.name],
        )
        for name, source in (("Tparams", "dtype"), ("Tindices", "Tindices")):
            found.attr[name].CopyFrom(self._node.attr[source])
        found.attr["Taxis"].type = tensorflow().int32.as_datatype_enum
        found.attr["batch_dims"].i = self._node.attr["batch_dims"].i
        return [*_Outside(read, self._pieces).read(), axis, found]

    def _copy(self, name: str, handle: str) -> Any:
        copy = type(self._node)()
        copy.CopyFrom(self._node)
        copy.name, copy.input[0] = name, handle
        for name in ("_class", "_output_shapes"):
            copy.attr.pop(name, None)
        return copy

    def _constants(self, name: str, spec: OpSpec) -> list[Any]:
        """Return the nodes of the constant inputs of a spec, by slot."""
        return [
            constant_def(f"{name}.const_{slot}", operand)
            for slot, operand in enumerate(spec.inputs)
            if operand.value is not None
        ]


def nodes_of_copies(pieces: Pieces) -> Iterator[Any]:
    """Yield nodes that read each further copy of a mirrored variable, or assign the first to it."""
    first, *others = pieces.names
    dtype = pieces.operand.dtype
    attributes = (("dtype", str(dtype)),)
    read = OpSpec("ReadVariableOp", attributes, (), ())
    assign = OpSpec("AssignVariableOp", attributes, (), ())
    for handle in others if pieces.axis is None else ():
        yield node_def(f"{handle}.read", read, [handle])
        yield node_def(f"{handle}.first", read, [first])
        yield node_def(f"{handle}.from_first", assign, [handle, f"{handle}.first"])


def change_collections(meta: Any, variables: Iterable[Pieces]) -> None:
    """List the pieces of variables in the collections of a MetaGraphDef, in place.

    The collections of loops and conditionals are removed: they may name the handle of a whole
    variable, which the graph does not have any more.
    """
    for key in CONTEXT_COLLECTIONS:
        meta.collection_def.pop(key, None)
    of_name = {f"{each.name}:0": each for each in variables}
    local = list[bytes]()
    for collection in meta.collection_def.values():
        changed = list[bytes]()
        for value in collection.bytes_list.value:
            listed = _variable_def(value)
            pieces = None if listed is None else of_name.get(listed.variable_name)
            if pieces is None or listed is None:
                changed.append(value)
            elif pieces.axis is None:
                changed.append(value)
                local += [each.SerializeToString() for each in _copies(listed, pieces)]
            else:
                changed += [each.SerializeToString() for each in _slices(listed, pieces)]
        if changed != list(collection.bytes_list.value):
            collection.bytes_list.value[:] = changed
    if local:
        known = meta.collection_def[LOCAL_VARIABLES].bytes_list.value
        known.extend(dict.fromkeys(local))


def _variable_def(value: bytes) -> Any:
    """Parse bytes as a VariableDef; return None if they are something else."""
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
    from tensorflow.core.framework.variable_pb2 import VariableDef

    try:
        return VariableDef.FromString(value)
    except DecodeError:
        return None


def _slices(listed: Any, pieces: Pieces) -> Iterable[Any]:
    assert pieces.axis is not None
    offsets = np.cumsum((0, *pieces.extents)).tolist()
    for part, (handle, extent) in enumerate(zip(pieces.names, pieces.extents, strict=True)):
        each = _part(listed, part, handle)
        piece = each.save_slice_info_def
        if not piece.full_name:  # else the program has partitioned it: a slice of a slice
            piece.full_name = pieces.name
            piece.full_shape.extend(pieces.operand.sizes)
            piece.var_offset.extend([0] * len(pieces.operand.sizes))
        piece.var_shape[:] = pieces.operand.resized(pieces.axis, extent).sizes
        piece.var_offset[pieces.axis] += offsets[part]
        yield each


def _copies(listed: Any, pieces: Pieces) -> Iterable[Any]:
    for part, handle in enumerate(pieces.names[1:], start=1):
        each = _part(listed, part, handle)
        each.initializer_name = f"{handle}.from_first"
        each.snapshot_name = f"{handle}.read:0"
        yield each


def _part(listed: Any, part: int, handle: str) -> Any:
    each = type(listed)()
    each.CopyFrom(listed)
    each.variable_name = f"{handle}:0"
    each.initial_value_name = ""
    each.initializer_name = f"{listed.initializer_name}.part_{part}"
    snapshot, _, output = listed.snapshot_name.partition(":")
    each.snapshot_name = f"{snapshot}.part_{part}:{output}"
    return each
