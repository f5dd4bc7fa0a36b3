"""Op times without the hardware: analytic estimates of TensorFlow's virtual cluster.

    estimate = operations / peak + bytes read and written / bandwidth
    time = max(estimate, launch_us)   if the op launches a kernel
    time = no_launch_us               if it only passes on data or a handle

The estimate is that of TensorFlow's `OpLevelCostEstimator`, which leaves out the cost of a kernel
launch. The time of a while loop is the sum, over its nodes, of the node's time multiplied by its
number of iterations. Both branches of a conditional are counted.
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from pesto_cli.data.graph import BoolArray
from pesto_cli.data.machine import DeviceKind, Machine
from pesto_cli.errors import BadInputError
from pesto_cli.graphdef.nodes import reached
from pesto_cli.profile.affinity import affinity
from pesto_cli.profile.analytic.unfolding import Unfolded, unfold
from pesto_cli.profile.analytic.virtual_cluster import (
    DEVICE_PREFIX,
    NodeRun,
    VirtualDevice,
    VirtualRun,
    run_all,
)
from pesto_cli.profile.source import CostRequest, Costs

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


def costs(request: CostRequest) -> Costs:
    """Estimate the time of every op on every device kind of the machine that can run it.

    An op has a time on the CPU only if it cannot run on a GPU, or with `cpu_offload`.

    Raises:
        BadInputError: a device kind has no description, or the source was given an argument.
        EnvironmentFailedError: the process of TensorFlow's virtual cluster died.
    """
    if request.argument:
        raise BadInputError(
            f"cost source analytic takes no argument, but was given {request.argument!r}; leave "
            "out what follows the colon."
        )
    kinds = _described_kinds(request.machine)
    step = unfold(request.meta_graph, request.step)
    may_run = affinity(request)
    estimated = {name: _estimated(step, kind, may_run[kind.type]) for name, kind in kinds.items()}
    asked = [name for name in kinds if estimated[name]]
    runs = run_all([_run(step, kinds[name], estimated[name]) for name in asked])
    runs_of = dict(zip(asked, runs, strict=True))
    time_us = {}
    for name, kind in kinds.items():
        node_runs = runs_of.get(name, {})
        column = np.zeros(request.step.graph.num_ops)
        for index, op in enumerate(step.op_of):
            if op is not None:
                column[op] += step.iterations[index] * _node_us(step, index, kind, node_runs)
        time_us[name] = np.where(may_run[kind.type], column, np.nan)
    return Costs(time_us, notes=tuple(_notes(step)))


def _estimated(step: Unfolded, kind: DeviceKind, may_run: BoolArray) -> list[int]:
    """Return the indices of the nodes to estimate on a device kind; may_run: `[num_ops]`."""
    return [
        index
        for index, op in enumerate(step.op_of)
        if op is not None and may_run[op] and not _is_free(step, index, kind)
    ]


def _run(step: Unfolded, kind: DeviceKind, estimated: Sequence[int]) -> VirtualRun:
    """Return a virtual run of some nodes and all their inputs on one device of a kind.

    One device means no transfers. The inputs are included because the cost of a node depends on
    their shapes and constant values.
    """
    device = f"{DEVICE_PREFIX}{kind.type}:0"
    graph_def = type(step.graph_def)(
        node=(step.nodes[index].proto for index in sorted(reached(step.nodes, estimated))),
        library=step.graph_def.library,
        versions=step.graph_def.versions,
    )
    for node in graph_def.node:
        node.device = device
    described = VirtualDevice(
        type=kind.type,
        frequency_mhz=kind.frequency_mhz,
        num_cores=kind.num_cores,
        bandwidth_kb_s=round(kind.bandwidth_gb_s * 1e6),
        architecture=kind.architecture,
    )
    fetches = [step.nodes[index].name for index in estimated]
    return VirtualRun(graph_def, fetches, {device: described})


def _node_us(step: Unfolded, index: int, kind: DeviceKind, runs: Mapping[str, NodeRun]) -> float:
    """Return the time of one run of a node, in us."""
    if _is_free(step, index, kind):
        return kind.no_launch_us
    name = step.nodes[index].name
    # A node that the virtual cluster did not run has no estimate.
    estimate_ns = runs[name].duration_ns if name in runs else 0
    return max(estimate_ns / 1e3, kind.launch_us)


def _is_free(step: Unfolded, index: int, kind: DeviceKind) -> bool:
    """Whether a node launches no kernel on a device kind."""
    return step.nodes[index].type in NO_LAUNCH or (kind.type == "GPU" and step.on_host[index])


def _described_kinds(machine: Machine) -> dict[str, DeviceKind]:
    """Return the kinds of the machine's devices by name, in order of first use.

    Raises:
        BadInputError: a kind is not described, or lacks the architecture of its GPU.
    """
    kinds: dict[str, DeviceKind] = {}
    for device in machine.devices:
        if device.kind not in machine.kinds:
            raise BadInputError(
                f"device {device.name!r} is of kind {device.kind!r}, which the machine does not "
                "describe; its type, frequency_mhz, num_cores and bandwidth_gb_s were expected: "
                f"add [kinds.{device.kind}] to the machine's file, or give measured times "
                "(pesto profile --source csv:FILE)."
            )
        kind = machine.kinds[device.kind]
        if kind.type == "GPU" and not kind.architecture:
            raise BadInputError(
                f"kind {device.kind!r} is a GPU without an architecture; its compute capability, "
                "such as 7.0, was expected: add it to the machine's file."
            )
        kinds[device.kind] = kind
    return kinds


def _notes(step: Unfolded) -> Iterator[str]:
    for name in step.unknown_loops:
        yield (
            f"the number of iterations of while loop {name!r} does not follow from the graph: 1 "
            "was assumed; give measured times to correct it (pesto profile --source csv:FILE)."
        )
    for name in sorted(step.not_inlined):
        yield (
            f"TensorFlow does not inline the function that {name!r} calls: its time was estimated "
            "from its inputs and outputs alone; give a measured time (pesto profile --source "
            "csv:FILE)."
        )
