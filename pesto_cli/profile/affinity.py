"""The device types (GPU, CPU) on which an op gets a time, if it could run on both."""

import numpy as np

from pesto_cli.data.graph import BoolArray, IntArray
from pesto_cli.profile.source import CostRequest


def affinity(request: CostRequest) -> dict[str, BoolArray]:
    """Return device type -> `[num_ops]`: whether an op gets a time on devices of this type.

    As in the paper, an op has one type: GPU if its whole colocation group can run on a GPU, else
    CPU. With `cpu_offload` it has both types if its group can run on both. If neither type can run
    a group, each member has the types that can run it: a later error names these members.
    """
    step, groups = request.step, request.step.graph.colocation_group
    types = {request.machine.device_type(device.kind) for device in request.machine.devices}
    able = {name: ops & (name in types) for name, ops in step.supported.items()}
    on_gpu, on_cpu = (_together(able[name], groups) for name in ("GPU", "CPU"))
    return {
        "GPU": able["GPU"] & (on_gpu | ~on_cpu),
        "CPU": able["CPU"] & (~on_gpu | request.cpu_offload),
    }


def _together(able: BoolArray, groups: IntArray) -> BoolArray:
    """`[num_ops]`: whether `able` is true for all members of the op's colocation group."""
    together = np.ones(int(groups.max(initial=-1)) + 1, dtype=np.bool_)
    np.logical_and.at(together, groups, able)
    return together[groups]
