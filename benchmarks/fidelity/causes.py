"""Causes of the errors of predictions: what the predicted length of a step consists of.

The length of a step is predicted again without each part of the execution model, and with random op
times and delays. Traced steps have the time of every op in its own step, so their lengths are also
predicted with these op times. In a trace, an op takes longer while its core also sends or receives,
and while another core computes; so this prediction has no transfer overheads and no contention.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from benchmarks.fidelity.traced_steps import TracedStep
from pesto_cli import api as pesto
from pesto_cli.data.graph import FloatArray
from pesto_cli.data.machine import Machine
from pesto_cli.data.problem import Problem
from pesto_cli.data.result import Result
from pesto_cli.data.solution import Solution
from pesto_cli.evaluation.simulator import list_schedule, replay
from pesto_cli.files import Profile

NUM_SAMPLES = 50


@dataclass(frozen=True)
class Causes:
    """Differences of predictions of one placement, as shares of the measured step.

    contention, transfer_overheads, delays, op_overheads: by how much the prediction becomes longer
        with this part of the execution model.
    random: by how much the median of predictions with random op times and delays is longer.
    op_times: by how much the prediction becomes longer with the op times of the traced step itself.
    order: by how much the execution order of the devices makes the latter prediction longer than
        that of a list schedule, where no ready op has to let another one go first.
    rest: the error of the prediction with the op times of the step; positive if it is too long.
    whole, parts, added: by how much the ops of the requested graph, the parts of ops, and the ops
        that a rewriting has added take longer in the step than predicted, as a share of their own
        predicted time. NaN if there are none.
    """

    contention: float
    transfer_overheads: float
    delays: float
    op_overheads: float
    random: float
    op_times: float
    order: float
    rest: float
    whole: float
    parts: float
    added: float


def causes(
    profile: Profile, result: Result, measured_us: float, steps: Sequence[TracedStep]
) -> Causes:
    """Return the causes of the error of one placement.

    measured_us: the median of untraced steps. steps: traced steps.
    """
    sampled_us = np.median(pesto.sampled_makespans_us(profile, result, NUM_SAMPLES))
    of_model = {
        name: (result.makespan_us - _makespan_us(result, machine)) / measured_us
        for name, machine in _machines_without(result.problem.machine)
    }
    traced = [_of_step(result, step) for step in steps]
    return Causes(
        **of_model,
        random=float(sampled_us - result.makespan_us) / measured_us,
        **{name: float(np.median([each[name] for each in traced])) for name in traced[0]},
    )


def _machines_without(machine: Machine) -> Iterator[tuple[str, Machine]]:
    """Yield (name of a part of the execution model, the machine without this part)."""
    yield "contention", replace(machine, contention={})
    yield "transfer_overheads", _without_transfer_overheads(machine)
    yield "delays", _with_comm(machine, {"wait_us": 0.0})
    devices = tuple(replace(device, op_overhead_us=0.0) for device in machine.devices)
    yield "op_overheads", replace(machine, devices=devices)


def _without_transfer_overheads(machine: Machine) -> Machine:
    names = ("sender_us", "sender_us_per_byte", "receiver_us", "receiver_us_per_byte")
    return _with_comm(machine, dict.fromkeys(names, 0.0))


def _with_comm(machine: Machine, values: Mapping[str, float]) -> Machine:
    """Return the machine with other values of `CommModel` on every link."""
    links = tuple(replace(link, comm=replace(link.comm, **values)) for link in machine.links)
    return replace(machine, links=links)


def _makespan_us(result: Result, machine: Machine) -> float:
    problem = replace(result.problem, machine=machine)
    return replay(problem, result.schedule.placement).makespan_us


def _of_step(result: Result, step: TracedStep) -> dict[str, float]:
    """Return what is known of one traced step; as in `Causes`."""
    schedule, measured = result.schedule, _with_op_times(result.problem, step.op_us)
    with_order_us = replay(measured, schedule.placement).makespan_us
    any_order_us = list_schedule(measured, schedule.device, -schedule.start_us).makespan_us
    return {
        "op_times": (with_order_us - result.makespan_us) / step.length_us,
        "order": (with_order_us - any_order_us) / step.length_us,
        "rest": with_order_us / step.length_us - 1,
        **_slower_by_kind(result, step.op_us),
    }


def _with_op_times(problem: Problem, op_us: Mapping[str, float]) -> Problem:
    """Return the problem with measured op times, and without what these include."""
    time_us = problem.time_us.copy()
    for op, name in enumerate(problem.graph.names):
        time_us[op] = op_us.get(name, time_us[op])
    machine = _without_transfer_overheads(replace(problem.machine, contention={}))
    return replace(problem, time_us=time_us, machine=machine)


def _slower_by_kind(result: Result, op_us: Mapping[str, float]) -> dict[str, float]:
    """Return for each kind of ops how much longer they took than in the schedule, as a share."""
    predicted_us, measured_us = _op_times_us(result, op_us)
    ran, kind = ~np.isnan(measured_us), _kinds(result.solution)
    return {
        name: _ratio(measured_us[ran & (kind == name)], predicted_us[ran & (kind == name)]) - 1
        for name in ("whole", "parts", "added")
    }


def _op_times_us(result: Result, op_us: Mapping[str, float]) -> tuple[FloatArray, FloatArray]:
    """`[num_ops]` each: the times of the ops in the schedule, and in a step (NaN if not run)."""
    problem, schedule = result.problem, result.schedule
    overhead_us = np.array([device.op_overhead_us for device in problem.machine.devices])
    predicted_us = schedule.end_us - schedule.start_us - overhead_us[schedule.device]
    return predicted_us, np.array([op_us.get(name, np.nan) for name in problem.graph.names])


def times_by_type(result: Result, steps: Sequence[TracedStep]) -> dict[str, tuple[float, float]]:
    """Return kind of op and op type -> ms in the schedule, and in the median step."""
    solution, graph = result.solution, result.problem.graph
    op_us = {
        name: float(np.median([step.op_us[name] for step in steps if name in step.op_us]))
        for name in set().union(*(step.op_us for step in steps))
    }
    predicted_us, measured_us = _op_times_us(result, op_us)
    label = np.array([f"{kind} {graph.types[op]}" for op, kind in enumerate(_kinds(solution))])
    ran = ~np.isnan(measured_us)
    return {
        each: (
            float(predicted_us[ran & (label == each)].sum()) / 1e3,
            float(measured_us[ran & (label == each)].sum()) / 1e3,
        )
        for each in np.unique(label[ran]).tolist()
    }


def _kinds(solution: Solution) -> np.ndarray:
    """`[num_ops]`: whether an op is a whole one, a part, or added."""
    is_part = np.zeros(len(solution.origin), bool) if solution.part is None else solution.part >= 0
    return np.where(solution.origin < 0, "added", np.where(is_part, "parts", "whole"))


def _ratio(measured_us: FloatArray, predicted_us: FloatArray) -> float:
    return float(measured_us.sum() / predicted_us.sum()) if predicted_us.sum() > 0 else np.nan
