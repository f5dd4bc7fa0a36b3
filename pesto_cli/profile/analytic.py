"""Op times without the hardware: TensorFlow's analytic costs, by its virtual cluster.

TensorFlow estimates an op by the larger of its arithmetic at the device's peak and its memory
traffic at the device's bandwidth, and knows no cost of a launch. The machine's description adds it:

    time = max(estimate, launch_us)   where the op launches a kernel
    time = no_launch_us               where it only hands on data or a handle

A while loop takes the sum of its nodes' times, each as often as it runs; of a conditional both
branches count.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pesto_cli.errors import BadInputError
from pesto_cli.graph import BoolArray
from pesto_cli.graphdef.devices import Devices
from pesto_cli.graphdef.fetches import fetch_names, node_name
from pesto_cli.graphdef.nodes import Node, needed_nodes, topological_order
from pesto_cli.graphdef.signature import OpDefs
from pesto_cli.machine import DeviceKind, Machine
from pesto_cli.profile.loops import Loops
from pesto_cli.profile.lowering import call_names, caller, lowered
from pesto_cli.profile.source import Costs, Request
from pesto_cli.profile.virtual_cluster import (
    DEVICE_PREFIX,
    NodeRun,
    VirtualDevice,
    VirtualRun,
    run_all,
)

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


def costs(request: Request) -> Costs:
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
    unfolded = _unfolded(request)
    runs = run_all([_run(unfolded, kind) for kind in kinds.values()])
    may_run = _affinity(request)
    time_us = {}
    for (name, kind), node_runs in zip(kinds.items(), runs, strict=True):
        column = np.zeros(request.step.graph.num_ops)
        for index, op in enumerate(unfolded.op_of):
            if op is not None:
                column[op] += _node_us(unfolded, index, kind, node_runs)
        time_us[name] = np.where(may_run[kind.type], column, np.nan)
    return Costs(time_us, notes=tuple(_notes(unfolded)))


@dataclass(frozen=True)
class _Unfolded:
    """The step's nodes, functions and functional loops unfolded.

    op_of: `[num_nodes]`, the op of the step that each node is a part of.
    host_only: `[num_nodes]`, whether all that a node gives is in host memory even on a GPU, as
        with int32 arithmetic on shapes.
    """

    graph_def: Any
    fetches: Sequence[str]
    nodes: Sequence[Node]
    op_of: Sequence[int | None]
    host_only: Sequence[bool]
    loops: Loops


def _unfolded(request: Request) -> _Unfolded:
    original = request.meta_graph
    meta_graph = lowered(original)
    fetches = fetch_names(meta_graph)
    nodes = needed_nodes(meta_graph.graph_def, map(node_name, fetches))
    op_of_node = {node: op for op, members in enumerate(request.step.nodes) for node in members}
    kept = {node.name for node in original.graph_def.node}
    calls = call_names(original.graph_def)
    devices = Devices(OpDefs(meta_graph.graph_def.library))
    sites = [devices.site(node.proto) for node in nodes]
    return _Unfolded(
        graph_def=meta_graph.graph_def,
        fetches=fetches,
        nodes=nodes,
        op_of=[
            op_of_node.get(node.name if node.name in kept else caller(node.name, calls))
            for node in nodes
        ],
        host_only=[bool(site.host_outputs) and all(site.host_outputs) for site in sites],
        loops=Loops(nodes, topological_order(nodes)),
    )


def _run(unfolded: _Unfolded, kind: DeviceKind) -> VirtualRun:
    """The whole step on one device of a kind: nothing is sent, and every op is costed."""
    device = f"{DEVICE_PREFIX}{kind.type}:0"
    graph_def = type(unfolded.graph_def)(
        node=(node.proto for node in unfolded.nodes),
        library=unfolded.graph_def.library,
        versions=unfolded.graph_def.versions,
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
    return VirtualRun(graph_def, unfolded.fetches, {device: described})


def _node_us(
    unfolded: _Unfolded, index: int, kind: DeviceKind, runs: Mapping[str, NodeRun]
) -> float:
    """What a node takes in one step, over all its iterations."""
    node = unfolded.nodes[index]
    once_us = kind.no_launch_us
    if not (node.type in NO_LAUNCH or (kind.type == "GPU" and unfolded.host_only[index])):
        once_us = max(runs[node.name].duration_ns / 1e3, kind.launch_us)
    return once_us * unfolded.loops.iterations(index)


def _affinity(request: Request) -> dict[str, BoolArray]:
    """Device type -> `[num_ops]`, where an op gets a time.

    A GPU where its whole colocation group can run on one, else the CPU. A group that neither can
    run keeps what its members can, for the error that names them.
    """
    step, groups = request.step, request.step.graph.colocation_group
    types = {request.machine.device_type(device.kind) for device in request.machine.devices}
    able = {kind: ops & (kind in types) for kind, ops in step.supported.items()}
    together = {kind: np.ones(step.graph.num_groups, dtype=np.bool_) for kind in able}
    for kind, ops in able.items():
        np.logical_and.at(together[kind], groups, ops)
    on_gpu, on_cpu = together["GPU"][groups], together["CPU"][groups]
    return {
        "GPU": able["GPU"] & (on_gpu | ~on_cpu),
        "CPU": able["CPU"] & (~on_gpu | request.cpu_offload),
    }


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


def _notes(unfolded: _Unfolded) -> Iterator[str]:
    for frame in unfolded.loops.of_unknown_length:
        yield (
            f"nothing in the graph tells how often while loop {frame[-1]!r} runs: it was counted "
            "once; give measured times for more (--source csv:FILE)."
        )
    for name in sorted(call_names(unfolded.graph_def)):
        yield (
            f"TensorFlow does not inline what {name!r} calls: it was estimated by its inputs and "
            "outputs alone; give a measured time for more (--source csv:FILE)."
        )
