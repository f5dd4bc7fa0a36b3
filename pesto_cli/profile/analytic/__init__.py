"""Op times without the hardware: TensorFlow's analytic costs, by its virtual cluster.

    estimate = operations / peak + bytes read and written / bandwidth
    time = max(estimate, launch_us)   where the op launches a kernel
    time = no_launch_us               where it only hands on data or a handle

The estimate is TensorFlow's (`OpLevelCostEstimator`), which knows no cost of a launch. A while loop
takes the sum of its nodes' times, each as often as it runs; of a conditional both branches count.
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

# Op types that launch no kernel: the output is the input's buffer, a handle, a shape or a constant
# that was put on the device before the step.
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
    """Estimate every op on every kind of device of the machine that can run it.

    An op has a time on the CPU only where it cannot run on a GPU, or with `cpu_offload`.

    Raises:
        BadInputError: a kind of device has no description, or the source was given an argument.
        EnvironmentFailedError: TensorFlow's virtual cluster died.
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
    """Indices of the nodes that need an estimate on a kind of device; may_run: `[num_ops]`."""
    return [
        index
        for index, op in enumerate(step.op_of)
        if op is not None and may_run[op] and not _is_free(step, index, kind)
    ]


def _run(step: Unfolded, kind: DeviceKind, estimated: Sequence[int]) -> VirtualRun:
    """What some nodes need, on one device of a kind: nothing is sent, and every node is costed.

    The cost of a node follows from the shapes and constants that it takes.
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
    """What a node takes each time that it runs."""
    if _is_free(step, index, kind):
        return kind.no_launch_us
    name = step.nodes[index].name
    # A node that the virtual cluster never reaches has no estimate.
    estimate_ns = runs[name].duration_ns if name in runs else 0
    return max(estimate_ns / 1e3, kind.launch_us)


def _is_free(step: Unfolded, index: int, kind: DeviceKind) -> bool:
    """Whether a node launches no kernel on a kind of device."""
    return step.nodes[index].type in NO_LAUNCH or (kind.type == "GPU" and step.on_host[index])


def _described_kinds(machine: Machine) -> dict[str, DeviceKind]:
    """The kinds of the machine's devices, in their order."""
    kinds: dict[str, DeviceKind] = {}
    for device in machine.devices:
        if device.kind not in machine.kinds:
            raise BadInputError(
                f"device {device.name!r} is of kind {device.kind!r}, which the machine does not "
                "describe; its type, frequency_mhz, num_cores and bandwidth_gb_s were expected: "
                f"add [kinds.{device.kind}] to the machine's file, or give measured times "
                "(--source csv:FILE)."
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
    for name in step.endless:
        yield (
            f"nothing in the graph tells how often while loop {name!r} runs: it was counted once; "
            "give measured times for more (--source csv:FILE)."
        )
    for name in sorted(step.folded):
        yield (
            f"TensorFlow does not inline what {name!r} calls: it was estimated by its inputs and "
            "outputs alone; give a measured time for more (--source csv:FILE)."
        )
