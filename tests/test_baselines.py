"""Published baselines: their properties, and their decisions on small problems."""

from dataclasses import replace

import numpy as np
import pytest
from brute_force import optimum_us
from conftest import on_gpus, two_gpus
from hypothesis import given, settings
from hypothesis import strategies as st
from random_problems import random_problem

from pesto_cli.data.graph import OpGraph, Tensor
from pesto_cli.data.limits import Limits
from pesto_cli.data.machine import MAX_TIME_US, CommModel, Device, Link, Machine
from pesto_cli.data.problem import Problem
from pesto_cli.data.result import SolveStatus
from pesto_cli.data.schedule import objective
from pesto_cli.evaluation.simulator import Simulator
from pesto_cli.evaluation.violations import violations
from pesto_cli.strategies import Context
from pesto_cli.strategies.congestion_rounds import best_of_rounds, filled_bytes, fitted, simulated
from pesto_cli.strategies.dpos import critical_path, dpos_schedule, path_devices
from pesto_cli.strategies.heft import heft_schedule
from pesto_cli.strategies.insertion_scheduling import Edges, largest, upward_rank
from pesto_cli.strategies.metis import SETTINGS, Metis, targets
from pesto_cli.strategies.order import NUM_RANDOM_ORDERS, ORDERS
from pesto_cli.strategies.run import run

BASELINES = ("heft", "fastt", "metis", "random")
GPU0, GPU1 = 1, 2


def server(num_gpus: int, comm: CommModel, speeds: tuple[float, ...] = (1.0,)) -> Machine:
    """A machine of GPUs only, with equal links, and with the speeds repeated in turn."""
    names = [f"GPU:{index}" for index in range(num_gpus)]
    return Machine(
        tuple(
            Device(name, "GPU", 10**9, speed=speeds[index % len(speeds)])
            for index, name in enumerate(names)
        ),
        tuple(Link(src, dst, comm) for src in names for dst in names if src != dst),
        signal_us=0.0,
    )


@pytest.mark.parametrize("name", BASELINES)
@pytest.mark.parametrize("num_devices", [2, 4, 8])
def test_schedules_are_valid_on_any_number_of_devices(
    name: str, num_devices: int, capfd: pytest.CaptureFixture[str]
) -> None:
    kept = 0
    for seed in range(6):
        problem = random_problem(seed, 12, num_devices=num_devices)
        result = run(problem, name, Context())
        broken = {found.rule for found in violations(problem, result.schedule)}
        is_short = result.status is SolveStatus.OUT_OF_MEMORY
        assert broken == ({"memory"} if is_short else set())
        kept += not is_short
    assert kept >= 3
    assert capfd.readouterr().out == ""


@pytest.mark.parametrize("name", BASELINES)
def test_variables_are_spread_if_one_device_is_too_small(name: str) -> None:
    graph = OpGraph.build(
        list("abcd"), [Tensor(k, 100, [k + 1]) for k in range(3)], resident_bytes=[300] * 4
    )
    problem = on_gpus(graph, [1, 1, 1, 1], two_gpus(memory_bytes=1000))
    result = run(problem, name, Context())
    assert result.status is not SolveStatus.OUT_OF_MEMORY
    assert np.bincount(result.schedule.device).tolist() == [0, 2, 2]


# FastT


def paths() -> Problem:
    """The path a, b, c of 3 + 4 + 5 us with transfers of 2 us, and d, a second consumer of a."""
    graph = OpGraph.build(
        list("abcd"),
        [Tensor(0, 1000, [1]), Tensor(1, 1000, [2]), Tensor(0, 0, [3])],
        resident_bytes=[4, 4, 4, 0],
    )
    return on_gpus(graph, [3, 4, 5, 4])


def test_the_critical_path_follows_the_largest_ranks() -> None:
    problem = paths()
    rank = upward_rank(problem, Edges.of(problem), largest)
    assert rank.tolist() == [3 + 2 + 4 + 2 + 5, 4 + 2 + 5, 5, 4]
    assert critical_path(problem, rank).tolist() == [0, 1, 2]


def test_the_critical_path_goes_to_the_fastest_device_and_the_rest_where_it_ends_earliest() -> None:
    problem = paths()
    cpu, slow, fast = problem.machine.devices
    machine = replace(problem.machine, devices=(cpu, slow, replace(fast, speed=2.0)))
    ideal = dpos_schedule(replace(problem, machine=machine), np.zeros(4))
    assert ideal.device[:3].tolist() == [GPU1] * 3
    # d runs on the slow device from 1.5 + 1 to 6.5. On the fast device it would run from 6 to 8.
    assert ideal.device[3] == GPU0
    assert ideal.end_us.tolist() == [1.5, 3.5, 6.0, 6.5]


def test_critical_path_ops_that_do_not_fit_on_a_device_go_to_the_next() -> None:
    problem = paths()
    need, path = np.array([4.0, 4.0, 4.0, 0.0]), np.array([0, 1, 2])
    for room, expected in ((8, [GPU0, GPU0, GPU1, -1]), (3, [-1] * 4)):
        devices = tuple(replace(each, memory_bytes=room) for each in problem.machine.devices)
        tight = replace(problem, machine=replace(problem.machine, devices=devices))
        assert path_devices(tight, path, need).tolist() == expected


@st.composite
def small_graphs(draw: st.DrawFn) -> tuple[OpGraph, list[float]]:
    num_ops = draw(st.integers(2, 6))
    tensors = [
        Tensor(tail, draw(st.integers(0, 12)), [head])
        for tail in range(num_ops)
        for head in range(tail + 1, num_ops)
        if draw(st.booleans())
    ]
    time_us = [float(draw(st.integers(1, 9))) for _ in range(num_ops)]
    return OpGraph.build([f"op{k}" for k in range(num_ops)], tensors), time_us


@given(drawn=small_graphs(), num_devices=st.integers(2, 3))
@settings(max_examples=150, deadline=None, derandomize=True)
def test_theorem_1_of_fastt(drawn: tuple[OpGraph, list[float]], num_devices: int) -> None:
    """The makespan is at most twice the optimum without transfers, plus a chain's transfers."""
    graph, time_us = drawn
    machine = server(num_devices, CommModel(0.0, 1.0))
    ideal = dpos_schedule(on_gpus(graph, time_us, machine), np.zeros(graph.num_ops))
    free = on_gpus(graph, time_us, server(num_devices, CommModel(0.0, 0.0)))
    chain_us = np.zeros(graph.num_ops)
    for tensor in reversed(range(graph.num_tensors)):
        (head,) = graph.consumers_of(tensor)
        tail = graph.tensor_producer[tensor]
        chain_us[tail] = max(chain_us[tail], graph.tensor_bytes[tensor] + chain_us[head])
    assert ideal.makespan_us <= 2 * optimum_us(free) + chain_us.max() + 1e-9


# Transfer times that HEFT and FastT learn


def test_a_line_is_fitted_to_transfers_and_has_no_negative_coefficient() -> None:
    sizes = np.array([0.0, 100, 200, 300])
    assert fitted(sizes, 5 + 0.5 * sizes) == CommModel(5.0, 0.5)
    assert fitted(sizes, np.array([40.0, 30, 20, 10])) == CommModel(25.0, 0.0)
    through = fitted(sizes, np.array([0.0, 0, 0, 140]))
    assert (through.latency_us, through.us_per_byte) == (0.0, pytest.approx(0.3))
    assert fitted(np.array([7.0, 7]), np.array([1.0, 2])) == CommModel(1.5, 0.0)
    # A transfer of 32 TiB takes longer than the largest latency of a link.
    assert fitted(np.array([2.0**45]), np.array([3.5e12])) == CommModel(MAX_TIME_US, 0.0)


def test_a_placement_that_overloads_a_link_is_improved_in_later_rounds() -> None:
    # Each op takes 3 us. Its input takes 7 us to the other device, one transfer at a time.
    graph = OpGraph.build(
        [f"op{k}" for k in range(61)], [Tensor(0, 5000, [k]) for k in range(1, 61)]
    )
    problem = on_gpus(graph, [1.0] + [3.0] * 60, server(2, CommModel(2.0, 0.001)))
    simulator = Simulator(problem)
    ideal = heft_schedule(problem, filled_bytes(problem, 0.0))
    first = simulated(simulator, ideal)
    best = best_of_rounds(problem, Context(), heft_schedule).schedule
    assert ideal.makespan_us < 100 < first.makespan_us
    assert best.makespan_us < 0.8 * first.makespan_us


# METIS


def cliques(num_cliques: int, size: int) -> OpGraph:
    """Cliques of ops with large tensors between them, and small tensors from clique to clique."""
    tensors = []
    for clique in range(num_cliques):
        base = clique * size
        for tail in range(size - 1):
            tensors.append(Tensor(base + tail, 9000, range(base + tail + 1, base + size)))
        if clique:
            tensors.append(Tensor(base - 1, 10, [base]))
    return OpGraph.build([f"op{k}" for k in range(num_cliques * size)], tensors)


@pytest.mark.parametrize("num_gpus", [2, 4])
def test_a_clique_stays_on_one_device_and_each_device_gets_its_share(num_gpus: int) -> None:
    problem = on_gpus(cliques(num_gpus, 6), [5.0] * 6 * num_gpus, server(num_gpus, CommModel(1, 1)))
    device = Metis()(problem, Context()).schedule.device.reshape(num_gpus, 6)
    assert (device == device[:, :1]).all()
    assert sorted(device[:, 0].tolist()) == list(range(num_gpus))


def test_targets_are_in_proportion_to_speed_and_to_memory() -> None:
    machine = server(2, CommModel(1, 1), speeds=(1.0, 3.0))
    small, large = machine.devices
    machine = replace(machine, devices=(small, replace(large, memory_bytes=4 * 10**9)))
    problem = on_gpus(cliques(2, 4), [5.0] * 8, machine)
    is_vertex = np.ones(8, dtype=np.bool_)
    assert targets(problem, is_vertex, 0.0).tolist() == pytest.approx([0.25, 0.75])
    assert targets(problem, is_vertex, 1.0).tolist() == pytest.approx([0.2, 0.8])
    assert targets(problem, is_vertex, 0.5).tolist() == pytest.approx([0.225, 0.775])


@pytest.mark.parametrize("pinned", [GPU0, GPU1])
def test_a_half_goes_to_the_device_of_the_fixed_ops_that_it_exchanges_most_with(
    pinned: int,
) -> None:
    problem = on_gpus(cliques(2, 6), [5.0] * 12)
    permitted = np.ones((12, 3), dtype=np.bool_)
    permitted[2] = np.arange(3) == pinned
    device = Metis()(problem.constrained(permitted=permitted), Context()).schedule.device
    assert device[:6].tolist() == [pinned] * 6
    assert device[6:].tolist() == [GPU0 + GPU1 - pinned] * 6


def test_a_group_heavier_than_all_others_can_be_cut_for_eight_devices(
    capfd: pytest.CaptureFixture[str],
) -> None:
    problem = on_gpus(cliques(2, 3), [1000.0] + [1.0] * 5, server(8, CommModel(1, 1)))
    found = Metis()(problem, Context()).schedule
    assert violations(problem, found) == []
    assert capfd.readouterr() == ("", "")


def test_all_settings_of_metis_are_different() -> None:
    assert len(set(SETTINGS)) == len(SETTINGS) == 2 * 3 * 2 * 4


# Random


def test_random_groups_are_spread_evenly_and_depend_on_the_seed() -> None:
    graph = OpGraph.build(
        [f"op{k}" for k in range(400)], colocation_group=[k // 2 for k in range(400)]
    )
    problem = on_gpus(graph, [1.0] * 400, server(4, CommModel(1, 1)))
    first, again, other = (
        run(problem, "random", Context(Limits(seed=seed))).schedule.device for seed in (0, 0, 1)
    )
    assert first.tolist() == again.tolist() != other.tolist()
    assert (first[::2] == first[1::2]).all()
    assert np.bincount(first).min() > 60


# Orders


def test_orders_differ_in_their_choice_between_two_ready_ops() -> None:
    # On GPU:0 b has a lower index than a. On GPU:1 c waits for a: 13 us if a runs first, else 23.
    graph = OpGraph.build(["b", "a", "c"], [Tensor(1, 1000, [2])])
    problem = on_gpus(graph, [10, 1, 10])
    simulator, device = Simulator(problem), np.array([GPU0, GPU0, GPU1])
    found = {name: order(simulator, device).makespan_us for name, order in ORDERS.items()}
    assert (found["rank"], found["fifo"]) == (13, 23)
    assert found["random"] in (13, 23)


def test_random_order_has_the_median_makespan() -> None:
    problem = random_problem(5, 30, memory=False)
    simulator = Simulator(problem)
    device = run(problem, "random", Context()).schedule.device
    schedule = ORDERS["random"](simulator, device)
    assert violations(problem, schedule) == []
    priorities = np.random.default_rng(0).random((NUM_RANDOM_ORDERS, problem.num_ops))
    drawn = sorted(simulator.makespan_us(device, row) for row in priorities)
    assert schedule.makespan_us == drawn[len(drawn) // 2]
    assert objective(problem, schedule)[1] == schedule.makespan_us
