"""What is not part of the step works in a split graph as before: each name, saver, summary."""

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from float64_graphs import in_float64
from random_plans import random_plan
from split_models import BATCH, trained_model, weights
from split_training import check_equal, random_feeds, session_of, state, trained
from training_graphs import exported

from pesto_cli.apply.splitting import split_graph
from pesto_cli.data.plan import Choice, Plan

PLAN = Plan(
    {
        "hidden": Choice("rows", (4, 2)),
        "tanh": Choice("axis 0", (4, 2)),
        "loss": Choice("reduced axis 0", (1, 2, 3)),
        "halves": Choice("axis 0", (3, 3)),
    }
)


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
    tf.add(right, 1.0, name="looked_at")
    with tf.control_dependencies([hidden]):
        tf.no_op(name="after_hidden")
    train = tf1.train.AdamOptimizer(0.1).minimize(loss, name="train")
    tf1.train.Saver(name="saver")
    return [train, loss]


@cache
def graphs() -> tuple[Any, Any]:
    """Return the graph and the split graph."""
    meta = in_float64(exported(with_evaluation))
    return meta, split_graph(meta, PLAN)


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
                for output in range(len(session.graph.get_operation_by_name(op).outputs))
            ]
            values.append(session.run(tensors, random_feeds(session.graph)))
    assert len(values[0]) > 20
    for tensor, whole, split in zip(tensors, *values, strict=True):
        np.testing.assert_allclose(whole, split, rtol=1e-9, atol=1e-9, err_msg=tensor)


@pytest.mark.parametrize("fetch", ["evaluation:0", "looked_at:0", "halves:1", "hidden:0"])
def test_an_evaluation_computes_the_same_after_training(fetch: str) -> None:
    values = []
    for meta in graphs():
        with session_of(meta) as session:
            session.run(list(meta.collection_def["init_op"].node_list.value))
            feeds = random_feeds(session.graph)
            session.run("train", feeds)
            values.append(session.run(fetch, feeds))
    np.testing.assert_allclose(*values, rtol=1e-12)


def test_summaries_and_nodes_that_wait_for_a_split_op_run() -> None:
    values = []
    for meta in graphs():
        with session_of(meta) as session:
            session.run(list(meta.collection_def["init_op"].node_list.value))
            feeds = random_feeds(session.graph)
            session.run("after_hidden", feeds)
            values.append(session.run("summaries/summaries:0", feeds))
    assert values[0] == values[1]


@pytest.mark.parametrize("saved_by", [0, 1])
def test_a_checkpoint_of_one_graph_is_restored_in_the_other(saved_by: int, tmp_path: Path) -> None:
    saving, restoring = graphs()[saved_by], graphs()[1 - saved_by]
    feed = {"saver/Const:0": str(tmp_path / "checkpoint")}
    with session_of(saving) as session:
        session.run(list(saving.collection_def["init_op"].node_list.value))
        session.run("train", random_feeds(session.graph))
        session.run("saver/control_dependency", feed)
        saved = state(session)
    with session_of(restoring) as session:
        session.run("saver/restore_all", feed)
        restored = state(session)
    assert saved.keys() == restored.keys()
    assert all((saved[name] == restored[name]).all() for name in saved)


def test_the_split_step_trains_as_before() -> None:
    check_equal(*map(trained, graphs()), tolerance=1e-12)
