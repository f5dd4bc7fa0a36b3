"""How large the tensors of a step are: by shape inference, or estimated where the data decides."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pesto_cli.errors import BadInputError
from pesto_cli.graphdef.fetches import FED_TYPES, dynamic_shape
from pesto_cli.graphdef.nodes import Node
from pesto_cli.graphdef.tensor_arrays import Held, Shape, TensorArrays
from pesto_cli.graphdef.tensorflow import tensorflow

# Bytes of an element that has no fixed size: TensorFlow's `tstring`, which holds up to 22
# characters in place, and handles, which stand for data that stays where it is.
BYTES_OF_HANDLES = {"string": 24, "resource": 8, "variant": 8}
# Work space of cuDNN, empty in all but one of its modes; shape inference leaves it open.
EMPTY_OUTPUTS = frozenset({("FusedBatchNormV3", 5)})
# Ops that bring data into the step, beside those that take nothing.
SOURCE_TYPE_PARTS = ("Iterator", "Dequeue")
# Ops whose values are the shape of what they take.
SHAPE_TYPES = frozenset({"Shape", "ShapeN", "Size", "Rank", "VariableShape"})
# Ops whose output comes out of what a handle stands for; no other input is as large as it is.
READS_OF_HANDLES = frozenset(
    {
        *("TensorArrayReadV3", "TensorArrayGatherV3", "TensorArrayConcatV3", "StackPopV2"),
        *("TensorListGetItem", "TensorListStack", "TensorListGather", "TensorListConcatV2"),
        "TensorListPopBack",
    }
)
# Ops whose output is as large as the values of these inputs say.
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

    num_elements: exact, or an estimate, or None where nothing bounds an unknown dimension.
    shape: None where the rank is unknown.
    dtype: TensorFlow's name of it.
    is_told: False where nothing tells the open dimensions, so that each counts as 1.
    """

    shape: Shape | None
    element_bytes: int
    is_handle: bool
    num_elements: int | None
    is_told: bool = True
    dtype: str | None = None

    @property
    def is_exact(self) -> bool:
        """Whether the shape is static."""
        return self.shape is not None and None not in self.shape

    @property
    def known_elements(self) -> int:
        """Product of the known dimensions."""
        return math.prod(size for size in self.shape or () if size is not None)

    @property
    def num_bytes(self) -> int:
        """Bytes, an unbounded dimension counted as 1."""
        elements = self.known_elements if self.num_elements is None else self.num_elements
        return elements * self.element_bytes


def tensor_sizes(
    graph_def: Any, nodes: Sequence[Node], order: Sequence[int]
) -> list[tuple[TensorSize, ...]]:
    """Return the sizes of every node's outputs; `order` is topological.

    Raises:
        BadInputError: TensorFlow refuses the graph.
    """
    sizes: list[tuple[TensorSize, ...]] = [()] * len(nodes)
    told: list[int | None] = [0] * len(nodes)
    graph = shapes_inferred(graph_def, nodes)
    arrays = TensorArrays(nodes)
    for index in order:
        node = nodes[index]
        outputs = graph.get_operation_by_name(node.name).outputs
        taken = [
            sizes[source][output]
            for source, output in node.inputs
            if output < len(sizes[source])  # Not yet known on a loop's way back.
        ]
        told[index] = _told_by(node, taken, [told[source] for source, _ in node.inputs])
        asked = [told[node.inputs[place][0]] for place in SIZING_INPUTS.get(node.type, ())]
        held = [_held(source) for source in taken]
        arrays.learn(index, held)
        read = arrays.read_by(index, held)
        sizes[index] = tuple(_size(output, node.type, taken, asked, read) for output in outputs)
    return sizes


def unbounded(node: Node, size: TensorSize) -> BadInputError:
    """Return the error for an output of which nothing tells the size."""
    found = "unknown" if size.shape is None else f"[{', '.join(map(_shown, size.shape))}]"
    if node.type in FED_TYPES:
        return BadInputError(dynamic_shape(node.name, found, size.shape or ()))
    return BadInputError(
        f"op {node.name!r} ({node.type}) gives a tensor of shape {found}, where a static one was "
        "expected: give it a static shape (a data set: batch with drop_remainder=True), or put a "
        "placeholder in its place and export with --feed name=shape."
    )


def _held(size: TensorSize) -> Held | None:
    if size.num_elements is None:
        return None
    return size.shape if size.is_exact else None, size.num_elements


def _size(
    output: Any,
    op_type: str,
    taken: Sequence[TensorSize],
    asked: Sequence[int | None],
    read: Held | None,
) -> TensorSize:
    """Size an output; `read` is what it takes out of a TensorArray, where that is known."""
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
    elements = _estimate(size, op_type, taken, asked)
    is_told = op_type not in READS_OF_HANDLES and all(source.is_told for source in taken)
    return replace(size, num_elements=elements, is_told=is_told)


def _told_by(node: Node, taken: Sequence[TensorSize], told: Sequence[int | None]) -> int | None:
    """Return the most elements of any tensor whose shape a node's values come from.

    None where they come from data. `told`: the same of the inputs.
    """
    if node.type in SHAPE_TYPES:
        told = [source.num_elements for source in taken]
    elif node.type == "Const":
        return 0
    elif not node.inputs or any(part in node.type for part in SOURCE_TYPE_PARTS):
        return None
    known = [elements for elements in told if elements is not None]
    return max(known, default=0) if len(known) == len(told) else None


def _estimate(
    size: TensorSize, op_type: str, taken: Sequence[TensorSize], asked: Sequence[int | None]
) -> int | None:
    """Estimate the number of elements where the shape depends on the data (Unique, Where).

    If no input's size is in doubt, the output is taken to be as large as the largest input. Else
    the unknown dimensions come from those inputs, and are as large as they are there; only a
    Reshape keeps the number of elements. An op that takes nothing but handles, or whose output
    comes out of one (a stack, a list), counts with its known dimensions; one that brings data into
    the step has no bound. Nor has one that is as large as data says (a Fill by a number that is
    fed); where the shape of another tensor says so, it is as large as that (`asked`, see
    `_told_by`).
    """
    data = [source for source in taken if not source.is_handle]
    if any(source.num_elements is None for source in data):
        return None
    if op_type in READS_OF_HANDLES:
        return size.known_elements
    if not taken or any(part in op_type for part in SOURCE_TYPE_PARTS):
        return None
    if op_type == "Reshape":
        return data[0].num_elements
    in_doubt = [source for source in data if not source.is_exact]
    if in_doubt:
        return size.known_elements * max(_unknown_part(source) for source in in_doubt)
    if None in asked:
        return None
    largest = [elements or 1 for elements in (*asked, *(source.num_elements for source in data))]
    return max(size.known_elements, *largest, 1)


def _unknown_part(size: TensorSize) -> int:
    """Product of the unknown dimensions, by the estimate."""
    return -(-(size.num_elements or 0) // max(size.known_elements, 1))


def shapes_inferred(graph_def: Any, nodes: Sequence[Node]) -> Any:
    """Return a graph of the step's nodes, without what says where they run, with all shapes.

    Raises:
        BadInputError: TensorFlow refuses the graph.
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
            f"TensorFlow refuses the graph ({error}); a graph that it can run was expected: export "
            "the graph again."
        ) from error
    return graph


def _shown(size: int | None) -> str:
    return "?" if size is None else str(size)
