"""A way to split: only the ops that run while other devices are idle are split."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
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
from pesto_cli.data.schedule import Schedule
from pesto_cli.data.solution import Solution
from pesto_cli.errors import UnfitError
from pesto_cli.evaluation.simulator import Simulator
from pesto_cli.strategies.context import Context
from pesto_cli.strategies.data_parallel import propagation_prices
from pesto_cli.strategies.devices import accelerators
from pesto_cli.strategies.intra_op import ALPA, HIDDEN
from pesto_cli.strategies.layout_program import LayoutProgram
from pesto_cli.strategies.order import ordered
from pesto_cli.strategies.pesto import Pesto
from pesto_cli.strategies.run import judged
from pesto_cli.strategies.split_search.beside_whole import BesideWhole, busy_accelerators
from pesto_cli.strategies.split_search.forms import FEW_MARGIN, every_way
from pesto_cli.strategies.split_search.race import BESIDE_SHARE, Entry
from pesto_cli.strategies.split_search.ways import SECONDS_OF_UNIT, Way, share_of
from pesto_cli.strategies.split_search.ways_in_time import FAR, WaysInTime
from pesto_cli.strategies.split_search.whole import WholeOps

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
    better = replace(whole)
    tried = list[Way]()
    for way in ways.each(lambda: better):
        tried.append(way)
        ways.note(way, of_length(whole, whole.makespan_us / (ratio * FAR)))
    beside = [way for way in tried if isinstance(way, BesideWhole)]
    assert len(beside) == number
    assert beside == tried[len(tried) - number :]
    assert all(way.whole is better for way in beside)


def test_time_is_left_for_the_ways_that_split_some_of_the_whole_ops(
    problem: Problem, whole: Solution
) -> None:
    """The limit is so short that a third of all ways would use it up."""
    every_us = sum(way.us_per_op(problem) for way in every_way(problem)) * problem.num_ops
    ways = WaysInTime(problem, Context(Limits(every_us / 3e6)), 1.0, whole)
    reserved_share = ways.reserved_share
    tried = [*ways.each()]
    assert [isinstance(way, BesideWhole) for way in tried[-2:]] == [True, True]
    assert 1 < len(tried) < len([*every_way(problem)])
    assert ways.share_used < 1
    assert ways.most_share == pytest.approx(1 - reserved_share)


def test_an_estimate_is_a_smaller_share_of_so_many_units_of_work(problem: Problem) -> None:
    seconds, units = (Limits(10.0, deterministic=each) for each in (False, True))
    share = share_of(100.0, problem, seconds)
    assert share == pytest.approx(100.0 * problem.num_ops / 1e7)
    assert share_of(100.0, problem, units) == pytest.approx(share / SECONDS_OF_UNIT)
    assert share_of(100.0, problem, Limits(0.0)) == np.inf


def test_the_way_is_taken_again_if_whole_ops_become_better(
    problem: Problem, whole: Solution
) -> None:
    entry = Entry.of(BesideWhole(on_one_device(problem), HIDDEN), problem, CONTEXT)
    limits = Limits(10.0, deterministic=True)
    again, share = entry.beside(whole, on_one_device(problem), CONTEXT, limits)
    assert isinstance(again.way, BesideWhole)
    assert again.way.whole is whole
    assert again.best.makespan_us < again.start.makespan_us < entry.best.makespan_us
    assert (again.way.exposed, again.way.margin) == (HIDDEN, 1.0)
    built = share_of(again.way.us_per_op(problem), problem, limits)
    assert share == pytest.approx(built + BESIDE_SHARE)
    assert again.beside(whole, whole, CONTEXT, limits) == (again, 0.0)  # these are not better


def test_few_of_better_whole_ops_are_split_if_the_entry_was_split_in_another_way(
    problem: Problem, whole: Solution
) -> None:
    slow = Entry("slow", on_one_device(problem), on_one_device(problem))
    again, _ = slow.beside(whole, slow.start, CONTEXT, Limits(10.0, deterministic=True))
    assert isinstance(again.way, BesideWhole)
    assert (again.way.exposed, again.way.margin) == (HIDDEN, FEW_MARGIN)


def test_the_way_is_not_taken_again_without_time(problem: Problem, whole: Solution) -> None:
    entry = Entry.of(BesideWhole(on_one_device(problem), ALPA), problem, CONTEXT)
    before = on_one_device(problem)
    assert entry.beside(whole, before, CONTEXT, Limits(0.0)) == (entry, 0.0)


def test_the_entry_is_kept_if_better_whole_ops_do_not_give_a_shorter_step(
    problem: Problem, whole: Solution
) -> None:
    entry = Entry.of(BesideWhole(on_one_device(problem), ALPA), problem, CONTEXT)
    short = replace(entry, best=of_length(whole, 0.01 * whole.makespan_us))
    limits = Limits(1.0, deterministic=True)
    kept, share = short.beside(whole, on_one_device(problem), CONTEXT, limits)
    assert kept is short
    assert share > 0  # the tries take time


def test_the_entry_is_kept_if_no_op_of_better_whole_ops_can_be_split() -> None:
    problem = priced(then_alone=False)
    entry = Entry.of(BesideWhole(on_one_device(problem), ALPA), problem, CONTEXT)
    whole = placed(problem)
    alone = replace(whole, asked=replace(whole.asked, parts=None))
    limits = Limits(1.0, deterministic=True)
    assert entry.beside(alone, on_one_device(problem), CONTEXT, limits)[0] is entry


def test_few_ops_are_split_if_their_parts_must_be_clearly_faster(
    problem: Problem, whole: Solution
) -> None:
    numbers = []
    for margin in (1.0, 3.0):
        _, solution = BesideWhole(whole, HIDDEN, margin)(problem, CONTEXT)
        assert solution.plan is not None
        numbers.append(len(solution.plan.choices))
    assert 0 < numbers[1] < numbers[0]


@dataclass
class _Recorded:
    """Places whole ops as `pesto` does, and records the numbers of workers."""

    robust = False
    workers: list[int] = field(default_factory=list)

    def place(
        self, problem: Problem, context: Context, found: Mapping[str, Schedule] | None = None
    ) -> Solution:
        self.workers.append(context.limits.workers)
        return Pesto().place(problem, context, found)


def test_whole_ops_are_searched_beside_other_work_by_all_workers_but_one(problem: Problem) -> None:
    for workers, time, expected in ((1, 0.2, [1]), (3, 0.0, [3]), (3, 0.2, [3, 2])):
        placer, limits = _Recorded(), Limits(0.2, workers=workers, deterministic=True)
        search = WholeOps(placer, problem, Context(limits), None)
        before = search.search(limits)
        with search.search_beside(before, replace(limits, time_limit_s=time)) as better:
            pass
        assert placer.workers == expected
        assert better().objective <= before.objective
        assert (better() is before) == (len(expected) == 1)
