"""HEFT on the example of its paper, and insertion scheduling on small problems."""

import numpy as np
import pytest
from conftest import on_gpus, two_gpus

from pesto_cli.data.graph import OpGraph, Tensor
from pesto_cli.data.machine import CommModel, Device, Link, Machine
from pesto_cli.data.problem import Problem
from pesto_cli.strategies.heft import heft_schedule
from pesto_cli.strategies.insertion_scheduling import (
    Edges,
    IdealSchedule,
    largest,
    mean,
    upward_rank,
)

CPU, GPU0, GPU1 = 0, 1, 2


def heft(problem: Problem) -> IdealSchedule:
    return heft_schedule(problem, np.zeros(problem.graph.num_groups))


@pytest.fixture
def published() -> Problem:
    """Topcuoglu, Hariri and Wu 2002, Figure 2: ten tasks on three processors."""
    sent = {
        1: {2: 18, 3: 12, 4: 9, 5: 11, 6: 14},
        2: {8: 19, 9: 16},
        3: {7: 23},
        4: {8: 27, 9: 23},
        5: {9: 13},
        6: {8: 15},
        7: {10: 17},
        8: {10: 11},
        9: {10: 13},
    }
    times = {
        "P1": [14.0, 13.0, 11.0, 13.0, 12.0, 13.0, 7.0, 5.0, 18.0, 21.0],
        "P2": [16.0, 19.0, 13.0, 8.0, 13.0, 16.0, 15.0, 11.0, 12.0, 7.0],
        "P3": [9.0, 18.0, 19.0, 17.0, 10.0, 9.0, 11.0, 14.0, 20.0, 16.0],
    }
    tensors = [
        Tensor(task - 1, cost, [after - 1])
        for task, row in sent.items()
        for after, cost in row.items()
    ]
    machine = Machine(
        tuple(Device(name, name, 10**9) for name in times),
        tuple(Link(src, dst, CommModel(0.0, 1.0)) for src in times for dst in times if src != dst),
    )
    return Problem.build(OpGraph.build([f"n{k}" for k in range(1, 11)], tensors), times, machine)


def test_upward_ranks_are_the_published_ones(published: Problem) -> None:
    rank = upward_rank(published, Edges.of(published), mean)
    expected = [108, 77, 80, 80, 69, 63.333, 42.667, 35.667, 44.333, 14.667]
    assert rank.tolist() == pytest.approx(expected, abs=1e-3)


def test_the_schedule_of_the_published_example_is_the_published_one(published: Problem) -> None:
    ideal = heft(published)
    assert ideal.makespan_us == 80
    assert (ideal.device + 1).tolist() == [3, 1, 3, 2, 3, 2, 3, 1, 2, 2]
    assert ideal.start_us.tolist() == [0, 27, 9, 18, 28, 26, 38, 57, 56, 73]


def test_ranks_use_only_allowed_devices_and_possible_transfers() -> None:
    graph = OpGraph.build(
        ["host", "a", "b", "c"],
        [Tensor(0, 1000, [1]), Tensor(1, 3000, [2]), Tensor(2, 5000, [3])],
        colocation_group=[None, None, "g", "g"],
    )
    times = {"CPU": [2.0, np.nan, np.nan, np.nan], "GPU": [np.nan, 1.0, 1.0, 1.0]}
    machine = two_gpus()
    slow = Device("GPU:1", "GPU", 10**9, speed=0.5)
    links = tuple(
        Link(link.src, link.dst, CommModel(5.0 if link.src == "GPU:1" else 1.0, 0.001))
        for link in machine.links
    )
    problem = Problem.build(graph, times, Machine((*machine.devices[:2], slow), links))
    edges = Edges.of(problem)
    # From a to b: 1 + 3 us from GPU:0, 5 + 3 us from GPU:1; b and c stay together.
    assert upward_rank(problem, edges, mean).tolist() == [2 + 2 + 10.5, 1.5 + 6 + 3, 3, 1.5]
    assert upward_rank(problem, edges, largest).tolist() == [2 + 2 + 14, 2 + 8 + 4, 4, 2]


def test_an_op_takes_the_earliest_idle_slot_that_is_long_enough() -> None:
    # On GPU:0 a ends at 2, and d waits for b's tensor until 4 + 1 + 5 us. It is idle from 2 to 10.
    graph = OpGraph.build(list("abdxy"), [Tensor(0, 9000, [2]), Tensor(1, 5000, [2])])
    permitted = np.ones((5, 3), dtype=np.bool_)
    permitted[[0, 2, 3, 4], GPU1] = permitted[1, GPU0] = False
    problem = on_gpus(graph, [2, 4, 50, 5, 4]).constrained(permitted=permitted)
    ideal = heft(problem)
    assert ideal.device.tolist() == [GPU0, GPU1, GPU0, GPU0, GPU0]
    assert ideal.start_us.tolist() == [0, 0, 10, 2, 60]
    shorter = on_gpus(graph, [2, 4, 50, 5, 3]).constrained(permitted=permitted)
    assert heft(shorter).start_us.tolist() == [0, 0, 10, 2, 7]


def test_transfers_do_not_wait_for_each_other() -> None:
    graph = OpGraph.build(list("abcd"), [Tensor(0, 1000, [2]), Tensor(1, 1000, [3])])
    permitted = np.ones((4, 3), dtype=np.bool_)
    permitted[:2, GPU1] = permitted[2:, GPU0] = False
    ideal = heft(on_gpus(graph, [1, 0, 1, 1]).constrained(permitted=permitted))
    # From 1 to 3 and from 0 to 2, on one link.
    assert ideal.start_us.tolist() == [0, 0, 3, 2]


def test_a_variable_goes_to_the_device_where_its_first_use_ends_earliest() -> None:
    # By themselves, the handle and the read would go to GPU:0, the first of two idle devices.
    names = ["handle", "read", "update", "input", "product"]
    graph = OpGraph.build(
        names,
        [
            Tensor(0, 0, [1, 2], [True, True]),
            Tensor(1, 90_000, [4]),
            Tensor(3, 30_000, [4]),
            Tensor(4, 90_000, [2]),
        ],
        colocation_group=["v", "v", "v", None, None],
    )
    permitted = np.ones((5, 3), dtype=np.bool_)
    permitted[3, GPU0] = False
    ideal = heft(on_gpus(graph, [1, 1, 5, 10, 50]).constrained(permitted=permitted))
    assert ideal.device.tolist() == [GPU1] * 5
    assert ideal.makespan_us == 10 + 2 + 50 + 5


def test_a_device_without_memory_for_a_group_is_not_used() -> None:
    graph = OpGraph.build(list("abc"), [Tensor(1, 9000, [2])], colocation_group=["g", "g", None])
    problem = on_gpus(graph, [5, 5, 1], two_gpus(memory_bytes=12))
    together = heft_schedule(problem, np.array([8.0, 4.0]))
    assert together.device[0] == together.device[1] == together.device[2]
    apart = heft_schedule(problem, np.array([8.0, 5.0]))
    assert apart.device[0] == apart.device[1] != apart.device[2]
