"""The op graph that is read from a split GraphDef is that of the rewritten problem."""

import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from op_graphs import described, difference
from priced_problems import LARGE
from random_plans import propagated_plan, random_plan
from split_models import MODELS, PROGRAMS, exported_model, weights
from split_training import check_equal, trained
from training_graphs import exported

from pesto_cli import api
from pesto_cli.apply.splitting import split_graph
from pesto_cli.data.plan import Choice, Plan
from pesto_cli.data.problem import Problem
from pesto_cli.graphdef.read import read_step
from pesto_cli.sharding.problems import rewritten

EXAMPLES = int(os.environ.get("PESTO_EXAMPLES", "1"))
NAMES = ("RNNLM", "gpt", "accumulation", "batch_norm", "loops")
Profiled = Callable[[Any], Problem]


@pytest.fixture
def profiled() -> Profiled:
    """A function that returns the problem of a graph, with prices of parts."""
    machine = api.read_machine("v100x2-nvlink")
    return lambda meta: api.profile(meta, machine, parts=(2, 4, 8)).problem


def check_consistent(meta: Any, problem: Problem, plan: Plan) -> None:
    """Compare the two ways from a graph to the op graph of its parts."""
    split = rewritten(problem, plan).problem
    read = read_step(split_graph(meta, plan)).graph
    assert difference(described(split.graph), described(read)) == []
    assert np.isfinite(split.duration_us).any(axis=1).all()


@pytest.mark.parametrize("name", NAMES if EXAMPLES == 1 else {**MODELS, **PROGRAMS})
def test_a_split_graph_is_read_as_the_rewritten_problem(name: str, profiled: Profiled) -> None:
    meta = exported_model(name)
    problem = profiled(meta)
    assert problem.parts is not None
    specs = problem.parts.op_specs
    for seed in range(2 * EXAMPLES):
        for make in (random_plan, propagated_plan):
            check_consistent(meta, problem, make(problem.graph, specs, seed))


def test_what_is_fetched_has_its_old_name_if_it_is_computed_twice(profiled: Profiled) -> None:
    def build(tf: Any) -> Sequence[Any]:
        data = tf.compat.v1.placeholder(tf.float32, [4], name="data")
        return [tf.exp(data, name="exp"), *tf.unstack(data, name="unstack")]

    meta = exported(build)
    problem = profiled(meta)
    plan = Plan({"exp": Choice("replicated", (1, 1)), "unstack": Choice("replicated", (1, 1))})
    check_consistent(meta, problem, plan)
    assert {"exp", "unstack"} <= set(rewritten(problem, plan).problem.graph.names)


def test_handles_are_not_passed_on_by_hosts(profiled: Profiled) -> None:
    def build(tf: Any) -> Sequence[Any]:
        ids = tf.compat.v1.placeholder(tf.int32, [8], name="ids")
        rows = tf.nn.embedding_lookup(weights(tf, "table", [9, 3]), ids, name="rows")
        return [tf.identity(rows, name="result")]

    meta = exported(build)
    problem = profiled(meta)
    plan = Plan({"rows": Choice("axis 0", (2, 2, 2, 2))}, hosts=(0, 0, 1, 1))
    check_consistent(meta, problem, plan)
    names = rewritten(problem, plan).problem.graph.names
    assert not [name for name in names if "copy" in name]


def test_ops_that_take_a_small_part_of_a_constant_wait_for_what_it_waits_for(
    profiled: Profiled,
) -> None:
    def build(tf: Any) -> Sequence[Any]:
        tf1 = tf.compat.v1
        data = tf1.placeholder(tf.float32, [8, 4], name="data")
        count = tf1.get_variable(
            "count", [], initializer=tf1.zeros_initializer(), use_resource=True
        )
        with tf1.control_dependencies([tf1.assign_add(count, tf.reduce_mean(data)).op]):
            margin = tf.constant(np.arange(32.0).reshape(8, 4), tf.float32, name="margin")
        return [tf.subtract(data, margin, name="rest")]

    meta = exported(build)
    problem = profiled(meta)
    choice = Choice("axis 0", (4, 4))
    plan = Plan({"margin": choice, "rest": choice})
    check_consistent(meta, problem, plan)
    graph = rewritten(problem, plan).problem.graph
    assert "margin.part_0" not in graph.names
    update, rest = (
        next(op for op, name in enumerate(graph.names) if name.startswith(start))
        for start in ("AssignAdd", "rest.part_0")
    )
    assert [update, rest] in graph.edges.tolist()


def test_a_switch_is_with_the_merged_parts_that_it_takes(profiled: Profiled) -> None:
    def build(tf: Any) -> Sequence[Any]:
        data = tf.compat.v1.placeholder(tf.float32, [4], name="data")
        exp = tf.exp(data, name="exp")
        chosen = tf.compat.v1.cond(data[0] > 0.0, lambda: exp + 1.0, lambda: exp)
        return [tf.identity(chosen, name="result")]

    meta = exported(build)
    problem = profiled(meta)
    plan = Plan({"exp": Choice("axis 0", (2, 2))})
    check_consistent(meta, problem, plan)
    graph = rewritten(problem, plan).problem.graph
    group = {name: graph.colocation_group[op] for op, name in enumerate(graph.names)}
    assert group["exp"] != group["exp.part_0"]
    assert sum(of == group["exp"] for of in group.values()) > 1


def test_an_added_op_can_run_where_its_type_can(profiled: Profiled) -> None:
    """The input of a step is on the CPU, but a GPU can cut it."""

    def build(tf: Any) -> Sequence[Any]:
        ids = tf.compat.v1.placeholder(tf.int32, [8], name="ids")
        return [tf.add(ids, ids, name="sum")]

    problem = profiled(exported(build))
    split = rewritten(problem, Plan({"sum": Choice("axis 0", (4, 4))})).problem
    durations = split.duration_us[split.graph.names.index("ids.split_0_2")]
    assert np.isfinite(durations).any()


def test_the_empty_plan_changes_nothing(profiled: Profiled) -> None:
    meta = exported_model("accumulation")
    problem = profiled(meta)
    assert (
        difference(described(rewritten(problem, Plan()).problem.graph), described(problem.graph))
        == []
    )
    assert split_graph(meta, Plan()) == meta


def build_empty_constants(tf: Any) -> Sequence[Any]:
    """Two constants without elements, which have different shapes."""
    tf1 = tf.compat.v1
    numbers = tf1.placeholder(tf.float32, [6, 4], name="numbers")
    joined = tf.concat([np.zeros((0, 4), np.float32), numbers], 0, name="joined")
    total = tf.reshape(tf.reduce_sum(joined, keepdims=True), [], name="total")
    state = tf1.get_variable("state", initializer=0.0, use_resource=True)
    return [state.assign_add(total, read_value=False), tf.cast(np.zeros([0], np.int32), tf.float32)]


def test_constants_of_different_shapes_are_not_shared() -> None:
    meta = exported(build_empty_constants)
    ways = {"joined": Choice("axis 1", (2, 2)), "total": Choice("replicated", (1, 1))}
    check_equal(trained(meta), trained(split_graph(meta, Plan(ways))), 1e-6)


def of_a_constant(tf: Any) -> list[Any]:
    """A step that reshapes a constant, of which a half is small."""
    tf1 = tf.compat.v1
    numbers = tf1.placeholder(tf.float32, [LARGE], name="numbers")
    column = tf.reshape(tf.constant(np.arange(LARGE), tf.float32), [LARGE, 1])
    factors = tf.squeeze(tf.sin(column) + 1.0, 1)
    loss = tf.reduce_mean(tf.square(numbers * weights(tf, "w", [LARGE]) * factors), name="loss")
    return [tf1.train.GradientDescentOptimizer(0.5).minimize(loss, name="train"), loss]


@pytest.mark.parametrize("strategy", ["data-parallel", "pipeline"])
def test_a_part_of_a_constant_is_no_op_but_may_be_reshaped(strategy: str) -> None:
    meta = exported(of_a_constant)
    found = api.solve(api.profile(meta, "v100x2-nvlink", parts=(2,)), strategy)
    check_equal(trained(meta), trained(split_graph(meta, found.solution.plan)), 1e-6)
