"""What is not part of the step works in a split graph as before: each name, saver, summary."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from float64_graphs import in_float64
from random_plans import random_plan, specs_of
from split_models import BATCH, trained_model, weights
from split_training import (
    check_equal,
    random_feeds,
    session_of,
    state,
    trained,
    with_whole_variables,
)
from training_graphs import exported

from pesto_cli import api
from pesto_cli.apply.splitting import split_graph
from pesto_cli.data.constraints import Constraints, SplitRule
from pesto_cli.data.plan import Choice, Plan
from pesto_cli.errors import BadInputError
from pesto_cli.graphdef.fetches import fetch_names, init_names
from pesto_cli.graphdef.read import read_step
from pesto_cli.graphdef.tensorflow import tensorflow
from pesto_cli.sharding.variables import choices_of, variable_decisions

PLAN = Plan(
    {
        "hidden": Choice("rows", (4, 2)),
        "tanh": Choice("axis 0", (4, 2)),
        "loss": Choice("reduced axis 0", (1, 2, 3)),
        "halves": Choice("axis 0", (3, 3)),
    }
)


VARIABLES = {
    "whole variables": ("", ()),
    "columns": ("variable 1", (1, 5)),
    "rows": ("variable 0", (1, 1, 2)),
    "mirrored": ("mirrored", (1, 1)),
}


def with_evaluation(tf: Any) -> Sequence[Any]:
    """A step, an evaluation with the same variables, a summary and a saver."""
    tf1 = tf.compat.v1
    inputs = tf1.placeholder(tf.float32, [BATCH, 4], name="inputs")
    kernel = weights(tf, "kernel", [4, 6])
    hidden = tf.tanh(tf.matmul(inputs, kernel, name="hidden"), name="tanh")
    left, right = tf.split(hidden, 2, axis=1, name="halves")
    loss = tf.reduce_mean(tf.square(left - right), name="loss")
    tf1.summary.scalar("loss", loss)
    tf1.summary.merge_all(name="summaries")
    tf.tanh(tf.matmul(tf1.placeholder(tf.float32, [2, 4], name="held_out"), kernel), "evaluation")
    tf.nn.embedding_lookup(kernel, [2, 0], name="rows")
    tf.add(right, 1.0, name="looked_at")
    with tf.control_dependencies([hidden]):
        tf.no_op(name="after_hidden")
    train = tf1.train.AdamOptimizer(0.1).minimize(loss, name="train")
    tf1.train.Saver(name="saver")
    return [train, loss]


def with_fetched_ops(tf: Any) -> Sequence[Any]:
    """Other ops of the step come after each op that is fetched as an op."""
    tf1 = tf.compat.v1
    inputs = tf1.placeholder(tf.float32, [BATCH, 4], name="inputs")
    kernel = weights(tf, "kernel", [4, 6])
    hidden = tf.matmul(inputs, kernel, name="hidden")
    loss = tf.reduce_mean(tf.square(hidden), name="loss")
    train = tf1.train.MomentumOptimizer(0.1, 0.9).minimize(loss, name="train")
    (update,) = (op for op in train.graph.get_operations() if op.type == "ResourceApplyMomentum")
    with tf.control_dependencies([train]):
        after = tf.reduce_mean(tf.square(tf.matmul(inputs, kernel.read_value())), name="after")
    return [train, update, hidden.op, loss, after]


@pytest.mark.parametrize("strategy", ["data-parallel", "ev-ar", "tensor-parallel", "pipeline"])
def test_an_op_that_is_fetched_may_have_successors(strategy: str) -> None:
    """The loss after the update is fetched, too, or the count of steps."""
    meta = in_float64(exported(with_fetched_ops))
    profile = api.profile(meta, "v100x2-nvlink", parts=(2, 4))
    placed = api.placement(profile, api.solve(profile, strategy))
    assert placed.plan
    split = api.apply(meta, placed)
    assert {"train", "hidden"} <= {node.name for node in split.graph_def.node}
    unplaced = split_graph(meta, placed.plan)
    check_equal(trained(meta), trained(unplaced), tolerance=1e-12)


def with_averages(tf: Any) -> Sequence[Any]:
    """The initial value of a moving average is that of its variable, which a conditional reads."""
    tf1 = tf.compat.v1
    inputs = tf1.placeholder(tf.float32, [BATCH, 4], name="inputs")
    kernel = weights(tf, "kernel", [4, 6])
    loss = tf.reduce_mean(tf.square(tf.matmul(inputs, kernel)), name="loss")
    with tf.control_dependencies([tf1.train.GradientDescentOptimizer(0.1).minimize(loss)]):
        train = tf1.train.ExponentialMovingAverage(0.5).apply([kernel])
    return [train, loss]


@cache
def graphs(variables: str) -> tuple[Any, Any]:
    """Return the graph and the split graph. variables: a way to split them in `VARIABLES`."""
    meta = in_float64(exported(with_evaluation))
    step = read_step(meta, "the graph")
    alternative, sizes = VARIABLES[variables]
    kernel = step.graph.index_of["kernel"]
    found = variable_decisions(step.graph, specs_of(step), kernel, alternative, sizes)
    choices = {} if not alternative else choices_of(step.graph, found or {})
    assert choices or not alternative
    return meta, split_graph(meta, Plan({**PLAN.choices, **choices}))


@pytest.mark.parametrize("name", ["gpt", "Transformer", "accumulation"])
def test_tensors_have_their_old_names_and_values(name: str) -> None:
    model = trained_model(name, "float64")
    plan = random_plan(model.step.graph, model.specs, seed=7)
    values = []
    for meta in (model.meta, split_graph(model.meta, plan)):
        with session_of(meta) as session:
            session.run(list(meta.collection_def["init_op"].node_list.value))
            tensors = [
                f"{op}:{output}"
                for op in plan.choices
                if model.step.graph.types[model.step.graph.index_of[op]] != "VarHandleOp"
                for output in range(len(session.graph.get_operation_by_name(op).outputs))
            ]
            values.append(session.run(tensors, random_feeds(session.graph)))
    assert len(values[0]) > 20
    for tensor, whole, split in zip(tensors, *values, strict=True):
        np.testing.assert_allclose(whole, split, rtol=1e-9, atol=1e-9, err_msg=tensor)


@pytest.mark.parametrize("variables", VARIABLES)
def test_an_evaluation_computes_the_same_after_training(variables: str) -> None:
    fetch = ["evaluation:0", "looked_at:0", "halves:1", "hidden:0", "rows:0"]
    values = []
    for meta in graphs(variables):
        with session_of(meta) as session:
            session.run(list(meta.collection_def["init_op"].node_list.value))
            feeds = random_feeds(session.graph)
            session.run("train", feeds)
            values.append(session.run(fetch, feeds))
    for pair in zip(*values, strict=True):
        np.testing.assert_allclose(*pair, rtol=1e-12)


def test_summaries_and_nodes_that_wait_for_a_split_op_run() -> None:
    values = []
    for meta in graphs("whole variables"):
        with session_of(meta) as session:
            session.run(list(meta.collection_def["init_op"].node_list.value))
            feeds = random_feeds(session.graph)
            session.run("after_hidden", feeds)
            values.append(session.run("summaries/summaries:0", feeds))
    assert values[0] == values[1]


@pytest.mark.parametrize("variables", VARIABLES)
@pytest.mark.parametrize("saved_by", [0, 1])
def test_a_checkpoint_of_one_graph_is_restored_in_the_other(
    saved_by: int, variables: str, tmp_path: Path
) -> None:
    saving, restoring = graphs(variables)[saved_by], graphs(variables)[1 - saved_by]
    feed = {"saver/Const:0": str(tmp_path / "checkpoint")}
    with session_of(saving) as session:
        session.run(list(saving.collection_def["init_op"].node_list.value))
        session.run("train", random_feeds(session.graph))
        session.run("saver/control_dependency", feed)
        saved = state(session)
    with session_of(restoring) as session:
        session.run("saver/restore_all", feed)
        restored = state(session)
    unsplit, split = (restored, saved) if saved_by else (saved, restored)
    split = with_whole_variables(split, unsplit)
    assert unsplit.keys() == split.keys()
    assert all((unsplit[name] == split[name]).all() for name in unsplit)


@pytest.mark.parametrize("variables", VARIABLES)
@pytest.mark.parametrize("saved_by", [0, 1])
def test_a_new_saver_writes_the_same_checkpoint(
    saved_by: int, variables: str, tmp_path: Path
) -> None:
    """A program that imports the graph makes a saver and initialisers of its own."""
    check_new_savers(graphs(variables)[saved_by], graphs(variables)[1 - saved_by], tmp_path)


@pytest.mark.parametrize("saved_by", [0, 1])
def test_a_new_saver_knows_the_pieces_of_a_slice_of_a_partitioned_variable(
    saved_by: int, tmp_path: Path
) -> None:
    def build(tf: Any) -> Sequence[Any]:
        tf1 = tf.compat.v1
        inputs = tf1.placeholder(tf.float32, [BATCH, 4], name="inputs")
        halves = tf1.fixed_size_partitioner(2)
        table = tf1.get_variable("table", [4, 6], partitioner=halves, use_resource=True)
        loss = tf.reduce_mean(tf.square(tf.matmul(inputs, tf.convert_to_tensor(table))))
        loss = tf.identity(loss, name="loss")
        tf1.train.Saver()  # contains DisableCopyOnRead of the slices
        return [tf1.train.MomentumOptimizer(0.1, 0.9).minimize(loss, name="train"), loss]

    meta = in_float64(exported(build))
    step = read_step(meta)
    second = step.graph.index_of["table/part_1"]
    found = variable_decisions(step.graph, specs_of(step), second, "variable 1", (1, 5))
    both = meta, split_graph(meta, Plan(choices_of(step.graph, found or {})))
    assert found
    check_new_savers(both[saved_by], both[1 - saved_by], tmp_path)


def check_new_savers(saving: Any, restoring: Any, folder: Path) -> None:
    """Check that a new saver of one graph writes what a new saver of the other one restores."""
    tf1 = tensorflow().compat.v1
    values, path = [], str(folder / "model")
    for meta, is_saving in ((saving, True), (restoring, False)):
        with imported_session(meta) as session:
            saver = tf1.train.Saver(tf1.global_variables())
            if is_saving:
                session.run(tf1.global_variables_initializer())
                session.run("train", random_feeds(session.graph))
                saver.save(session, path, write_meta_graph=False)
            else:
                saver.restore(session, path)
            session.run(tf1.local_variables_initializer())
            assert not session.run(tf1.report_uninitialized_variables()).size
            values.append(session.run("loss:0", random_feeds(session.graph)))
            session.run("train", random_feeds(session.graph))
            values.append(session.run("loss:0", random_feeds(session.graph)))
    np.testing.assert_allclose(values[:2], values[2:], rtol=1e-12)


@pytest.mark.parametrize("variables", [name for name, (way, _) in VARIABLES.items() if way])
def test_a_conditional_outside_the_step_reads_all_pieces(variables: str) -> None:
    meta = in_float64(exported(with_averages))
    step, (way, sizes) = read_step(meta), VARIABLES[variables]
    kernel = step.graph.index_of["kernel"]
    found = variable_decisions(step.graph, specs_of(step), kernel, way, sizes)
    split = split_graph(meta, Plan(choices_of(step.graph, found or {})))
    switches = [node.name for node in split.graph_def.node if node.op == "Switch"]
    assert [name for name in switches if name.endswith("/Switch.part_1")]
    check_equal(trained(meta), trained(split), tolerance=1e-12)
    with imported_session(split) as session:  # with its collections
        session.run(list(init_names(split)))
        session.run(list(fetch_names(split)), random_feeds(session.graph))


def test_a_variable_that_a_function_takes_outside_the_step_stays_whole() -> None:
    meta = exported(with_averages, functional_control_flow=True)
    step = read_step(meta)
    kernel = step.graph.index_of["kernel"]
    assert variable_decisions(step.graph, specs_of(step), kernel, "mirrored", (1, 1)) is None
    (row,) = (
        row for row in api.coverage(api.profile(meta, parts=[2])).rows if "Handle" in row.type
    )
    assert row.reason == "variable"
    rules = Constraints(split=[SplitRule("kernel", "mirrored", 2)])
    with pytest.raises(BadInputError, match=r"an op outside the step .*takes variable 'kernel'"):
        api.constrain(api.profile(meta, parts=[2]), rules)
    with pytest.raises(BadInputError, match=r"'kernel', which node 'cond' \(If\) takes outside"):
        split_graph(meta, Plan({"kernel": Choice("mirrored", (1, 1))}))


@pytest.mark.parametrize("variables", VARIABLES)
def test_the_split_step_trains_as_before(variables: str) -> None:
    check_equal(*map(trained, graphs(variables)), tolerance=1e-12)


@contextmanager
def imported_session(meta: Any) -> Iterator[Any]:
    """Yield a session on a graph with the collections of a MetaGraphDef."""
    tf1 = tensorflow().compat.v1
    with tf1.Graph().as_default(), session_of(meta) as session:
        pass
    config = session._config
    with tf1.Graph().as_default(), tf1.Session(config=config) as session:
        tf1.train.import_meta_graph(meta)
        yield session
