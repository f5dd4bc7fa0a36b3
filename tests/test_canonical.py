"""Results depend neither on the indices of ops nor on the unit of time."""

from collections.abc import Callable
from dataclasses import fields, replace

import numpy as np
import pytest
from random_problems import random_problem, with_random_links
from test_simulate import random_problem as training_step

from pesto_cli.bounds import heads_and_tails, lower_bound_us
from pesto_cli.bounds.canonical import canonical_order
from pesto_cli.data.graph import OpGraph, Tensor
from pesto_cli.data.machine import CommModel
from pesto_cli.data.problem import Problem
from pesto_cli.strategies import STRATEGIES, Context


def renumbered(problem: Problem, rng: np.random.Generator, *, tensors: bool = True) -> Problem:
    """Return the problem with its ops (and with `tensors`, each op's tensors) in random order."""
    graph = problem.graph
    old_of = rng.permutation(graph.num_ops)
    new_of = np.argsort(old_of)
    rows = rng.permutation(graph.num_tensors) if tensors else np.arange(graph.num_tensors)
    alias = graph.alias_of[old_of]
    other = OpGraph.build(
        [graph.names[op] for op in old_of],
        [
            Tensor(
                int(new_of[graph.tensor_producer[row]]),
                int(graph.tensor_bytes[row]),
                new_of[graph.consumers_of(row)].tolist(),
                graph.consumer_on_host[slice(*graph.consumer_offsets[row : row + 2])].tolist(),
            )
            for row in rows.tolist()
        ],
        types=[graph.types[op] for op in old_of],
        labels=graph.labels.of(old_of.tolist()),
        control_edges=new_of[graph.control_edges],
        colocation_group=graph.colocation_group[old_of].tolist(),
        resident_bytes=graph.resident_bytes[old_of],
        alias_of=np.where(alias >= 0, new_of[alias], -1),
    )
    times, permitted = problem.time_us[old_of], problem.permitted[old_of]
    return replace(problem, graph=other, time_us=times, permitted=permitted)


def scaled(problem: Problem, factor: float) -> Problem:
    """Return the problem with all times multiplied by a factor."""
    machine = problem.machine
    devices = tuple(
        replace(device, op_overhead_us=factor * device.op_overhead_us) for device in machine.devices
    )
    names = [field.name for field in fields(CommModel)]
    links = tuple(
        replace(link, comm=CommModel(*(factor * getattr(link.comm, name) for name in names)))
        for link in machine.links
    )
    signal_us = factor * machine.signal_us
    other = replace(machine, devices=devices, links=links, signal_us=signal_us)
    return replace(problem, time_us=factor * problem.time_us, machine=other)


def small(seed: int) -> Problem:
    problem = random_problem(seed, 4 + seed % 25, memory=False)
    return with_random_links(problem, seed) if seed % 3 == 0 else problem


def large(seed: int) -> Problem:
    return training_step(np.random.default_rng(seed))


@pytest.mark.parametrize("make", [small, large])
def test_bounds_do_not_depend_on_numbers_and_units(make: Callable[[int], Problem]) -> None:
    for seed in range(80):
        problem, rng = make(seed), np.random.default_rng(seed)
        heads_us, tails_us = heads_and_tails(problem)
        for other, factor in (
            (renumbered(problem, rng), 1.0),
            (scaled(problem, 1000.0), 1000.0),
            (scaled(problem, 1 / 3), 1 / 3),
        ):
            assert lower_bound_us(other) == pytest.approx(factor * lower_bound_us(problem))
            other_heads_us, other_tails_us = heads_and_tails(other)
            assert other_heads_us.sum() == pytest.approx(factor * heads_us.sum())
            assert other_tails_us.sum() == pytest.approx(factor * tails_us.sum())


@pytest.mark.parametrize("name", ["single", "expert"])
def test_strategies_do_not_depend_on_numbers_and_units(name: str) -> None:
    """Tensors that queue together go by index; in these problems few ops end at the same time."""
    for seed in range(100):
        problem, rng = large(seed), np.random.default_rng(seed)
        some_us = rng.uniform(0.1, 0.2, problem.time_us.shape)
        time_us = np.where(problem.time_us == 0, some_us, problem.time_us)
        problem = replace(problem, time_us=time_us)
        first_us = STRATEGIES[name](problem, Context()).schedule.makespan_us
        for other, factor in (
            (renumbered(problem, rng, tensors=False), 1.0),
            (scaled(problem, 1000.0), 1000.0),
        ):
            makespan_us = STRATEGIES[name](other, Context()).schedule.makespan_us
            assert makespan_us == pytest.approx(factor * first_us)


def test_the_canonical_order_is_topological_and_the_same_for_other_numbers() -> None:
    alike = 0
    for seed in range(100):
        problem = large(seed)
        other = renumbered(problem, np.random.default_rng(seed))
        order, again = canonical_order(problem), canonical_order(other)
        place = np.argsort(order)
        assert (place[problem.graph.edges[:, 0]] < place[problem.graph.edges[:, 1]]).all()
        names = [problem.graph.names[op] for op in order]
        alike += names == [other.graph.names[op] for op in again]
    assert alike >= 95  # the other problems have two ops that are indistinguishable


def test_ops_that_differ_only_in_their_neighbours_have_an_order() -> None:
    """Two equal ops in the middle: one comes after a longer op, one before more bytes."""
    tensors = [Tensor(0, 1, [2]), Tensor(1, 1, [3]), Tensor(2, 1, [4]), Tensor(3, 2, [5])]
    graph = OpGraph.build(list("abxyzw"), tensors)
    machine = large(0).machine
    problem = Problem.build(graph, {"GPU": np.array([1.0, 2, 5, 5, 1, 1])}, machine)
    orders = set()
    for seed in range(10):
        other = renumbered(problem, np.random.default_rng(seed))
        orders.add(tuple(other.graph.names[op] for op in canonical_order(other)))
    assert len(orders) == 1
