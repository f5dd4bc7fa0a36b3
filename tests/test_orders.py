"""Orders for given devices: random, or FIFO."""

import json
from pathlib import Path

import numpy as np
import pytest
from conftest import Pesto, on_gpus
from random_problems import random_devices
from test_simulate import random_problem

from pesto_cli.data.graph import OpGraph, Tensor
from pesto_cli.data.problem import Problem
from pesto_cli.data.schedule import Schedule
from pesto_cli.evaluation.simulator import Simulator
from pesto_cli.files import Profile, write_profile
from pesto_cli.report.random_orders import random_order_figures
from pesto_cli.strategies.order import (
    first_ready_first,
    in_order_of_depth,
    ordered,
    random_orders_us,
)

GPU0, GPU1 = 1, 2


@pytest.fixture
def either() -> Problem:
    """On GPU:0 a takes 1 us and b 10. The output of a takes 2 us to GPU:1, where c takes 10.

    The makespan is 13 us if a runs first, else 23.
    """
    graph = OpGraph.build(list("abc"), [Tensor(0, 1000, [2])])
    return on_gpus(graph, [1, 10, 10])


def test_any_ready_op_may_run_first(either: Problem) -> None:
    found = random_orders_us(Simulator(either), np.array([GPU0, GPU0, GPU1]), 200)
    values, counts = np.unique(found, return_counts=True)
    assert values.tolist() == [13, 23]
    assert counts.min() > 60


def test_the_same_seed_gives_the_same_orders(either: Problem) -> None:
    simulator, device = Simulator(either), np.array([GPU0, GPU0, GPU1])
    rows = [random_orders_us(simulator, device, 30, seed).tolist() for seed in (1, 1, 2)]
    assert rows[0] == rows[1] != rows[2]


def test_the_worth_of_an_order_is_its_saving_relative_to_the_median() -> None:
    found = random_order_figures(30.0, np.array([35.0, 40.0, 60.0]))
    assert (found.min_us, found.median_us, found.mean_us, found.max_us) == (35, 40, 45, 60)
    assert found.order_is_worth == 0.25


def test_in_fifo_order_the_op_that_was_ready_first_runs_first() -> None:
    # GPU:0 runs `first` until 10 us. `early` is ready at 1 us, `late` at 3 + 1 us.
    names = ["late", "early", "first", "quick", "slow"]
    tensors = [Tensor(3, 0, [1]), Tensor(4, 0, [0])]
    problem = on_gpus(OpGraph.build(names, tensors), [1, 1, 10, 0, 3])
    device = np.array([GPU0, GPU0, GPU0, GPU1, GPU1])
    schedule = first_ready_first(Simulator(problem), device)
    assert schedule.start_us[:3].tolist() == [11, 10, 0]


def test_in_order_of_depth_gradients_are_computed_before_the_backward_pass_has_ended() -> None:
    # The first and the last op of the backward pass give a gradient, which GPU:1 adds in 20 us.
    names = ["back_0", "back_1", "back_2", "gradient_0", "gradient_2", "sum_0", "sum_2"]
    tensors = [
        Tensor(0, 0, [1, 3]),
        Tensor(1, 0, [2]),
        Tensor(2, 0, [4]),
        Tensor(3, 0, [5]),
        Tensor(4, 0, [6]),
    ]
    problem = on_gpus(OpGraph.build(names, tensors), [10, 10, 30, 1, 1, 20, 20])
    simulator, device = Simulator(problem), np.array([GPU0] * 5 + [GPU1] * 2)
    by_rank, by_depth = ordered(simulator, device), in_order_of_depth(simulator, device)
    assert by_rank.start_us[:4].tolist() == [0, 10, 20, 50]
    assert by_depth.end_us[3] <= by_depth.start_us[2]
    assert by_depth.makespan_us < by_rank.makespan_us - 15


def ready_us(problem: Problem, schedule: Schedule) -> list[float]:
    """Return when all inputs of each op have arrived, as the execution model defines it."""
    graph, device, signal_us = problem.graph, schedule.device, problem.machine.signal_us
    transfers = schedule.transfers
    arrived = dict(
        zip(
            zip(transfers.tensor.tolist(), transfers.dst.tolist(), strict=True),
            transfers.end_us.tolist(),
            strict=True,
        )
    )
    ready = [0.0] * problem.num_ops
    for tensor, producer in enumerate(graph.tensor_producer.tolist()):
        first = graph.consumer_offsets[tensor]
        for entry, consumer in enumerate(graph.consumers_of(tensor).tolist(), first):
            there = float(schedule.end_us[producer])
            if device[producer] != device[consumer]:
                on_host = graph.consumer_on_host[entry]
                there = there + signal_us if on_host else arrived[tensor, int(device[consumer])]
            ready[consumer] = max(ready[consumer], there)
    for before, after in graph.control_edges.tolist():
        delay_us = signal_us if device[before] != device[after] else 0.0
        ready[after] = max(ready[after], float(schedule.end_us[before]) + delay_us)
    return ready


@pytest.mark.parametrize("seed", range(5))
def test_in_fifo_order_the_ops_of_a_device_start_in_the_order_of_their_ready_times(
    seed: int,
) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(20):
        problem = random_problem(rng)
        device = random_devices(problem, rng)
        schedule = first_ready_first(Simulator(problem), device)
        ready = np.array(ready_us(problem, schedule))
        for here in range(problem.num_devices):
            ops = np.flatnonzero(device == here)
            in_order = ops[np.argsort(schedule.rank[ops])]
            assert (np.diff(ready[in_order]) >= 0).all()


def test_simulate_reports_the_worth_of_the_order(
    pesto: Pesto, tmp_path: Path, either: Problem
) -> None:
    profile, placement, pins = (tmp_path / name for name in ("profile.json", "p.json", "pins.toml"))
    write_profile(profile, Profile(either))
    pins.write_text("""
        [[pin]]
        ops = "[ab]"
        device = "GPU:0"
        [[pin]]
        ops = "c"
        device = "GPU:1"
    """)
    quick = ("--strategy", "single", "--constraints", pins)
    assert pesto("solve", profile, "-o", placement, *quick).code == 0
    files = ("simulate", profile, "--placement", placement)
    record = json.loads(pesto(*files, "--random-orders", 9, "--seed", 4, "--json").out)
    found = record["random_orders"]
    assert len(found["makespan_us"]) == found["num_orders"] == 9
    assert set(found["makespan_us"]) == {13, 23}
    assert record["makespan_us"] == 13
    assert found["order_is_worth"] == 1 - 13 / np.median(found["makespan_us"])
    shown = pesto(*files, "--random-orders", 9, "--seed", 4).out
    assert "The same devices in 9 random orders" in shown
    assert f"{found['order_is_worth']:.1%}" in shown
    assert "random" not in pesto(*files).out
