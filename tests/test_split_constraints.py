"""The user's constraints on splitting: ops that are split in one way, and ops that stay whole."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import Pesto
from split_model import Files, written
from split_models import weights
from training_graphs import exported

from pesto_cli import api
from pesto_cli.data.constraints import Constraints, Rule, SplitRule
from pesto_cli.data.plan import Choice, Local, Plan
from pesto_cli.data.problem import Problem
from pesto_cli.data.solution import Solution
from pesto_cli.errors import BadInputError
from pesto_cli.evaluation.simulator import Simulator
from pesto_cli.files import Profile, read_constraints
from pesto_cli.sharding.problems import rewritten
from pesto_cli.strategies import Context
from pesto_cli.strategies.order import ordered
from pesto_cli.strategies.run import judged

ROWS_8 = Choice("rows", (4, 4))


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return written(tmp_path_factory.mktemp("split"))


@pytest.fixture
def priced(files: Files) -> Profile:
    return api.load(files.profile)


def chosen(priced: Profile, *rules: SplitRule) -> Plan:
    return api.constrain(priced, Constraints(split=rules)).problem.chosen


def test_rules_are_read_from_toml(tmp_path: Path) -> None:
    path = tmp_path / "rules.toml"
    path.write_text(
        '[[split]]\nops = "a/*"\nparts = 2\n'
        '[[split]]\nops = "b"\nby = "rows"\nsizes = [1, 3]\n[[whole]]\nops = "c*"\n'
    )
    assert read_constraints(path) == Constraints(
        pin=[],
        forbid=[],
        together=[],
        split=[SplitRule("a/*", "batch", 2), SplitRule("b", "rows", None, (1, 3))],
        whole=["c*"],
    )


def test_ops_are_split_by_the_name_of_an_alternative(priced: Profile) -> None:
    assert chosen(priced, SplitRule("product", "columns", parts=4)).choices == {
        "product": Choice("columns", (3, 3, 3, 3))
    }
    assert chosen(priced, SplitRule("product", "rows", sizes=(2, 6))).choices == {
        "product": Choice("rows", (2, 6))
    }
    of_pattern = chosen(priced, SplitRule("*", "rows", parts=3)).choices
    assert of_pattern["product"] == Choice("rows", (3, 3, 2))
    assert "hidden" not in of_pattern, "it has no rows"


def test_ops_that_stay_together_are_not_split(priced: Profile) -> None:
    free, bound = priced, api.constrain(priced, Constraints(together=["first*"]))
    split, kept = (api.solve(profile, "tensor-parallel").solution.plan for profile in (free, bound))
    assert split is not None
    assert kept is not None
    assert "first" in split.choices
    assert "first" not in kept.choices


def test_a_variable_is_split_with_its_slots_and_updates(priced: Profile) -> None:
    found = chosen(priced, SplitRule("first", "variable 1", sizes=(5, 7))).choices
    assert set(found.values()) == {Choice("variable 1", (5, 7))}
    types = priced.problem.graph.types
    assert sorted(types[priced.problem.graph.index_of[name]] for name in found) == [
        "ReadVariableOp",
        "ResourceApplyMomentum",
        "VarHandleOp",
        "VarHandleOp",
    ]
    mirrored = chosen(priced, SplitRule("*", "mirrored", parts=2)).choices
    assert {"first", "second", "first/Momentum"} <= mirrored.keys()


def test_some_ops_are_split_along_the_batch(priced: Profile) -> None:
    assert chosen(priced, SplitRule("[ph]*", parts=2)).choices == {
        "product": ROWS_8,
        "hidden": Choice("axis 0", (4, 4)),
    }
    # An op that takes open sums is split only together with the op that computes them.
    sums = "gradients/product_grad/tuple/control_dependency_1"
    with pytest.raises(BadInputError, match="none can be split so: one of 'axis 0'"):
        chosen(priced, SplitRule(sums, parts=2))
    both = chosen(priced, SplitRule("gradients/product_grad/*_1", parts=2)).choices
    assert both[sums] == Choice("sum", (1, 1))


@pytest.mark.parametrize(("pattern", "way"), [("bn*", "batch"), ("*bn*", "batch local")])
def test_an_op_computes_with_its_own_rows_only_together_with_the_ops_that_take_them(
    pattern: str, way: str
) -> None:
    def build(tf: Any) -> list[Any]:
        tf1 = tf.compat.v1
        images = tf1.placeholder(tf.float32, [8, 4, 4, 3], name="images")
        matrix = weights(tf, "matrix", [3, 3, 3, 3])
        product = tf.nn.conv2d(images, matrix, 1, "SAME")
        scale, offset = tf.ones([3]), tf.zeros([3])
        normal = tf1.nn.fused_batch_norm(product, scale, offset, name="bn")[0]
        loss = tf.reduce_mean(tf.square(tf.nn.relu(normal)), name="loss")
        return [tf1.train.GradientDescentOptimizer(0.5).minimize(loss, name="train"), loss]

    profile = api.profile(exported(build), "v100x2-nvlink", parts=(2,))
    problem = replace(profile.problem, local=frozenset({Local.BATCH_NORM}))
    plan = chosen(replace(profile, problem=problem), SplitRule(pattern, parts=2))
    assert plan.choices["bn"].alternative == way


@pytest.mark.parametrize("strategy", ["data-parallel", "pesto"])
def test_strategies_keep_what_the_user_has_chosen(priced: Profile, strategy: str) -> None:
    rules = Constraints(
        split=[SplitRule("product", "columns", parts=4)], whole=["hidden", "logits"]
    )
    constrained = api.constrain(priced, rules)
    result = api.solve(constrained, strategy, time_limit_s=1, deterministic=True)
    plan = result.solution.plan
    assert plan is not None
    assert plan.choices["product"] == Choice("columns", (3, 3, 3, 3))
    assert not {"hidden", "logits"} & plan.choices.keys()
    assert result.lower_bound_us <= result.makespan_us
    # The placement needs no constraints to be simulated.
    placed = api.placement(constrained, result)
    assert api.simulate(priced, placed).makespan_us == result.makespan_us


def test_a_solution_without_the_choice_is_a_bug(priced: Profile) -> None:
    problem = api.constrain(priced, Constraints(split=[SplitRule("product", parts=2)])).problem

    def other(problem: Problem, context: Context) -> Solution:
        split = rewritten(problem, Plan({"logits": ROWS_8}))
        simulator = Simulator(split.problem)
        schedule = ordered(
            simulator,
            split.problem.group_allowed.argmax(axis=1)[split.problem.graph.colocation_group],
        )
        return replace(
            Solution.of(problem, schedule),
            problem=split.problem,
            origin=split.origin,
            plan=split.plan,
            part=split.part,
        )

    with pytest.raises(RuntimeError, match="'product' is not split by 'rows' as it was chosen"):
        judged("other", other(problem, Context()), 0.0)


def test_strategies_of_whole_ops_are_left_out(pesto: Pesto, files: Files, tmp_path: Path) -> None:
    rules, output = tmp_path / "rules.toml", tmp_path / "p.json"
    rules.write_text('[[split]]\nops = "product"\nparts = 2\n')
    options = ("--constraints", rules, "--time-limit", 1)
    refused = pesto("solve", files.profile, "--strategy", "heft", "-o", output, *options)
    assert refused.code == 2
    assert "the constraints split 1 ops, and strategy 'heft' places whole ops only" in refused.err
    compared = pesto("compare", files.profile, *options)
    assert compared.code == 0
    assert "heft is left out: " in compared.err
    assert "data-parallel" in compared.out


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        ('[[split]]\nops = "x*"\nparts = 2', ["'x*' matches none of the"]),
        ('[[whole]]\nops = "x*"', ["'x*' matches none of the"]),
        ('[[split]]\nops = "product"', ["'product' and has neither of parts and sizes"]),
        ('[[split]]\nops = "product"\nparts = 2\nsizes = [4, 4]', ["has both of parts and"]),
        ('[[split]]\nops = "product"\nparts = 1', ["parts", "greater than or equal to 2"]),
        ('[[split]]\nops = "product"\nby = "heads"\nparts = 2', ["by 'heads'", "'rows'"]),
        (
            '[[split]]\nops = "first"\nparts = 2',
            ["'first'", "none can be split so: one of 'variable 0'"],
        ),
        (
            '[[split]]\nops = "product/*"\nby = "variable 1"\nparts = 2',
            ["'product/*' by 'variable 1'", "name the variable, such as 'first'"],
        ),
        ('[[split]]\nops = "product"\nby = "rows"\nparts = 9', ["into 9 parts; at most 8"]),
        ('[[split]]\nops = "product"\nby = "rows"\nsizes = [4, 5]', ["add up to 9", "add up to 8"]),
        ('[[split]]\nops = "product"\nby = "rows"\nsizes = [1, 7]', ["share of 0.125", "0.25"]),
        ('[[split]]\nops = "product"\nsizes = [4, 4]', ["'batch'", "parts"]),
        (
            '[[split]]\nops = "product"\nparts = 2\n'
            '[[split]]\nops = "p*"\nby = "columns"\nparts = 2',
            ["two constraints split op 'product': by 'rows' into 2 parts, and by 'columns' into 2"],
        ),
        (
            '[[split]]\nops = "product"\nparts = 2\n[[whole]]\nops = "product"',
            [
                "'product' by 'batch'",
                "[[whole]], [[together]] or --whole-variables keeps 'product' whole",
            ],
        ),
        (
            '[[split]]\nops = "first"\nby = "mirrored"\nparts = 2\n[[whole]]\nops = "first"',
            [
                "'first' by 'mirrored'",
                "[[whole]], [[together]] or --whole-variables keeps 'first' whole",
            ],
        ),
    ],
)
def test_rules_that_do_not_fit_are_refused(
    pesto: Pesto, files: Files, tmp_path: Path, rules: str, words: list[str]
) -> None:
    path = tmp_path / "rules.toml"
    path.write_text(rules)
    refused = pesto(
        "solve", files.profile, "--constraints", path, "-o", tmp_path / "p.json", "--quiet"
    )
    assert refused.code == 2
    assert all(word in refused.err for word in [f"{path}: ", *words]), refused.err
    assert [*tmp_path.iterdir()] == [path]


def test_rules_need_prices_of_parts(pesto: Pesto, files: Files, tmp_path: Path) -> None:
    path = tmp_path / "rules.toml"
    path.write_text('[[split]]\nops = "product"\nparts = 2\n')
    refused = pesto("solve", files.plain, "--constraints", path, "-o", tmp_path / "p.json")
    assert refused.code == 2
    assert f"{path}: the profile has no prices of parts" in refused.err
    path.write_text('[[whole]]\nops = "product"\n')
    options = ("--strategy", "single", "-o", tmp_path / "p.json")
    assert pesto("solve", files.plain, "--constraints", path, *options).code == 0


def test_parts_are_only_where_their_op_may_be(priced: Profile) -> None:
    pinned = api.constrain(priced, Constraints(pin=[Rule("product", "GPU:1")]))
    solution = api.solve(pinned, "data-parallel").solution
    names = [device.name for device in solution.problem.machine.devices]
    op = pinned.problem.graph.index_of["product"]
    parts = solution.schedule.device[solution.origin == op]
    assert {names[device] for device in parts.tolist()} == {"GPU:1"}


def test_a_report_compares_a_chosen_split_with_whole_ops(priced: Profile) -> None:
    constrained = api.constrain(priced, Constraints(split=[SplitRule("product", "rows", 2)]))
    page = api.report(constrained, {"chosen": api.solve(constrained, "data-parallel")})
    assert "the best step with whole ops on this page" in page
