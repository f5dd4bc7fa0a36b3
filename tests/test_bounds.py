"""The bounds against the optimum, and against each other."""

from itertools import chain, combinations

import numpy as np
import pytest
from brute_force import optimum_us
from random_problems import random_problem

from pesto_cli.bounds import (
    _jackson,
    critical_path_us,
    head_tail_load_us,
    load_us,
    lower_bound_us,
)
from pesto_cli.graph import OpGraph, Tensor
from pesto_cli.machine import PRESETS, CommModel, Device, Link, Machine
from pesto_cli.problem import Problem

BOUNDS = (critical_path_us, load_us, head_tail_load_us)


@pytest.mark.parametrize("bound", BOUNDS)
def test_bound_never_exceeds_the_optimum(bound):
    tight = 0
    for seed in range(300):
        problem = random_problem(seed)
        optimum = optimum_us(problem)
        assert bound(problem) <= optimum + 1e-9
        tight += bound(problem) >= optimum - 1e-9
    assert tight >= 5


def test_path_and_load_each_lead_somewhere():
    problems = [random_problem(seed) for seed in range(100)]
    lead = [critical_path_us(problem) - load_us(problem) for problem in problems]
    assert min(lead) < -1e-9 < 1e-9 < max(lead)


def test_combined_bound_is_better_than_the_best_of_path_and_load():
    problems = [random_problem(seed) for seed in range(200)]
    ahead = [head_tail_load_us(p) > max(critical_path_us(p), load_us(p)) + 1e-9 for p in problems]
    assert sum(ahead) >= 5
    assert all(lower_bound_us(p) == max(bound(p) for bound in BOUNDS) for p in problems)


def machine(*speeds: float, kind: str = "GPU") -> Machine:
    devices = tuple(Device(f"{kind}:{i}", kind, 100, speed) for i, speed in enumerate(speeds))
    comm = CommModel(0.0, 0.0)
    links = [Link(a.name, b.name, comm) for a in devices for b in devices if a is not b]
    return Machine(devices, tuple(links))


def test_critical_path_takes_every_op_on_its_fastest_device():
    graph = OpGraph.build(["a", "b", "c"], [Tensor(0, 9, [1])], control_edges=[(1, 2)])
    problem = Problem.build(graph, {"GPU": [4.0, 6.0, 2.0]}, machine(1.0, 2.0))
    assert critical_path_us(problem) == 6


def test_load_is_half_the_work_on_two_equal_gpus():
    graph = OpGraph.build(["a", "b", "c"])
    problem = Problem.build(graph, {"GPU": [4.0, 5.0, 6.0]}, machine(1.0, 1.0))
    assert load_us(problem) == pytest.approx(7.5)


def test_load_is_shared_by_speed():
    graph = OpGraph.build([f"op{i}" for i in range(9)])
    problem = Problem.build(graph, {"GPU": [2.0] * 9}, machine(1.0, 2.0))
    assert load_us(problem) == pytest.approx(6)


def test_load_of_gpu_ops_is_not_spread_over_the_cpu():
    graph = OpGraph.build(["a", "b", "c", "d"])
    times = {"GPU": [6.0, 6.0, 6.0, np.nan], "CPU": [np.nan, np.nan, np.nan, 1.0]}
    problem = Problem.build(graph, times, PRESETS["v100x2-nvlink"])
    assert load_us(problem) == pytest.approx(9)


def test_load_counts_a_slow_cpu_for_little():
    """Ops that take 1 on a GPU and 10 on the CPU: 2.1 GPUs' worth of devices."""
    graph = OpGraph.build([f"op{i}" for i in range(42)])
    times = {"GPU": [1.0] * 42, "CPU": [10.0] * 42}
    problem = Problem.build(graph, times, PRESETS["v100x2-nvlink"])
    assert load_us(problem) == pytest.approx(20)


def test_load_keeps_a_colocation_group_on_one_device():
    graph = OpGraph.build(["a", "b", "c"], colocation_group=[0, 0, None])
    problem = Problem.build(graph, {"GPU": [4.0, 5.0, 1.0]}, machine(1.0, 1.0))
    assert load_us(problem) == pytest.approx(9)


def test_load_between_head_and_tail_exceeds_path_and_load():
    """First an op of 3, last one of 3, and 10 between that two devices can share."""
    middle = [f"op{i}" for i in range(5)]
    tensors = [Tensor(0, 1, range(1, 6)), *(Tensor(i, 1, [6]) for i in range(1, 6))]
    graph = OpGraph.build(["first", *middle, "last"], tensors)
    problem = Problem.build(graph, {"GPU": [3.0, *[2.0] * 5, 3.0]}, machine(1.0, 1.0))
    assert critical_path_us(problem) == 8
    assert load_us(problem) == pytest.approx(8)
    assert head_tail_load_us(problem) == pytest.approx(11)


def test_jackson_schedule_is_the_best_of_all_sets():
    rng = np.random.default_rng(0)
    for _ in range(200):
        head, work, tail = rng.integers(0, 10, (3, 6)).astype(float)
        work += 1
        subsets = chain.from_iterable(combinations(range(6), size) for size in range(1, 7))
        best = max(
            head[list(ops)].min() + work[list(ops)].sum() + tail[list(ops)].min() for ops in subsets
        )
        assert _jackson(head, work, tail) == pytest.approx(best)


def test_bounds_of_a_graph_without_ops_are_zero():
    problem = Problem.build(OpGraph.build([]), {"GPU": []}, machine(1.0, 1.0))
    assert lower_bound_us(problem) == 0
