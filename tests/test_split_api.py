"""Splitting ops in notebooks: plans, profiles of split ops, coverage; `coarsen --placement`."""

import json
from collections import Counter
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Pesto
from split_model import Files, written

from pesto_cli import api
from pesto_cli.data.constraints import Constraints
from pesto_cli.data.plan import WHOLE_OPS, Choice, Plan
from pesto_cli.errors import BadInputError
from pesto_cli.files import Profile


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return written(tmp_path_factory.mktemp("split"))


@pytest.fixture(scope="module")
def priced(files: Files) -> Profile:
    profile: Profile = api.load(files.profile)
    return profile


def shown(shell: Any, value: object) -> tuple[str, str]:
    data, _ = shell.display_formatter.format(value)
    return data["text/plain"], data["text/html"]


def test_a_placement_and_its_result_have_the_same_plan(files: Files, priced: Profile) -> None:
    found = api.plan(api.load(files.placement))
    assert found == api.plan(api.solve(priced, "data-parallel"))
    assert len(found.choices) == 17
    assert api.plan(api.load(files.whole)) == api.plan(api.solve(priced, "single")) == WHOLE_OPS


def test_a_plan_follows_from_patterns_of_names(priced: Profile) -> None:
    by_columns = api.split(priced, api.SplitRule("log*", by="columns", parts=2))
    assert by_columns.choices == {"logits": Choice("columns", (2, 2))}
    rules = [api.SplitRule("logits", "columns", 2), api.SplitRule("hidden", parts=2)]
    assert api.split(priced, *rules).choices.keys() == {"logits", "hidden"}


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (api.SplitRule("nothing", parts=2), "matches none"),
        (api.SplitRule("first", by="rows", parts=2), "none can be split so"),
        ("logits", r"rules is 'logits'; a rule was expected: such as SplitRule\("),
    ],
)
def test_a_rule_that_fits_no_op_is_refused(priced: Profile, rule: Any, message: str) -> None:
    with pytest.raises(BadInputError, match=message):
        api.split(priced, rule)


def test_a_rewritten_profile_has_the_parts_as_ops(files: Files, priced: Profile) -> None:
    placed = api.load(files.placement)
    split = api.rewritten(priced, api.plan(placed))
    assert set(split.problem.graph.names) == set(placed.names)
    assert split.graph_hash is None
    assert api.rewritten(priced, WHOLE_OPS) is priced
    coarse = api.coarsen(split, 12)
    assert coarse.members is not None
    assert sorted(chain(*coarse.members)) == sorted(placed.names)
    result = api.expand(split, coarse, api.solve(coarse, "single"))
    assert len(result.schedule.device) == len(placed.names)
    with pytest.raises(BadInputError, match="no prices of parts"):
        api.rewritten(api.load(files.plain), api.plan(placed))


def test_coverage_has_the_ops_that_stay_whole(files: Files, priced: Profile) -> None:
    found = api.coverage(priced)
    work_us = priced.problem.min_duration_us
    is_no_op = np.array([each == "NoOp" for each in priced.problem.graph.types])
    (row,) = (each for each in found.rows if each.type == "NoOp")
    assert (row.reason, row.num_ops) == ("by rule", 3)
    assert row.share == pytest.approx(work_us[is_no_op].sum() / work_us.sum())
    assert found.share == pytest.approx(sum(each.share for each in found.rows))
    assert "ops stay whole" in repr(found)
    with pytest.raises(BadInputError, match="no prices of parts"):
        api.coverage(api.load(files.plain))


def test_ops_that_a_constraint_keeps_whole_have_a_reason_of_their_own(priced: Profile) -> None:
    rules = Constraints(whole=["hidden", "log*"])
    found = api.coverage(api.constrain(priced, rules)).rows
    free = api.coverage(priced).rows
    names, types = priced.problem.graph.names, priced.problem.graph.types
    kept = [t for n, t in zip(names, types, strict=True) if n == "hidden" or n.startswith("log")]
    rows = {row.type: row.num_ops for row in found if row.reason == "constraint"}
    assert rows == Counter(kept)
    assert {row.type for row in free if row.reason == "constraint"} == set()
    assert {row for row in found if row.reason != "constraint"} <= set(free)


def test_plans_and_coverage_are_shown_as_cards(shell: Any, files: Files, priced: Profile) -> None:
    placed = api.load(files.placement)
    for value, words in (
        (api.plan(placed), ["plan", "17 ops split", "at most 2 parts", "rows"]),
        (Plan({"normal": Choice("batch local", (1, 1))}), ["1 compute something else (local)"]),
        (WHOLE_OPS, ["plan", "all ops stay whole"]),
        (api.coverage(priced), ["coverage", "ops stay whole", "NoOp: by rule"]),
        (placed, ["placement", "17 ops split into at most 2 parts"]),
        (api.simulate(priced, placed), ["data-parallel", "17 ops split into at most 2 parts"]),
    ):
        for text in shown(shell, value):
            assert all(word in text for word in words), text


def test_split_ops_are_coarsened(pesto: Pesto, files: Files, tmp_path: Path) -> None:
    out = tmp_path / "coarse.json"
    options = ("-n", 10, "-o", out, "--json")
    done = pesto("coarsen", files.profile, "--placement", files.placement, *options)
    assert done.code == 0, done.err
    names = api.load(files.placement).names
    assert json.loads(done.out)["fine"]["ops"] == len(names)
    assert sorted(chain(*api.load(out).members)) == sorted(names)
    whole = pesto("coarsen", files.profile, "--placement", files.whole, *options)
    assert json.loads(whole.out)["fine"]["ops"] == 33


def test_a_placement_that_does_not_fit_is_not_coarsened(
    pesto: Pesto, files: Files, tmp_path: Path, diamond_profile: Path
) -> None:
    out = tmp_path / "coarse.json"
    for profile, words in (
        (diamond_profile, "split.placement.json: the placement is of another graph"),
        (files.plain, "the profile has no prices of parts"),
    ):
        refused = pesto("coarsen", profile, "--placement", files.placement, "-o", out)
        assert (refused.code, words in refused.err, out.exists()) == (2, True, False), refused.err
