"""Measure op times in real steps on real devices: `--source run`."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from pesto_cli.apply import with_changes
from pesto_cli.apply.edits import changes_on
from pesto_cli.data.graph import FloatArray, IntArray
from pesto_cli.data.labels import Role
from pesto_cli.data.machine import Machine
from pesto_cli.data.schedule import Placement
from pesto_cli.errors import BadInputError
from pesto_cli.profile import measured
from pesto_cli.profile.affinity import affinity
from pesto_cli.profile.measured import Measured
from pesto_cli.profile.run import contention
from pesto_cli.profile.run.reconcile import Reconciliation, reconciled
from pesto_cli.profile.run.stepping import Stepped, stepped
from pesto_cli.profile.source import CostRequest, Costs, Live
from pesto_cli.runtime.comparison import device_names
from pesto_cli.runtime.dispatch import empty_step_us


def costs(request: CostRequest) -> Costs:
    """Run the step on the machine and return the measured costs of its ops.

    Raises:
        BadInputError: the machine has no real devices, or TensorFlow cannot run the step there.
        EnvironmentFailedError: a device or the client process failed.
    """
    live = request.live
    if live is None:
        raise BadInputError(
            "cost source run needs real devices: --machine local-workers:N, local-gpus or a "
            "cluster file was expected."
        )
    if request.argument:
        raise BadInputError(
            f"cost source run takes no argument, but was given {request.argument!r}; leave out "
            "what follows the colon."
        )
    layouts = _layouts(request)
    if live.placement:
        layouts = [live.placement.on_machine(request.step.graph, request.machine)]
    runs = [_run(request, live, layout) for layout in layouts]
    found = measured.costs(_merged([run.measured for run in runs]), request)
    accounts = [
        _account(request, live, found, layout.device, run)
        for layout, run in zip(layouts, runs, strict=True)
    ]
    empty_us = _empty_step_us(request, live, range(request.machine.num_devices))
    machine = _with_overheads(request.machine, accounts, float(np.median(empty_us)))
    slow_downs = dict(_contention(request, live, layouts))
    slower = (contention.text(kind, found) for kind, found in slow_downs.items())
    return replace(
        found,
        machine=replace(machine, contention=slow_downs),
        notes=(*(account.text for account in accounts), *slower, *found.notes),
        reconciled=tuple(accounts),
    )


def _layouts(request: CostRequest) -> list[Placement]:
    """Return the placements to measure: one for each device kind that needs its own run.

    All ops that the kind can run are on the first device of the kind, the others on the host. The
    CPU gets such a run only if there is no GPU, or with `cpu_offload`. The ranks are a topological
    order, so ops run one after another: two ops at once on one core would take twice as long.
    """
    machine, graph = request.machine, request.step.graph
    usual = affinity(request)
    first = {device.kind: index for index, device in reversed([*enumerate(machine.devices)])}
    types = {kind: machine.device_type(kind) for kind in first}
    rank = np.empty(graph.num_ops, dtype=np.int64)
    rank[graph.topological_order] = np.arange(graph.num_ops)
    return [
        Placement(np.where(usual[types[kind]], index, machine.host or 0), rank)
        for kind, index in first.items()
        if types[kind] == "GPU" or "GPU" not in types.values() or request.cpu_offload
    ]


def _run(request: CostRequest, live: Live, layout: Placement) -> Stepped:
    full = live.cluster.call(device_names)
    return live.cluster.call(
        stepped,
        _placed(request, full, layout),
        {full[row.name]: row.kind for row in request.machine.devices},
        live.num_steps,
        live.num_warm_up,
        live.feeds,
        live.limit_s,
    )


def _placed(request: CostRequest, full: Mapping[str, str], layout: Placement) -> Any:
    """Return the MetaGraphDef with a placement.

    full: pesto's name of each device -> TensorFlow's full name.
    """
    names = {index: full[row.name] for index, row in enumerate(request.machine.devices)}
    changes = changes_on(request.meta_graph, request.step, layout, names)
    return with_changes(request.meta_graph, changes)


def _contention(
    request: CostRequest, live: Live, layouts: Sequence[Placement]
) -> Iterator[tuple[str, Mapping[str, float]]]:
    """Yield the kinds of CPUs of which a host has several, and the slow-downs of their ops."""
    for layout in layouts:
        first, *more = np.unique(layout.device).tolist()
        others = [] if more else contention.peers_of(request.machine, first)
        if others:
            moved = [replace(layout, device=np.full_like(layout.device, each)) for each in others]
            full = live.cluster.call(device_names)
            metas = [_placed(request, full, each) for each in (layout, *moved)]
            kind = request.machine.devices[first].kind
            yield kind, contention.measured_contention(request, live, metas)


def _empty_step_us(request: CostRequest, live: Live, devices: Iterable[int]) -> FloatArray:
    """`[num_steps]`: time of a step that is fed and does nothing."""
    names = [row.name for row in request.machine.devices]
    return live.cluster.call(
        empty_step_us,
        request.meta_graph,
        [names[index] for index in devices],
        names[request.machine.host or 0],
        live.num_steps,
        live.feeds,
    )


def _merged(parts: Sequence[Measured]) -> Measured:
    """Merge the measurements of the runs on several device kinds.

    With a time limit, the runs may have different numbers of steps. The smallest number counts.
    """
    num_steps = min(part.num_steps for part in parts)
    return Measured(
        num_steps=num_steps,
        us={key: us[:num_steps] for part in parts for key, us in part.us.items()},
        output_bytes={node: row for part in parts for node, row in part.output_bytes.items()},
        transfers=tuple(copy for part in parts for copy in part.transfers),
        device={node: name for part in parts for node, name in part.device.items()},
    )


def _account(
    request: CostRequest, live: Live, found: Costs, device: IntArray, run: Stepped
) -> Reconciliation:
    machine, labels = request.machine, request.step.graph.labels
    kinds = [row.kind for row in machine.devices]
    unknown = np.full(len(device), np.nan)
    by_device = np.array([found.time_us.get(kind, unknown) for kind in kinds])
    is_op = ~labels.has_role(Role.FEED, Role.FETCH)
    time_us = np.where(is_op, by_device[device, np.arange(len(device))], np.nan)
    return reconciled(
        kinds,
        time_us,
        device,
        steps_us=run.step_us,
        idle_us=float(np.median(run.idle_us)),
        dispatch_us=float(np.median(_empty_step_us(request, live, sorted(set(device.tolist()))))),
    )


def _with_overheads(
    machine: Machine, accounts: Sequence[Reconciliation], step_overhead_us: float
) -> Machine:
    """Return the machine with the measured overheads of ops, by device kind, and of a step."""
    fitted = {
        account.kind: account.op_overhead_us
        for account in accounts
        if account.op_overhead_us is not None
    }
    return replace(
        machine,
        devices=tuple(
            replace(row, op_overhead_us=fitted.get(row.kind, row.op_overhead_us))
            for row in machine.devices
        ),
        step_overhead_us=step_overhead_us,
    )
