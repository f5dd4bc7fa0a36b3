"""The integer programs agree with a search of all placements and orders, and with each other."""

import inspect
import threading
import time
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from brute_force import optimum_us
from random_problems import keeps_memory, random_placement, random_problem

from pesto_cli.data.graph import OpGraph, Tensor
from pesto_cli.data.limits import Limits
from pesto_cli.data.machine import CommModel, Device, Link, Machine
from pesto_cli.data.problem import Problem
from pesto_cli.data.result import SolveStatus
from pesto_cli.data.schedule import Schedule
from pesto_cli.errors import BadInputError, EnvironmentFailedError
from pesto_cli.evaluation.simulator import Simulator
from pesto_cli.evaluation.violations import violations
from pesto_cli.ilp import SOLVERS, cbc, cpsat, milp, solve_ilp
from pesto_cli.ilp.formulation import Formulation
from pesto_cli.ilp.search import SolverRequest
from pesto_cli.ilp.symmetry import excluded_by_symmetry
from pesto_cli.ilp.timetable import left_shift, timetable_of

MILP_SOLVERS = ["cbc", "highs"]


def start_of(problem: Problem, seed: int = 0) -> Schedule:
    simulator = Simulator(problem)
    return simulator.list_schedule(random_placement(problem, seed), simulator.upward_rank())


def broken_rules(problem: Problem, schedule: Schedule) -> list[str]:
    """Return the violations of constraints that an integer program has.

    In the integer program links serve transfers, and the host its feeds, in any order, and only the
    resident bytes count as memory.
    """
    found = violations(problem, schedule)
    return [v.message for v in found if v.rule not in ("queue", "feed", "memory")]


def assert_is_optimum(problem: Problem, solver: str, optimum: float) -> None:
    found = solve_ilp(problem, Limits(), solver=solver)
    if optimum == np.inf:
        assert found.status == SolveStatus.INFEASIBLE
        assert found.schedule is None
        return
    assert found.status == SolveStatus.OPTIMAL
    assert found.schedule is not None
    assert found.objective_us == found.schedule.makespan_us == pytest.approx(optimum, rel=1e-6)
    assert found.bound_us == pytest.approx(optimum, rel=2e-6)
    assert broken_rules(problem, found.schedule) == []
    assert keeps_memory(problem, found.schedule.device)


@pytest.mark.parametrize("seeds", [range(at, at + 50) for at in range(0, 300, 50)], ids=str)
def test_cpsat_finds_the_optimum_of_all_placements_and_orders(seeds):
    for seed in seeds:
        problem = random_problem(seed)
        assert_is_optimum(problem, "cpsat", optimum_us(problem))


@pytest.mark.parametrize("seeds", [range(at, at + 25) for at in range(0, 100, 25)], ids=str)
def test_cbc_finds_the_optimum_of_all_placements_and_orders(seeds):
    for seed in seeds:
        problem = random_problem(seed)
        assert_is_optimum(problem, "cbc", optimum_us(problem))


def test_highs_finds_the_optimum_of_all_placements_and_orders():
    pytest.importorskip("highspy")
    for seed in range(100, 130):
        problem = random_problem(seed)
        assert_is_optimum(problem, "highs", optimum_us(problem))


def one_gpu(graph: OpGraph, time_us: list[float]) -> Problem:
    return Problem.build(graph, {"GPU": time_us}, Machine((Device("GPU:0", "GPU", 100),), ()))


def test_cbc_solves_a_chain_whose_optimum_is_the_sum_of_all_times():
    tensors = [Tensor(1, 1, [0, 2]), Tensor(3, 1, [1]), Tensor(4, 1, [0, 1, 2])]
    problem = one_gpu(OpGraph.build(list("abcde"), tensors), [2.0, 2.0, 0.0, 6.0, 0.0])
    assert_is_optimum(problem, "cbc", 10)


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_variable_in_no_constraint_is_accepted(solver):
    """With an optimal start of 0 us, the constraints on the order of two transfers are empty."""
    if solver == "highs":
        pytest.importorskip("highspy")
    graph = OpGraph.build(list("abcd"), [Tensor(0, 8, [2]), Tensor(1, 8, [3])])
    problem = Problem.build(graph, {"GPU": [0.0, 0.0, 0.0, 0.0]}, two_gpus())
    best = solve_ilp(problem, Limits()).schedule
    assert best is not None
    formulation = Formulation.build(problem)
    start = timetable_of(formulation, best)
    found = SOLVERS[solver](SolverRequest(formulation, Limits(), start=start, start_fits=True))
    assert found.times is not None


def test_a_model_that_cbc_cannot_read_is_an_error(tmp_path):
    model = tmp_path / "model.mps"
    model.write_text("NAME\nROWS\n L R0\nCOLUMNS\n y R1 1.0\nENDATA\n")
    with pytest.raises(EnvironmentFailedError, match="CBC failed with exit status 0"):
        cbc.run(milp.MipRequest(model, None, Limits(time_limit_s=20), None))


@pytest.mark.parametrize("solver", SOLVERS)
def test_bounds_of_a_start_do_not_cross_by_rounding(solver):
    """The tail of the first op equals the horizon, up to the rounding of sums in another order."""
    if solver == "highs":
        pytest.importorskip("highspy")
    for seed in range(6):
        rng = np.random.default_rng(seed)
        order = rng.permutation(7).tolist()
        times = rng.random(7)
        times[order[0]] = 0
        tensors = [Tensor(before, 1, [after]) for before, after in pairwise(order)]
        graph = OpGraph.build(list("abcdefg"), tensors)
        assert_is_optimum(one_gpu(graph, times.tolist()), solver, times.sum())


def test_random_problems_have_all_features_of_the_formulation():
    problems = [random_problem(seed) for seed in range(300)]
    infeasible = sum(optimum_us(problem) == np.inf for problem in problems)
    assert 20 < infeasible < 100
    for has in (
        lambda p: p.num_devices == 3,
        lambda p: (np.diff(p.graph.consumer_offsets) > 1).any(),
        lambda p: p.graph.num_groups < p.num_ops,
        lambda p: p.graph.consumer_on_host.any(),
        lambda p: len(p.graph.control_edges),
        lambda p: (p.min_duration_us == 0).any(),
        lambda p: len(p.machine.channel_names) == 1,
        lambda p: (p.machine.min_us > p.machine.latency_us).any(),
        lambda p: p.is_feed.any() and p.machine.host is not None,
        lambda p: not p.allowed.all(),
        lambda p: len({device.speed for device in p.machine.devices}) > 1,
    ):
        assert sum(bool(has(problem)) for problem in problems) >= 20


def test_simulator_is_never_below_the_optimum():
    compared = 0
    for seed in range(150):
        problem = random_problem(seed, memory=False)
        optimum, simulator = optimum_us(problem), Simulator(problem)
        for trial in range(5):
            priority = np.random.default_rng(trial).random(problem.num_ops)
            listed = simulator.list_schedule(random_placement(problem, trial), priority)
            assert listed.makespan_us >= optimum - 1e-9
            compared += listed.makespan_us > optimum
        found = solve_ilp(problem, Limits())
        assert found.schedule is not None
        assert simulator.replay(found.schedule.placement).makespan_us >= optimum - 1e-9
    assert compared > 100


@pytest.mark.parametrize("seeds", [range(at, at + 10) for at in range(0, 30, 10)], ids=str)
def test_cbc_and_cpsat_agree_on_nine_ops(seeds):
    for seed in seeds:
        problem = random_problem(seed, 9, memory=False)
        assert_is_optimum(problem, "cbc", solve_ilp(problem, Limits()).objective_us)


@pytest.mark.parametrize("seed", range(4))
def test_the_optimum_of_fifteen_ops_is_between_the_bound_and_the_best_of_cbc(seed):
    problem = random_problem(seed, 15, memory=False)
    best = solve_ilp(problem, Limits(time_limit_s=20))
    assert best.status == SolveStatus.OPTIMAL
    found = solve_ilp(problem, Limits(time_limit_s=1), solver="cbc", warm_start=start_of(problem))
    assert found.bound_us <= best.objective_us * (1 + 1e-6)
    assert best.objective_us <= found.objective_us * (1 + 1e-6)


def test_backends_have_the_same_families_in_the_same_order():
    def families(module):
        functions = inspect.getmembers(module, inspect.isfunction)
        here = [(name, f) for name, f in functions if f.__module__ == module.__name__]
        in_order = sorted(here, key=lambda item: item[1].__code__.co_firstlineno)
        return [
            (name, inspect.getdoc(f).splitlines()[0])
            for name, f in in_order
            if not name.startswith("_") and name != "search"
        ]

    assert families(cpsat) == families(milp)
    assert len(families(milp)) == 11


@pytest.mark.parametrize("scale", [1e-4 / 3, 1e5 * np.pi])
def test_rounding_to_whole_units_does_not_change_the_optimum(scale):
    for seed in range(30):
        problem = random_problem(seed, memory=False)
        links = tuple(
            replace(
                link,
                comm=CommModel(
                    link.comm.latency_us * scale,
                    link.comm.us_per_byte * scale,
                    link.comm.min_us * scale,
                ),
            )
            for link in problem.machine.links
        )
        scaled = replace(
            problem,
            time_us=problem.time_us * scale,
            machine=replace(problem.machine, links=links),
        )
        assert_is_optimum(scaled, "cpsat", optimum_us(scaled))


# Two equal GPUs with a slow link in each direction.
def two_gpus(memory_bytes: int = 100, latency_us: float = 4.0) -> Machine:
    devices = tuple(Device(name, "GPU", memory_bytes) for name in ("GPU:0", "GPU:1"))
    comm = CommModel(latency_us=latency_us, us_per_byte=0.0)
    return Machine(devices, (Link("GPU:0", "GPU:1", comm), Link("GPU:1", "GPU:0", comm)))


def fan(machine: Machine) -> Problem:
    """Two zero-time ops on GPU:0, each followed by an op of 1 us on GPU:1, all pinned."""
    graph = OpGraph.build(["a", "b", "c", "d"], [Tensor(0, 8, [2]), Tensor(1, 8, [3])])
    problem = Problem.build(graph, {"GPU": [0.0, 0.0, 1.0, 1.0]}, machine)
    return problem.constrained(permitted=np.array([[1, 0], [1, 0], [0, 1], [0, 1]], dtype=bool))


@pytest.mark.parametrize("solver", ["cpsat", "cbc"])
def test_transfers_queue_unless_congestion_is_off(solver):
    problem = fan(two_gpus())
    assert solve_ilp(problem, Limits(), solver=solver).objective_us == pytest.approx(9)
    free = solve_ilp(problem, Limits(), solver=solver, congestion=False)
    assert free.objective_us == pytest.approx(6)


@pytest.mark.parametrize("solver", ["cpsat", "cbc"])
def test_zero_time_op_does_not_start_within_another(solver):
    """Op z is ready at 3, b runs from 0 to 5, d needs z. With z inside b, all would end by 6."""
    graph = OpGraph.build(["a", "b", "z", "d"], control_edges=[(0, 2), (2, 3)])
    machine = replace(two_gpus(), signal_us=2.0)
    problem = Problem.build(graph, {"GPU": [1.0, 5.0, 0.0, 1.0]}, machine).constrained(
        permitted=np.array([[1, 0], [0, 1], [0, 1], [1, 0]], dtype=bool)
    )
    assert optimum_us(problem) == 8
    assert_is_optimum(problem, solver, 8)


def test_symmetry_keeps_the_largest_op_on_its_device_in_the_start():
    graph = OpGraph.build(["a", "b"])
    formulation = Formulation.build(Problem.build(graph, {"GPU": [1.0, 5.0]}, two_gpus()))
    assert excluded_by_symmetry(formulation, None) == [(1, 1)]
    assert excluded_by_symmetry(formulation, [0, 0]) == [(1, 1)]
    assert excluded_by_symmetry(formulation, [0, 1]) == [(1, 0)]


@pytest.mark.parametrize(("bus", "excluded"), [("", [(0, 1), (0, 2)]), ("bus", [(0, 1)])])
def test_devices_on_a_bus_are_not_interchangeable_with_others(bus, excluded):
    names = ["GPU:0", "GPU:1", "GPU:2"]
    links = tuple(
        Link(src, dst, CommModel(4.0, 0.0), "" if "GPU:2" in (src, dst) else bus)
        for src in names
        for dst in names
        if src != dst
    )
    machine = Machine(tuple(Device(name, "GPU", 100) for name in names), links)
    problem = Problem.build(OpGraph.build(["a"]), {"GPU": [1.0]}, machine)
    assert excluded_by_symmetry(Formulation.build(problem), None) == excluded


@pytest.mark.parametrize("solver", ["cpsat", "cbc"])
def test_variables_that_fit_nowhere_are_infeasible(solver):
    graph = OpGraph.build(["a", "b", "c"], resident_bytes=[6, 6, 6])
    times = {"GPU": [1.0, 1.0, 1.0]}
    assert_is_optimum(Problem.build(graph, times, two_gpus(11)), solver, np.inf)
    assert_is_optimum(Problem.build(graph, times, two_gpus(12)), solver, 2.0)


@pytest.mark.parametrize("solver", ["cpsat", "cbc"])
def test_balance_bounds_the_difference_of_outputs(solver):
    """Outputs of 60 and 40 on two GPUs take 2 us and differ by 20 %; 10 % is infeasible."""
    graph = OpGraph.build(["a", "b"], [Tensor(0, 60), Tensor(1, 40)])
    problem = Problem.build(graph, {"GPU": [2.0, 2.0]}, two_gpus())
    within = solve_ilp(problem, Limits(), solver=solver, balance=0.2)
    assert within.objective_us == pytest.approx(2)
    beyond = solve_ilp(problem, Limits(), solver=solver, balance=0.1)
    assert beyond.status == SolveStatus.INFEASIBLE


def test_backends_agree_under_balance():
    seen = set()
    for seed in range(16):
        problem = random_problem(seed)
        first = solve_ilp(problem, Limits(), balance=0.3)
        second = solve_ilp(problem, Limits(), balance=0.3, solver="cbc")
        assert first.status == second.status
        assert first.objective_us == pytest.approx(second.objective_us, rel=1e-6)
        free = solve_ilp(problem, Limits())
        assert first.objective_us >= free.objective_us * (1 - 1e-6)
        seen.add(first.objective_us > free.objective_us * 1.01)
    assert seen == {True, False}


@pytest.mark.parametrize("solver", SOLVERS)
def test_answer_is_never_longer_than_the_warm_start(solver):
    if solver == "highs":
        pytest.importorskip("highspy")
    for seed in range(6):
        problem = random_problem(seed, 20, memory=False)
        start = start_of(problem, seed)
        found = solve_ilp(problem, Limits(time_limit_s=0.3), solver=solver, warm_start=start)
        assert found.schedule is not None
        assert found.objective_us <= start.makespan_us * (1 + 1e-9)
        assert broken_rules(problem, found.schedule) == []


@pytest.mark.parametrize("solver", SOLVERS)
def test_warm_start_reaches_the_solver(solver):
    """Little work does not find the optimum. From the optimum as a start, the result is optimal."""
    if solver == "highs":
        pytest.importorskip("highspy")
    problem = random_problem(3, 22, memory=False)
    best = solve_ilp(problem, Limits(time_limit_s=20)).schedule
    assert best is not None
    formulation = Formulation.build(problem)
    start = left_shift(formulation, timetable_of(formulation, best), congestion=True)
    little = 0.03 if solver == "cpsat" else 0.01
    request = SolverRequest(formulation, Limits(time_limit_s=little, deterministic=True))
    cold = SOLVERS[solver](request)
    warm = SOLVERS[solver](replace(request, start=start, start_fits=True))
    assert cold.times is None or left_shift(
        formulation, cold.times, congestion=True
    ).makespan > best.makespan_us * (1 + 1e-6)
    assert warm.times is not None
    assert left_shift(formulation, warm.times, congestion=True).makespan == pytest.approx(
        best.makespan_us
    )


@pytest.mark.parametrize("solver", SOLVERS)
def test_optimal_warm_start_is_proved(solver):
    if solver == "highs":
        pytest.importorskip("highspy")
    for seed in range(12):
        problem = random_problem(seed, memory=False)
        best = solve_ilp(problem, Limits()).schedule
        again = solve_ilp(problem, Limits(), solver=solver, warm_start=best)
        assert best is not None
        assert again.status == SolveStatus.OPTIMAL
        assert again.objective_us == pytest.approx(best.makespan_us, rel=1e-6)


@pytest.mark.parametrize("solver", ["cpsat", "cbc"])
def test_warm_start_that_exceeds_memory_is_only_a_hint(solver):
    graph = OpGraph.build(["a", "b"], [Tensor(0, 1, [1])], resident_bytes=[6, 6])
    roomy = Problem.build(graph, {"GPU": [1.0, 1.0]}, two_gpus(12))
    start = solve_ilp(roomy, Limits()).schedule
    assert start is not None
    assert start.makespan_us == 2
    tight = Problem.build(graph, {"GPU": [1.0, 1.0]}, two_gpus(11))
    found = solve_ilp(tight, Limits(), solver=solver, warm_start=start)
    assert found.objective_us == pytest.approx(6)


def test_warm_start_of_another_problem_is_an_error():
    problem = fan(two_gpus())
    other = random_problem(1, 9, memory=False)
    with pytest.raises(BadInputError, match="places 9 ops, but the problem has 4"):
        solve_ilp(problem, Limits(), warm_start=start_of(other))
    schedule = solve_ilp(problem, Limits()).schedule
    assert schedule is not None
    moved = replace(schedule, device=np.array([0, 0, 1, 0]))
    with pytest.raises(BadInputError, match="op 'd' on device 0, where it may not run"):
        solve_ilp(problem, Limits(), warm_start=moved)


@pytest.mark.parametrize("time_limit_s", [0.0, 0.05, 1.0])
@pytest.mark.parametrize("solver", MILP_SOLVERS)
def test_a_search_that_hits_its_time_limit_is_neither_optimal_nor_infeasible(solver, time_limit_s):
    if solver == "highs":
        pytest.importorskip("highspy")
    problem = random_problem(3, 22, memory=False)
    found = solve_ilp(problem, Limits(time_limit_s=time_limit_s), solver=solver)
    best = solve_ilp(problem, Limits(time_limit_s=20)).objective_us
    assert found.status in (SolveStatus.FEASIBLE, SolveStatus.UNKNOWN)
    assert found.bound_us <= best * (1 + 1e-6)
    assert (found.schedule is None) == (found.status == SolveStatus.UNKNOWN)


def hard_problem(solver: str) -> Problem:
    """A problem whose optimum the solver cannot prove in several minutes."""
    return random_problem(6, 120 if solver == "cpsat" else 22, memory=False, num_devices=3)


@pytest.mark.parametrize("solver", SOLVERS)
def test_stop_ends_the_search_with_the_best_so_far(solver):
    if solver == "highs":
        pytest.importorskip("highspy")
    problem = hard_problem(solver)
    start, limits = start_of(problem), Limits(time_limit_s=500)
    threading.Timer(1.0, limits.stop.set).start()
    found = solve_ilp(problem, limits, solver=solver, warm_start=start)
    assert found.status == SolveStatus.INTERRUPTED
    assert found.schedule is not None
    assert found.objective_us <= start.makespan_us * (1 + 1e-9)


def large_problem() -> Problem:
    """A problem with 420,000 MILP constraints, which take half a minute to build."""
    return random_problem(6, 300, memory=False, num_devices=3)


@pytest.mark.parametrize("limits", [Limits(0.5), Limits(1, deterministic=True)], ids=["s", "units"])
def test_a_model_that_is_not_built_in_time_is_skipped_with_a_note(limits, caplog):
    problem = large_problem()
    start, began = start_of(problem), time.monotonic()
    found = solve_ilp(problem, limits, solver="cbc", warm_start=start)
    assert time.monotonic() - began < 15
    assert found.status == SolveStatus.FEASIBLE
    assert found.objective_us <= start.makespan_us * (1 + 1e-9)
    (note,) = caplog.messages
    assert note == found.left_out
    assert "300 nodes on 3 devices is skipped: the model was not built in" in note


def test_stop_ends_the_building_of_a_model_without_a_note(caplog):
    problem, limits = large_problem(), Limits(time_limit_s=500)
    threading.Timer(0.5, limits.stop.set).start()
    began = time.monotonic()
    found = solve_ilp(problem, limits, solver="cbc", warm_start=start_of(problem))
    assert time.monotonic() - began < 15
    assert found.status == SolveStatus.INTERRUPTED
    assert not caplog.messages


def test_stop_before_the_search_returns_the_start():
    problem, limits = hard_problem("cpsat"), Limits(time_limit_s=500)
    limits.stop.set()
    start = start_of(problem)
    found = solve_ilp(problem, limits, warm_start=start)
    assert found.status == SolveStatus.INTERRUPTED
    assert found.objective_us <= start.makespan_us
    assert solve_ilp(problem, limits).status == SolveStatus.UNKNOWN


@pytest.mark.parametrize("solver", SOLVERS)
def test_deterministic_mode_gives_the_same_answer_twice(solver):
    if solver == "highs":
        pytest.importorskip("highspy")
    problem = random_problem(5, 25, memory=False)
    limits = Limits(time_limit_s=0.2, deterministic=True, seed=7)
    first, second = (
        solve_ilp(problem, limits, solver=solver, warm_start=start_of(problem)).schedule
        for _ in range(2)
    )
    assert first is not None
    assert second is not None
    assert first.device.tolist() == second.device.tolist()
    assert first.start_us.tolist() == second.start_us.tolist()


def test_each_better_solution_is_reported():
    reported = []
    problem = random_problem(3, 22, memory=False)
    found = solve_ilp(
        problem,
        Limits(),
        warm_start=start_of(problem),
        on_solution=lambda objective_us, bound_us: reported.append((objective_us, bound_us)),
    )
    objectives = [objective_us for objective_us, _ in reported]
    assert objectives == sorted(objectives, reverse=True)
    assert objectives[-1] == pytest.approx(found.objective_us)
    assert all(bound_us <= found.objective_us + 1e-6 for _, bound_us in reported)


def test_cbc_verdicts_are_parsed():
    """The texts are those that CBC 2.10 writes at the end of a search."""
    node = "Cbc0010I After 9 nodes, 1 on tree, 5 best solution, best possible 3.25 (1.0 seconds)\n"
    stopped = "Stopped on time - objective value 5.00000000\n      0 Cmax  5  0\n** 2 S_1 1.5 0\n"
    answer = cbc.read_answer(stopped, node, in_time=False)
    assert answer.values == {"Cmax": 5.0, "S_1": 1.5}
    assert 3.2499 < answer.bound < 3.25
    none = "Stopped on time (no integer solution - continuous used) - objective value 3.0\n"
    assert cbc.read_answer(none, node, in_time=False).values is None
    optimal = cbc.read_answer("Optimal - objective value 5.0\n", node, in_time=True)
    assert optimal.bound == 5
    infeasible = "Infeasible - objective value 30.0\n"
    assert cbc.read_answer(infeasible, "", in_time=True).infeasible
    assert not cbc.read_answer(infeasible, "", in_time=False).infeasible


def test_unknown_solver_and_balance_are_errors():
    with pytest.raises(BadInputError, match="'gurobi' is unknown; one of cpsat, cbc, highs was"):
        solve_ilp(fan(two_gpus()), Limits(), solver="gurobi")
    with pytest.raises(BadInputError, match=r"balance is 1\.5"):
        solve_ilp(fan(two_gpus()), Limits(), balance=1.5)


@pytest.mark.parametrize("solver", ["cpsat", "cbc"])
def test_graph_without_ops_is_optimal_at_once(solver):
    problem = Problem.build(OpGraph.build([]), {"GPU": []}, two_gpus())
    found = solve_ilp(problem, Limits(), solver=solver)
    assert (found.status, found.objective_us) == (SolveStatus.OPTIMAL, 0.0)
