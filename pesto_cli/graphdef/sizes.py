"""Compute the sizes of a step's tensors by shape inference; estimate those that depend on data."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pesto_cli.errors import BadInputError
from pesto_cli.graphdef.branches import SWITCH
from pesto_cli.graphdef.fetches import FED_TYPES, dynamic_shape
from pesto_cli.graphdef.nodes import Node
from pesto_cli.graphdef.signature import constant_value
from pesto_cli.graphdef.tensor_arrays import KnownSize, Shape, TensorArrays
from pesto_cli.graphdef.tensorflow import tensorflow
from pesto_cli.graphdef.variable_shapes import size_of_access, variable_shapes

# Bytes of an element without a fixed size: TensorFlow's `tstring`, which stores up to 22 characters
# inside itself, and handles, which refer to data that is not transferred with them.
BYTES_OF_HANDLES = {"string": 24, "resource": 8, "variant": 8}
# Work space of cuDNN: empty in all modes but one, and unknown to shape inference.
EMPTY_OUTPUTS = frozenset({("FusedBatchNormV3", 5)})
# Ops that bring data into the step, in addition to ops without inputs.
SOURCE_TYPE_PARTS = ("Iterator", "Dequeue")
# Constants with more elements are no shapes.
MAX_RANK = 8
# Ops whose output values are the shapes of their inputs.
SHAPE_TYPES = frozenset({"Shape", "ShapeN", "Size", "Rank", "VariableShape"})
# Ops whose output is read from the data behind a handle. The size of their other inputs says
# nothing about it.
READS_OF_HANDLES = frozenset(
    {
        *("TensorArrayReadV3", "TensorArrayGatherV3", "TensorArrayConcatV3", "StackPopV2"),
        *("TensorListGetItem", "TensorListStack", "TensorListGather", "TensorListConcatV2"),
        "TensorListPopBack",
    }
)
# Ops for which the values of these inputs determine the size of the output.
SIZING_INPUTS: Mapping[str, tuple[int, ...]] = {
    **dict.fromkeys(("Fill", "Empty", "RandomUniform", "RandomUniformInt"), (0,)),
    **dict.fromkeys(("RandomStandardNormal", "TruncatedNormal"), (0,)),
    **dict.fromkeys(("StatelessRandomUniformV2", "StatelessRandomNormalV2"), (0,)),
    **dict.fromkeys(("Tile", "BroadcastTo", "Pad", "PadV2", "MirrorPad", "OneHot"), (1,)),
    **dict.fromkeys(("LinSpace", "ScatterNd"), (2,)),
    **dict.fromkeys(("UnsortedSegmentSum", "UnsortedSegmentMax", "UnsortedSegmentMin"), (2,)),
    "Range": (0, 1, 2),
}


@dataclass(frozen=True)
class TensorSize:
    """Size of one output.

    num_elements: exact, or an estimate; None if it cannot be estimated.
    shape: None in place of an unknown dimension, or of the shape if the rank is unknown.
    is_handle: whether the tensor has strings or handles, whose data is not part of the size.
    is_known: False if there is no estimate of the open dimensions, so that each counts as 1.
    dtype: TensorFlow's name of the type.
    """

    shape: Shape | None
    element_bytes: int
    is_handle: bool
    num_elements: int | None
    is_known: bool = True
    dtype: str | None = None

    @property
    def is_exact(self) -> bool:
        """Whether the shape is static."""
        return self.shape is not None and None not in self.shape

    @property
    def num_open(self) -> int:
        """Number of unknown dimensions; 0 if the rank is unknown."""
        return 0 if self.shape is None else self.shape.count(None)

    @property
    def known_elements(self) -> int:
        """Product of the known dimensions."""
        return math.prod(size for size in self.shape or () if size is not None)

    @property
    def num_bytes(self) -> int:
        """The size in bytes; an open dimension counts as 1 if it could not be estimated."""
        elements = self.known_elements if self.num_elements is None else self.num_elements
        return elements * self.element_bytes


def tensor_sizes(
    graph_def: Any, nodes: Sequence[Node], order: Sequence[int]
) -> list[tuple[TensorSize, ...]]:
    """Return the sizes of every node's outputs; `order` is topological.

    Raises:
        BadInputError: TensorFlow cannot import the graph.
    """
    sizes: list[tuple[TensorSize, ...]] = [()] * len(nodes)
    described: list[int | None] = [0] * len(nodes)
    graph = shapes_inferred(graph_def, nodes)
    arrays, variables = TensorArrays(nodes), variable_shapes(nodes, order)
    for index in order:
        node = nodes[index]
        outputs = graph.get_operation_by_name(node.name).outputs
        inputs = [
            sizes[source][output]
            for source, output in node.inputs
            if output < len(sizes[source])  # Unknown for a Merge's input from NextIteration.
        ]
        of_inputs = [described[source] for source, _ in node.inputs]
        if node.type in SWITCH:  # Its condition says nothing about the values.
            described[index] = of_inputs[0] or _volume(nodes[node.inputs[0][0]])
        else:
            described[index] = _described(node, inputs, of_inputs)
        variable = variables.get(node.inputs[0]) if node.inputs else None
        if variable is not None and node.type == "VariableShape":
            described[index] = math.prod(variable)
        sizing = [described[node.inputs[place][0]] for place in SIZING_INPUTS.get(node.type, ())]
        known_sizes = [_known_size(source) for source in inputs]
        arrays.process(index, known_sizes)
        read = arrays.size_read_by(index, known_sizes)
        if variable is not None:
            read = size_of_access(node.type, variable)
        sizes[index] = tuple(_size(output, node.type, inputs, sizing, read) for output in outputs)
    return sizes


def unbounded(node: Node, size: TensorSize) -> BadInputError:
    """Return the error for an output whose size is neither known nor estimated."""
    found = "unknown" if size.shape is None else f"[{', '.join(map(_shown, size.shape))}]"
    if node.type in FED_TYPES:
        return BadInputError(dynamic_shape(node.name, found, size.shape or ()))
    return BadInputError(
        f"op {node.name!r} ({node.type}) outputs a tensor of shape {found}, where a static shape "
        "was expected: set a static shape (of a data set: batch with drop_remainder=True), or "
        "replace the op by a placeholder and export with --feed name=shape."
    )


def _known_size(size: TensorSize) -> KnownSize | None:
    if size.num_elements is None:
        return None
    return size.shape if size.is_exact else None, size.num_elements


def _size(
    output: Any,
    op_type: str,
    inputs: Sequence[TensorSize],
    sizing: Sequence[int | None],
    read: KnownSize | None,
) -> TensorSize:
    """Return the size of an output.

    inputs: sizes of the node's inputs. sizing: for the inputs in SIZING_INPUTS, see `_described`.
    read: size of what the node reads from a TensorArray or a variable; None if it reads none, or if
        that size is unknown.
    """
    dtype = output.dtype.base_dtype
    is_handle = dtype.name in BYTES_OF_HANDLES
    dims = None if output.shape.rank is None else tuple(output.shape.as_list())
    if (op_type, output.value_index) in EMPTY_OUTPUTS:
        dims = (0,)
    element_bytes = BYTES_OF_HANDLES.get(dtype.name, dtype.size)
    size = TensorSize(dims, element_bytes, is_handle, None, dtype=dtype.name)
    if size.is_exact:
        return replace(size, num_elements=size.known_elements)
    if read is not None:
        shape, num_elements = read
        return replace(size, shape=dims if shape is None else shape, num_elements=num_elements)
    elements = _estimate(size, op_type, inputs, sizing)
    is_read = op_type in READS_OF_HANDLES or (inputs and all(each.is_handle for each in inputs))
    is_known = not is_read and all(source.is_known for source in inputs)
    return replace(size, num_elements=elements, is_known=is_known)


def _described(
    node: Node, inputs: Sequence[TensorSize], of_inputs: Sequence[int | None]
) -> int | None:
    """Return the number of elements of the tensor whose shape a node's values are derived from.

    If there are several such tensors, the largest counts. 0 if the values are derived from
    constants, None if they depend on data. of_inputs: the same number for each input of the node.
    """
    if node.type in SHAPE_TYPES:
        of_inputs = [source.num_elements for source in inputs]
    elif node.type == "Const":
        return 0
    elif not node.inputs or any(part in node.type for part in SOURCE_TYPE_PARTS):
        return None
    known = [elements for elements in of_inputs if elements is not None]
    return max(known, default=0) if len(known) == len(of_inputs) else None


def _volume(node: Node) -> int | None:
    """Return the number of elements of a tensor whose shape is a constant; None for other nodes.

    Shape inference does not follow constants into the branches of a conditional.
    """
    value = constant_value(node.proto) if node.type == "Const" else None
    if value is None or value.dtype.kind not in "iu" or value.size > MAX_RANK:
        return None
    return max(int(math.prod(value.ravel().tolist())), 0)


def _estimate(
    size: TensorSize, op_type: str, inputs: Sequence[TensorSize], sizing: Sequence[int | None]
) -> int | None:
    """Estimate the number of elements of an output whose shape depends on data (Unique, Where).

    - The output of a Reshape has as many elements as its input.
    - If inputs have unknown dimensions, those of the output come from them: the largest product of
      an input's unknown dimensions counts. If the output has more of them than each input, they
      come from several inputs (a MatMul), or from a known dimension of the largest (a Slice).
    - If all inputs have static shapes, the output is as large as the largest of them, and of the
      tensors whose shapes determine its size (`sizing`, see `_described`).
    - An output that is read from the data behind a handle (a stack, a list), or whose op has only
      handles as inputs, counts with its known dimensions.

    There is no estimate (None) for an op that brings data into the step, for one with such an
    input, or if data determines the size (a Fill with a fed size).
    """
    data = [source for source in inputs if not source.is_handle]
    if any(source.num_elements is None for source in data):
        return None
    if op_type in READS_OF_HANDLES:
        return size.known_elements
    if not inputs or any(part in op_type for part in SOURCE_TYPE_PARTS):
        return None
    if op_type == "Reshape":
        return data[0].num_elements
    in_doubt = [source for source in data if not source.is_exact]
    if in_doubt:
        parts = [_unknown_part(source) for source in in_doubt]
        if all(source.num_open < size.num_open for source in in_doubt):
            largest_input = max(source.num_elements or 0 for source in in_doubt)
            return max(size.known_elements * math.prod(parts), largest_input)
        return size.known_elements * max(parts)
    if None in sizing:
        return None
    largest = [elements or 1 for elements in (*sizing, *(source.num_elements for source in data))]
    return max(size.known_elements, *largest, 1)


def _unknown_part(size: TensorSize) -> int:
    """Return the product of the unknown dimensions, according to the estimate."""
    return -(-(size.num_elements or 0) // max(size.known_elements, 1))


def shapes_inferred(graph_def: Any, nodes: Sequence[Node]) -> Any:
    """Return a tf.Graph of the step's nodes, without devices and colocation, with inferred shapes.

    Raises:
        BadInputError: TensorFlow cannot import the graph.
    """
    tf = tensorflow()
    tf1 = tf.compat.v1
    step = tf1.GraphDef(versions=graph_def.versions, library=graph_def.library)
    step.node.extend(node.proto for node in nodes)
    for proto in step.node:
        proto.ClearField("device")
        if "_class" in proto.attr:
            del proto.attr["_class"]
    graph = tf1.Graph()
    try:
        with graph.as_default():
            tf1.import_graph_def(step, name="")
    except (ValueError, tf.errors.OpError) as error:
        raise BadInputError(
            f"TensorFlow cannot import the graph ({error}); a graph that it can run was expected: "
            "export the graph again."
        ) from error
    return graph


def _shown(size: int | None) -> str:
    return "?" if size is None else str(size)
