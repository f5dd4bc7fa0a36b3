"""Run a training step on a cluster under several placements, and compare their times."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from pesto_cli.apply import Changes, planned_changes, with_changes
from pesto_cli.apply.device_names import is_of
from pesto_cli.cluster import Cluster, Connection
from pesto_cli.data.steps import StepTimes
from pesto_cli.errors import BadInputError
from pesto_cli.files import PlacementFile
from pesto_cli.graphdef.fetches import step_protos
from pesto_cli.graphdef.read import StepGraph
from pesto_cli.runtime.interleaved import Runs, Turns, interleaved
from pesto_cli.runtime.spans import Span, busy_us, spans
from pesto_cli.runtime.verify import Verification, verified


@dataclass(frozen=True, eq=False)
class RealRun:
    """The step times under one placement, and the check that it was followed.

    op_us: op -> its time, the median over the traced steps; only for a step under a placement, and
        for ops that ran. The ops are those that are placed: parts of ops, if ops are split.
    """

    times: StepTimes
    verification: Verification
    op_us: Mapping[str, float] = field(default_factory=dict)


def compared(
    meta: Any,
    cluster: Cluster,
    placements: Sequence[PlacementFile | None],
    turns: Turns,
    feeds: str | None = None,
) -> list[RealRun]:
    """Run a MetaGraphDef under each placement, alternately; return one result for each placement.

    None stands for the graph as it is: on the devices that its nodes name, in any order.

    Raises:
        BadInputError: a placement is of another graph or for other devices, the feeds do not fit,
            or TensorFlow cannot run the graph.
        EnvironmentFailedError: a device or the client process failed.
    """
    devices = cluster.call(device_names)
    plans = [planned_run(meta, placement, devices) for placement in placements]
    runs = cluster.call(interleaved, [plan.meta for plan in plans], turns, feeds)
    return [_real_run(meta, plan, run, devices) for plan, run in zip(plans, runs, strict=True)]


def device_names(connection: Connection) -> dict[str, str]:
    """Return pesto's name of each device -> TensorFlow's full name."""
    return dict(connection.device_names)


def devices_in_graph(meta: Any) -> dict[str, str]:
    """Return node of the step -> its device, for the nodes that have one."""
    return {node.name: node.device for node in step_protos(meta) if node.device}


def check_devices_here(placement: PlacementFile, there: Collection[str], remedy: str) -> None:
    """Check that a placement only uses devices of the machine.

    Raises:
        BadInputError: it uses another device. The message ends with `remedy`.
    """
    used = [placement.devices[index] for index in sorted(set(placement.device))]
    if not set(used) <= set(there):
        raise BadInputError(
            f"the placement is for other devices: it uses {', '.join(used)}, the machine has "
            f"{', '.join(there)}; {remedy}."
        )


@dataclass(frozen=True)
class PlannedRun:
    """A graph to run.

    meta: the MetaGraphDef with the changes. placement: None if the graph itself names the devices.
    changes: the planned devices and control inputs.
    """

    meta: Any
    placement: PlacementFile | None
    changes: Changes


def planned_run(
    meta: Any, placement: PlacementFile | None, devices: Mapping[str, str]
) -> PlannedRun:
    """Write a placement into a graph, for the devices of a cluster.

    devices: pesto's name of each device -> TensorFlow's full name.

    Raises:
        BadInputError: the placement is of another graph or for other devices.
    """
    if placement is None:
        device = devices_in_graph(meta)
        _check_placed_here(device, devices)
        return PlannedRun(meta, None, Changes(device, {}))
    check_devices_here(
        placement,
        devices,
        "solve a profile of the graph on this machine, or write the placement into the graph for "
        "these devices (pesto apply --devices) and run that graph",
    )
    planned = {name: devices[name] for name in placement.devices if name in devices}
    changes = planned_changes(meta, placement, devices=planned)
    return PlannedRun(with_changes(meta, changes), placement, changes)


def _check_placed_here(device: Mapping[str, str], devices: Mapping[str, str]) -> None:
    for node, name in device.items():
        if not any(is_of(full, name) for full in devices.values()):
            raise BadInputError(
                f"the graph is placed on other devices: {node!r} on {name}, the machine has "
                f"{', '.join(devices.values())}; write the placement into the graph for these "
                "(pesto apply --devices), or run the graph as exported with --placement."
            )


def _real_run(meta: Any, plan: PlannedRun, run: Runs, devices: Mapping[str, str]) -> RealRun:
    meta = plan.changes.changed_graph(meta)
    ran = [spans(traced, meta.graph_def) for traced in run.traced]
    busy = busy_us(ran[0])
    times = StepTimes(
        us=run.us,
        losses=run.losses,
        busy_us={name: busy.get(full, 0.0) for name, full in devices.items()},
    )
    verification = verified(meta, plan.placement, plan.changes, ran[0])
    return RealRun(times, verification, op_times_us(plan.changes.step, ran))


def op_times_us(step: StepGraph | None, ran: Sequence[Sequence[Span]]) -> dict[str, float]:
    """Return op -> median over some steps of the sum of its nodes' times, for ops that ran.

    step: the ops of the graph that ran; None if they are not known. ran: the spans of each step.
    """
    if step is None:
        return {}
    op_of = {node: op for op, nodes in enumerate(step.nodes) for node in nodes}
    found: dict[int, list[float]] = defaultdict(list)
    for spans_of_step in ran:
        sums: dict[int, float] = defaultdict(float)
        for span in spans_of_step:
            if span.node in op_of:
                sums[op_of[span.node]] += span.busy_us
        for op, us in sums.items():
            found[op].append(us)
    return {step.graph.names[op]: median(us) for op, us in found.items()}
