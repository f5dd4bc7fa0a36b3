"""Joint placement and ordering as an integer program (Pesto, Section 3.2).

There are two models of the same formulation: `cpsat` for OR-Tools CP-SAT, and `milp` for CBC and
HiGHS. Here links serve transfers in any order. So the optimum is a lower bound for the simulator,
whose links serve transfers first come, first served.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from pesto_cli.bounds import lower_bound_us
from pesto_cli.data.graph import IntArray
from pesto_cli.data.limits import Limits
from pesto_cli.data.problem import Problem
from pesto_cli.data.result import SolveStatus, optimal_up_to_us
from pesto_cli.data.schedule import Schedule
from pesto_cli.errors import BadInputError
from pesto_cli.evaluation.simulator import Simulator
from pesto_cli.ilp.formulation import BALANCE_STEPS, Formulation
from pesto_cli.ilp.search import OnSolution, SolverAnswer, SolverRequest
from pesto_cli.ilp.size import Size
from pesto_cli.ilp.timetable import Timetable, left_shift, schedule_of, timetable_of
from pesto_cli.plugins import Registry, answered, called_with
from pesto_cli.printable import logger

_log = logger(__name__)


@dataclass(frozen=True, eq=False)
class IlpSolution:
    """The result of an integer program, for the problem that it was built from, coarse or not.

    schedule: the best schedule, or None if the status is INFEASIBLE or UNKNOWN. Its transfers may
        be in any order on a link. Its peak memory may exceed a device's memory, as only the
        resident bytes are constrained.
    objective_us: the makespan of the schedule, or inf.
    bound_us: a lower bound on the makespan of all schedules.
    left_out: why the search was skipped, if the model is too large; else empty.
    """

    status: SolveStatus
    schedule: Schedule | None
    objective_us: float
    bound_us: float
    left_out: str = ""


def _cpsat(request: SolverRequest) -> SolverAnswer:
    from pesto_cli.ilp import cpsat_process

    if cpsat_process.is_needed():
        return cpsat_process.search(request)
    from pesto_cli.ilp import cpsat

    return cpsat.search(request)


def _cbc(request: SolverRequest) -> SolverAnswer:
    from pesto_cli.ilp import cbc, milp

    return milp.search(request, cbc.run)


def _highs(request: SolverRequest) -> SolverAnswer:
    from pesto_cli.ilp import highs, milp

    return milp.search(request, highs.run)


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
    """Find the best placement and order of a problem's ops within the limits.

    Args:
        problem: a few hundred ops at most; coarsen larger ones.
        limits: limits of the search; building the model counts too.
        solver: a name in `SOLVERS`.
        congestion: whether transfers on one channel queue.
        balance: the largest difference between the output bytes of two GPUs, as a share of their
            sum.
        warm_start: a schedule to begin with. The result is never longer, unless the warm start
            violates a memory constraint; then it is only a hint. If the model is too large to be
            built, the result has no schedule.
        on_solution: called with objective and bound in microseconds when a better schedule is
            found, possibly on another thread.

    Raises:
        BadInputError: the solver is unknown, or the warm start does not fit the problem.
        EnvironmentFailedError: the solver is not installed, its process ended with an error, or a
            plug-in's solver failed.
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
    if not start_fits:
        formulation = _with_shorter_horizon(formulation, balance, congestion=congestion)
    request = SolverRequest(
        formulation, limits, congestion, balance, start, start_fits, on_solution, began
    )
    if limits.stop.is_set():
        return _solution(request, SolverAnswer())
    with SOLVERS.at_work(solver) as search:
        found = answered(SolverAnswer, search(request))
        if found.times and (wrong := _misplaced(problem, found.times.device)):
            raise ValueError(f"it {wrong}")
        return _solution(request, found)


def _with_shorter_horizon(
    formulation: Formulation, balance: float | None, *, congestion: bool
) -> Formulation:
    """Return the formulation with the makespan of a list schedule as its horizon, if that fits.

    A MILP solver scales its tolerances with the horizon. If the horizon is a thousand times as long
    as the optimum, the solver may return a wrong optimum.
    """
    problem = formulation.problem
    device = problem.group_time_us.argmin(axis=1)[problem.graph.colocation_group]
    simulator = Simulator(problem)
    schedule = simulator.list_schedule(device, simulator.upward_rank(device))
    times = left_shift(formulation, timetable_of(formulation, schedule), congestion=congestion)
    if times.makespan >= formulation.horizon or not _keeps_memory(formulation, times, balance):
        return formulation
    return replace(formulation, horizon=times.makespan)


def _left_out(problem: Problem, why: str) -> str:
    """Log and return a message that the integer program is skipped, and why."""
    message = (
        f"the integer program of {problem.num_ops:,} nodes on {problem.num_devices} devices is "
        f"skipped: {why}; use fewer nodes (-n) or a longer time limit."
    )
    _log.warning("%s", message)
    return message


def _solution(request: SolverRequest, found: SolverAnswer) -> IlpSolution:
    """Return the better of the schedule found and the start, with a status from exact times."""
    candidates = [request.start] if request.start and request.start_fits else []
    # With the tolerances of a MILP solver, the resident bytes may exceed the memory by a few bytes.
    if found.times and _keeps_memory(request.formulation, found.times, request.balance):
        shifted = left_shift(request.formulation, found.times, congestion=request.congestion)
        candidates.insert(0, shifted)
    bound_us = max(found.bound_us, request.formulation.lower_bound)
    left_out = ""
    if found.left_out and not request.limits.stop.is_set():
        left_out = _left_out(request.formulation.problem, found.left_out)
    if not candidates and found.infeasible:
        return IlpSolution(SolveStatus.INFEASIBLE, None, math.inf, math.inf)
    if not candidates:
        return IlpSolution(SolveStatus.UNKNOWN, None, math.inf, bound_us, left_out)
    best = min(candidates, key=lambda times: times.makespan)
    schedule = schedule_of(request.formulation, best)
    objective_us = schedule.makespan_us
    if objective_us <= optimal_up_to_us(bound_us):
        status = SolveStatus.OPTIMAL
    elif request.limits.stop.is_set():
        status = SolveStatus.INTERRUPTED
    else:
        status = SolveStatus.FEASIBLE
    return IlpSolution(status, schedule, objective_us, min(bound_us, objective_us), left_out)


def _check_start(problem: Problem, start: Schedule) -> None:
    if wrong := _misplaced(problem, start.device):
        raise BadInputError(
            f"the warm start {wrong}; a schedule of the same problem that meets its constraints "
            "was expected: omit the warm start, or solve again."
        )


def _misplaced(problem: Problem, devices: Sequence[int] | IntArray) -> str:
    """Return what is wrong with the devices of the ops, `[num_ops]`; empty if nothing is."""
    device = np.asarray(devices, dtype=np.int64)
    if device.shape != (problem.num_ops,):
        return f"places {len(device)} ops, but the problem has {problem.num_ops}"
    known = (device >= 0) & (device < problem.num_devices)
    allowed = known & problem.allowed[np.arange(problem.num_ops), np.where(known, device, 0)]
    group = problem.graph.colocation_group
    leader = problem.graph.groups.indices[problem.graph.groups.offsets[:-1]]
    together = device == device[leader[group]]
    for fits, wrong in (
        (allowed, "may not run there"),
        (together, "is separated from its colocation group"),
    ):
        if not fits.all():
            op = int(np.argmin(fits))
            return f"puts op {problem.graph.names[op]!r} on device {device[op]}, where it {wrong}"
    return ""


def _keeps_memory(formulation: Formulation, times: Timetable, balance: float | None) -> bool:
    """Return whether a placement meets the memory constraints (8) and (8')."""
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
