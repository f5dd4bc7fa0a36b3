"""Refinement: never worse than its starts, feasible, reproducible, optimal on small problems."""

from itertools import pairwise, permutations, product

import numpy as np
import pytest
from conftest import on_gpus, two_gpus
from random_problems import every_third_contended, random_placement, random_problem

from pesto_cli.data.graph import OpGraph, Tensor
from pesto_cli.data.limits import Limits
from pesto_cli.data.problem import Problem
from pesto_cli.data.schedule import Schedule, shortfall_bytes
from pesto_cli.evaluation.simulator import Simulator, simulate
from pesto_cli.evaluation.violations import violations
from pesto_cli.files.tensorflow_names import labelled
from pesto_cli.refine import SUPER_OP_STAGES, refine
from pesto_cli.refine.anneal import Chain
from pesto_cli.refine.contraction import LARGE, contract
from pesto_cli.refine.families import families_of_super_ops
from pesto_cli.refine.levels import Level
from pesto_cli.refine.moves import MOVES
from pesto_cli.refine.neighbourhood import Neighbourhood
from pesto_cli.refine.stages import OPS_PER_S, PREPARATION_US_PER_OP, Cooling, Stage

GPU0, GPU1 = 1, 2


def limits(work: float, *, seed: int = 0, workers: int = 1) -> Limits:
    return Limits(time_limit_s=work, seed=seed, workers=workers, deterministic=True)


def random_start(simulator: Simulator, seed: int) -> Schedule:
    device = random_placement(simulator.problem, seed)
    return simulator.list_schedule(device, np.random.default_rng(seed).random(len(device)))


def layers(num_layers: int, *, memory_bytes: int = 10**9) -> Problem:
    """Forward ops, then for each layer an input gradient in a chain and a weight gradient."""
    names, times, tensors = [], [], []
    for layer in range(num_layers):
        names.append(f"layer_{layer}/matmul")
        times.append(10.0)
    for layer in reversed(range(num_layers)):
        names += [f"gradients/layer_{layer}/{what}" for what in ("input", "weight")]
        times += [10.0, 10.0]
    last = len(names) - 2
    for layer in range(num_layers - 1):
        tensors.append(Tensor(layer, 1000, [layer + 1, last - 2 * layer + 1]))
    tensors.append(Tensor(num_layers - 1, 1000, [num_layers, num_layers + 1]))
    for layer in range(num_layers - 1):
        before = num_layers + 2 * layer
        tensors.append(Tensor(before, 1000, [before + 2, before + 3]))
    resident = [100 * (name.startswith("layer")) for name in names]
    graph = OpGraph.build(names, tensors, resident_bytes=resident)
    return on_gpus(labelled(graph), times, two_gpus(memory_bytes=memory_bytes))


def everything_on(problem: Problem, device: int) -> Schedule:
    simulator = Simulator(problem)
    placed = np.full(problem.num_ops, device)
    return simulator.list_schedule(placed, simulator.upward_rank(placed))


def best_list_schedule_us(problem: Problem) -> float:
    """Return the makespan of the shortest list schedule that fits, of all placements and orders."""
    simulator, group = Simulator(problem), problem.graph.colocation_group
    choices = [np.flatnonzero(row).tolist() for row in problem.group_allowed]
    orders = [np.array(order, float) for order in permutations(range(problem.num_ops))]
    best = np.inf
    for of_group in product(*choices):
        device = np.array(of_group)[group]
        for priority in orders:
            schedule = simulator.list_schedule(device, priority)
            if not shortfall_bytes(problem, schedule).any():
                best = min(best, schedule.makespan_us)
    return best


@pytest.mark.parametrize("seed", range(25))
def test_the_result_is_feasible_and_never_worse_than_the_best_start(seed: int) -> None:
    problem = every_third_contended(random_problem(seed, 12), seed)
    simulator = Simulator(problem)
    starts = [random_start(simulator, 10 * seed + k) for k in range(3)]
    found = refine(simulator, starts, limits(0.002, seed=seed))
    assert [v for v in violations(problem, found) if v.rule != "memory"] == []
    key = [(shortfall_bytes(problem, s).sum(), s.makespan_us) for s in (found, *starts)]
    assert key[0] == min(key)


@pytest.mark.parametrize("seed", range(10))
def test_small_problems_are_solved_to_the_optimum(seed: int) -> None:
    problem = random_problem(seed, 5, num_devices=2)
    simulator = Simulator(problem)
    found = refine(simulator, [random_start(simulator, seed)], limits(0.05))
    expected = best_list_schedule_us(problem)
    if np.isfinite(expected):
        assert found.makespan_us == pytest.approx(expected)
        assert not shortfall_bytes(problem, found).any()
    else:
        assert shortfall_bytes(problem, found).any()


def test_the_order_is_improved_if_upward_ranks_give_a_bad_order() -> None:
    # By rank `long` (7) runs before `near` (1 + 2 + 3). In the reverse order no op waits.
    graph = OpGraph.build(["near", "far", "long"], [Tensor(0, 1000, [1])])
    pinned = np.zeros((3, 3), dtype=bool)
    pinned[[0, 1, 2], [GPU0, GPU1, GPU0]] = True
    problem = on_gpus(graph, [1, 3, 7]).constrained(permitted=pinned)
    simulator = Simulator(problem)
    device = np.array([GPU0, GPU1, GPU0])
    start = simulator.list_schedule(device, simulator.upward_rank(device))
    assert start.makespan_us == 7 + 1 + 2 + 3
    assert refine(simulator, [start], limits(0.01)).makespan_us == 1 + 7


def test_from_one_device_weight_gradients_move_to_the_other_device() -> None:
    problem = layers(8)
    start = everything_on(problem, GPU0)
    assert start.makespan_us == 240
    found = refine(Simulator(problem), [start], limits(0.5))
    # The chain of 16 ops takes 160 us. The last weight gradient runs after it or in parallel to it.
    assert 160 <= found.makespan_us <= 175


@pytest.mark.parametrize("workers", [1, 2])
def test_deterministic_mode_gives_the_same_schedule_twice(workers: int) -> None:
    problem = layers(10)
    start = everything_on(problem, GPU0)
    same = limits(0.02, seed=3, workers=workers)
    one, two = (refine(Simulator(problem), [start], same) for _ in range(2))
    assert (one.device == two.device).all()
    assert (one.rank == two.rank).all()


def test_a_stopped_search_returns_the_best_so_far_at_once() -> None:
    problem = layers(20)
    start = everything_on(problem, GPU0)
    stopped = Limits(time_limit_s=3600)
    stopped.stop.set()
    assert refine(Simulator(problem), [start], stopped) is start
    running = Limits(time_limit_s=3600)
    seen: list[Schedule] = []

    def stop_at_the_first(source: str, schedule: Schedule) -> None:
        seen.append(schedule)
        running.stop.set()

    found = refine(Simulator(problem), [start], running, on_incumbent=stop_at_the_first)
    assert seen
    assert found.makespan_us <= seen[0].makespan_us < start.makespan_us


def test_a_short_search_does_no_more_work_than_it_has_time_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    steps: list[int] = []

    def counted(self: Chain, count: int, *more: float) -> None:
        steps.append(count)
        anneal(self, count, *more)

    anneal = Chain.anneal
    monkeypatch.setattr(Chain, "anneal", counted)
    simulator = Simulator(random_problem(1, 12))
    refine(simulator, [random_start(simulator, 1)], limits(0.002))
    assert 0 < sum(steps) <= 0.002 * OPS_PER_S  # each step simulates at least one op


def test_without_time_for_its_preparation_a_search_makes_no_moves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def forbidden(self: Chain, count: int, *more: float) -> None:
        raise AssertionError("a move")

    monkeypatch.setattr(Chain, "anneal", forbidden)
    problem = layers(20)
    start = everything_on(problem, GPU0)
    needed_s = PREPARATION_US_PER_OP * problem.num_ops / 1e6
    found = refine(Simulator(problem), [start], Limits(time_limit_s=0.9 * needed_s))
    assert found.makespan_us <= start.makespan_us
    with pytest.raises(AssertionError, match="a move"):
        refine(Simulator(problem), [start], Limits(time_limit_s=10.0))


def test_a_start_that_exceeds_the_memory_is_repaired() -> None:
    problem = layers(8, memory_bytes=7000)
    start = everything_on(problem, GPU0)
    assert shortfall_bytes(problem, start)[GPU0] > 0
    found = refine(Simulator(problem), [start], limits(0.2))
    assert violations(problem, found) == []


def test_a_schedule_that_fits_is_preferred_to_a_faster_one_that_does_not() -> None:
    # Transfers are slow, so one device would be fastest, but it cannot hold both variables.
    graph = OpGraph.build(["a", "b"], [Tensor(0, 1000, [1])], resident_bytes=[3000, 3000])
    problem = on_gpus(graph, [1, 1], two_gpus(latency_us=100, memory_bytes=5000))
    too_large = everything_on(problem, GPU0)
    fits = Simulator(problem).list_schedule(np.array([GPU0, GPU1]), np.array([1.0, 0]))
    assert too_large.makespan_us < fits.makespan_us
    found = refine(Simulator(problem), [too_large, fits], limits(0.01))
    assert not shortfall_bytes(problem, found).any()


@pytest.mark.parametrize("seed", range(30))
def test_a_simulation_stops_early_only_if_its_makespan_exceeds_the_limit(seed: int) -> None:
    problem = every_third_contended(random_problem(seed, 15), seed)
    simulator, device = Simulator(problem), random_placement(problem, seed)
    first = simulator.kernel_first
    tail = simulator.upward_rank(device)
    makespan = simulator.makespan_us(device, tail)

    def finishes(limit_us: float) -> bool:
        none = np.empty(0, dtype=np.int64)
        rank = simulate(
            simulator.kernel_graph,
            simulator.kernel_machine,
            simulator.kernel_waits,
            device,
            np.where(first, -np.inf, -tail),
            none,
            tail,
            limit_us,
        ).rank
        return bool((rank >= 0).all())

    assert finishes(makespan * (1 + 1e-9))
    assert not finishes(tail.max() * (1 - 1e-9) - 1e-9)


@pytest.mark.parametrize("seed", range(20))
def test_a_contraction_keeps_work_and_groups_and_merges_only_short_ops(seed: int) -> None:
    problem = random_problem(seed, 20, memory=False)
    contraction = contract(problem, short_us=3.0)
    node, coarse = contraction.node_of_op, contraction.problem
    work_us = np.zeros_like(coarse.duration_us)
    np.add.at(work_us, node, problem.duration_us)
    assert coarse.duration_us[coarse.allowed] == pytest.approx(work_us[coarse.allowed])
    for group in problem.graph.groups.indices:
        assert (coarse.allowed[node[group]] == problem.allowed[group]).all()
    for members in range(coarse.num_ops):
        ops = np.flatnonzero(node == members)
        assert (problem.min_duration_us[ops] > 3.0).sum() <= 1


def test_the_contraction_of_a_wide_star_ends_early() -> None:
    """In each round, only a few of the leaves merge with the hub."""
    leaves = range(1, LARGE + 1)
    names = [f"op_{number}" for number in range(LARGE + 1)]
    graph = OpGraph.build(names, [Tensor(0, 1000, [*leaves])])
    problem = on_gpus(graph, [100.0] + [1.0] * LARGE)
    assert 0.99 * LARGE <= contract(problem, short_us=2.0).problem.num_ops < LARGE + 1


@pytest.mark.parametrize("pinned_to", ["CPU:0", "GPU:0"])
def test_tensors_of_pinned_neighbours_count(pinned_to: str) -> None:
    """Those of a neighbour on a device that no other op may use do not."""
    graph = OpGraph.build(["pinned", "other"], [Tensor(0, 1000, [1])])
    machine = two_gpus()
    times = {"GPU": np.ones(2), "CPU": np.array([1.0, np.nan])}
    permitted = np.array([[device.name == pinned_to for device in machine.devices], [True] * 3])
    problem = Problem.build(graph, times, machine).constrained(permitted=permitted)
    near = Neighbourhood.of(problem, Level.of_ops(Simulator(problem)).families)
    assert near.units.tolist() == [1]
    assert near.near[slice(*near.near_offsets[1:])].tolist() == [0] * (pinned_to == "GPU:0")


def test_names_with_thousands_of_digits_are_grouped() -> None:
    """Python refuses to read more than 4,300 digits as one number."""
    names = [f"layer_{layer}/op_{'7' * 5000}" for layer in range(8)]
    tensors = [Tensor(op, 1000, [op + 1]) for op in range(7)]
    problem = on_gpus(labelled(OpGraph.build(names, tensors)), [10.0] * 8)
    start = everything_on(problem, GPU0)
    found = refine(Simulator(problem), [start], limits(0.01))
    assert found.makespan_us <= start.makespan_us


def test_a_contraction_never_joins_two_colocation_groups() -> None:
    # Short op 1 may merge with op 0 or with op 2, but must not join the groups of both.
    tensors = [Tensor(0, 1000, [1]), Tensor(1, 1000, [2])]
    graph = OpGraph.build(
        [f"op{op}" for op in range(5)], tensors, colocation_group=["a", None, "b", "a", "b"]
    )
    coarse = contract(on_gpus(graph, [1, 1, 1, 50, 50]), short_us=2.0).problem
    assert sorted(np.diff(coarse.graph.groups.offsets)) == [2, 2]


def test_a_chain_of_short_ops_becomes_one_node_and_its_schedule_is_exact() -> None:
    tensors = [Tensor(op, 1000, [op + 1]) for op in range(6)]
    graph = OpGraph.build([f"op{op}" for op in range(7)], tensors)
    problem = on_gpus(graph, [1, 1, 50, 1, 1, 50, 1])
    level = Level.of(Simulator(problem), contract(problem, short_us=2.0))
    assert level.simulator.problem.num_ops == 2
    state = level.projected(random_start(level.full, 0))
    expanded = level.expanded(*state)
    assert violations(problem, expanded) == []
    coarse = level.simulator.list_schedule(state[0], level.simulator.upward_rank(state[0]))
    assert expanded.makespan_us == coarse.makespan_us


def test_single_ops_are_annealed_if_a_level_loses_too_much() -> None:
    # Three of four parallel ops are on the first device, and the level has a single node.
    tensors = [Tensor(0, 10, [1, 2, 3, 4]), *(Tensor(op, 10, [5]) for op in range(1, 5))]
    graph = OpGraph.build([f"op{op}" for op in range(6)], tensors)
    problem = on_gpus(graph, [1, 100, 100, 100, 100, 1])
    simulator = Simulator(problem)
    device = np.array([GPU0, GPU0, GPU0, GPU0, GPU1, GPU0])
    start = simulator.list_schedule(device, simulator.upward_rank(device))

    def one_node(simulator: Simulator) -> Level:
        return Level.of(simulator, contract(problem, short_us=1e6))

    def refined_us(most_lost: float) -> float:
        cooling = Cooling(one_node, hot=1.0, cold=0.1)
        stages = [Stage(1.0, cooling, most_lost=most_lost)]
        return refine(simulator, [start], limits(0.01), stages=stages).makespan_us

    lost = 402.0 / start.makespan_us
    assert lost > 1.2
    assert refined_us(1.01 * lost) == start.makespan_us
    assert refined_us(0.99 * lost) < 250


def unrolled(num_layers: int, num_steps: int) -> Problem:
    """Layers of cells, each of which follows its layer's last step and the layer below.

    The layers take 10 us a step, except for the last one, which takes as long as all others.
    """
    names, times, tensors = [], [], []
    for layer in range(num_layers):
        for step in range(num_steps):
            names.append(f"model/layer_{layer}/step_{step}/cell")
            times.append(10.0 if layer + 1 < num_layers else 10.0 * (num_layers - 1))
            op = layer * num_steps + step
            after = [op + 1] * (step + 1 < num_steps)
            above = [op + num_steps] * (layer + 1 < num_layers)
            tensors.append(Tensor(op, 100, [*after, *above]))
    return on_gpus(labelled(OpGraph.build(names, tensors)), times, two_gpus())


def test_super_ops_are_placed_as_layers() -> None:
    problem = unrolled(5, 6)
    families = families_of_super_ops(problem)
    groups = {
        tuple(families.members[first:end].tolist())
        for first, end in pairwise(families.group_offsets.tolist())
    }
    of_layers = {tuple(range(6 * layer, 6 * layer + 6)) for layer in range(5)}
    assert groups == of_layers | {tuple(range(30))}  # and all layers, which share a scope
    start = everything_on(problem, GPU0)
    found = refine(Simulator(problem), [start], limits(0.05), stages=SUPER_OP_STAGES)
    last = found.device[24:]
    assert len({*last.tolist()}) == 1  # all of its steps
    assert (found.device[:24] != last[0]).all()
    assert found.makespan_us < 0.7 * start.makespan_us


def test_a_stage_of_groups_makes_no_other_moves() -> None:
    problem = unrolled(3, 4)
    start = everything_on(problem, GPU0)
    single = {name: move for name, move in MOVES.builtin.items() if not move.of_groups}
    assert {*single} == {"boundary", "cluster", "insertion"}
    found = refine(Simulator(problem), [start], limits(0.01), moves=single, stages=SUPER_OP_STAGES)
    assert (found.device == start.device).all()


def test_a_graph_whose_ops_are_pinned_has_no_super_ops() -> None:
    problem = unrolled(3, 4)
    pinned = np.zeros_like(problem.allowed)
    pinned[:, GPU0] = True
    simulator = Simulator(problem.constrained(permitted=pinned))
    level = Level.super_ops(simulator)
    assert level.num_nodes == 0
    assert level.families.group_offsets.tolist() == [0]
    start = everything_on(simulator.problem, GPU0)
    found = refine(simulator, [start], limits(0.01), stages=SUPER_OP_STAGES)
    assert found.makespan_us == start.makespan_us
