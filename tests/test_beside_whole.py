"""A way to split: only the ops that run while other devices are idle are split."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from split_models import weights
from test_meshes import of_length
from test_split_search import on_machine, two_hosts
from training_graphs import exported

from pesto_cli import api
from pesto_cli.data.limits import Limits
from pesto_cli.data.problem import Problem
from pesto_cli.data.solution import Solution
from pesto_cli.errors import UnfitError
from pesto_cli.evaluation.simulator import Simulator
from pesto_cli.strategies.context import Context
from pesto_cli.strategies.data_parallel import propagation_prices
from pesto_cli.strategies.devices import accelerators
from pesto_cli.strategies.intra_op import ALPA, HIDDEN
from pesto_cli.strategies.layout_program import LayoutProgram
from pesto_cli.strategies.order import ordered
from pesto_cli.strategies.run import judged
from pesto_cli.strategies.split_search.beside_whole import BesideWhole, busy_accelerators
from pesto_cli.strategies.split_search.race import Entry
from pesto_cli.strategies.split_search.ways import Way
from pesto_cli.strategies.split_search.ways_in_time import FAR, WaysInTime

CONTEXT = Context(Limits(60.0, deterministic=True))
TOWERS, LAYERS = 4, 3


def towers(tf: Any, *, then_alone: bool = True) -> list[Any]:
    """Four chains of dense layers with inputs of their own, and then one chain."""
    tf1 = tf.compat.v1

    def chain(scope: str, rows: Any) -> Any:
        for number in range(LAYERS):
            name = f"{scope}/{number}"
            matrix = weights(tf, f"{name}/weights", [512, 512])
            rows = tf.tanh(tf.matmul(rows, matrix, name=f"{name}/product"), name=f"{name}/result")
        return rows

    found = [
        chain(f"tower_{tower}", tf1.placeholder(tf.float32, [2**14, 512], name=f"rows_{tower}"))
        for tower in range(TOWERS)
    ]
    if then_alone:
        found = [chain("alone", tf.add_n(found))]
    loss = tf.add_n([tf.reduce_mean(tf.square(each)) for each in found], name="loss")
    return [tf1.train.GradientDescentOptimizer(0.1).minimize(loss, name="train"), loss]


def priced(*, then_alone: bool) -> Problem:
    graph = exported(lambda tf: towers(tf, then_alone=then_alone))
    return api.profile(graph, "v100x4-nvlink", parts=(2, 4)).problem


@pytest.fixture(scope="module")
def problem() -> Problem:
    return priced(then_alone=True)


@pytest.fixture(scope="module")
def whole(problem: Problem) -> Solution:
    return placed(problem)


def placed(problem: Problem) -> Solution:
    """Put each tower on its own device, and all other ops on the first one."""
    devices, graph = accelerators(problem), problem.graph
    wanted = np.full(graph.num_groups, devices[0])
    for op, name in enumerate(graph.names):
        for tower in range(TOWERS):
            if f"tower_{tower}/" in name:
                wanted[graph.colocation_group[op]] = devices[tower]
    is_allowed = problem.group_allowed[np.arange(graph.num_groups), wanted]
    of_group = np.where(is_allowed, wanted, problem.group_allowed.argmax(axis=1))
    return Solution.of(problem, ordered(Simulator(problem), of_group[graph.colocation_group]))


def on_one_device(problem: Problem) -> Solution:
    first = accelerators(problem)[0]
    device = np.where(problem.allowed[:, first], first, problem.duration_us.argmin(axis=1))
    return Solution.of(problem, ordered(Simulator(problem), device))


def test_busy_accelerators_are_counted_over_the_time_of_an_op(whole: Solution) -> None:
    """The expected number is a sum over the intervals between starts and ends of ops."""
    schedule, busy = whole.schedule, busy_accelerators(whole)
    start_us, end_us = schedule.start_us, schedule.end_us
    on_accelerator = np.isin(schedule.device, accelerators(whole.problem))
    intervals = [*pairwise(np.unique([start_us, end_us]).tolist())]
    for op in np.flatnonzero(on_accelerator & (end_us > start_us)).tolist():
        worked_us = sum(
            (after - before) * (on_accelerator & (start_us <= before) & (end_us >= after)).sum()
            for before, after in intervals
            if start_us[op] <= before and after <= end_us[op]
        )
        assert busy[op] == pytest.approx(worked_us / (end_us[op] - start_us[op]))
    assert busy.min() == 1.0
    assert 3.5 < busy.max() <= TOWERS


def test_ops_that_run_alone_are_split_and_others_stay_where_they_are(
    problem: Problem, whole: Solution
) -> None:
    _, solution = BesideWhole(whole, ALPA)(problem, CONTEXT)
    assert solution.plan is not None
    products = {name for name in solution.plan.choices if name.endswith("/product")}
    assert products == {f"alone/{layer}/product" for layer in range(LAYERS)}
    device = dict(zip(solution.problem.graph.names, solution.schedule.device.tolist(), strict=True))
    of_parts = {device[f"alone/0/product.part_{part}"] for part in range(4)}
    assert of_parts == set(accelerators(problem))
    for tower in range(TOWERS):
        name = f"tower_{tower}/0/product"
        assert device[name] == whole.schedule.device[problem.graph.index_of[name]]
    assert solution.makespan_us < 0.8 * whole.makespan_us
    judged("pesto", solution, 0.0)


def test_nothing_is_split_if_whole_ops_keep_all_devices_busy() -> None:
    problem = priced(then_alone=False)
    with pytest.raises(UnfitError, match="because whole ops keep the devices busy"):
        BesideWhole(placed(problem), ALPA)(problem, CONTEXT)


def test_parts_stay_on_the_hosts_that_the_whole_ops_use(problem: Problem) -> None:
    on_two = on_machine(problem, two_hosts())
    _, solution = BesideWhole(on_one_device(on_two), HIDDEN)(on_two, CONTEXT)
    assert solution.part is not None
    used = solution.schedule.device[solution.part >= 0].tolist()
    assert set(used) == set(accelerators(on_two)[:2])


def test_an_equal_number_for_each_op_is_as_one_number(problem: Problem) -> None:
    prices = propagation_prices(problem)
    one, each = (
        LayoutProgram(problem, [1.0] * 4, prices, HIDDEN, concurrency).costs()
        for concurrency in (2.0, np.full(problem.num_ops, 2.0))
    )
    for costs, others in zip(one, each, strict=True):
        np.testing.assert_array_equal(costs, others)


@pytest.mark.parametrize(("ratio", "number"), [(0.99, 2), (1.01, 0)])
def test_whole_ops_are_split_only_if_they_are_nearly_as_fast_as_the_first_way(
    problem: Problem, whole: Solution, ratio: float, number: int
) -> None:
    ways = WaysInTime(problem, Context(Limits(600.0)), 1.0, whole)
    tried = list[Way]()
    for way in ways:
        tried.append(way)
        ways.note(way, of_length(whole, whole.makespan_us / (ratio * FAR)))
    assert sum(isinstance(way, BesideWhole) for way in tried) == number
    assert not isinstance(tried[0], BesideWhole)


def test_the_way_is_taken_again_if_whole_ops_become_better(
    problem: Problem, whole: Solution
) -> None:
    entry = Entry.of(BesideWhole(on_one_device(problem), ALPA), problem, CONTEXT)
    again, share = entry.beside(whole, CONTEXT, Limits(10.0))
    assert isinstance(again.way, BesideWhole)
    assert again.way.whole is whole
    assert again.best.makespan_us < entry.best.makespan_us
    each_s = again.way.us_per_op(problem) * problem.num_ops / 1e6
    assert share == pytest.approx(2 * each_s / 10.0)
    assert again.beside(whole, CONTEXT, Limits(10.0)) == (again, 0.0)  # these are not better


def test_the_way_is_not_taken_again_without_time(problem: Problem, whole: Solution) -> None:
    entry = Entry.of(BesideWhole(on_one_device(problem), ALPA), problem, CONTEXT)
    assert entry.beside(whole, CONTEXT, Limits(0.0)) == (entry, 0.0)


def test_the_entry_is_kept_if_better_whole_ops_do_not_give_a_shorter_step(
    problem: Problem, whole: Solution
) -> None:
    entry = Entry.of(BesideWhole(on_one_device(problem), ALPA), problem, CONTEXT)
    short = replace(entry, best=of_length(whole, 0.01 * whole.makespan_us))
    kept, share = short.beside(whole, CONTEXT, Limits(10.0))
    assert kept is short
    assert share > 0  # the tries take time


def test_the_entry_is_kept_if_no_op_of_better_whole_ops_can_be_split() -> None:
    problem = priced(then_alone=False)
    entry = Entry.of(BesideWhole(on_one_device(problem), ALPA), problem, CONTEXT)
    whole = placed(problem)
    alone = replace(whole, asked=replace(whole.asked, parts=None))
    assert entry.beside(alone, CONTEXT, Limits(10.0))[0] is entry
