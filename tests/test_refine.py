"""Refinement: never worse, within every constraint, the same twice, and optimal where that is known."""

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import permutations, product

import numpy as np
import pytest
from conftest import on_gpus, two_gpus
from random_problems import random_placement, random_problem

from pesto_cli.graph import OpGraph, Tensor
from pesto_cli.limits import Limits
from pesto_cli.problem import Problem
from pesto_cli.refine import refine
from pesto_cli.refine.contraction import contract
from pesto_cli.refine.families import families_of
from pesto_cli.refine.levels import Level
from pesto_cli.schedule import Schedule, shortfall_bytes, violations
from pesto_cli.simulate import Simulator, simulate

GPU0, GPU1 = 1, 2


def limits(work: float, *, seed: int = 0, workers: int = 1) -> Limits:
    return Limits(time_limit_s=work, seed=seed, workers=workers, deterministic=True)


def random_start(simulator: Simulator, seed: int) -> Schedule:
    device = random_placement(simulator.problem, seed)
    return simulator.list_schedule(device, np.random.default_rng(seed).random(len(device)))


def layers(num_layers: int, *, memory_bytes: int = 10**9) -> Problem:
    """Forward ops, then for each layer backward a gradient that goes on and one that does not."""
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
    return on_gpus(graph, times, two_gpus(memory_bytes=memory_bytes))


def everything_on(problem: Problem, device: int) -> Schedule:
    simulator = Simulator(problem)
    placed = np.full(problem.num_ops, device)
    return simulator.list_schedule(placed, simulator.upward_rank(placed))


def best_list_schedule_us(problem: Problem) -> float:
    """The shortest of all list schedules whose peaks fit, by every placement and priority."""
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
def test_the_answer_keeps_every_rule_and_is_never_worse_than_the_best_start(seed: int) -> None:
    problem = random_problem(seed, 12)
    simulator = Simulator(problem)
    starts = [random_start(simulator, 10 * seed + k) for k in range(3)]
    found = refine(simulator, starts, limits(0.002, seed=seed))
    assert [v for v in violations(problem, found) if v.rule != "memory"] == []
    key = [(shortfall_bytes(problem, s).sum(), s.makespan_us) for s in (found, *starts)]
    assert key[0] == min(key)


@pytest.mark.parametrize("seed", range(12))
def test_small_problems_are_solved_to_the_optimum(seed: int) -> None:
    problem = random_problem(seed, 5, num_devices=2)
    simulator = Simulator(problem)
    found = refine(simulator, [random_start(simulator, seed)], limits(0.1))
    expected = best_list_schedule_us(problem)
    if np.isfinite(expected):
        assert found.makespan_us == pytest.approx(expected)
        assert not shortfall_bytes(problem, found).any()
    else:
        assert shortfall_bytes(problem, found).any()


def test_the_order_is_improved_where_ranks_mislead() -> None:
    # By rank `long` (7) goes before `near` (1 + 2 + 3); the other way round nothing waits.
    graph = OpGraph.build(["near", "far", "long"], [Tensor(0, 1000, [1])])
    pinned = np.zeros((3, 3), dtype=bool)
    pinned[[0, 1, 2], [GPU0, GPU1, GPU0]] = True
    problem = on_gpus(graph, [1, 3, 7]).constrained(permitted=pinned)
    simulator = Simulator(problem)
    device = np.array([GPU0, GPU1, GPU0])
    start = simulator.list_schedule(device, simulator.upward_rank(device))
    assert start.makespan_us == 7 + 1 + 2 + 3
    assert refine(simulator, [start], limits(0.01)).makespan_us == 1 + 7


def test_weight_gradients_run_beside_the_chain_from_a_single_device() -> None:
    problem = layers(8)
    start = everything_on(problem, GPU0)
    assert start.makespan_us == 240
    found = refine(Simulator(problem), [start], limits(0.5))
    # The chain of 16 cannot be shortened; the last weight gradient comes after it or beside it.
    assert 160 <= found.makespan_us <= 175


@pytest.mark.parametrize("workers", [1, 2])
def test_deterministic_mode_gives_the_same_schedule_twice(workers: int) -> None:
    problem = layers(10)
    start = everything_on(problem, GPU0)
    asked = limits(0.02, seed=3, workers=workers)
    one, two = (refine(Simulator(problem), [start], asked) for _ in range(2))
    assert (one.device == two.device).all()
    assert (one.rank == two.rank).all()


def test_a_stopped_search_returns_the_best_so_far_at_once() -> None:
    problem = layers(20)
    start = everything_on(problem, GPU0)
    stopped = Limits(time_limit_s=3600)
    stopped.stop.set()
    assert refine(Simulator(problem), [start], stopped) is start
    asked = Limits(time_limit_s=3600)
    seen: list[Schedule] = []

    def stop_at_the_first(source: str, schedule: Schedule) -> None:
        seen.append(schedule)
        asked.stop.set()

    threading.Timer(20, asked.stop.set).start()
    found = refine(Simulator(problem), [start], asked, on_incumbent=stop_at_the_first)
    assert seen
    assert found.makespan_us <= seen[0].makespan_us < start.makespan_us
