"""Whether a step ran as it was planned: TensorFlow overrides devices and order, and says nothing.

What is read is TensorFlow's own trace; what is expected, the placement.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pesto_cli.apply import Changes
from pesto_cli.apply.control_inputs import ordered_ops
from pesto_cli.apply.device_names import is_of
from pesto_cli.files import PlacementFile
from pesto_cli.graphdef.frames import EXIT
from pesto_cli.graphdef.read import StepGraph
from pesto_cli.runtime.spans import Span


@dataclass(frozen=True)
class Departure:
    """A node that ran elsewhere than planned, or an op that ran before its turn."""

    name: str
    planned: str
    found: str


@dataclass(frozen=True)
class Verification:
    """What a trace was checked for. num_nodes: on their device. num_ops: in their order."""

    num_nodes: int
    num_ops: int
    departures: tuple[Departure, ...]


def verified(
    meta: Any, placement: PlacementFile | None, changes: Changes, ran: Sequence[Span]
) -> Verification:
    """Compare where and in which order a step ran with what was planned.

    Args:
        meta: the MetaGraphDef before it was placed.
        placement: what was planned; None where only devices were.
        changes: what was changed in `meta` for it, and the step that was read.
        ran: the spans of its nodes in one step.
    """
    order = None
    if placement is not None and changes.step is not None:
        order = _Order(meta, changes.step, placement, ran)
    return Verification(
        num_nodes=sum(span.node in changes.device for span in ran),
        num_ops=0 if order is None else order.num_ops,
        departures=(
            *on_other_devices(changes.device, ran),
            *(() if order is None else order.too_early()),
        ),
    )


def on_other_devices(device: Mapping[str, str], ran: Collection[Span]) -> list[Departure]:
    """Nodes that ran on another device than `device` says, which may leave job and task open."""
    return [
        Departure(span.node, device[span.node], span.device)
        for span in ran
        if span.node in device and not is_of(span.device, device[span.node])
    ]


class _Order:
    """The order in which the ops of a step started, on each device."""

    def __init__(
        self, meta: Any, step: StepGraph, placement: PlacementFile, ran: Sequence[Span]
    ) -> None:
        ordered = ordered_ops(meta, step)
        types = {node.name: node.type for node in step.wiring.nodes}
        span_of = {span.node: span for span in ran}
        rank_of = dict(
            zip(placement.names, zip(placement.device, placement.rank, strict=True), strict=True)
        )
        self._rows = []
        for op in np.flatnonzero(ordered.waits).tolist():
            spans = [span_of[node] for node in step.nodes[op] if node in span_of]
            if spans:
                # A loop has ended with the last of its Exits; more of it may still be running.
                exits = [span for span in spans if types[span.node] in EXIT] or spans
                start_us = min(span.start_us for span in spans)
                end_us = max(span.end_us for span in exits)
                name = step.graph.names[op]
                awaited, branch = bool(ordered.awaited[op]), int(ordered.branch[op])
                self._rows.append((*rank_of[name], name, awaited, branch, start_us, end_us))
        self._rows.sort()

    @property
    def num_ops(self) -> int:
        return len(self._rows)

    def too_early(self) -> Iterator[Departure]:
        """Yield the ops that started before one of lower rank on their device had ended."""
        latest: dict[tuple[int, int], tuple[float, str]] = {}
        for device, _, name, awaited, branch, start_us, end_us in self._rows:
            ahead = [latest[key] for key in {(device, 0), (device, branch)} if key in latest]
            before_us, before = max(ahead, default=(start_us, ""))
            if start_us < before_us:
                yield Departure(
                    name, f"after {before}", f"{before_us - start_us:.1f} us before its end"
                )
            if awaited or branch:
                key = device, branch
                latest[key] = max((end_us, name), latest.get(key, (end_us, name)))
