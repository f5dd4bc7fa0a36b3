"""Check that a step followed its placement: TensorFlow may change devices and order silently.

TensorFlow's trace shows where and when each node ran, and the placement what was planned.
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
    """A node that ran on another device than planned, or an op that started too early."""

    name: str
    planned: str
    found: str


@dataclass(frozen=True)
class Verification:
    """The result of a check.

    num_nodes: number of nodes whose device was checked. num_ops: number of ops whose order was.
    """

    num_nodes: int
    num_ops: int
    departures: tuple[Departure, ...]


NOT_TRACED = Verification(0, 0, ())
"""For a step of which TensorFlow made no trace."""


def verified(
    meta: Any, placement: PlacementFile | None, changes: Changes, ran: Sequence[Span]
) -> Verification:
    """Compare the devices and the order of a real step with the plan.

    Args:
        meta: the MetaGraphDef before it was placed.
        placement: the planned placement; None if only devices were planned.
        changes: the changes of `meta` for the placement, and the step that was read.
        ran: the spans of the nodes in one step.
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
    """Return the nodes that ran on another device than planned.

    device: node -> planned device, which need not name job and task.
    """
    return [
        Departure(span.node, device[span.node], span.device)
        for span in ran
        if span.node in device and not is_of(span.device, device[span.node])
    ]


class _Order:
    """The ops with a planned order in their rank order on each device, with their real times."""

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
                # A loop ends with the last of its Exits; other nodes of it may run longer.
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
        """Yield the ops that started before the end of an op with lower rank on their device."""
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
