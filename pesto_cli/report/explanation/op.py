"""All facts about one op of a schedule: the cause of its start, and the ops that wait for it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pesto_cli.data.schedule import rounding_us
from pesto_cli.evaluation.critical_path import Cause, CauseFinder, Reason, Segment
from pesto_cli.report.explanation.split import Membership
from pesto_cli.report.explanation.what_if import Elsewhere, WhatIf, elsewhere
from pesto_cli.report.explanation.words import cause_text


@dataclass(frozen=True)
class Wait:
    """A wait between the explained op and another op.

    op: the other op. device: the device of the other op. why: the reason of the wait. num_bytes:
    the size of the tensor, if any. at_us: when an input arrived; for a follower, when the follower
    starts. was_last: whether no other wait of the waiting op ended later.
    """

    op: str
    device: str
    why: Reason
    num_bytes: int | None
    at_us: float
    was_last: bool


@dataclass(frozen=True)
class Sent:
    """A transfer. made_us: the end of its producer. waited_for: None if it started at once."""

    to: str
    link: str
    made_us: float
    start_us: float
    end_us: float
    waited_for: str | None


@dataclass(frozen=True)
class Output:
    """An output tensor of the op."""

    num_bytes: int
    consumers: tuple[str, ...]
    sent: tuple[Sent, ...]


@dataclass(frozen=True)
class OpFacts:
    """An op in its schedule.

    rank: its place in the order of the `num_on_device` ops of its device. lost_us: how much later
    it ended because of transfers of its device. contended_us: how much longer it ran because other
    devices of its kind and host ran ops. ready_us: when its last input arrived. cause: a text on
    what it waited for last. idle_us: how long its device was idle while it was ready. waited_for,
    followers: see `Wait`. group: the other ops of its colocation group. split: the op of which it
    is a part, or that it serves; None if it is no part and no plan has added it.
    """

    name: str
    type: str
    device: str
    rank: int
    num_on_device: int
    start_us: float
    end_us: float
    lost_us: float
    contended_us: float
    makespan_us: float
    is_critical: bool
    ready_us: float
    idle_us: float
    why: Reason
    cause: str
    waited_for: tuple[Wait, ...]
    followers: tuple[Wait, ...]
    outputs: tuple[Output, ...]
    resident_bytes: int
    alias_of: str | None
    group: tuple[str, ...]
    group_resident_bytes: int
    elsewhere: tuple[Elsewhere, ...]
    split: Membership | None = None


def op_facts(
    causes: CauseFinder,
    path: Sequence[Segment],
    op: int,
    moved: Mapping[int, WhatIf],
    split: Membership | None,
) -> OpFacts:
    """Collect the facts of an op. moved: the schedules with the op on each device it may use."""
    problem, schedule = causes.problem, causes.schedule
    graph, here = problem.graph, int(schedule.device[op])
    took_us = float(schedule.end_us[op] - schedule.start_us[op])
    work_us, rounding = float(causes.work_us[op]), rounding_us(schedule)
    lost_us, contended_us = work_us - float(problem.duration_us[op, here]), took_us - work_us
    cause = causes.of_op(op)
    group = graph.groups[int(graph.colocation_group[op])]
    alias = int(graph.alias_of[op])
    return OpFacts(
        name=graph.names[op],
        type=graph.types[op],
        device=problem.machine.devices[here].name,
        rank=int(schedule.rank[op]),
        num_on_device=int((schedule.device == here).sum()),
        start_us=float(schedule.start_us[op]),
        end_us=float(schedule.end_us[op]),
        lost_us=lost_us if lost_us > rounding else 0.0,
        contended_us=contended_us if contended_us > rounding else 0.0,
        makespan_us=schedule.makespan_us,
        is_critical=any(segment.kind == "op" and segment.op == op for segment in path),
        ready_us=causes.ready_us(op),
        idle_us=causes.idle_us(op),
        why=cause.why,
        cause=cause_text(causes, cause),
        waited_for=_waited_for(causes, op, cause),
        followers=_followers(causes, op),
        outputs=_outputs(causes, op),
        resident_bytes=int(graph.resident_bytes[op]),
        alias_of=graph.names[alias] if alias not in (-1, op) else None,
        group=tuple(graph.names[member] for member in group.tolist() if member != op),
        group_resident_bytes=int(graph.resident_bytes[group].sum()),
        elsewhere=tuple(
            elsewhere(problem, schedule, op, device, moved.get(device))
            for device in range(problem.num_devices)
        ),
        split=split,
    )


def _waited_for(causes: CauseFinder, op: int, last: Cause) -> tuple[Wait, ...]:
    """Return the inputs of an op, and the op before it on its device if that ended last."""
    found = causes.inputs_of(op)
    if last.why in (Reason.DEVICE, Reason.ORDER):
        found = [*found, last]
    waits = [_wait(causes, cause.op, cause, cause.until_us, cause == last) for cause in found]
    return tuple(sorted(waits, key=lambda wait: -wait.at_us))


def _followers(causes: CauseFinder, op: int) -> tuple[Wait, ...]:
    """Return the consumers of an op, and the next op on its device if that waited for it last."""
    problem, schedule = causes.problem, causes.schedule
    waits = []
    for after in problem.graph.successors[op].tolist():
        last = causes.of_op(after)
        for cause in causes.inputs_of(after):
            if cause.op == op:
                at_us = float(schedule.start_us[after])
                waits.append(_wait(causes, after, cause, at_us, cause == last))
    on_device = (schedule.device == schedule.device[op]) & (schedule.rank == schedule.rank[op] + 1)
    for after in np.flatnonzero(on_device).tolist():
        last = causes.of_op(after)
        if last.op == op and last.why in (Reason.DEVICE, Reason.ORDER):
            waits.append(_wait(causes, after, last, float(schedule.start_us[after]), True))
    return tuple(sorted(waits, key=lambda wait: wait.at_us))


def _wait(causes: CauseFinder, other: int, cause: Cause, at_us: float, was_last: bool) -> Wait:
    graph, schedule = causes.problem.graph, causes.schedule
    size = None
    if cause.transfer >= 0:
        size = int(graph.tensor_bytes[schedule.transfers.tensor[cause.transfer]])
    device = causes.problem.machine.devices[int(schedule.device[other])].name
    return Wait(graph.names[other], device, cause.why, size, at_us, was_last)


def _outputs(causes: CauseFinder, op: int) -> tuple[Output, ...]:
    problem, schedule = causes.problem, causes.schedule
    graph, machine = problem.graph, problem.machine
    outputs = []
    for tensor in graph.tensors_of(op):
        sent = []
        for dst in range(machine.num_devices):
            row = causes.row_of.get((tensor, dst))
            if row is None:
                continue
            cause = causes.of_transfer(row)
            sent.append(
                Sent(
                    to=machine.devices[dst].name,
                    link=machine.channel_names[int(causes.channel[row])],
                    made_us=float(schedule.end_us[op]),
                    start_us=float(schedule.transfers.start_us[row]),
                    end_us=float(schedule.transfers.end_us[row]),
                    waited_for=None
                    if cause.why is Reason.PREDECESSOR
                    else cause_text(causes, cause),
                )
            )
        consumers = tuple(graph.names[after] for after in graph.consumers_of(tensor).tolist())
        outputs.append(Output(int(graph.tensor_bytes[tensor]), consumers, tuple(sent)))
    return tuple(outputs)
