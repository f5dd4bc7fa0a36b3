"""Tests of solutions with a rewritten graph."""

from dataclasses import replace

import numpy as np
import pytest
from conftest import on_gpus
from report_pages import Read

from pesto_cli import api
from pesto_cli.bounds import lower_bound_us
from pesto_cli.data.graph import OpGraph, Tensor
from pesto_cli.data.problem import Problem
from pesto_cli.data.result import SolveStatus
from pesto_cli.data.solution import PlanSet, Solution
from pesto_cli.errors import BadInputError
from pesto_cli.evaluation.simulator import list_schedule
from pesto_cli.files import Profile
from pesto_cli.report.records import result_json
from pesto_cli.strategies import Context, Strategy
from pesto_cli.strategies.run import run

GPU0, GPU1 = 1, 2

# feed -> long -> last, 10 us, 100 us and 10 us.
ASKED = on_gpus(
    OpGraph.build(["feed", "long", "last"], [Tensor(0, 0, [1]), Tensor(1, 0, [2])]),
    [10.0, 100.0, 10.0],
)


def split_in_two(problem: Problem, context: Context) -> Solution:
    """Return a solution that splits the long op over two GPUs and adds the halves."""
    graph = OpGraph.build(
        ["feed", "long/0", "long/1", "sum", "last"],
        [
            *(Tensor(0, 0, [1, 2]), Tensor(1, 0, [3])),
            *(Tensor(2, 0, [3]), Tensor(3, 0, [4])),
        ],
    )
    rewritten = on_gpus(graph, [10.0, 50.0, 50.0, 1.0, 10.0], problem.machine)
    device = np.array([GPU0, GPU0, GPU1, GPU0, GPU0])
    schedule = list_schedule(rewritten, device, np.zeros(5))
    return Solution(problem, rewritten, np.array([0, 1, 1, -1, 2]), schedule)


def bounded(bound_us: float, holds_for: PlanSet) -> Strategy:
    def strategy(problem: Problem, context: Context) -> Solution:
        split = split_in_two(problem, context)
        return replace(split, lower_bound_us=bound_us, bound_holds_for=holds_for)

    return strategy


def test_a_rewritten_schedule_below_the_bound_of_the_requested_graph_is_not_optimal() -> None:
    result = run(ASKED, split_in_two, Context())
    assert result.makespan_us == 10 + 1 + 50 + 1 + 1 + 10 < lower_bound_us(ASKED) == 120
    assert result.status is SolveStatus.FEASIBLE
    assert (result.lower_bound_us, result.gap) == (0.0, 1.0)
    assert result.solution.bound_holds_for is PlanSet.ALL_PLANS
    assert result.strategy == "split_in_two"


@pytest.mark.parametrize("holds_for", [PlanSet.THIS_GRAPH, PlanSet.ASKED_GRAPH])
def test_a_bound_on_schedules_of_one_graph_does_not_hold_for_others(holds_for: PlanSet) -> None:
    result = run(ASKED, bounded(73.0, holds_for), Context())
    assert (result.status, result.lower_bound_us) == (SolveStatus.FEASIBLE, 0.0)


def test_a_bound_on_all_plans_proves_a_rewritten_graph_optimal() -> None:
    result = run(ASKED, bounded(73.0, PlanSet.ALL_PLANS), Context())
    assert (result.status, result.lower_bound_us, result.gap) == (SolveStatus.OPTIMAL, 73.0, 0.0)
    below = run(ASKED, bounded(60.0, PlanSet.ALL_PLANS), Context())
    assert (below.status, below.lower_bound_us) == (SolveStatus.FEASIBLE, 60.0)


@pytest.mark.parametrize(
    ("bound_us", "message"),
    [
        (1e9, "1e\\+09 us is above the makespan of the solution, 73 us"),
        (np.nan, "bound: nan us; a finite number of 0 or more"),
        (-1.0, "bound: -1.0 us; a finite number of 0 or more"),
    ],
)
def test_a_bound_that_cannot_be_one_is_a_broken_rule(bound_us: float, message: str) -> None:
    with pytest.raises(RuntimeError, match=message):
        run(ASKED, bounded(bound_us, PlanSet.ALL_PLANS), Context())


def test_a_rewritten_graph_keeps_the_constraints_and_the_machine() -> None:
    permitted = np.ones((3, 3), dtype=np.bool_)
    permitted[1, GPU1] = False
    with pytest.raises(RuntimeError, match="op 'long/1' is where 'long' may not be"):
        run(ASKED.constrained(permitted=permitted), split_in_two, Context())

    def unmapped(problem: Problem, context: Context) -> Solution:
        return replace(split_in_two(problem, context), origin=np.array([0, 1, 1, 3, 2]))

    def backwards(problem: Problem, context: Context) -> Solution:
        split = split_in_two(problem, context)
        return replace(split, schedule=replace(split.schedule, start_us=np.zeros(5)))

    for strategy, broken in (
        (unmapped, "origin: 5 entries for 5 ops, or one out of range"),
        (backwards, "broke .* rules"),
    ):
        with pytest.raises(RuntimeError, match=broken):
            run(ASKED, strategy, Context())
    with pytest.raises(RuntimeError, match="another machine or more memory"):
        run(ASKED.constrained(headroom=0.5), split_in_two, Context())


def test_the_first_part_of_an_op_tells_its_device_and_its_start() -> None:
    split = split_in_two(ASKED, Context())
    swapped = replace(split, origin=np.array([-1, 1, 1, -1, 2]))
    for solution, device in ((split, [GPU0, GPU0, GPU0]), (swapped, [-1, GPU0, GPU0])):
        found, start_us = solution.first_parts()
        assert found.tolist() == device
        assert start_us[1:].tolist() == split.schedule.start_us[[1, 4]].tolist()


def test_the_api_shows_the_ops_of_a_rewritten_graph() -> None:
    profile = Profile(ASKED)
    split, single = api.compare(profile, [split_in_two, "single"])
    assert split.makespan_us < single.makespan_us
    assert api.simulate(profile, split).makespan_us == split.makespan_us
    assert result_json(ASKED, split)["bound_holds_for"] == "all plans"
    assert result_json(ASKED, single)["bound_holds_for"] == "the graph as it is"
    assert set(api.to_networkx(profile, split).nodes) == set(split.problem.graph.names)
    for chart in (api.timeline(profile, split), api.memory(profile, split)):
        assert chart.to_dict()
    page = Read(api.report(profile, {"split": split, "single": single}))
    assert [graph["names"] for graph in page.packed()["graphs"]] == [
        list(result.problem.graph.names) for result in (split, single)
    ]
    assert [drawn["graph"] for drawn in page.packed()["placements"]] == [0, 1]
    assert page.tables["Comparison"][1][3] == "100.0%"
    with pytest.raises(BadInputError, match=r"5 ops.*rewritten.*cannot hold"):
        api.placement(profile, split)
