"""Convert a placed and ordered step to a graph for TensorFlow's virtual scheduler.

The virtual scheduler runs one op at a time on each device, but its transfers take one nanosecond.
So each transfer is modelled by two nodes on an extra device, which represents its channel: a
constant, which starts when the producer ends, and a copy of it, which the consumers wait for. The
size of the constant is chosen so that the copy takes the time of the transfer. Each signal is
modelled in the same way on an extra device of its own. Control inputs put the ops of each device
in rank order.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from pesto_cli.data.graph import FloatArray
from pesto_cli.data.labels import Role
from pesto_cli.data.machine import Machine
from pesto_cli.data.schedule import Placement
from pesto_cli.files.tensorflow_names import FEED_TYPES
from pesto_cli.graphdef.fetches import fetch_names, node_name
from pesto_cli.graphdef.read import StepGraph
from pesto_cli.graphdef.tensorflow import tensorflow
from pesto_cli.profile.analytic.virtual_cluster import (
    DEVICE_PREFIX,
    NodeRun,
    VirtualDevice,
    VirtualRun,
)

DEVICES = {
    "CPU": VirtualDevice("CPU", 2100, 12, 115_200_000),
    "GPU": VirtualDevice("GPU", 1530, 80, 900_000_000, "7.0"),
}
# Rate of the extra devices: a size in bytes is a duration in tenths of a nanosecond.
CARRIER_US_PER_BYTE = 1e-4
# Numbers of the extra devices; the devices of the machine have smaller numbers.
FIRST_CHANNEL, FIRST_FEED, FIRST_SIGNAL = 100, 1000, 10_000


@dataclass(frozen=True)
class Crossing:
    """A transfer or a signal from an op to another device.

    name: in alphabetical order, transfers that queue at the same time are served.
    carrier: the extra device that it occupies.
    """

    name: str
    producer: int
    consumers: tuple[int, ...]
    carrier: str
    us: float


def placed_run(
    meta_graph: Any, step: StepGraph, machine: Machine, placement: Placement
) -> VirtualRun:
    """Return the virtual run of the step with the devices and the order of a placement."""
    nodes = _step_nodes(meta_graph, step, machine, placement)
    devices = {DEVICE_PREFIX + device.name: DEVICES[device.kind] for device in machine.devices}
    names = _node_names(step)
    fetches = [node_name(fetch) for fetch in fetch_names(meta_graph)]
    for number, feed in enumerate(node for node in nodes.values() if node.op in FEED_TYPES):
        # Each feed has a device of its own: on one device they would run one after another.
        feed.device = f"{DEVICE_PREFIX}GPU:{FIRST_FEED + number}"
        devices[feed.device] = DEVICES["GPU"]
    for before, after in _device_orders(step, placement):
        nodes[names[after]].input.append(f"^{names[before]}")
    for crossing in crossings(step, machine, placement):
        destination = nodes[names[crossing.consumers[0]]].device
        arrival = _add_crossing(crossing, names[crossing.producer], destination, nodes, devices)
        for consumer in crossing.consumers:
            nodes[names[consumer]].input.append(f"^{arrival}")
    for before, after in _returns(step):
        nodes[names[after]].input.append(f"^{names[before]}")
        fetches.append(names[after])
    graph_def = tensorflow().compat.v1.GraphDef(
        node=nodes.values(), versions=meta_graph.graph_def.versions
    )
    return VirtualRun(graph_def, fetches, devices)


def op_start_us(step: StepGraph, run: Mapping[str, NodeRun]) -> FloatArray:
    """`[num_ops]`: start of each op in the virtual scheduler."""
    return np.array([run[name].start_ns / 1e3 for name in _node_names(step)])


def op_time_us(step: StepGraph, run: Mapping[str, NodeRun]) -> FloatArray:
    """`[num_ops]`: time of each op in the virtual scheduler."""
    return np.array([run[name].duration_ns / 1e3 for name in _node_names(step)])


def end_us(run: Mapping[str, NodeRun]) -> float:
    """Return the end of the last node."""
    return max(node.start_ns + node.duration_ns for node in run.values()) / 1e3


def crossings(step: StepGraph, machine: Machine, placement: Placement) -> Iterator[Crossing]:
    """Yield every transfer and signal, once for each destination device."""
    graph, device = step.graph, placement.device.tolist()
    signals = defaultdict(set)
    for before, after in graph.control_edges.tolist():
        if device[before] != device[after]:
            signals[before, device[after]].add(after)
    for tensor, producer in enumerate(graph.tensor_producer.tolist()):
        transfers = defaultdict(list)
        entries = slice(graph.consumer_offsets[tensor], graph.consumer_offsets[tensor + 1])
        for consumer, on_host in zip(
            graph.consumers[entries].tolist(), graph.consumer_on_host[entries], strict=True
        ):
            if device[consumer] == device[producer]:
                continue
            if on_host:
                signals[producer, device[consumer]].add(consumer)
            else:
                transfers[device[consumer]].append(consumer)
        for destination, consumers in transfers.items():
            ends = device[producer], destination
            yield Crossing(
                name=f"transfer_{tensor:06d}_{destination:03d}",
                producer=producer,
                consumers=tuple(consumers),
                carrier=f"{DEVICE_PREFIX}GPU:{FIRST_CHANNEL + machine.channel[ends]}",
                us=float(machine.transfer_us(graph.tensor_bytes[tensor], *ends)),
            )
    for number, ((producer, destination), consumers) in enumerate(signals.items()):
        yield Crossing(
            name=f"signal_{producer:06d}_{destination:03d}",
            producer=producer,
            consumers=tuple(sorted(consumers)),
            carrier=f"{DEVICE_PREFIX}GPU:{FIRST_SIGNAL + number}",
            us=machine.signal_us,
        )


def _node_names(step: StepGraph) -> list[str]:
    """Return the name of the node that represents each op; for a fetch, that of an added NoOp."""
    return [nodes[0] if nodes else f"returned_{op}" for op, nodes in enumerate(step.nodes)]


def _step_nodes(
    meta_graph: Any, step: StepGraph, machine: Machine, placement: Placement
) -> dict[str, Any]:
    """Return the step's nodes by name with their devices; their edges are unchanged.

    A small constant is on the device of a consumer.
    """
    device_of = [DEVICE_PREFIX + machine.devices[device].name for device in placement.device]
    names = dict(zip(_node_names(step), device_of, strict=True))
    names.update((name, device_of[op]) for name, op in step.constants.items())
    node_def = tensorflow().compat.v1.NodeDef
    protos = {node.name: node for node in meta_graph.graph_def.node}
    nodes = {}
    for name, device in names.items():
        nodes[name] = node_def(name=name, op="NoOp")
        if name in protos:
            nodes[name].CopyFrom(protos[name])
            nodes[name].attr.pop("_class", None)
        nodes[name].device = device
    return nodes


def _device_orders(step: StepGraph, placement: Placement) -> Iterator[tuple[int, int]]:
    """Yield the pairs of consecutive ops on each device; feeds are left out (start at time 0)."""
    last: dict[int, int] = {}
    for op in np.lexsort((placement.rank, placement.device)).tolist():
        if step.graph.labels.role[op] != Role.FEED:
            device = int(placement.device[op])
            if device in last:
                yield last[device], op
            last[device] = op


def _returns(step: StepGraph) -> Iterator[tuple[int, int]]:
    """Yield (producer, fetch) for every fetched tensor."""
    graph = step.graph
    for tensor, consumer in zip(graph.consumer_tensor, graph.consumers, strict=True):
        if graph.labels.role[consumer] == Role.FETCH:
            yield int(graph.tensor_producer[tensor]), int(consumer)


def _add_crossing(
    crossing: Crossing,
    producer: str,
    device: str,
    nodes: dict[str, Any],
    devices: dict[str, VirtualDevice],
) -> str:
    """Add the nodes of a crossing to `device`; return the node that ends when it arrives."""
    tf1 = tensorflow().compat.v1
    # A copy reads and writes: two bytes of traffic for each byte.
    bandwidth_kb_s = round(2e3 / CARRIER_US_PER_BYTE)
    devices[crossing.carrier] = VirtualDevice("GPU", 10**6, 10**6, bandwidth_kb_s, "7.0")
    data = tf1.NodeDef(name=f"{crossing.name}_data", op="Const", device=crossing.carrier)
    data.input.append(f"^{producer}")
    data.attr["dtype"].type = tensorflow().int8.as_datatype_enum
    data.attr["value"].tensor.dtype = tensorflow().int8.as_datatype_enum
    data.attr["value"].tensor.int_val.append(0)
    size = round(crossing.us / CARRIER_US_PER_BYTE)
    data.attr["value"].tensor.tensor_shape.dim.add(size=size)
    copy = tf1.NodeDef(name=f"{crossing.name}_copy", op="DeepCopy", device=crossing.carrier)
    copy.input.append(data.name)
    copy.attr["T"].type = tensorflow().int8.as_datatype_enum
    # The virtual scheduler handles nodes in the order in which they become ready. A node starts
    # after the input that was handled last. The copy becomes ready early, so a consumer could start
    # before it ends. This node becomes ready only when the copy ends, so no consumer overtakes it.
    arrival = tf1.NodeDef(name=f"{crossing.name}_arrival", op="Identity", device=device)
    arrival.input.append(copy.name)
    arrival.attr["T"].type = tensorflow().int8.as_datatype_enum
    nodes.update({node.name: node for node in (data, copy, arrival)})
    name: str = arrival.name
    return name
