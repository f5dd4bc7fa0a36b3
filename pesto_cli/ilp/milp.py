"""The model in PuLP, for CBC and HiGHS. Constraint families are as in `cpsat`.

Times are scaled so that the horizon is `SCALE`. Then M is at most about `SCALE`, and an integer
variable with an error of 1e-6, the solvers' tolerance, changes a time by at most about a millionth
of the horizon.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias

import pulp

from pesto_cli.data.limits import Limits
from pesto_cli.ilp.formulation import BALANCE_STEPS, Formulation
from pesto_cli.ilp.mps import write_mps
from pesto_cli.ilp.search import OnSolution, Pace, SolverAnswer, SolverRequest, TooLargeError
from pesto_cli.ilp.symmetry import excluded_by_symmetry
from pesto_cli.ilp.timetable import Timetable, is_sent, left_shift

SCALE = 1000.0
# If the optimum equals the horizon, CBC's preprocessing finds some feasible programs infeasible,
# and rounding can put a variable's lower bound above its upper bound. With less slack, CBC's
# simplex method stalls on more programs.
HORIZON_SLACK = 1 / 16

Variable: TypeAlias = Any  # PuLP has no type information
Expression: TypeAlias = Any
Constraint: TypeAlias = Any
Span: TypeAlias = tuple[Variable, Variable]  # start, end


class MilpModel:
    """The model: variables S, C, x of ops, S, C, z of transfers, C_max, and a δ for each pair."""

    def __init__(self, formulation: Formulation, pace: Pace) -> None:
        f, horizon = formulation, formulation.horizon
        self._lp, self._pace, self.formulation = pulp.LpProblem(), pace, f
        self.variables: list[Variable] = []
        self.constraints: list[Constraint] = []
        self.x = [{d: self.binary(f"x_{i}_{d}") for d in t} for i, t in enumerate(f.op_time)]
        self.z = [
            {s: self.binary(f"z_{k}_{s}") for s in transfer.time}
            for k, transfer in enumerate(f.transfers)
        ]
        head, last = f.head.tolist(), (horizon - f.tail).tolist()
        self.S = [self.time(f"S_{i}", head[i], last[i]) for i in range(len(head))]
        self.C = [self.time(f"C_{i}", head[i], last[i]) for i in range(len(head))]
        self.S_k, self.C_k = [], []
        for k, transfer in enumerate(f.transfers):
            first = head[transfer.producer]
            self.S_k.append(self.time(f"Sk_{k}", first, horizon))
            self.C_k.append(self.time(f"Ck_{k}", first, horizon))
        self.C_max = self.time("Cmax", f.lower_bound, horizon)
        self.orders: list[tuple[Variable, Span, Span]] = []

    def binary(self, name: str) -> Variable:
        """Add and return a variable that is 0 or 1."""
        self.variables.append(self._lp.add_variable(name, cat=pulp.LpBinary))
        return self.variables[-1]

    def time(self, name: str, first: float, last: float) -> Variable:
        """Add and return a variable for a time with a lower and an upper bound."""
        self.variables.append(self._lp.add_variable(name, first, last))
        return self.variables[-1]

    def add(self, constraint: Constraint) -> None:
        """Add a constraint."""
        self._pace.step()
        self.constraints.append(constraint)

    def check(self) -> None:
        """Raise an error if building takes too long; see `Pace.check`."""
        self._pace.check()


def precedence(model: MilpModel) -> None:
    """(1) C_i <= S_j for an edge (i, j), and through the transfer node where one exists.

    C_p <= S_k, and C_k <= S_j + M (1 - x_jd)   transfer k of p's tensor to d, consumer j
    C_i + signal (x_is - x_js) <= S_j           signal from i to j
    """
    f = model.formulation
    for i, j in f.problem.graph.edges.tolist():
        model.add(model.C[i] <= model.S[j])
    for k, transfer in enumerate(f.transfers):
        model.add(model.C[transfer.producer] <= model.S_k[k])
        for j in transfer.consumers:
            M = _big_m(model.C_k[k], model.S[j])
            model.add(model.C_k[k] <= model.S[j] + M * (1 - model.x[j][transfer.dst]))
    for i, j in f.signals:
        for s, x_is in model.x[i].items():
            apart = x_is - model.x[j].get(s, 0)
            model.add(model.C[i] + f.signal_time * apart <= model.S[j])


def op_durations(model: MilpModel) -> None:
    """(2) C_i = S_i + sum_d time[i, d] x_id."""
    for i, times in enumerate(model.formulation.op_time):
        duration = pulp.lpSum(time * model.x[i][d] for d, time in times.items())
        model.add(model.C[i] == model.S[i] + duration)


def makespan(model: MilpModel) -> None:
    """(3) 0 <= C_i <= C_max; C_max is at least the lower bound (variables have these ranges)."""
    for i, after in enumerate(model.formulation.problem.graph.successors.degree.tolist()):
        if after == 0:
            model.add(model.C[i] <= model.C_max)


def no_overlap_on_devices(model: MilpModel) -> None:
    """(4) Ops on one device do not overlap.

    For a pair (i, j) that precedence leaves unordered:
    S_j >= C_i - M (1 - δ_ij) - M (2 - x_id - x_jd)
    S_i >= C_j - M δ_ij       - M (2 - x_id - x_jd)
    """
    for i, j, devices in model.formulation.open_op_pairs(model.check):
        delta = model.binary(f"d_{i}_{j}")
        pair = (model.S[i], model.C[i]), (model.S[j], model.C[j])
        model.orders.append((delta, *pair))
        for d in devices:
            _either_or(model, delta, 2 - model.x[i][d] - model.x[j][d], *pair)


def sent_transfers(model: MilpModel) -> None:
    """(5) z_ks = 1 iff the producer p of k is on s and a consumer j on d, s != d.

    z_ks <= x_ps,  z_ks <= sum_j x_jd,  z_ks >= x_ps + x_jd - 1
    """
    for k, transfer in enumerate(model.formulation.transfers):
        here = [model.x[j][transfer.dst] for j in transfer.consumers]
        for s, z in model.z[k].items():
            x_ps = model.x[transfer.producer][s]
            model.add(z <= x_ps)
            model.add(z <= pulp.lpSum(here))
            for x_jd in here:
                model.add(z >= x_ps + x_jd - 1)


def transfer_durations(model: MilpModel) -> None:
    """(6) C_k = S_k + sum_s time[k, s] z_ks."""
    for k, transfer in enumerate(model.formulation.transfers):
        duration = pulp.lpSum(time * model.z[k][s] for s, time in transfer.time.items())
        model.add(model.C_k[k] == model.S_k[k] + duration)


def congestion(model: MilpModel) -> None:
    """(7) Transfers on one channel do not overlap.

    For a pair (k, l) that precedence leaves unordered:
    S_l >= C_k - M (1 - δ_kl) - M (2 - sum_s z_ks - sum_s z_ls)
    S_k >= C_l - M δ_kl       - M (2 - sum_s z_ks - sum_s z_ls)

    with the sums over the sources s from which k and l use the channel.
    """
    f = model.formulation
    for k, other, channels in f.open_transfer_pairs(model.check):
        delta = model.binary(f"e_{k}_{other}")
        pair = (model.S_k[k], model.C_k[k]), (model.S_k[other], model.C_k[other])
        model.orders.append((delta, *pair))
        for channel in channels:
            uses = [model.z[row][s] for row, s in f.senders[channel] if row in (k, other)]
            _either_or(model, delta, 2 - pulp.lpSum(uses), *pair)


def memory(model: MilpModel) -> None:
    """(8) sum_i resident[i] x_id <= capacity[d]."""
    problem = model.formulation.problem
    sizes = problem.graph.resident_bytes.tolist()
    scale = 1 / max([1, *sizes])  # large coefficients would hide a fraction of x in the tolerance
    for d, capacity in enumerate(problem.capacity_bytes.tolist()):
        model.add(scale * _bytes_on(model, sizes, d) <= scale * int(capacity))


def memory_balance(model: MilpModel, tolerance: float) -> None:
    """(8') out_d - out_e <= tolerance (out_d + out_e), out_d = sum_i output[i] x_id, d, e GPUs."""
    sizes = model.formulation.output_bytes
    tolerance = round(tolerance * BALANCE_STEPS) / BALANCE_STEPS
    scale = 1 / max([1, *sizes])
    for d, e in model.formulation.gpu_pairs:
        out_d, out_e = _bytes_on(model, sizes, d), _bytes_on(model, sizes, e)
        difference = (1 - tolerance) * out_d - (1 + tolerance) * out_e
        model.add(scale * difference <= 0)


def colocation_and_affinity(model: MilpModel) -> None:
    """(9) sum_d x_id = 1 over the devices that can run i, and x equal within a colocation group."""
    graph = model.formulation.problem.graph
    for x in model.x:
        model.add(pulp.lpSum(x.values()) == 1)
    for group in range(graph.num_groups):
        for i, j in pairwise(graph.groups[group].tolist()):
            for d in model.x[i]:
                model.add(model.x[i][d] == model.x[j][d])


def symmetry(model: MilpModel, start_device: list[int] | None) -> None:
    """Keep one of all placements that differ only by an exchange of identical devices."""
    for i, d in excluded_by_symmetry(model.formulation, start_device):
        model.add(model.x[i][d] == 0)


@dataclass(frozen=True)
class MipRequest:
    """A request to a MILP solver: a mixed integer program in a file, and how to search it.

    model: path of the MPS file.
    start: values of all variables by name, or None.
    on_solution: called with objective and bound in the units of the model.
    """

    model: Path
    start: dict[str, float] | None
    limits: Limits
    on_solution: OnSolution | None


@dataclass(frozen=True)
class MipAnswer:
    """The answer of a MILP solver.

    infeasible: whether infeasibility is proved.
    values: values of variables by name, in which zeros may be missing; None without a solution.
    bound: lower bound on the objective of all solutions.
    """

    infeasible: bool = False
    values: dict[str, float] | None = None
    bound: float = 0.0


def search(request: SolverRequest, run: Callable[[MipRequest], MipAnswer]) -> SolverAnswer:
    """Build the model, and run a solver on it from the start until the limits."""
    start = request.start
    horizon_us = start.makespan if start and request.start_fits else request.formulation.horizon
    on_solution = request.on_solution
    with TemporaryDirectory(prefix="pesto-") as folder:
        path, pace = Path(folder) / "model.mps", Pace(request)
        try:
            model = _model(request, horizon_us, pace)
            write_mps(path, model.variables, model.constraints, model.C_max, pace)
        except TooLargeError as error:
            return SolverAnswer(left_out=f"{error}; --solver cpsat can solve larger models")
        unit_us = model.formulation.unit_us
        answer = run(
            MipRequest(
                model=path,
                start=_values(model, start, request.congestion) if start else None,
                limits=request.remaining(),
                on_solution=on_solution
                and (lambda objective, bound: on_solution(objective * unit_us, bound * unit_us)),
            )
        )
    times = None if answer.values is None else _timetable(model, answer.values)
    return SolverAnswer(answer.infeasible, times, answer.bound * unit_us)


def _model(request: SolverRequest, horizon_us: float, pace: Pace) -> MilpModel:
    formulation = replace(request.formulation, horizon=horizon_us * (1 + HORIZON_SLACK))
    model = MilpModel(formulation.in_units((horizon_us or 1.0) / SCALE, whole=False), pace)
    precedence(model)
    op_durations(model)
    makespan(model)
    no_overlap_on_devices(model)
    sent_transfers(model)
    transfer_durations(model)
    if request.congestion:
        congestion(model)
    memory(model)
    if request.balance is not None:
        memory_balance(model, request.balance)
    colocation_and_affinity(model)
    symmetry(model, request.start.device if request.start else None)
    return model


def _either_or(model: MilpModel, delta: Variable, apart: Expression, i: Span, j: Span) -> None:
    """Add: if δ = 1, j starts after the end of i; if δ = 0, the reverse; unless `apart` >= 1."""
    for (_, end), (start, _), other in ((i, j, 1 - delta), (j, i, delta)):
        model.add(start >= end - _big_m(end, start) * (other + apart))


def _big_m(end: Variable, start: Variable) -> float:
    """Return a number large enough to relax `start >= end`."""
    return max(0.0, float(end.upBound - start.lowBound))


def _bytes_on(model: MilpModel, sizes: list[int], device: int) -> Expression:
    held = zip(model.x, sizes, strict=True)
    return pulp.lpSum(size * x[device] for x, size in held if device in x)


def _values(model: MilpModel, start: Timetable, congestion: bool) -> dict[str, float]:
    """Return a value for each variable, by name, from a timetable in microseconds."""
    f = model.formulation
    times = left_shift(f, start, congestion=congestion)
    values = {model.C_max.name: max(times.makespan, f.lower_bound)}
    for variables, numbers in (
        (model.S, times.op_start),
        (model.C, times.op_end),
        (model.S_k, times.transfer_start),
        (model.C_k, times.transfer_end),
    ):
        values |= {v.name: number for v, number in zip(variables, numbers, strict=True)}
    for i, x in enumerate(model.x):
        values |= {v.name: float(times.device[i] == d) for d, v in x.items()}
    for k, z in enumerate(model.z):
        source = times.device[f.transfers[k].producer]
        values |= {v.name: float(times.sent[k] and source == s) for s, v in z.items()}
    for delta, first, second in model.orders:
        spans = [[values[v.name] for v in span] for span in (first, second)]
        values[delta.name] = float(spans[0] <= spans[1])
    return values


def _timetable(model: MilpModel, values: dict[str, float]) -> Timetable:
    def value(variables: list[Variable]) -> list[float]:
        return [values.get(variable.name, 0.0) for variable in variables]

    device = [max(x, key=lambda d: values.get(x[d].name, 0.0)) for x in model.x]
    return Timetable(
        device,
        value(model.S),
        value(model.C),
        is_sent(model.formulation, device),
        value(model.S_k),
        value(model.C_k),
    )
