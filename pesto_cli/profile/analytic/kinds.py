"""Device kinds as the analytic source describes them, and the least times of ops on them."""

from pesto_cli.data.machine import DeviceKind, Machine
from pesto_cli.errors import BadInputError, did_you_mean
from pesto_cli.profile.analytic.virtual_cluster import VirtualDevice

# Op types that launch no kernel: their output is the input's buffer, a handle, a shape or a
# constant that is on the device before the step begins.
_NO_LAUNCH = """
    Const NoOp ControlTrigger Assert
    Placeholder PlaceholderV2 PlaceholderWithDefault _Arg _Retval
    Identity IdentityN RefIdentity StopGradient PreventGradient
    Reshape Squeeze ExpandDims Bitcast Shape ShapeN Rank Size
    VarHandleOp Variable VariableV2 ReadVariableOp AssignVariableOp VarIsInitializedOp VariableShape
    Enter RefEnter Exit RefExit Switch RefSwitch Merge RefMerge NextIteration RefNextIteration
    LoopCond
    EmptyTensorList TensorListReserve TensorListLength TensorListElementShape TensorListPushBack
    TensorListPopBack TensorListGetItem TensorListSetItem
    StackV2 StackPushV2 StackPopV2 TensorArrayV3 TensorArrayGradV3 TensorArrayReadV3
    TensorArrayWriteV3 TensorArraySizeV3
"""
NO_LAUNCH = frozenset(_NO_LAUNCH.split())

MEASURED = "or give measured times (pesto profile --source csv:FILE)"


def described_kinds(machine: Machine, otherwise: str = MEASURED) -> dict[str, DeviceKind]:
    """Return the kinds of the machine's devices by name, in order of first use.

    otherwise: what a user may do instead of describing a kind, for the error.

    Raises:
        BadInputError: a kind is not described, or lacks the architecture of its GPU.
    """
    kinds: dict[str, DeviceKind] = {}
    for device in machine.devices:
        if device.kind not in machine.kinds:
            raise BadInputError(
                f"device {device.name!r} is of kind {device.kind!r}, which the machine does not "
                "describe; its type, frequency_mhz, num_cores and bandwidth_gb_s were expected: "
                f"add [kinds.{device.kind}] to the machine's file, {otherwise}."
                f"{did_you_mean(device.kind, machine.kinds)}"
            )
        kind = machine.kinds[device.kind]
        if kind.type == "GPU" and not kind.architecture:
            raise BadInputError(
                f"kind {device.kind!r} is a GPU without an architecture; its compute capability, "
                "such as 7.0, was expected: add it to the machine's file."
            )
        kinds[device.kind] = kind
    return kinds


def virtual_device(kind: DeviceKind) -> VirtualDevice:
    """Return a device of a kind for the virtual cluster."""
    return VirtualDevice(
        type=kind.type,
        frequency_mhz=kind.frequency_mhz,
        num_cores=kind.num_cores,
        bandwidth_kb_s=round(kind.bandwidth_gb_s * 1e6),
        architecture=kind.architecture,
    )


def is_free(op_type: str, on_host: bool, kind: DeviceKind) -> bool:
    """Whether an op launches no kernel on a device kind.

    on_host: whether all its outputs are in host memory even if it runs on a GPU.
    """
    return op_type in NO_LAUNCH or (kind.type == "GPU" and on_host)


def launched_us(estimate_us: float | None, kind: DeviceKind, times: int = 1) -> float:
    """Return the time of an op that launches a kernel, in us.

    estimate_us: of its kernel; None if there is none. times: how often the kernel does this.
    """
    return max(times * (estimate_us or 0.0), kind.launch_us)
