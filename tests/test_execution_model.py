"""The simulator does what docs/architecture.md says: it equals a model written from it.

With contention, times are rounded. So some cases of the model are also computed by hand.
More runs are compared where they are asked for (PESTO_EXAMPLES), as in the pipeline's tests.
"""

import os
from collections.abc import Mapping, Sequence
from functools import lru_cache

import model_mutants
import numpy as np
import pytest
from execution_model import ExecutionModel, Run, StuckError
from random_trials import Trial, random_trial

from pesto_cli.data.graph import OpGraph, Tensor
from pesto_cli.data.machine import CommModel, Device, Link, Machine
from pesto_cli.data.problem import Problem
from pesto_cli.data.schedule import Schedule
from pesto_cli.errors import BadInputError
from pesto_cli.evaluation.simulator import Simulator

NUM_TRIALS = 400
EXAMPLES = int(os.environ.get("PESTO_EXAMPLES", "1"))

# A list schedule and a replay; None if the order contradicts the graph.
Runs = tuple[Run, Run | None]


def observed(schedule: Schedule) -> Run:
    transfers = schedule.transfers
    columns = (transfers.tensor, transfers.dst, transfers.start_us, transfers.end_us)
    return Run(
        schedule.start_us.tolist(),
        schedule.end_us.tolist(),
        schedule.rank.tolist(),
        sorted(zip(*(column.tolist() for column in columns), strict=True)),
        schedule.peak_bytes.tolist(),
    )


def simulated(trial: Trial) -> Runs:
    simulator = Simulator(trial.problem)
    listed = simulator.list_schedule(trial.placement.device, trial.priority)
    assert simulator.makespan_us(trial.placement.device, trial.priority) == listed.makespan_us
    assert listed.makespan_us == max(listed.end_us)
    assert observed(simulator.replay(listed.placement)) == observed(listed)
    try:
        return observed(listed), observed(simulator.replay(trial.placement))
    except BadInputError:
        return observed(listed), None


def modelled(trial: Trial, model: type[ExecutionModel] = ExecutionModel) -> Runs:
    problem, device = trial.problem, trial.placement.device
    listed = model(problem, device, -trial.priority, is_replay=False).run()
    try:
        return listed, model(problem, device, trial.placement.rank, is_replay=True).run()
    except StuckError:
        return listed, None


@lru_cache(maxsize=NUM_TRIALS)
def compared(number: int) -> tuple[Trial, Runs]:
    """Return a trial and the simulator's result for it."""
    trial = random_trial(number)
    return trial, simulated(trial)


def test_the_simulator_agrees_with_the_model_of_the_architecture_page() -> None:
    for number in range(NUM_TRIALS * EXAMPLES):
        trial, expected = compared(number)
        assert modelled(trial) == expected, f"random_trial({number})"


def test_trials_cover_all_cases() -> None:
    """Both outcomes of a replay, machines with and without a host, with and without contention."""
    trials = [compared(number) for number in range(NUM_TRIALS)]
    assert {replayed is None for _, (_, replayed) in trials} == {True, False}
    assert {trial.problem.machine.host for trial, _ in trials} >= {None, 0, 1}
    assert {trial.problem.num_devices for trial, _ in trials} == {1, 2, 3, 4, 5}
    machines = [trial.problem.machine for trial, _ in trials if trial.problem.machine.contention]
    assert 100 <= len(machines) <= 200
    assert {kind for machine in machines for kind in machine.contention} == {"CPU", "GPU"}
    assert {len({device.host for device in machine.devices}) for machine in machines} == {1, 2}
    tables = [table for machine in machines for table in machine.contention.values()]
    assert {"" in table for table in tables} == {"Op" in table for table in tables} == {True, False}


@pytest.mark.parametrize("name", model_mutants.MUTANTS)
def test_a_changed_rule_gives_another_result(name: str) -> None:
    """There are trials for every rule: a model with a changed rule differs in some trial."""
    mutant = model_mutants.MUTANTS[name]
    assert any(differs(mutant, number) for number in range(NUM_TRIALS))


def differs(mutant: type[ExecutionModel], number: int) -> bool:
    trial, expected = compared(number)
    try:
        return modelled(trial, mutant) != expected
    except StuckError:
        return True


def end_us(
    time_us: Sequence[float],
    tensors: Sequence[Tensor] = (),
    *,
    contention: Mapping[str, Mapping[str, float]],
    device: Sequence[int],
    types: Sequence[str] | None = None,
    kinds: Sequence[str] = ("CPU", "CPU", "CPU"),
    hosts: Sequence[str] = ("", "", ""),
    comm: CommModel | None = None,
) -> list[float]:
    """Return the ends of ops in the model; an op with a lower index has a higher priority.

    kinds, hosts: of the devices, which links of no time connect, or links with `comm`.
    """
    devices = [
        Device(f"{kind}:{number}", kind, 100, host=host)
        for number, (kind, host) in enumerate(zip(kinds, hosts, strict=True))
    ]
    links = [
        Link(src.name, dst.name, comm or CommModel(0.0, 0.0))
        for src in devices
        for dst in devices
        if src is not dst
    ]
    names = [f"op{op}" for op in range(len(time_us))]
    graph = OpGraph.build(names, tensors, types=types)
    machine = Machine(tuple(devices), tuple(links), contention=contention)
    times = {kind: np.array(time_us, dtype=np.float64) for kind in set(kinds)}
    problem = Problem.build(graph, times, machine)
    return ExecutionModel(problem, device, range(len(time_us)), is_replay=False).run().end_us


HALF = {"CPU": {"": 0.5}}


def test_an_op_is_slower_while_another_device_computes() -> None:
    """Both take 1.5 times as long until op1 ends at 3; op0 then has 3 of its 6 us left, alone 2."""
    assert end_us([4.0, 2.0], contention=HALF, device=[0, 1]) == [5.0, 3.0]


def test_each_other_device_adds_its_slow_down() -> None:
    """All take twice as long until op2 ends at 4; then op0 and op1 take 1.5 times as long.

    op1 has half of 8 us left, which take 3 us. op0 has 12 of 16 us left, which take 9 us; when op1
    ends, 6 of these are left, alone 4.
    """
    assert end_us([8.0, 4.0, 2.0], contention=HALF, device=[0, 1, 2]) == [11.0, 7.0, 4.0]


def test_ops_of_one_device_do_not_slow_each_other_down() -> None:
    assert end_us([4.0, 2.0], contention=HALF, device=[0, 0]) == [4.0, 6.0]


def test_an_op_that_replaces_another_one_changes_no_count() -> None:
    """op0 takes 1.5 times as long all the time, although op2 starts when op1 ends."""
    assert end_us([4.0, 2.0, 2.0], contention=HALF, device=[0, 1, 1]) == [6.0, 3.0, 6.0]


def test_ops_of_no_time_slow_nothing_down() -> None:
    assert end_us([4.0, 0.0, 0.0], contention=HALF, device=[0, 1, 1]) == [4.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("kinds", "hosts", "expected"),
    [
        (("CPU", "CPU"), ("a", "a"), [6.0, 6.0]),
        (("CPU", "CPU"), ("a", ""), [4.0, 4.0]),
        (("CPU", "GPU"), ("a", "a"), [4.0, 4.0]),
        (("GPU", "GPU"), ("a", "a"), [4.0, 4.0]),  # it has no slow-downs
    ],
)
def test_only_devices_of_one_kind_and_host_contend(
    kinds: Sequence[str], hosts: Sequence[str], expected: list[float]
) -> None:
    ends_us = end_us([4.0, 4.0], contention=HALF, device=[0, 1], kinds=kinds, hosts=hosts)
    assert ends_us == expected


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        ({"Add": 1.0}, [5.5, 3.0]),
        ({"Add": 1.0, "": 3.0}, [8.0, 9.0]),
        ({"Add": 1.0, "Mul": 0.0, "": 3.0}, [5.5, 3.0]),
        ({"": 1.0}, [7.0, 6.0]),
        ({}, [4.0, 3.0]),
    ],
)
def test_each_op_has_the_slow_down_of_its_type(
    table: Mapping[str, float], expected: list[float]
) -> None:
    """op0 is an Add of 4 us beside a Mul of 3 us."""
    contention, types = {"CPU": table}, ["Add", "Mul"]
    assert end_us([4.0, 3.0], contention=contention, device=[0, 1], types=types) == expected


def test_an_overhead_is_slowed_down_too() -> None:
    """op0 ends at 2 and sends to op3, while op1 and op2 run on the other devices.

    So far, all take twice as long. op2 has 8 of 10 us left, and 1 us of overhead adds 2. From now
    on, it takes 1.5 times as long: 7.5 instead of 10 us. When it ends, 6 of op1's 20 us are over.
    """
    comm = CommModel(0.0, 0.0, receiver_us=1.0)
    ends_us = end_us(
        [1.0, 20.0, 5.0, 0.0],
        [Tensor(0, 1, [3])],
        contention=HALF,
        device=[0, 1, 2, 2],
        comm=comm,
    )
    assert ends_us == [2.0, 23.5, 9.5, 9.5]
