"""Run a strategy by name, and check what it answers before anyone sees it."""

import time

import numpy as np

from pesto_cli.bounds import lower_bound_us
from pesto_cli.data.problem import Problem
from pesto_cli.data.result import Result, SolveStatus, optimal_up_to_us
from pesto_cli.data.schedule import shortfall_bytes
from pesto_cli.errors import unknown_name
from pesto_cli.evaluation.memory import memory_peak
from pesto_cli.evaluation.simulator import Simulator
from pesto_cli.evaluation.violations import violations
from pesto_cli.strategies import STRATEGIES
from pesto_cli.strategies.search import Answer, Search
from pesto_cli.strategies.warm_up import warm_up


def run(problem: Problem, name: str, search: Search) -> Result:
    """Let a strategy solve a problem.

    Raises:
        BadInputError: no such strategy.
    """
    if name not in STRATEGIES:
        raise unknown_name("strategy", name, STRATEGIES)
    warm_up()
    began = time.perf_counter()
    answer = STRATEGIES[name](Simulator(problem), search)
    runtime_s = time.perf_counter() - began
    return judged(problem, name, answer, runtime_s, interrupted=search.limits.stop.is_set())


def judged(
    problem: Problem, name: str, answer: Answer, runtime_s: float, *, interrupted: bool = False
) -> Result:
    """A schedule with its status and bound, once it is checked against every rule.

    Raises:
        RuntimeError: it breaks a rule other than memory; a bug in pesto.
    """
    schedule = answer.schedule
    broken = [found for found in violations(problem, schedule) if found.rule != "memory"]
    if broken:
        first = broken[0]
        raise RuntimeError(f"{name} broke {len(broken)} rules: {first.rule}: {first.message}")
    bound_us = answer.lower_bound_us or lower_bound_us(problem)
    short = np.flatnonzero(shortfall_bytes(problem, schedule)).tolist()
    if short:
        status = SolveStatus.OUT_OF_MEMORY
    elif schedule.makespan_us <= optimal_up_to_us(bound_us):
        status = SolveStatus.OPTIMAL
    else:
        status = SolveStatus.INTERRUPTED if interrupted else SolveStatus.FEASIBLE
    return Result(
        strategy=name,
        status=status,
        schedule=schedule,
        # A bound that is met can lie above the makespan by rounding.
        lower_bound_us=min(bound_us, schedule.makespan_us),
        runtime_s=runtime_s,
        memory_peaks=tuple(memory_peak(problem, schedule, device) for device in short),
        devices=tuple(problem.machine.index_of),
        notes=answer.notes,
    )
