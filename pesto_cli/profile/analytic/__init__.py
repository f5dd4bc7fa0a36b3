"""Op times without the hardware: analytic estimates of TensorFlow's virtual cluster.

    estimate = operations / peak + bytes read and written / bandwidth
    time = max(estimate, launch_us)   if the op launches a kernel
    time = no_launch_us               if it only passes on data or a handle

TensorFlow's `OpLevelCostEstimator` computes the two terms. It does not include the cost of a kernel
launch. Each term is divided by its efficiency, which depends on the op type (see `estimates`). A
convolution with groups is estimated by groups (see `groups`). The time of a while loop is the sum,
over its nodes, of the node's time multiplied by its number of iterations; that of a call is the sum
over the nodes of its function. Both branches of a conditional are counted.
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from pesto_cli.data.graph import BoolArray
from pesto_cli.data.machine import DeviceKind
from pesto_cli.errors import BadInputError
from pesto_cli.graphdef.nodes import reached
from pesto_cli.printable import first_of
from pesto_cli.profile.affinity import affinity
from pesto_cli.profile.analytic.estimates import EstimateRequest, estimates_us
from pesto_cli.profile.analytic.groups import with_groups
from pesto_cli.profile.analytic.kinds import described_kinds, is_free, launched_us
from pesto_cli.profile.analytic.loose import loose_us
from pesto_cli.profile.analytic.unfolding import Unfolded, unfold
from pesto_cli.profile.source import CostRequest, Costs

# Nodes that a note names.
SHOWN_NODES = 3


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
    kinds = described_kinds(request.machine)
    step = unfold(request.meta_graph, request.step)
    may_run = affinity(request)
    estimated = {name: _estimated(step, kind, may_run[kind.type]) for name, kind in kinds.items()}
    asked = [name for name in kinds if estimated[name]]
    found = estimates_us([_request(step, kinds[name], estimated[name]) for name in asked])
    estimates = dict(zip(asked, found, strict=True))
    groups = with_groups(step, request.step)
    us_of_groups = loose_us({name: dict.fromkeys(groups.values()) for name in asked}, kinds)
    time_us = {}
    for name, kind in kinds.items():
        of_nodes = estimates.get(name, {})
        column = np.zeros(request.step.graph.num_ops)
        for index, op in enumerate(step.op_of):
            if op is not None:
                if index in groups and name in us_of_groups:
                    node_us = us_of_groups[name][groups[index]]
                else:
                    node_us = _node_us(step, index, kind, of_nodes)
                column[op] += step.iterations[index] * node_us
        time_us[name] = np.where(may_run[kind.type], column, np.nan)
    return Costs(time_us, notes=tuple(_notes(step)))


def _estimated(step: Unfolded, kind: DeviceKind, may_run: BoolArray) -> list[int]:
    """Return the indices of the nodes to estimate on a device kind; may_run: `[num_ops]`."""
    return [
        index
        for index, op in enumerate(step.op_of)
        if op is not None and may_run[op] and not _is_free(step, index, kind)
    ]


def _request(step: Unfolded, kind: DeviceKind, estimated: Sequence[int]) -> EstimateRequest:
    """Return a request for the estimates of some nodes. Its graph also has all their inputs."""
    graph_def = type(step.graph_def)(
        node=(step.nodes[index].proto for index in sorted(reached(step.nodes, estimated))),
        library=step.graph_def.library,
        versions=step.graph_def.versions,
    )
    return EstimateRequest(kind, graph_def, [step.nodes[index].name for index in estimated])


def _node_us(step: Unfolded, index: int, kind: DeviceKind, estimates: Mapping[str, float]) -> float:
    """Return the time of one run of a node, in us."""
    if _is_free(step, index, kind):
        return kind.no_launch_us
    return launched_us(estimates.get(step.nodes[index].name), kind)


def _is_free(step: Unfolded, index: int, kind: DeviceKind) -> bool:
    """Whether a node launches no kernel on a device kind."""
    return is_free(step.nodes[index].type, step.on_host[index], kind)


def _notes(step: Unfolded) -> Iterator[str]:
    if loops := step.unknown_loops:
        yield (
            f"the number of iterations of {_named('while loop', loops)} does not follow from the "
            "graph: 1 was assumed; give measured times to correct it (pesto profile --source "
            "csv:FILE)."
        )
    if calls := sorted(step.not_inlined):
        yield (
            f"TensorFlow does not inline the function of {_named('call', calls)}: its time was "
            "estimated from its inputs and outputs alone; give a measured time (pesto profile "
            "--source csv:FILE)."
        )


def _named(kind: str, names: Sequence[str]) -> str:
    """Return the kind and the name of a node, or a number of nodes and the names of the first."""
    if len(names) == 1:
        return f"{kind} {names[0]!r}"
    return f"{len(names)} {kind}s ({first_of([*map(repr, names)], SHOWN_NODES)})"
