"""Tests of lower bounds against the optimum and against each other."""

from dataclasses import replace
from itertools import chain, combinations, permutations

import numpy as np
import pytest
from brute_force import optimum_us
from random_problems import keeps_memory, random_placement, random_problem, with_random_contention

from pesto_cli.bounds import (
    critical_path_us,
    head_tail_load_us,
    heads,
    heads_and_tails,
    load_us,
    lower_bound_us,
    tails,
)
from pesto_cli.bounds.load import _jackson
from pesto_cli.bounds.sweep import REACH
from pesto_cli.bounds.windows import NUM_PIVOTS, edge_delays_us
from pesto_cli.data.graph import OpGraph, Tensor
from pesto_cli.data.machine import CommModel, Device, Link, Machine
from pesto_cli.data.presets import PRESETS
from pesto_cli.data.problem import Problem
from pesto_cli.evaluation.simulator import list_schedule
from pesto_cli.files.tensorflow_names import labelled


def without_transfers_us(problem: Problem) -> float:
    graph, time_us = problem.graph, problem.min_duration_us
    return head_tail_load_us(problem, heads(graph, time_us), tails(graph, time_us))


BOUNDS = (critical_path_us, load_us, without_transfers_us, lower_bound_us)


def slow_and_pinned(seed: int) -> Problem:
    """Return a random problem with slower links and signals (up to 4 times) and pinned groups."""
    problem = random_problem(seed)
    rng = np.random.default_rng(seed)
    slower, machine = float(rng.choice([1, 2, 4])), problem.machine
    links = [
        replace(link, comm=CommModel(slower * link.comm.latency_us, link.comm.us_per_byte, slower))
        for link in machine.links
    ]
    slow = replace(machine, links=tuple(links), signal_us=slower * machine.signal_us)
    permitted = problem.group_allowed.copy()
    for group in np.flatnonzero(rng.random(len(permitted)) < 0.2):
        stays = rng.choice(np.flatnonzero(permitted[group]))
        permitted[group] = np.arange(problem.num_devices) == stays
    pinned = permitted[problem.graph.colocation_group]
    return replace(problem, machine=slow).constrained(permitted=pinned)


@pytest.mark.parametrize("bound", BOUNDS)
def test_bound_never_exceeds_the_optimum(bound):
    tight = 0
    for seed in range(300):
        problem = random_problem(seed)
        optimum = optimum_us(problem)
        assert bound(problem) <= optimum + 1e-9
        tight += bound(problem) >= optimum - 1e-9
    assert tight >= 5


def test_bound_never_exceeds_the_optimum_with_pins_and_slow_links():
    stronger = 0
    for seed in range(1000, 1600):
        problem = slow_and_pinned(seed)
        assert lower_bound_us(problem) <= optimum_us(problem) + 1e-9
        stronger += lower_bound_us(problem) > without_transfers_us(problem) + 1e-9
    assert stronger >= 100


def test_contention_changes_no_bound_and_no_schedule_is_below_it():
    """Contention only adds time, so the optimum without it is a bound as well."""
    longer = 0
    for seed in range(200):
        plain = slow_and_pinned(seed)
        problem = with_random_contention(plain, seed)
        for bound in BOUNDS:
            assert bound(problem) == bound(plain)
        optimum, rng = optimum_us(plain), np.random.default_rng(seed)
        for number in range(5):
            device, priority = random_placement(problem, number), rng.random(problem.num_ops)
            if keeps_memory(problem, device):
                makespan_us = list_schedule(problem, device, priority).makespan_us
                assert makespan_us >= optimum - 1e-9
                longer += makespan_us > list_schedule(plain, device, priority).makespan_us + 1e-9
    assert longer >= 50


def test_head_time_and_tail_of_an_op_do_not_exceed_the_optimum():
    for seed in range(300):
        problem = slow_and_pinned(seed)
        head_us, tail_us = heads_and_tails(problem)
        through = head_us + problem.min_duration_us + tail_us
        assert through.max() <= optimum_us(problem) + 1e-9
        assert (head_us >= heads(problem.graph, problem.min_duration_us) - 1e-9).all()
        assert (tail_us >= tails(problem.graph, problem.min_duration_us) - 1e-9).all()


def test_path_and_load_are_each_the_larger_bound_for_some_problems():
    problems = [random_problem(seed) for seed in range(100)]
    lead = [critical_path_us(problem) - load_us(problem) for problem in problems]
    assert min(lead) < -1e-9 < 1e-9 < max(lead)


def test_each_bound_is_at_least_as_large_as_the_simpler_bounds():
    problems = [random_problem(seed) for seed in range(200)]
    bounds = np.array([[bound(p) for bound in BOUNDS] for p in problems])
    path_or_load, between, best = bounds[:, :2].max(axis=1), bounds[:, 2], bounds[:, 3]
    assert (best >= np.maximum(path_or_load, between) - 1e-9).all()
    assert (between > path_or_load + 1e-9).sum() >= 5
    assert (best > np.maximum(path_or_load, between) + 1e-9).sum() >= 20


def machine(*speeds: float, latency_us: float = 0.0) -> Machine:
    devices = tuple(Device(f"GPU:{i}", "GPU", 100, speed) for i, speed in enumerate(speeds))
    comm = CommModel(latency_us, 0.0)
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


def test_load_counts_a_slow_cpu_by_its_speed():
    """Ops take 1 on a GPU and 10 on the CPU, so the devices are worth 2.1 GPUs."""
    graph = OpGraph.build([f"op{i}" for i in range(42)])
    times = {"GPU": [1.0] * 42, "CPU": [10.0] * 42}
    problem = Problem.build(graph, times, PRESETS["v100x2-nvlink"])
    assert load_us(problem) == pytest.approx(20)


def test_load_keeps_a_colocation_group_on_one_device():
    graph = OpGraph.build(["a", "b", "c"], colocation_group=[0, 0, None])
    problem = Problem.build(graph, {"GPU": [4.0, 5.0, 1.0]}, machine(1.0, 1.0))
    assert load_us(problem) == pytest.approx(9)


def test_load_between_head_and_tail_exceeds_path_and_load():
    """The first and last op take 3; between them, two devices can share work of 10."""
    middle = [f"op{i}" for i in range(5)]
    tensors = [Tensor(0, 1, range(1, 6)), *(Tensor(i, 1, [6]) for i in range(1, 6))]
    graph = OpGraph.build(["first", *middle, "last"], tensors)
    problem = Problem.build(graph, {"GPU": [3.0, *[2.0] * 5, 3.0]}, machine(1.0, 1.0))
    assert critical_path_us(problem) == 8
    assert load_us(problem) == pytest.approx(8)
    assert without_transfers_us(problem) == pytest.approx(11)


def test_jackson_schedule_gives_the_maximum_over_all_sets():
    rng = np.random.default_rng(0)
    for _ in range(200):
        head, work, tail = rng.integers(0, 10, (3, 6)).astype(float)
        work += 1
        subsets = chain.from_iterable(combinations(range(6), size) for size in range(1, 7))
        best = max(
            head[list(ops)].min() + work[list(ops)].sum() + tail[list(ops)].min() for ops in subsets
        )
        assert _jackson(head, work, tail) == pytest.approx(best)


def fan(times_us: list[float], latency_us: float) -> Problem:
    """Return a fan on two GPUs: an op of 1, parallel ops, then an op of 1."""
    width = len(times_us)
    tensors = [Tensor(0, 1, range(1, width + 1))]
    tensors += [Tensor(i, 1, [width + 1]) for i in range(1, width + 1)]
    graph = OpGraph.build([f"op{i}" for i in range(width + 2)], tensors)
    return Problem.build(
        graph, {"GPU": [1.0, *times_us, 1.0]}, machine(1, 1, latency_us=latency_us)
    )


def test_thousands_of_different_sets_of_devices_are_not_united():
    """Each op may use two thirds of 16 devices; most of these sets differ."""
    names = [f"GPU:{index}" for index in range(16)]
    links = [Link(src, dst, CommModel(1.0, 0.0)) for src, dst in permutations(names, 2)]
    machine = Machine(tuple(Device(name, "GPU", 10**9) for name in names), tuple(links))
    graph = OpGraph.build([f"op_{index}" for index in range(6000)])
    problem = Problem.build(graph, {"GPU": np.ones(6000)}, machine)
    permitted = np.random.default_rng(0).random((6000, 16)) < 2 / 3
    assert len(np.unique(permitted, axis=0)) > 4000
    problem = problem.constrained(permitted=permitted)
    assert 0 < load_us(problem) <= 6000 / 16 + 1


def test_work_whose_transfers_cost_more_than_they_save_stays_on_one_device():
    problem = fan([4.0, 4.0], latency_us=4.0)
    assert without_transfers_us(problem) == pytest.approx(6)
    assert optimum_us(problem) == 10
    assert lower_bound_us(problem) == pytest.approx(10)


def test_another_device_is_delayed_by_transfers_at_both_ends_of_a_window():
    """Work of 12; one device cannot run in 2 at each end of the window, or both in 2 at one end."""
    problem = fan([3.0] * 4, latency_us=2.0)
    assert without_transfers_us(problem) == pytest.approx(8)
    assert lower_bound_us(problem) == pytest.approx(1 + (12 + 2 + 2) / 2 + 1)
    assert optimum_us(problem) == 10


def test_two_sources_of_a_join_need_a_transfer_or_run_one_after_the_other():
    graph = OpGraph.build(["a", "b", "join"], [Tensor(0, 1, [2]), Tensor(1, 1, [2])])
    for latency_us, expected in ((1.0, 5.5), (9.0, 9.0)):
        devices = machine(1, 1, latency_us=latency_us)
        problem = Problem.build(graph, {"GPU": [4.0, 4.0, 1.0]}, devices)
        assert without_transfers_us(problem) == pytest.approx(5)
        assert lower_bound_us(problem) == pytest.approx(expected)


def test_a_slow_device_counts_with_its_share():
    """12 on the GPU of speed 3 take 9 on both GPUs; the other has a quarter of the total speed."""
    problem = replace(fan([9.0] * 4, latency_us=2.0), machine=machine(1, 3, latency_us=2.0))
    window = 9 + (2 + 2) / 4
    assert lower_bound_us(problem) == pytest.approx(1 / 3 + window + 1 / 3)


def test_a_long_chain_of_fans_adds_up():
    """300 fans, more ops than a window or the pivots cover; no fan profits from a second device."""
    times, tensors = [1.0], []
    for _ in range(300):
        first = len(times) - 1
        times += [4.0, 4.0, 1.0]
        tensors += [Tensor(first, 1, [first + 1, first + 2])]
        tensors += [Tensor(first + 1, 1, [first + 3]), Tensor(first + 2, 1, [first + 3])]
    assert len(times) > 2 * max(REACH, NUM_PIVOTS)
    graph = OpGraph.build([f"op{i}" for i in range(len(times))], tensors)
    problem = Problem.build(graph, {"GPU": times}, machine(1, 1, latency_us=4.0))
    assert critical_path_us(problem) == 1501
    assert lower_bound_us(problem) == pytest.approx(sum(times))


def test_delays_of_edges_by_hand():
    """The fastest possible link counts; ops that cannot share a device always have the delay."""
    comm = {
        ("CPU:0", "GPU:0"): 8.0,
        ("GPU:0", "CPU:0"): 9.0,
        ("CPU:0", "GPU:1"): 6.0,
        ("GPU:1", "CPU:0"): 5.0,
        ("GPU:0", "GPU:1"): 3.0,
        ("GPU:1", "GPU:0"): 4.0,
    }
    devices = [Device(name, name[:3], 100) for name in ("CPU:0", "GPU:0", "GPU:1")]
    links = tuple(Link(*pair, CommModel(us, 1.0)) for pair, us in comm.items())
    graph = OpGraph.build(
        ["feed", "a", "b", "c", "d", "e"],
        [
            Tensor(0, 10, [1]),
            Tensor(1, 20, [2, 3], [False, True]),
            Tensor(2, 30, [3]),
            Tensor(2, 1, [3]),
            Tensor(3, 0, [4]),
        ],
        types=["Placeholder", "Op", "Op", "Op", "Op", "Op"],
        control_edges=[(2, 3), (4, 5)],
        colocation_group=[None, None, None, "g", "g", None],
    )
    times = {"GPU": [np.nan, 1.0, 1.0, 1.0, 1.0, 1.0], "CPU": [0.0, *[np.nan] * 5]}
    machine = Machine(tuple(devices), links, signal_us=2.0)
    problem = Problem.build(labelled(graph), times, machine)
    always_us, apart_us = edge_delays_us(problem)
    assert graph.edges.tolist() == [[0, 1], [1, 2], [1, 3], [2, 3], [3, 4], [4, 5]]
    assert always_us.tolist() == [16, 0, 0, 0, 0, 0]
    assert apart_us.tolist() == [16, 23, 2, 33, np.inf, 2]


def test_bounds_of_a_graph_without_ops_are_zero():
    problem = Problem.build(OpGraph.build([]), {"GPU": []}, machine(1.0, 1.0))
    assert lower_bound_us(problem) == 0
