"""Run HiGHS, an optional dependency, on a file."""

import math

from pesto_cli.errors import EnvironmentFailedError
from pesto_cli.ilp.milp import MipAnswer, MipRequest
from pesto_cli.ilp.search import run_until_stopped

# In deterministic mode, branch-and-bound nodes for each unit of work.
NODES_PER_UNIT = 100
RELATIVE_GAP = 1e-7


def run(request: MipRequest) -> MipAnswer:
    """Search until the limits.

    Raises:
        EnvironmentFailedError: highspy is not installed.
    """
    try:
        import highspy
    except ImportError as error:
        raise EnvironmentFailedError(
            f"HiGHS cannot be loaded ({error}); install pesto-cli[highs], or use --solver cpsat."
        ) from error
    limits = request.limits
    solver = highspy.Highs()
    solver.resetGlobalScheduler(True)  # otherwise the first run's number of threads remains
    options = {
        "output_flag": False,
        "random_seed": limits.seed % 2**31,
        "mip_rel_gap": RELATIVE_GAP,
        "threads": 1 if limits.deterministic else limits.workers,
    }
    if limits.deterministic:
        options["mip_max_nodes"] = math.ceil(limits.time_limit_s * NODES_PER_UNIT)
    else:
        options["time_limit"] = limits.time_limit_s
    for name, value in options.items():
        solver.setOptionValue(name, value)
    solver.readModel(str(request.model))
    names = solver.getLp().col_names_
    if request.start is not None:
        start = highspy.HighsSolution()
        start.col_value = [request.start[name] for name in names]
        solver.setSolution(start)
    if request.on_solution is not None:
        report = request.on_solution
        solver.cbMipImprovingSolution += lambda event: report(
            event.data_out.objective_function_value, event.data_out.mip_dual_bound
        )
    solver.HandleUserInterrupt = True
    run_until_stopped(solver.run, solver.cancelSolve, limits)
    status, info = solver.getModelStatus(), solver.getInfo()
    if status == highspy.HighsModelStatus.kInfeasible:
        return MipAnswer(infeasible=True)
    bound = info.mip_dual_bound if math.isfinite(info.mip_dual_bound) else 0.0
    if info.primal_solution_status != highspy.SolutionStatus.kSolutionStatusFeasible:
        return MipAnswer(bound=bound)
    return MipAnswer(
        values=dict(zip(names, solver.getSolution().col_value, strict=True)), bound=bound
    )
