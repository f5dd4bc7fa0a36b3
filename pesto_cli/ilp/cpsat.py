"""The model for OR-Tools CP-SAT. Constraint families have the names and the order of `milp`.

CP-SAT computes with integers. Durations are rounded down to a unit of about a billionth of the
makespan, so a bound that CP-SAT proves holds for the exact durations too. The orders that it finds
are timed again with the exact durations.
"""

import math
from itertools import pairwise

from ortools.sat.python import cp_model

from pesto_cli.ilp.formulation import BALANCE_STEPS, Formulation
from pesto_cli.ilp.search import OnSolution, SolverAnswer, SolverRequest, run_until_stopped
from pesto_cli.ilp.symmetry import excluded_by_symmetry
from pesto_cli.ilp.timetable import Timetable, left_shift

# The lower bound on the makespan has about this many decimal digits in units of time.
SIGNIFICANT_DIGITS = 9
# If all ops take no time, or if transfers take much longer than ops, the unit comes from the
# horizon: sums of times have to fit 64 bits.
SMALLEST_SHARE = 1e-5
# A unit of work then takes about a second on models of 200 ops.
DETERMINISTIC_TIME_PER_S = 0.25


class CpSatModel:
    """The model: variables S, C, x of ops, S, C, z of transfers, and C_max; times are integers."""

    def __init__(self, formulation: Formulation, horizon: int) -> None:
        cp, f = cp_model.CpModel(), formulation
        self.cp, self.formulation = cp, f
        self.x = [{d: cp.new_bool_var(f"x_{i}_{d}") for d in t} for i, t in enumerate(f.op_time)]
        self.z = [
            {s: cp.new_bool_var(f"z_{k}_{s}") for s in transfer.time}
            for k, transfer in enumerate(f.transfers)
        ]
        head, tail = f.head.astype(int).tolist(), f.tail.astype(int).tolist()
        ends = [horizon - after for after in tail]
        self.S = [cp.new_int_var(head[i], ends[i], f"S_{i}") for i in range(len(head))]
        self.C = [cp.new_int_var(head[i], ends[i], f"C_{i}") for i in range(len(head))]
        self.S_k = [
            cp.new_int_var(head[t.producer], horizon, f"S_k_{k}") for k, t in enumerate(f.transfers)
        ]
        self.C_k = [
            cp.new_int_var(head[t.producer], horizon, f"C_k_{k}") for k, t in enumerate(f.transfers)
        ]
        self.C_max = cp.new_int_var(int(f.lower_bound), horizon, "C_max")
        cp.minimize(self.C_max)


def precedence(model: CpSatModel) -> None:
    """(1) C_i <= S_j for an edge (i, j), and through the transfer node where one exists.

    C_p <= S_k, and C_k <= S_j if x_jd        transfer k of p's tensor to d, consumer j
    C_i + signal <= S_j if x_is and not x_js  signal from i to j
    """
    cp, f = model.cp, model.formulation
    for i, j in f.problem.graph.edges.tolist():
        cp.add(model.C[i] <= model.S[j])
    for k, transfer in enumerate(f.transfers):
        cp.add(model.C[transfer.producer] <= model.S_k[k])
        for j in transfer.consumers:
            arrives = cp.add(model.C_k[k] <= model.S[j])
            arrives.only_enforce_if(model.x[j][transfer.dst])
    for i, j in f.signals:
        for s, x_is in model.x[i].items():
            elsewhere = [model.x[j][s].negated()] if s in model.x[j] else []
            delayed = cp.add(model.C[i] + int(f.signal_time) <= model.S[j])
            delayed.only_enforce_if(x_is, *elsewhere)


def op_durations(model: CpSatModel) -> None:
    """(2) C_i = S_i + sum_d time[i, d] x_id."""
    for i, times in enumerate(model.formulation.op_time):
        if len(set(times.values())) == 1:
            model.cp.add(model.C[i] == model.S[i] + int(next(iter(times.values()))))
            continue
        for d, time in times.items():
            lasts = model.cp.add(model.C[i] == model.S[i] + int(time))
            lasts.only_enforce_if(model.x[i][d])


def makespan(model: CpSatModel) -> None:
    """(3) 0 <= C_i <= C_max; C_max is at least the lower bound (variables have these ranges)."""
    for i, after in enumerate(model.formulation.problem.graph.successors.degree.tolist()):
        if after == 0:
            model.cp.add(model.C[i] <= model.C_max)


def no_overlap_on_devices(model: CpSatModel) -> None:
    """(4) Ops on one device do not overlap."""
    f = model.formulation
    for d in range(f.problem.num_devices):
        model.cp.add_no_overlap(
            model.cp.new_optional_fixed_size_interval_var(
                model.S[i], int(times[d]), model.x[i][d], f"op_{i}_{d}"
            )
            for i, times in enumerate(f.op_time)
            if d in times
        )


def sent_transfers(model: CpSatModel) -> None:
    """(5) z_ks = 1 iff the producer p of k is on s and a consumer j on d, s != d.

    z_ks <= x_ps,  z_ks <= sum_j x_jd,  z_ks >= x_ps + x_jd - 1
    """
    for k, transfer in enumerate(model.formulation.transfers):
        here = [model.x[j][transfer.dst] for j in transfer.consumers]
        for s, z in model.z[k].items():
            x_ps = model.x[transfer.producer][s]
            model.cp.add_implication(z, x_ps)
            model.cp.add_bool_or(*here, z.negated())
            for x_jd in here:
                model.cp.add_bool_or(z, x_ps.negated(), x_jd.negated())


def transfer_durations(model: CpSatModel) -> None:
    """(6) C_k = S_k + sum_s time[k, s] z_ks."""
    for k, transfer in enumerate(model.formulation.transfers):
        z = model.z[k]
        for s, time in transfer.time.items():
            lasts = model.cp.add(model.C_k[k] == model.S_k[k] + int(time))
            lasts.only_enforce_if(z[s])
        unsent = model.cp.add(model.C_k[k] == model.S_k[k])
        unsent.only_enforce_if(*(literal.negated() for literal in z.values()))


def congestion(model: CpSatModel) -> None:
    """(7) Transfers on one channel do not overlap."""
    f = model.formulation
    for senders in f.senders.values():
        model.cp.add_no_overlap(
            model.cp.new_optional_fixed_size_interval_var(
                model.S_k[k], int(f.transfers[k].time[s]), model.z[k][s], f"sent_{k}_{s}"
            )
            for k, s in senders
        )


def memory(model: CpSatModel) -> None:
    """(8) sum_i resident[i] x_id <= capacity[d]."""
    problem = model.formulation.problem
    for d, capacity in enumerate(problem.capacity_bytes.tolist()):
        model.cp.add(_bytes_on(model, problem.graph.resident_bytes.tolist(), d) <= int(capacity))


def memory_balance(model: CpSatModel, tolerance: float) -> None:
    """(8') out_d - out_e <= tolerance (out_d + out_e), out_d = sum_i output[i] x_id, d, e GPUs."""
    share = round(tolerance * BALANCE_STEPS)
    sizes = model.formulation.output_bytes
    for d, e in model.formulation.gpu_pairs:
        out_d, out_e = _bytes_on(model, sizes, d), _bytes_on(model, sizes, e)
        model.cp.add((BALANCE_STEPS - share) * out_d <= (BALANCE_STEPS + share) * out_e)


def colocation_and_affinity(model: CpSatModel) -> None:
    """(9) sum_d x_id = 1 over the devices that can run i, and x equal within a colocation group."""
    graph = model.formulation.problem.graph
    for x in model.x:
        model.cp.add_exactly_one(x.values())
    for group in range(graph.num_groups):
        for i, j in pairwise(graph.groups[group].tolist()):
            for d in model.x[i]:
                model.cp.add(model.x[i][d] == model.x[j][d])


def symmetry(model: CpSatModel, start_device: list[int] | None) -> None:
    """Keep one of all placements that differ only by an exchange of identical devices."""
    for i, d in excluded_by_symmetry(model.formulation, start_device):
        model.cp.add(model.x[i][d] == 0)


def search(request: SolverRequest) -> SolverAnswer:
    """Build the model, add the start as a hint, and search until the limits."""
    start = request.start
    formulation = request.formulation.in_units(_unit_us(request.formulation), whole=True)
    hint = left_shift(formulation, start, congestion=request.congestion) if start else None
    horizon = hint.makespan if hint and request.start_fits else formulation.horizon
    model = CpSatModel(formulation, max(int(horizon), int(formulation.lower_bound)))
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
    symmetry(model, start.device if start else None)
    if hint:
        _add_hint(model, hint)
    return _search(model, request)


def _bytes_on(model: CpSatModel, sizes: list[int], device: int) -> cp_model.LinearExpr:
    held = [(x[device], size) for x, size in zip(model.x, sizes, strict=True) if device in x]
    return cp_model.LinearExpr.weighted_sum([x for x, _ in held], [size for _, size in held])


def _unit_us(formulation: Formulation) -> float:
    """Return the unit of time: a power of ten, for which decimal durations stay exact."""
    shortest = max(formulation.lower_bound, formulation.horizon * SMALLEST_SHARE) or 1.0
    return float(10.0 ** (math.floor(math.log10(shortest)) - SIGNIFICANT_DIGITS))


def _add_hint(model: CpSatModel, hint: Timetable) -> None:
    """Add a hint for each variable, as CP-SAT would have to complete a partial hint by search."""
    f, cp = model.formulation, model.cp
    values = [
        *zip(model.S, hint.op_start, strict=True),
        *zip(model.C, hint.op_end, strict=True),
        *zip(model.S_k, hint.transfer_start, strict=True),
        *zip(model.C_k, hint.transfer_end, strict=True),
    ]
    for variable, value in values:
        cp.add_hint(variable, int(value))
    for i, x in enumerate(model.x):
        for d, literal in x.items():
            cp.add_hint(literal, hint.device[i] == d)
    for k, z in enumerate(model.z):
        source = hint.device[f.transfers[k].producer]
        for s, literal in z.items():
            cp.add_hint(literal, hint.sent[k] and source == s)
    cp.add_hint(model.C_max, max(int(hint.makespan), int(f.lower_bound)))


def _search(model: CpSatModel, request: SolverRequest) -> SolverAnswer:
    solver, limits, unit_us = cp_model.CpSolver(), request.remaining(), model.formulation.unit_us
    parameters = solver.parameters
    parameters.random_seed = limits.seed % 2**31
    parameters.catch_sigint_signal = False
    # The linear relaxation of disjunctions is weak: it costs more time than its bounds save.
    parameters.linearization_level = 0
    if limits.deterministic:
        parameters.num_workers = 1
        parameters.max_deterministic_time = limits.time_limit_s * DETERMINISTIC_TIME_PER_S
    else:
        parameters.num_workers = limits.workers
        parameters.max_time_in_seconds = limits.time_limit_s
    callback = _Callback(request.on_solution, unit_us) if request.on_solution else None
    status = run_until_stopped(lambda: solver.solve(model.cp, callback), solver.stop_search, limits)
    if status == cp_model.MODEL_INVALID:
        raise ValueError(model.cp.validate())
    if status == cp_model.INFEASIBLE:
        return SolverAnswer(infeasible=True)
    times = None if status == cp_model.UNKNOWN else _values(model, solver)
    return SolverAnswer(times=times, bound_us=solver.best_objective_bound * unit_us)


def _values(model: CpSatModel, solver: cp_model.CpSolver) -> Timetable:
    def value(variables: list[cp_model.IntVar]) -> list[float]:
        return [float(solver.value(variable)) for variable in variables]

    device = [next(d for d, v in x.items() if solver.boolean_value(v)) for x in model.x]
    sent = [any(solver.boolean_value(v) for v in z.values()) for z in model.z]
    return Timetable(
        device, value(model.S), value(model.C), sent, value(model.S_k), value(model.C_k)
    )


class _Callback(cp_model.CpSolverSolutionCallback):  # type: ignore[misc]
    def __init__(self, report: OnSolution, unit_us: float) -> None:
        super().__init__()
        self._report, self._unit_us = report, unit_us

    def on_solution_callback(self) -> None:
        unit_us = self._unit_us
        self._report(self.objective_value * unit_us, self.best_objective_bound * unit_us)
