"""On which types of device an op gets a time, where it could run on several."""

import numpy as np

from pesto_cli.data.graph import BoolArray, IntArray
from pesto_cli.profile.source import CostRequest


def affinity(request: CostRequest) -> dict[str, BoolArray]:
    """Device type -> `[num_ops]`, where an op gets a time.

    As in the paper, an op has one type: GPU where its whole colocation group can run on one, else
    CPU; with `cpu_offload`, both where it can. A group that neither type can run keeps what its
    members can, for the error that names them.
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
    """`[num_ops]`: whether all members of an op's group are able."""
    together = np.ones(int(groups.max(initial=-1)) + 1, dtype=np.bool_)
    np.logical_and.at(together, groups, able)
    return together[groups]
