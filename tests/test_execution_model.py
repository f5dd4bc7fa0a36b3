"""The simulator does what docs/architecture.md says: it equals a model written from it.

More runs are compared where they are asked for (PESTO_EXAMPLES), as in the pipeline's tests.
"""

import os
from functools import lru_cache

import model_mutants
import pytest
from execution_model import ExecutionModel, Run, StuckError
from random_trials import Trial, random_trial

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
    """Both outcomes of a replay, machines with and without a host, feeds there and elsewhere."""
    trials = [compared(number) for number in range(NUM_TRIALS)]
    assert {replayed is None for _, (_, replayed) in trials} == {True, False}
    assert {trial.problem.machine.host for trial, _ in trials} >= {None, 0, 1}
    assert {trial.problem.num_devices for trial, _ in trials} == {1, 2, 3, 4, 5}


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
