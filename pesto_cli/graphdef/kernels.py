"""Find the TensorFlow kernel that would run a node on each device type."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from pesto_cli.graphdef.signature import OpDefs, values

DEVICE_TYPES = ("CPU", "GPU")
# Kernels of this type run on every device type that has no kernel of its own.
ANY_DEVICE = "DEFAULT"


@dataclass(frozen=True)
class Kernel:
    """One registered kernel.

    constraints: attribute -> the values that it may have.
    host_memory: names of the arguments that this kernel reads from or writes to host memory.
    label: the value of the attribute `_kernel` of nodes that choose this kernel; usually empty.
    """

    device_type: str
    constraints: Mapping[str, frozenset[Any]]
    host_memory: frozenset[str]
    label: str
    priority: int

    def takes(self, attributes: Mapping[str, tuple[Any, ...] | None], label: str) -> bool:
        """Return whether the kernel fits a node's attributes; an open one (None) always fits."""
        return label == self.label and all(
            attributes[name] is None or allowed.issuperset(attributes[name] or ())
            for name, allowed in self.constraints.items()
        )


class Kernels:
    """The kernels in TensorFlow's registry. It lists GPU kernels even on a machine without GPU."""

    def __init__(self, op_defs: OpDefs) -> None:
        self._op_defs = op_defs
        self._chosen: dict[tuple[object, ...], dict[str, Kernel]] = {}

    def of(self, node: Any) -> Mapping[str, Kernel]:
        """Return the kernel that TensorFlow would choose for a NodeDef, by device type.

        Follows `FindKernelRegistration` in TensorFlow's `op_kernel.cc`: label and constraints must
        fit, the highest priority wins, and `DEFAULT` kernels are used for a type without kernel.
        """
        kernels = _registered_kernels(node.op)
        names = {name for kernel in kernels for name in kernel.constraints}
        attributes = {name: values(self._op_defs.attribute(node, name)) for name in names}
        label = node.attr["_kernel"].s.decode() if "_kernel" in node.attr else ""
        key = (node.op, label, *attributes.items())
        if key not in self._chosen:
            fitting = [kernel for kernel in kernels if kernel.takes(attributes, label)]
            self._chosen[key] = _best(fitting)
        return self._chosen[key]


@cache  # TensorFlow reads its whole registry for each type, which takes some milliseconds.
def _registered_kernels(op_type: str) -> tuple[Kernel, ...]:
    from tensorflow.python.framework import kernels

    return tuple(
        Kernel(
            device_type=found.device_type,
            constraints={
                constraint.name: frozenset(values(constraint.allowed_values) or ())
                for constraint in found.constraint
            },
            host_memory=frozenset(found.host_memory_arg),
            label=found.label,
            priority=found.priority,
        )
        for found in kernels.get_registered_kernels_for_op(op_type).kernel
        if found.device_type in {*DEVICE_TYPES, ANY_DEVICE}
    )


def _best(kernels: list[Kernel]) -> dict[str, Kernel]:
    by_type: dict[str, Kernel] = {}
    for kernel in sorted(kernels, key=lambda kernel: kernel.priority):
        by_type[kernel.device_type] = kernel
    chosen = {name: by_type.get(name, by_type.get(ANY_DEVICE)) for name in DEVICE_TYPES}
    return {name: kernel for name, kernel in chosen.items() if kernel is not None}
