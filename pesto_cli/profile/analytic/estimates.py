"""Estimates of kernels on a device kind: of their arithmetic and of their memory traffic.

    estimate = operations / (peak * arithmetic) + bytes / (bandwidth * memory) + start

The two factors and the start are the efficiencies of the op type on the device kind. TensorFlow's
estimate has factors of 1 and no start. So for a kind with other efficiencies, a graph is estimated
twice: on a device whose memory traffic takes no time, and on one whose arithmetic takes none.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

from pesto_cli.data.machine import DeviceKind
from pesto_cli.profile.analytic.kinds import virtual_device
from pesto_cli.profile.analytic.virtual_cluster import (
    DEVICE_PREFIX,
    NodeRun,
    VirtualRun,
    run_all,
)

# A rate multiplied by this factor is so high that its term takes no time.
UNLIMITED = 10**6


@dataclass(frozen=True)
class EstimateRequest:
    """A graph on a device of a kind, and the names of its nodes to estimate.

    The graph contains all inputs of these nodes, because their costs depend on the shapes and the
    constant values of inputs.
    """

    kind: DeviceKind
    graph_def: Any
    nodes: Sequence[str]


def estimates_us(requests: Sequence[EstimateRequest]) -> list[Mapping[str, float]]:
    """Return the estimates of the nodes of each graph by name, in us.

    The result leaves out the nodes that the virtual cluster does not run.

    Raises:
        EnvironmentFailedError: the process of TensorFlow's virtual cluster died.
    """
    runs = [_virtual_runs(each) for each in requests]
    found = iter(run_all(list(chain.from_iterable(runs))))
    return [
        _combined(each, [next(found) for _ in of_kind])
        for each, of_kind in zip(requests, runs, strict=True)
    ]


def _virtual_runs(request: EstimateRequest) -> list[VirtualRun]:
    """Return one run of a graph, or two: its arithmetic, and its memory traffic.

    Sets the device of each node.
    """
    name, plain = f"{DEVICE_PREFIX}{request.kind.type}:0", virtual_device(request.kind)
    for node in request.graph_def.node:
        node.device = name
    devices = [plain]
    if request.kind.efficiency:
        devices = [
            replace(plain, bandwidth_kb_s=plain.bandwidth_kb_s * UNLIMITED),
            replace(plain, num_cores=plain.num_cores * UNLIMITED),
        ]
    return [VirtualRun(request.graph_def, request.nodes, {name: device}) for device in devices]


def _combined(
    request: EstimateRequest, runs: Sequence[Mapping[str, NodeRun]]
) -> Mapping[str, float]:
    """Return the estimates of nodes: one run is that without efficiencies, two are the terms."""
    types = {node.name: node.op for node in request.graph_def.node}
    found = {}
    for name in request.nodes:
        if all(name in run for run in runs):
            terms_us = [run[name].duration_ns / 1e3 for run in runs]
            reached = request.kind.efficiency_of(types[name])
            found[name] = terms_us[0] if len(runs) == 1 else reached.estimate_us(*terms_us)
    return found
