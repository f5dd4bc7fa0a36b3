"""Joint placement and ordering as an integer program (Pesto, Section 3.2).

The formulation stands twice, as mathematics that reads the same: `cpsat` for OR-Tools CP-SAT, and
`milp` for CBC and HiGHS. Links take transfers in any order here, so the optimum is a lower bound
for links that serve first come first, as in the simulator.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from pesto_cli.bounds import lower_bound_us
from pesto_cli.data.graph import IntArray
from pesto_cli.data.limits import Limits
from pesto_cli.data.problem import Problem
from pesto_cli.data.result import SolveStatus, optimal_up_to_us
from pesto_cli.data.schedule import Schedule
from pesto_cli.errors import BadInputError
from pesto_cli.ilp.formulation import BALANCE_STEPS, Formulation
from pesto_cli.ilp.search import OnSolution, SolverAnswer, SolverRequest
from pesto_cli.ilp.size import Size
from pesto_cli.ilp.timetable import Timetable, left_shift, schedule_of, timetable_of
from pesto_cli.plugins import Registry, answered, called_with
from pesto_cli.printable import logger

_log = logger(__name__)


@dataclass(frozen=True, eq=False)
class IlpSolution:
    """What an integer program found, about its own problem: not a full graph, if that was coarse.

    schedule: None if status is INFEASIBLE or UNKNOWN. Its link order is free, and its peak memory
    may exceed a device's: only the variables are held within it.
    objective_us: its makespan, or inf. bound_us: no schedule is shorter.
    left_out: why there was no search, as the model is too large; else empty.
    """

    status: SolveStatus
    schedule: Schedule | None
    objective_us: float
    bound_us: float
    left_out: str = ""


def _cpsat(asked: SolverRequest) -> SolverAnswer:
    from pesto_cli.ilp import cpsat_process

    if cpsat_process.is_needed():
        return cpsat_process.search(asked)
    from pesto_cli.ilp import cpsat

    return cpsat.search(asked)


def _cbc(asked: SolverRequest) -> SolverAnswer:
    from pesto_cli.ilp import cbc, milp

    return milp.search(asked, cbc.run)


def _highs(asked: SolverRequest) -> SolverAnswer:
    from pesto_cli.ilp import highs, milp

    return milp.search(asked, highs.run)


Solver = Callable[[SolverRequest], SolverAnswer]
SOLVERS: Registry[Solver] = Registry(
    "pesto.solvers", {"cpsat": _cpsat, "cbc": _cbc, "highs": _highs}, called_with("request")
)


def solve_ilp(
    problem: Problem,
    limits: Limits,
    *,
    solver: str = "cpsat",
    congestion: bool = True,
    balance: float | None = None,
    warm_start: Schedule | None = None,
    on_solution: OnSolution | None = None,
) -> IlpSolution:
    """Place and order the ops of a problem as well as the limits allow.

    Args:
        problem: a few hundred ops at most; coarsen larger ones.
        limits: bounds on the search, building the model included.
        solver: a name in `SOLVERS`.
        congestion: whether transfers on one channel queue.
        balance: by how much the outputs on two GPUs may differ, as a share of their sum.
        warm_start: a schedule to begin with; the answer is never longer than this one, unless it
            breaks a memory constraint: then it is a hint only. Where the model is too large to be
            built at all, there is no schedule in the answer.
        on_solution: called with objective and bound in us whenever a better schedule is found,
            maybe on another thread.

    Raises:
        BadInputError: the solver is unknown, or the warm start does not fit the problem.
        EnvironmentFailedError: the solver is not installed, or died; that of a plug-in failed.
    """
    began = time.monotonic()
    SOLVERS.find(solver)
    if balance is not None and not 0 <= balance <= 1:
        raise BadInputError(f"balance is {balance}; a share in [0, 1] was expected.")
    if warm_start is not None:
        _check_start(problem, warm_start)
    excess = Size.of(problem, balance=balance is not None).excess(limits)
    if excess:
        left_out = _left_out(problem, excess)
        return IlpSolution(SolveStatus.UNKNOWN, None, math.inf, lower_bound_us(problem), left_out)
    formulation = Formulation.build(problem)
    start, start_fits = None, False
    if warm_start is not None:
        start = left_shift(
            formulation, timetable_of(formulation, warm_start), congestion=congestion
        )
        start_fits = _keeps_memory(formulation, start, balance)
    asked = SolverRequest(
        formulation, limits, congestion, balance, start, start_fits, on_solution, began
    )
    if limits.stop.is_set():
        return _solution(asked, SolverAnswer())
    with SOLVERS.at_work(solver) as search:
        found = answered(SolverAnswer, search(asked))
        if found.times and (wrong := _misplaced(problem, found.times.device)):
            raise ValueError(f"it {wrong}")
        return _solution(asked, found)


def _left_out(problem: Problem, why: str) -> str:
    """Say that there is no search, and why."""
    told = (
        f"the integer program of {problem.num_ops:,} nodes on {problem.num_devices} devices is "
        f"left out: {why}; use fewer nodes (-n) or more time."
    )
    _log.warning("%s", told)
    return told


def _solution(asked: SolverRequest, found: SolverAnswer) -> IlpSolution:
    """The better of what was found and the start, with a status that the numbers bear out."""
    candidates = [asked.start] if asked.start and asked.start_fits else []
    # Within the tolerances of a MILP solver, variables may exceed the memory by some bytes.
    if found.times and _keeps_memory(asked.formulation, found.times, asked.balance):
        shifted = left_shift(asked.formulation, found.times, congestion=asked.congestion)
        candidates.insert(0, shifted)
    bound_us = max(found.bound_us, asked.formulation.lower_bound)
    left_out = ""
    if found.left_out and not asked.limits.stop.is_set():
        left_out = _left_out(asked.formulation.problem, found.left_out)
    if not candidates and found.infeasible:
        return IlpSolution(SolveStatus.INFEASIBLE, None, math.inf, math.inf)
    if not candidates:
        return IlpSolution(SolveStatus.UNKNOWN, None, math.inf, bound_us, left_out)
    best = min(candidates, key=lambda times: times.makespan)
    schedule = schedule_of(asked.formulation, best)
    objective_us = schedule.makespan_us
    if objective_us <= optimal_up_to_us(bound_us):
        status = SolveStatus.OPTIMAL
    elif asked.limits.stop.is_set():
        status = SolveStatus.INTERRUPTED
    else:
        status = SolveStatus.FEASIBLE
    return IlpSolution(status, schedule, objective_us, min(bound_us, objective_us), left_out)


def _check_start(problem: Problem, start: Schedule) -> None:
    if wrong := _misplaced(problem, start.device):
        raise BadInputError(
            f"the warm start {wrong}; a schedule of the same problem that keeps the constraints "
            "was expected: leave it out, or solve again."
        )


def _misplaced(problem: Problem, devices: Sequence[int] | IntArray) -> str:
    """What is wrong with the devices of ops, `[num_ops]`, or nothing."""
    device = np.asarray(devices, dtype=np.int64)
    if device.shape != (problem.num_ops,):
        return f"places {len(device)} ops, the problem has {problem.num_ops}"
    known = (device >= 0) & (device < problem.num_devices)
    allowed = known & problem.allowed[np.arange(problem.num_ops), np.where(known, device, 0)]
    group = problem.graph.colocation_group
    leader = problem.graph.groups.indices[problem.graph.groups.offsets[:-1]]
    together = device == device[leader[group]]
    for fits, wrong in ((allowed, "may not run there"), (together, "is cut off from its group")):
        if not fits.all():
            op = int(np.argmin(fits))
            return f"puts op {problem.graph.names[op]!r} on device {device[op]}, where it {wrong}"
    return ""


def _keeps_memory(formulation: Formulation, times: Timetable, balance: float | None) -> bool:
    """Whether a placement keeps (8) and (8')."""
    problem, device = formulation.problem, np.array(times.device, dtype=np.int64)
    resident = np.bincount(device, problem.graph.resident_bytes, problem.num_devices)
    if (resident > np.floor(problem.capacity_bytes)).any():
        return False
    output = np.bincount(device, formulation.output_bytes, problem.num_devices)
    share = round((balance or 0) * BALANCE_STEPS)
    return balance is None or all(
        (BALANCE_STEPS - share) * output[d] <= (BALANCE_STEPS + share) * output[e]
        for d, e in formulation.gpu_pairs
    )
