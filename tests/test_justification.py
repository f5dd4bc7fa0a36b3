"""Justification: a backward schedule is feasible, and gives orders that are never worse."""

import numpy as np
import pytest
from conftest import on_gpus
from random_problems import every_third_contended, random_placement, random_problem
from random_problems import with_random_links as with_links

from pesto_cli.data.graph import OpGraph, Tensor
from pesto_cli.data.schedule import objective
from pesto_cli.evaluation.simulator import Simulator
from pesto_cli.evaluation.violations import violations
from pesto_cli.refine.justification import Activities, justified
from pesto_cli.strategies.order import ordered

GPU0, GPU1 = 1, 2
SEEDS = range(200)


def test_gradients_are_sent_while_others_are_computed() -> None:
    # GPU:1 adds three gradients. Each takes 30 us to it, so the first one is to be sent at 20 us.
    names = [f"{what}_{layer}" for what in ("back", "gradient", "sum") for layer in range(3)]
    tensors = [Tensor(layer, 0, [layer + 1, layer + 3]) for layer in range(2)]
    tensors += [Tensor(2, 0, [5]), *(Tensor(op, 29_000, [op + 3]) for op in (3, 4, 5))]
    problem = on_gpus(OpGraph.build(names, tensors), [10] * 6 + [1] * 3)
    simulator = Simulator(problem)
    by_rank = ordered(simulator, np.array([GPU0] * 6 + [GPU1] * 3))
    assert by_rank.makespan_us == 10 * 4 + 3 * 30 + 1
    assert justified(simulator, by_rank).makespan_us == 10 * 2 + 3 * 30 + 1


def test_a_read_does_not_delay_what_is_needed_before() -> None:
    # GPU:0 reads four variables and sends one to each layer on GPU:1, in 10 us each. It runs
    # `urgent` from 6 to 18 us. Layer 1 also takes the output of `urgent`.
    names = ["urgent", *(f"read_{layer}" for layer in (1, 2, 3, 4)), "first"]
    names += [f"layer_{layer}" for layer in (1, 2, 3, 4)]
    tensors = [Tensor(5, 0, [0]), Tensor(0, 0, [6])]
    tensors += [Tensor(read, 9000, [read + 5]) for read in (1, 2, 3, 4)]
    tensors += [Tensor(layer, 0, [layer + 1]) for layer in (6, 7, 8)]
    problem = on_gpus(OpGraph.build(names, tensors), [12, 0, 0, 0, 0, 5, 30, 10, 10, 10])
    simulator = Simulator(problem)
    by_rank = ordered(simulator, np.array([GPU0] * 5 + [GPU1] * 5))
    found = justified(simulator, by_rank)
    assert by_rank.start_us[6] == 4 * 10 + 1
    assert found.start_us[6] == 18 + 1
    assert (by_rank.makespan_us, found.makespan_us) == (101, 79)
    assert found.start_us[1] == 0
    assert found.start_us[2:5].min() >= 18


@pytest.mark.parametrize("seed", SEEDS)
def test_justified_schedules_are_feasible_and_never_worse(seed: int) -> None:
    problem = every_third_contended(with_links(random_problem(seed, 12), seed), seed)
    simulator = Simulator(problem)
    start = ordered(simulator, random_placement(problem, seed))
    found = justified(simulator, start)
    assert not [each for each in violations(problem, found) if each.rule != "memory"]
    assert (found.device == start.device).all()
    assert objective(problem, found) <= objective(problem, start)


def test_some_justified_schedules_are_shorter() -> None:
    shorter = 0
    for seed in SEEDS:
        problem = random_problem(seed, 12)
        start = ordered(Simulator(problem), random_placement(problem, seed))
        shorter += justified(Simulator(problem), start).makespan_us < start.makespan_us
    assert shorter > 5


@pytest.mark.parametrize("seed", SEEDS)
def test_latest_starts_respect_precedence_and_resources(seed: int) -> None:
    problem = with_links(random_problem(seed, 12), seed)
    schedule = ordered(Simulator(problem), random_placement(problem, seed))
    activities = Activities.of(problem, schedule)
    late_us = activities.latest_starts_us()
    end_us = late_us + activities.duration_us
    assert late_us.min() == 0
    graph, sent, device = problem.graph, schedule.transfers, schedule.device
    row_of = {pair: row for row, pair in enumerate(zip(sent.tensor, sent.dst, strict=True))}
    pairs = [(*edge, problem.machine.signal_us) for edge in graph.control_edges.tolist()]
    for tensor, op, on_host in zip(
        graph.consumer_tensor, graph.consumers, graph.consumer_on_host, strict=True
    ):
        producer = graph.tensor_producer[tensor]
        if on_host or device[producer] == device[op]:
            pairs.append((producer, op, problem.machine.signal_us))
        else:
            transfer = problem.num_ops + row_of[tensor, device[op]]
            pairs += [(producer, transfer, 0.0), (transfer, op, 0.0)]
    for before, after, signal_us in pairs:
        is_signal = after < problem.num_ops and before < problem.num_ops
        delay_us = signal_us if is_signal and device[before] != device[after] else 0.0
        assert end_us[before] + delay_us <= late_us[after] + 1e-9
    for resource in set(activities.resource.tolist()):
        on = np.flatnonzero((activities.resource == resource) & (activities.duration_us > 0))
        on = on[np.argsort(late_us[on])]
        assert (end_us[on[:-1]] <= late_us[on[1:]] + 1e-9).all()
