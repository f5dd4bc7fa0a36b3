"""Read from TensorFlow's trace when and on which device each node of a step ran."""

import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pesto_cli.graphdef.bodies import Bodies, Recorded

# Name of the executor's rows of a device; the rows of GPU streams have other names.
_EXECUTOR = re.compile(r"/job:\w+/replica:\d+/task:\d+/device:[A-Z_]+:\d+")


@dataclass(frozen=True)
class Span:
    """The time of one node in one step, from the start of its first run to the end of its last.

    A node within a loop runs several times. device: TensorFlow's full name. Times are on the clock
    of that device. busy_us: sum over the runs.
    """

    node: str
    device: str
    start_us: float
    end_us: float
    busy_us: float


def spans(traced: Any, graph_def: Any) -> list[Span]:
    """Return the spans of a GraphDef's nodes in a RunMetadata, sorted by start.

    Nodes that TensorFlow adds at run time (copies of constants, sends and receives) have names that
    no node of the graph has, and are left out. Nodes in functions that the graph calls may have the
    same name as a node of the graph; `Bodies` finds them, and they are left out too.
    """
    nodes = {node.name for node in graph_def.node}
    runs = [run for run in _runs(traced) if run.node in nodes]
    by_node: dict[tuple[str, str], list[Recorded]] = defaultdict(list)
    for run, is_own in zip(runs, Bodies.of(graph_def).is_own(runs), strict=True):
        if is_own:
            by_node[run.node, run.device].append(run)
    found = [
        Span(
            node=node,
            device=device,
            start_us=min(run.start for run in own) / 1e3,
            end_us=max(run.end for run in own) / 1e3,
            busy_us=sum(run.end - run.start for run in own) / 1e3,
        )
        for (node, device), own in by_node.items()
    ]
    return sorted(found, key=lambda span: span.start_us)


def _runs(traced: Any) -> Iterator[Recorded]:
    """Yield all runs of nodes, in ns."""
    for device in traced.step_stats.dev_stats:
        if _EXECUTOR.fullmatch(device.device):
            for run in device.node_stats:
                start_ns = run.all_start_nanos + run.op_start_rel_nanos
                end_ns = run.all_start_nanos + run.op_end_rel_nanos
                yield Recorded(run.node_name, device.device, start_ns, end_ns)


def idle_us(ran: Sequence[Span], device: str) -> float:
    """Return the time without any node running on a device, between its first and last node.

    device: TensorFlow's full name.
    """
    idle, until = 0.0, None
    for span in ran:  # by start
        if span.device == device:
            idle += 0.0 if until is None else max(0.0, span.start_us - until)
            until = span.end_us if until is None else max(until, span.end_us)
    return idle


def busy_us(ran: Collection[Span]) -> Mapping[str, float]:
    """Return TensorFlow's name of each device -> sum of the times of its nodes."""
    busy: dict[str, float] = defaultdict(float)
    for span in ran:
        busy[span.device] += span.busy_us
    return dict(busy)
