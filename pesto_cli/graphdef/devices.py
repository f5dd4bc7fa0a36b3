"""Find the device types that can run a node, and the tensors that a GPU keeps in host memory."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pesto_cli.errors import InfeasibleError
from pesto_cli.graphdef.kernels import DEVICE_TYPES, Kernels
from pesto_cli.graphdef.nodes import Node
from pesto_cli.graphdef.signature import Argument, OpDefs, Signature, dtype_names

# Feeds and fetches are on the host. So are data pipelines and tables, although a GPU has kernels
# that forward their handles.
HOST_TYPES = frozenset({"Placeholder", "PlaceholderV2", "_Arg", "_Retval"})
HOST_TYPE_PARTS = ("Dataset", "Iterator", "HashTable", "LookupTable")
# `IsFunctionCallOp` in TensorFlow's memory_types.cc: the types of the arguments, not a kernel,
# decide whether these are in host memory.
CALLS = frozenset(
    {"SymbolicGradient", "PartitionedCall", "StatefulPartitionedCall", "While", "StatelessWhile"}
)
# `DataType` numbers.
DT_INT32, DT_STRING, DT_RESOURCE, DT_VARIANT = 3, 7, 20, 21


@dataclass(frozen=True)
class Site:
    """The device types that can run a node, and the memory of its inputs and outputs.

    device_types: those of `DEVICE_TYPES` that can run it.
    host_inputs, host_outputs: for each tensor, whether it is in host memory on every device.
    """

    device_types: frozenset[str]
    host_inputs: tuple[bool, ...]
    host_outputs: tuple[bool, ...]


class Devices:
    """Compute the sites of the nodes of one graph.

    A node that calls functions (If, While, PartitionedCall) runs all their ops on its own device,
    so it can run only on the device types that can run all ops of their bodies.
    """

    def __init__(self, op_defs: OpDefs) -> None:
        self._op_defs = op_defs
        self._kernels = Kernels(op_defs)
        self._bodies: dict[str, frozenset[str]] = {}

    def site(self, node: Any) -> Site:
        """Return the site of a NodeDef.

        Raises:
            InfeasibleError: the op has no kernel for any device type.
        """
        signature = self._op_defs.signature(node)
        kernels = self._kernels.of(node)
        is_call = node.op in self._op_defs.functions or node.op in CALLS
        types = frozenset(DEVICE_TYPES if node.op in self._op_defs.functions else kernels)
        if _stays_on_host(node.op, signature):
            types &= {"CPU"}
        for function in self._called(node):
            types &= self._body_types(function)
        if not types:
            raise _no_kernel(node, signature)
        host_memory = kernels["GPU"].host_memory if "GPU" in kernels else frozenset()

        def on_host(arguments: Sequence[Argument]) -> tuple[bool, ...]:
            return tuple(
                "GPU" not in types
                or argument.dtype in (DT_STRING, DT_RESOURCE)
                or (argument.dtype == DT_INT32 if is_call else argument.name in host_memory)
                for argument in arguments
            )

        return Site(types, on_host(signature.inputs), on_host(signature.outputs))

    def _called(self, node: Any) -> Iterator[str]:
        if node.op in self._op_defs.functions:
            yield node.op
        for attr in self._op_defs.of(node).attr:
            if attr.type == "func":
                yield node.attr[attr.name].func.name
            elif attr.type == "list(func)":
                yield from (function.name for function in node.attr[attr.name].list.func)

    def _body_types(self, function: str) -> frozenset[str]:
        everywhere = frozenset(DEVICE_TYPES)
        if function not in self._op_defs.functions:
            return everywhere
        if function not in self._bodies:
            self._bodies[function] = everywhere  # Ends the recursion if a function calls itself.
            types = everywhere
            for node in self._op_defs.functions[function].node_def:
                types &= self.site(node).device_types
            self._bodies[function] = types
        return self._bodies[function]


def sites(nodes: Sequence[Node], op_defs: OpDefs) -> list[Site]:
    """Return the sites of the nodes of a step; raise the errors of `Devices.site`."""
    devices = Devices(op_defs)
    return [devices.site(node.proto) for node in nodes]


def _stays_on_host(op_type: str, signature: Signature) -> bool:
    return (
        op_type in HOST_TYPES
        or any(part in op_type for part in HOST_TYPE_PARTS)
        or any(tensor.dtype == DT_STRING for tensor in (*signature.inputs, *signature.outputs))
    )


def _no_kernel(node: Any, signature: Signature) -> InfeasibleError:
    return InfeasibleError(
        f"op {node.name!r} ({node.op}, inputs {dtype_names(signature.inputs)}, outputs "
        f"{dtype_names(signature.outputs)}) has no kernel for any device type; one for "
        f"{' or '.join(DEVICE_TYPES)} was expected. Cast its inputs to a type with a kernel."
    )
