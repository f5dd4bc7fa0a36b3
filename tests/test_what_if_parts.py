"""What-if analysis of `pesto explain` for a split op: the step with it whole, or in more parts."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import Pesto
from split_model import Files, written

from pesto_cli import api
from pesto_cli.data.plan import Choice, Plan
from pesto_cli.data.schedule import Placement, sent_bytes
from pesto_cli.data.solution import Solution
from pesto_cli.errors import BadInputError
from pesto_cli.evaluation.simulator import replay
from pesto_cli.evaluation.violations import violations
from pesto_cli.files import Profile
from pesto_cli.report.explanation.what_if_parts import in_parts
from pesto_cli.report.families import Families
from pesto_cli.sharding.alternative import shares_of
from pesto_cli.sharding.decisions import decisions
from pesto_cli.sharding.problems import Rewritten, rewritten
from pesto_cli.sharding.split_alike import split_alike
from pesto_cli.strategies import what_if_parts as module
from pesto_cli.strategies.context import Context
from pesto_cli.strategies.data_parallel import DataParallel, VariableLayout
from pesto_cli.strategies.run import run
from pesto_cli.strategies.what_if_parts import what_if_parts, with_parts


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return written(tmp_path_factory.mktemp("split"))


@pytest.fixture(scope="module")
def profile(files: Files) -> Profile:
    return api.load(files.profile)


def solved(profile: Profile, variables: VariableLayout = VariableLayout.WHOLE) -> Solution:
    return run(profile.problem, DataParallel(variables=variables), Context()).solution


def split_ops(solution: Solution) -> Iterator[tuple[int, Choice]]:
    assert solution.plan is not None
    for name, choice in solution.plan.choices.items():
        yield solution.asked.graph.index_of[name], choice


def devices(solution: Solution) -> dict[str, int]:
    names = solution.problem.graph.names
    return dict(zip(names, solution.schedule.device.tolist(), strict=True))


def explained(pesto: Pesto, *argv: object) -> Any:
    done = pesto("explain", *argv, "--json")
    assert (done.code, done.err) == (0, "")
    return json.loads(done.out)


@pytest.mark.parametrize("num_parts", [1, 4])
def test_the_figures_are_those_of_a_separate_plan_that_is_replayed(
    pesto: Pesto, files: Files, profile: Profile, num_parts: int
) -> None:
    now, op = solved(profile), profile.problem.graph.index_of["product"]
    assert now.plan is not None
    choices = {name: each for name, each in now.plan.choices.items() if name != "product"}
    if num_parts == 4:
        choices["product"] = Choice("rows", (2, 2, 2, 2))
    split = rewritten(profile.problem, Plan(choices))
    there = with_parts(now, op, num_parts)
    placement = Placement(there.schedule.device, there.schedule.rank)
    again = split.solution(profile.problem, replay(split.problem, placement))
    (found,) = (
        each
        for each in explained(pesto, files.profile, files.placement, "product")["what_if"]
        if each["num_parts"] == num_parts
    )
    assert found["makespan_us"] == again.makespan_us
    assert found["makespan_us"] != now.makespan_us
    sent = [int(sent_bytes(each.problem, each.schedule).sum()) for each in (now, again)]
    assert found["more_sent_bytes"] == sent[1] - sent[0] != 0
    added = [added_us(each) for each in (now, again)]
    assert found["more_added_us"] == pytest.approx(added[1] - added[0])
    assert found["short_bytes"] == {}
    assert found["changed"] == []


def added_us(solution: Solution) -> float:
    families = Families.of_solution(solution)
    assert families is not None
    took_us = solution.problem.duration_us[range(len(families.of)), solution.schedule.device]
    return float(took_us[list(families.added)].sum())


def test_all_other_ops_keep_their_devices_and_further_parts_begin_again(profile: Profile) -> None:
    now, op = solved(profile), profile.problem.graph.index_of["product"]
    before, whole, four = (
        devices(each) for each in (now, *(with_parts(now, op, n) for n in (1, 4)))
    )
    for after in (whole, four):
        assert all(after[name] == before[name] for name in after.keys() & before.keys())
    assert whole["product"] == before["product.part_0"] == 1
    assert [four[f"product.part_{part}"] for part in range(4)] == [1, 2, 1, 2]


def test_new_parts_are_on_gpus_that_have_no_part_yet(files: Files) -> None:
    profile = api.profile(api.read_meta_graph(files.graph), "v100x4-nvlink", parts=(2, 4, 8))
    op = profile.problem.graph.index_of["product"]
    two = with_parts(solved(profile), op, 2)
    assert [devices(two)[f"product.part_{part}"] for part in range(2)] == [1, 2]
    four = what_if_parts(two, op)[4]
    assert isinstance(four, Solution)
    assert [devices(four)[f"product.part_{part}"] for part in range(4)] == [1, 2, 3, 4]
    eight = with_parts(two, op, 8)  # of one row each
    assert (
        what_if_parts(eight, op)[9]
        == "it and the ops that must be split alike can have at most 8 parts"
    )


@pytest.mark.parametrize("variables", list(VariableLayout))
def test_an_unchanged_number_gives_the_same_step(
    profile: Profile, variables: VariableLayout
) -> None:
    now = solved(profile, variables)
    for op, choice in split_ops(now):
        same = with_parts(now, op, choice.num_parts)
        assert same.problem.graph.names == now.problem.graph.names
        assert (same.schedule.start_us == now.schedule.start_us).all()


@pytest.mark.parametrize("variables", list(VariableLayout))
def test_an_op_changes_alone_if_the_plan_fits_then(
    profile: Profile, variables: VariableLayout
) -> None:
    now = solved(profile, variables)
    assert now.plan is not None
    graph, parts = now.asked.graph, now.asked.parts
    assert parts is not None
    decided = decisions(now.plan, graph, list(map(parts.spec, range(graph.num_ops))))
    sizes_of_changed = set()
    for op, choice in split_ops(now):
        for number in (1, 4):
            others = {each: c for each, c in now.plan.choices.items() if each != graph.names[op]}
            if number > 1:
                size = decided[op].alternative.size
                sizes = (1,) * number if size is None else shares_of(size, [1.0] * number)
                others[graph.names[op]] = Choice(choice.alternative, sizes)
            changed = split_alike(graph, decided, op, is_whole=number == 1)
            assert op in changed
            assert (len(changed) == 1) == _fits(now, Plan(others)), (graph.names[op], number)
            there = what_if_parts(now, op)[number]
            assert isinstance(there, Solution)
            assert violations(there.problem, there.schedule) == []
            assert len(in_parts(now, op, number, there).changed) == len(changed) - 1
            sizes_of_changed.add(len(changed))
    # A variable, its slot, and the ops that take them.
    assert (max(sizes_of_changed) >= 3) == (variables is not VariableLayout.WHOLE)


def _fits(solution: Solution, plan: Plan) -> bool:
    try:
        rewritten(solution.asked, plan)
    except BadInputError:
        return False
    return True


def test_ops_that_must_change_too_are_named(
    pesto: Pesto, files: Files, profile: Profile, tmp_path: Path
) -> None:
    result = run(profile.problem, DataParallel(variables=VariableLayout.MIRRORED), Context())
    placement = tmp_path / "mirrored.json"
    api.save(placement, api.placement(profile, result))
    whole, four = explained(pesto, files.profile, placement, "first")["what_if"]
    alike = {"first/Momentum", "product/ReadVariableOp", "train/update_first/ResourceApplyMomentum"}
    assert set(whole["changed"]) == set(four["changed"]) == alike
    shown = pesto("explain", files.profile, placement, "first").out
    assert "whole: 3 other ops must be whole, too: first/Momentum, " in shown
    assert "in 4 copies: 3 other ops must have 4 copies, too: " in shown
    # Every op can read a mirrored variable.
    assert (
        explained(pesto, files.profile, placement, "product/ReadVariableOp")["what_if"][0][
            "changed"
        ]
        == []
    )


def test_a_number_without_a_price_is_named_with_the_option_that_prices_it(
    pesto: Pesto, files: Files, tmp_path: Path
) -> None:
    profile = api.profile(api.read_meta_graph(files.graph), "v100x2-nvlink", parts=(2,))
    api.save(tmp_path / "g.profile.json", profile)
    api.save(tmp_path / "p.json", api.placement(profile, api.solve(profile, "data-parallel")))
    pair = (tmp_path / "g.profile.json", tmp_path / "p.json", "product")
    whole, more = explained(pesto, *pair)["what_if"]
    reason = "the profile has no prices for it: profile the graph with --parts 2,4"
    assert (more["num_parts"], more["why_not"], more["makespan_us"]) == (4, reason, None)
    assert whole["makespan_us"] > 0
    shown = pesto("explain", *pair).out
    assert f"  in 4 parts: {reason}\n" in shown
    assert re.search(r"whole +fits +\S+ \([+]\S+%\)", shown)


def test_an_impossible_plan_is_shown_with_its_reason(
    pesto: Pesto, files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> Rewritten:
        raise BadInputError("the plan does not fit.")

    monkeypatch.setattr(module, "rewritten", refused)
    found = explained(pesto, files.profile, files.placement, "product")["what_if"]
    assert [each["why_not"] for each in found] == ["the plan does not fit."] * 2
    shown = pesto("explain", files.profile, files.placement, "product").out
    assert "  whole: the plan does not fit.\n  in 4 parts: the plan does not fit.\n" in shown
    assert "What-if" not in shown
