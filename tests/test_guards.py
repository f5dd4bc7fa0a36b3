"""Reference variables with dependent initial values are initialised correctly in any order."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_apply_in_tensorflow import round_robin_placement
from training_graphs import exported
from two_cpus import two_cpus

from pesto_cli import api
from pesto_cli.apply import run_script, session_config
from pesto_cli.errors import BadInputError
from pesto_cli.graphdef.export import flat_step
from pesto_cli.graphdef.fetches import fetch_names, init_names
from pesto_cli.graphdef.nodes import needed_nodes
from pesto_cli.graphdef.programs.capture import capture
from pesto_cli.graphdef.read import read_step
from pesto_cli.graphdef.tensorflow import tensorflow

RUNS = 30
"""Initialisers run in parallel: errors that depend on their order do not occur in every run."""
READ = "/Read/ReadVariableOp"
FED = {"x:0": np.ones((4, 3))}


def variable(tf: Any, name: str, value: Any, **options: Any) -> Any:
    options = {"use_resource": False, **options}
    return tf.compat.v1.Variable(value, name=name, **options)


def trained(tf: Any, product: Any, *variables: Any) -> list[Any]:
    x = tf.compat.v1.placeholder(tf.float32, [4, 3], name="x")
    loss = tf.reduce_mean(tf.tanh(x @ product))
    sgd = tf.compat.v1.train.GradientDescentOptimizer(1.0)
    return [sgd.minimize(loss, var_list=variables, name="train")]


def averages(tf: Any, *, use_resource: bool = False) -> Sequence[Any]:
    """Build averages that TensorFlow itself cannot initialise in one run."""
    w = variable(tf, "w", np.eye(3, dtype=np.float32), use_resource=use_resource)
    train = trained(tf, w, w)
    with tf.control_dependencies(train):
        moving = tf.compat.v1.train.ExponentialMovingAverage(0.5).apply([w])
    return [tf.group(moving, name="train_and_average")]


def averages_of_resources(tf: Any) -> Sequence[Any]:
    return averages(tf, use_resource=True)


def initialized_values(tf: Any) -> Sequence[Any]:
    w = variable(tf, "w", tf.random.stateless_normal([3, 3], [0, 1]))
    u = variable(tf, "u", w.initialized_value() * 2.0)
    return trained(tf, u, u)


def a_chain(tf: Any) -> Sequence[Any]:
    """The initial value of `t` depends on `u`, and that of `u` depends on `w` unconditionally.

    That of `w` takes long, so `u` reads it too early.
    """
    large = tf.random.normal([1000, 1000])
    slow = tf.clip_by_value(tf.reduce_sum(large @ large), 0.0, 0.0)
    u = variable(tf, "u", variable(tf, "w", tf.eye(3) + slow) * 2.0)
    t = variable(tf, "t", u + 1.0)
    return trained(tf, t, t)


def in_the_step(tf: Any) -> Sequence[Any]:
    """Build a step with branches that read a variable, chosen by a number."""
    w = variable(tf, "w", np.eye(3, dtype=np.float32))
    number = variable(tf, "number", 0, trainable=False)
    x = tf.compat.v1.placeholder(tf.float32, [4, 3], name="x")
    h = tf.compat.v1.cond(tf.equal(number % 2, 0), lambda: tf.tanh(x @ w), lambda: x @ w * 2.0)
    sgd = tf.compat.v1.train.GradientDescentOptimizer(0.1)
    return [sgd.minimize(tf.reduce_mean(h), global_step=number, name="train")]


def flat(build: Any, *, whole: bool = False) -> Any:
    graph = exported(build, functional_control_flow=True)
    return flat_step(graph, "the graph", whole_conditionals=whole)


def sessions(meta: Any) -> Iterator[Any]:
    """Yield new initialised sessions of one graph."""
    tf1 = tensorflow().compat.v1
    with tf1.Graph().as_default():
        tf1.train.import_meta_graph(meta)
        for _ in range(RUNS):
            with tf1.Session(config=session_config()) as session:
                session.run(init_names(meta))
                yield session


@pytest.mark.parametrize("whole", [False, True], ids=["exported", "captured"])
@pytest.mark.parametrize(
    ("build", "one", "other", "times"),
    [
        (averages, "w", "w/ExponentialMovingAverage", 1.0),
        (initialized_values, "w", "u", 2.0),
        (averages_of_resources, f"w{READ}", f"w/ExponentialMovingAverage{READ}", 1.0),
    ],
)
def test_variables_with_dependent_initial_values_are_initialised_in_every_session(
    build: Any, one: str, other: str, times: float, whole: bool
) -> None:
    for session in sessions(flat(build, whole=whole)):
        before, after = session.run([f"{one}:0", f"{other}:0"])
        np.testing.assert_array_equal(after, before * times)


def test_an_initialiser_that_runs_later_reads_the_current_value() -> None:
    meta = flat(averages)
    opened = sessions(meta)
    session = next(opened)
    session.run(fetch_names(meta), FED)
    trained = session.run("w:0")
    assert (session.run("w/ExponentialMovingAverage:0") != trained).any()
    session.run("w/ExponentialMovingAverage/Assign")
    np.testing.assert_array_equal(session.run("w/ExponentialMovingAverage:0"), trained)


def test_the_step_contains_no_guards() -> None:
    meta = flat(averages)
    step = needed_nodes(meta.graph_def, fetch_names(meta))
    assert not [node.name for node in step if "guard" in node.name]
    assert "RefSwitch" in {node.op for node in meta.graph_def.node}


@pytest.mark.parametrize("build", [averages, initialized_values, in_the_step])
def test_a_step_on_two_devices_trains_as_on_one(build: Any) -> None:
    meta = flat(build)
    chosen = round_robin_placement(read_step(meta))
    alone, placed = api.run_steps(meta, two_cpus(), [None, chosen], steps=3, warm_up=0)
    assert placed.times.losses == alone.times.losses
    assert placed.verification.departures == ()


def test_the_error_for_an_uninitialised_variable_is_one_line() -> None:
    told = r"cannot initialise the graph: Attempting to use uninitialized value [wu]; .*ized_value"
    with pytest.raises(BadInputError, match=told) as refused:
        api.run_steps(flat(a_chain), two_cpus(), [None], steps=1, warm_up=0)
    assert "\n" not in str(refused.value)


SCRIPT = """
import sys
import numpy as np
import tensorflow as tf
tf1 = tf.compat.v1

with tf.Graph().as_default() as graph, tf.device("/cpu:0"):
    x = tf1.placeholder(tf.float32, [4, 3], name="x")
    w = tf1.get_variable("w", initializer=np.eye(3, dtype=np.float32), use_resource=False)
    v = tf1.get_variable("v", initializer=np.eye(3, dtype=np.float32), use_resource=False)
    loss = tf.reduce_mean(tf.tanh(x @ w) @ v)
    with tf.control_dependencies([loss]):  # the product with v reads the memory of v
        train = tf1.train.GradientDescentOptimizer(1.0).minimize(loss)
    average = tf1.train.ExponentialMovingAverage(0.5)
    with tf.control_dependencies([train]):
        train = average.apply([w, v])
    init = tf1.global_variables_initializer()
    own = tf1.variables_initializer([w, v])
    graph.finalize()

for _ in range(5):
    with tf1.Session(graph=graph) as session:
        if "in turn" in sys.argv:
            session.run(own)
        session.run(init)
        print(*(session.run([loss, train], {x: np.ones((4, 3))})[0] for _ in range(3)))
"""


def test_a_program_that_is_placed_while_it_runs_initialises_its_variables(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "program.py"
    script.write_text(SCRIPT)
    chosen = round_robin_placement(read_step(capture(script, ["in turn"]).meta))
    run_script(script, ["in turn"], chosen)
    expected = capsys.readouterr().out
    run_script(script, [], chosen)
    assert capsys.readouterr().out == expected
    assert len(set(expected.splitlines())) == 1
