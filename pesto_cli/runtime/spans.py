"""When and where every node of a step ran, by TensorFlow's own trace."""

import re
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

# The executor's account of a device; what a GPU's streams did has another name.
_EXECUTOR = re.compile(r"/job:\w+/replica:\d+/task:\d+/device:[A-Z_]+:\d+")


@dataclass(frozen=True)
class Span:
    """One node in one step, from the start of its first run to the end of its last, in a loop.

    device: as TensorFlow names it, in full. Times are on that device's clock; busy_us is the sum
    over the runs.
    """

    node: str
    device: str
    start_us: float
    end_us: float
    busy_us: float


def spans(traced: Any, nodes: Collection[str]) -> list[Span]:
    """Return the spans of some nodes in a RunMetadata, by start.

    What TensorFlow adds as it runs a graph (copies of constants, sends and receives) has names of
    its own.
    """
    runs = defaultdict(list)
    for device in traced.step_stats.dev_stats:
        if _EXECUTOR.fullmatch(device.device):
            for run in device.node_stats:
                if run.node_name in nodes:
                    start_ns = run.all_start_nanos + run.op_start_rel_nanos
                    end_ns = run.all_start_nanos + run.op_end_rel_nanos
                    runs[run.node_name, device.device].append((start_ns, end_ns))
    found = [
        Span(
            node=node,
            device=device,
            start_us=min(start for start, _ in times) / 1e3,
            end_us=max(end for _, end in times) / 1e3,
            busy_us=sum(end - start for start, end in times) / 1e3,
        )
        for (node, device), times in runs.items()
    ]
    return sorted(found, key=lambda span: span.start_us)


def idle_us(ran: Sequence[Span], device: str) -> float:
    """For how long no node ran on one of TensorFlow's devices, between its first and its last."""
    idle, until = 0.0, None
    for span in ran:  # by start
        if span.device == device:
            idle += 0.0 if until is None else max(0.0, span.start_us - until)
            until = span.end_us if until is None else max(until, span.end_us)
    return idle


def busy_us(ran: Collection[Span]) -> Mapping[str, float]:
    """TensorFlow's device -> for how long in all its nodes ran."""
    busy: dict[str, float] = defaultdict(float)
    for span in ran:
        busy[span.device] += span.busy_us
    return dict(busy)
