"""Find the memory that nodes hold throughout, and the outputs stored in the memory of an input."""

import math

from pesto_cli.graphdef.nodes import Node
from pesto_cli.graphdef.signature import OpDefs
from pesto_cli.graphdef.tensorflow import tensorflow

# Their output is the variable's memory itself. The output of a VarHandleOp is only a handle.
REFERENCE_VARIABLES = frozenset({"VariableV2", "Variable"})
VARIABLES = REFERENCE_VARIABLES | {"VarHandleOp"}
# Ops whose outputs are in the buffer of their first input. The same holds for every op that outputs
# a reference that is its input.
FORWARDING = frozenset(
    {
        "Identity",
        "StopGradient",
        "PreventGradient",
        "PlaceholderWithDefault",
        "CheckNumerics",
        "EnsureShape",
        "Reshape",
        "Squeeze",
        "ExpandDims",
        "Bitcast",
        "ReadVariableOp",
        "Switch",
        "_SwitchN",
        "Merge",
        "OptionalFromValue",
        "InplaceUpdate",
        "InplaceAdd",
        "InplaceSub",
    }
)


def forwarded_input(node: Node, op_defs: OpDefs) -> int | None:
    """Return the slot of the input in whose memory a node's outputs are stored, or None."""
    if node.type in FORWARDING:
        return 0
    signature = op_defs.signature(node.proto)
    if any(output.is_ref for output in signature.outputs):
        refs = (place for place, taken in enumerate(signature.inputs) if taken.is_ref)
        return next(refs, None)
    return None


def resident_bytes(node: Node) -> int:
    """Return the size of a variable in bytes; 0 for other ops. An unknown dimension counts as 1."""
    if node.type not in VARIABLES:
        return 0
    element_bytes: int = tensorflow().as_dtype(node.proto.attr["dtype"].type).size
    sizes: list[int] = [dim.size for dim in node.proto.attr["shape"].shape.dim]
    return element_bytes * math.prod(abs(size) for size in sizes)  # -1 is an unknown dimension.
