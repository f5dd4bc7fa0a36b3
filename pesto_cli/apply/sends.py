"""NoOps that let a CPU send the outputs of an op before it runs the ops that take them.

When an op ends, a send and another op may be ready at the same time. TensorFlow's executor may then
run the op first, and give the send to another thread. If the task has one core, this thread gets
the core only when the operating system interrupts the op: 3 to 4 ms later (docs/running.md, "Sends
before ops"). So the consumers on the same device wait for a NoOp, which waits for the op. The
executor runs the NoOp and the send first. To send a signal, the executor first runs a constant that
waits for the op, and then the send. So a signal needs two NoOps.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from pesto_cli.apply.control_inputs import OrderedOps
from pesto_cli.apply.devices import device_type
from pesto_cli.graphdef.read import StepGraph

DATA_SUFFIXES, SIGNAL_SUFFIXES = (".sent",), (".sending", ".sent")


@dataclass(frozen=True)
class SentFirst:
    """An op whose outputs are sent before other ops of its device run.

    op: its name. no_ops: names of new NoOps; the first one waits for the op, and each other one for
        the previous one. consumers: names of the nodes that wait for the last one.
    """

    op: str
    no_ops: tuple[str, ...]
    consumers: tuple[str, ...]

    def control_inputs(self) -> Iterator[tuple[str, str]]:
        """Yield each node that gets a control input, with the name of this input."""
        for source, no_op in pairwise((self.op, *self.no_ops)):
            yield no_op, source
        for consumer in self.consumers:
            yield consumer, self.no_ops[-1]


def sent_first(
    step: StepGraph,
    ordered: OrderedOps,
    device_of_op: Sequence[str],
    waits_for: Mapping[str, Sequence[str]],
) -> tuple[SentFirst, ...]:
    """Return the ops on CPUs that have consumers on other devices and on their own device.

    Loops, and ops in branches of conditionals, are left out.

    Args:
        step: the step.
        ordered: the ops that are subject to the order.
        device_of_op: `[num_ops]`, TensorFlow devices.
        waits_for: the control inputs of the order: node name -> names of nodes.
    """
    graph, devices = step.graph, np.array(device_of_op)
    is_one_node = np.array([len(row) == 1 for row in step.members], dtype=bool)
    is_plain = ordered.awaited & is_one_node
    cpus = [name for name in {*device_of_op} if device_type(name) == "CPU"]
    sends = is_plain & np.isin(devices, cpus)
    before, after = graph.edges.T
    crosses = (devices[before] != devices[after]) & is_one_node[after] & sends[before]
    before, after = graph.control_edges.T
    signals = {*before[devices[before] != devices[after]].tolist()}
    consumers: dict[int, dict[str, None]] = {op: {} for op in graph.edges[crosses, 0].tolist()}
    op_of = {name: op for op, name in enumerate(graph.names)}
    order = [
        (op_of[source], op_of[node])
        for node, sources in waits_for.items()
        for source in sources
        if {source, node} <= op_of.keys()
    ]
    for op, consumer in (*graph.edges.tolist(), *order):
        if op in consumers and devices[op] == devices[consumer] and is_plain[consumer]:
            consumers[op][graph.names[consumer]] = None
    taken = step.wiring.table.position
    return tuple(
        SentFirst(
            graph.names[op],
            tuple(
                _new_name(f"{graph.names[op]}{suffix}", taken)
                for suffix in (SIGNAL_SUFFIXES if op in signals else DATA_SUFFIXES)
            ),
            tuple(names),
        )
        for op, names in consumers.items()
        if names
    )


def _new_name(name: str, taken: Collection[str]) -> str:
    return _new_name(f"{name}_", taken) if name in taken else name
