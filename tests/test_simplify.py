"""A simplified step computes exactly the same as the original step, with fewer ops."""

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from conftest import Pesto, Write
from test_apply_in_tensorflow import add_in_order, round_robin_placement, trained
from training_graphs import exported

from pesto_cli.apply import apply, run_script
from pesto_cli.errors import BadInputError
from pesto_cli.files import PlacementFile
from pesto_cli.graphdef.containers import read_meta_graph
from pesto_cli.graphdef.export import export
from pesto_cli.graphdef.fetches import fetch_names, node_name
from pesto_cli.graphdef.nodes import Node, needed_nodes
from pesto_cli.graphdef.programs.capture import capture
from pesto_cli.graphdef.programs.run import run_program
from pesto_cli.graphdef.read import StepGraph, read_step
from pesto_cli.graphdef.simplify import simplify

Build = Callable[[Any], Sequence[Any]]

# One block of MobileNetV3: expansion, depthwise, squeeze and excitation, projection, residual.
MOBILE = """
import keras
from keras import layers

def build():
    keras.utils.set_random_seed(1)
    x = inputs = keras.Input((8, 8, 4), 2)
    x = layers.Activation("hard_silu")(layers.BatchNormalization()(layers.Conv2D(8, 1)(x)))
    x = layers.ReLU()(layers.BatchNormalization()(layers.DepthwiseConv2D(3, padding="same")(x)))
    gate = layers.Conv2D(8, 1)(layers.GlobalAveragePooling2D(keepdims=True)(x))
    x = layers.Multiply()([x, layers.Activation("hard_sigmoid")(gate)])
    x = layers.Add()([inputs, layers.BatchNormalization()(layers.Conv2D(4, 1)(x))])
    x = layers.Dropout(0.2)(layers.GlobalAveragePooling2D()(x))
    model = keras.Model(inputs, layers.Dense(5, activation="softmax")(x))
    model.compile(keras.optimizers.Adam(clipnorm=1.0), "sparse_categorical_crossentropy")
    return model
"""


@pytest.fixture(scope="module")
def script_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("mobile") / "mobile.py"
    path.write_text(MOBILE)
    return path


def nodes_of(meta: Any) -> list[Node]:
    return needed_nodes(meta.graph_def, map(node_name, fetch_names(meta)))


def types(meta: Any) -> Counter[str]:
    return Counter(node.type for node in nodes_of(meta))


def largest_group(step: StepGraph) -> int:
    return max(Counter(step.graph.colocation_group.tolist()).values())


def test_a_simplified_keras_model_trains_identically(script_path: Path) -> None:
    built, simple = (export(f"{script_path}:build", as_built=flag) for flag in (True, False))
    for meta in (built, simple):
        add_in_order(meta)
    before, after = read_step(built), read_step(simple)
    assert (types(built)["IdentityN"], types(simple)["IdentityN"]) == (1, 0)
    assert after.graph.num_ops < 0.85 * before.graph.num_ops
    assert largest_group(before) > 14  # A read of the step counter for each variable.
    assert largest_group(after) <= 5
    expected = trained(built).values
    assert trained(simple).values == expected
    assert trained(apply(simple, round_robin_placement(after))).values == expected


def variable(tf: Any, name: str = "v", **options: Any) -> Any:
    ones = tf.compat.v1.ones_initializer()
    return tf.compat.v1.get_variable(name, [4], initializer=ones, use_resource=True, **options)


def after(tf: Any, *operations: Any) -> Any:
    return tf.control_dependencies(operations)


def both_before(tf: Any) -> Sequence[Any]:
    v = variable(tf)
    one, other = v.read_value(), v.read_value()
    with after(tf, one.op, other.op):
        train = v.assign_add(tf.ones([4])).op
    return [train, tf.identity(one), tf.identity(tf.sin(other))]


def both_after(tf: Any) -> Sequence[Any]:
    v = variable(tf)
    train = v.assign_add(tf.ones([4])).op
    with after(tf, train):
        return [train, tf.identity(v.read_value()), tf.identity(v.read_value())]


def one_before_one_after(tf: Any) -> Sequence[Any]:
    v = variable(tf)
    one = v.read_value()
    with after(tf, one.op):
        train = v.assign_add(tf.ones([4])).op
    with after(tf, train):
        return [train, tf.identity(one), tf.identity(v.read_value())]


def between(tf: Any) -> Sequence[Any]:
    """The second read does not wait for the write, so it may run after it."""
    v = variable(tf)
    one, other = v.read_value(), v.read_value()
    train = v.assign_add(one).op
    return [train, tf.identity(other)]


def by_another_handle(tf: Any) -> Sequence[Any]:
    """The same variable is written between the reads, by a handle with another name."""
    v = variable(tf)
    again = tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[4], shared_name="v", name="again")
    one, other = v.read_value(), v.read_value()
    train = tf.raw_ops.AssignAddVariableOp(resource=again, value=one)
    return [train, tf.identity(other)]


def in_a_branch(tf: Any) -> Sequence[Any]:
    """A conditional that stays one op may write between the reads."""
    v = variable(tf)
    one, other = v.read_value(), v.read_value()
    changed = tf.cond(one[0] > 0, lambda: v.assign_add(tf.ones([4])), lambda: tf.ones([4]))
    return [changed.op, tf.identity(other)]


def read_in_a_branch(tf: Any) -> Sequence[Any]:
    """The conditional only reads."""
    v = variable(tf)
    one, other = v.read_value(), v.read_value()
    found = tf.cond(one[0] > 0, lambda: v + 1.0, lambda: tf.ones([4]))
    return [found.op, tf.identity(other)]


@pytest.mark.parametrize(
    ("build", "reads"),
    [
        (both_before, 1),
        (both_after, 1),
        (one_before_one_after, 2),
        (between, 2),
        (by_another_handle, 2),
        (in_a_branch, 2),
        (read_in_a_branch, 1),
    ],
)
def test_reads_are_merged_unless_a_write_may_come_between(build: Build, reads: int) -> None:
    meta = exported(build, functional_control_flow=True)
    assert types(meta)["ReadVariableOp"] == 2
    simplify(meta)
    assert types(meta)["ReadVariableOp"] == reads


def pure(tf: Any) -> Sequence[Any]:
    x = tf.compat.v1.placeholder(tf.float32, [4], name="x")
    return [tf.identity(tf.sin(x + 1.0) * tf.sin(x + 1.0), name="loss")]


def of_constants(tf: Any) -> Sequence[Any]:
    x = tf.compat.v1.placeholder(tf.float32, [4], name="x")
    return [tf.identity(x * tf.fill([4], 2.0) + tf.fill([4], 2.0), name="loss")]


def random(tf: Any) -> Sequence[Any]:
    x = tf.compat.v1.placeholder(tf.float32, [4], name="x")
    shape = tf.shape(x, name="shape")
    drawn = [tf.raw_ops.RandomUniform(shape=shape, dtype=tf.float32, seed=1) for _ in range(2)]
    return [tf.identity(drawn[0] - drawn[1], name="loss")]


def in_order(tf: Any) -> Sequence[Any]:
    """The second sine waits for the first product."""
    x = tf.compat.v1.placeholder(tf.float32, [4], name="x")
    product = tf.sin(x) * 2.0
    with after(tf, product.op):
        return [tf.identity(product + tf.sin(x), name="loss")]


def by_reference(tf: Any) -> Sequence[Any]:
    """An op with a reference as input reads the variable's value at the time at which it runs."""
    v = tf.compat.v1.get_variable("v", [4], use_resource=False)
    reference = v._ref()
    return [tf.identity(tf.sin(reference) - tf.sin(reference), name="loss")]


@pytest.mark.parametrize(
    ("build", "kind", "count"),
    [
        (pure, "Sin", 1),
        (pure, "AddV2", 1),
        (of_constants, "Fill", 2),
        (random, "RandomUniform", 2),
        (in_order, "Sin", 2),
        (by_reference, "Sin", 2),
    ],
)
def test_only_ops_that_compute_the_same_are_merged(build: Build, kind: str, count: int) -> None:
    meta = exported(build)
    assert types(meta)[kind] == 2
    simplify(meta)
    assert types(meta)[kind] == count


def test_duplicates_that_a_program_places_on_two_devices_are_not_merged() -> None:
    def build(tf: Any) -> Sequence[Any]:
        x = tf.compat.v1.placeholder(tf.float32, [4], name="x")
        sines = []
        for index in (0, 0, 1):
            with tf.device(f"/device:CPU:{index}"):
                sines.append(tf.sin(x))
        return [tf.add_n(sines, name="loss")]

    meta = exported(build)
    simplify(meta)
    assert types(meta)["Sin"] == 2


def test_a_fetched_node_stays_and_replaces_its_duplicates() -> None:
    def build(tf: Any) -> Sequence[Any]:
        x = tf.compat.v1.placeholder(tf.float32, [4], name="x")
        plain = tf.sin(x, name="s")
        return [tf.add(plain, 1.0, name="loss"), tf.sin(x, name="fetched")]

    meta = exported(build)
    simplify(meta)
    assert {node.name for node in nodes_of(meta) if node.type == "Sin"} == {"fetched"}
    (loss,) = (node for node in meta.graph_def.node if node.name == "loss")
    assert loss.input[0] == "fetched"


def through_identities(tf: Any) -> Sequence[Any]:
    """A variable is read before an IdentityN on one path, and written after it on another."""
    v, w = variable(tf), variable(tf, "w")
    one, other = tf.identity_n([v.read_value() * 2.0, w * 3.0])
    train = tf.group(w.assign_add(one).op, v.assign_add(other).op, name="train")
    return [train, tf.identity(one, name="loss")]


def test_a_control_input_replaces_an_identity_that_orders_a_read_and_a_write() -> None:
    meta = exported(through_identities)
    before = trained(meta).values
    simplify(meta)
    assert types(meta)["IdentityN"] == 0
    nodes = nodes_of(meta)

    def variable_of(node: Node) -> str:
        return nodes[node.inputs[0][0]].name

    writes = [node for node in nodes if node.type == "AssignAddVariableOp"]
    assert {variable_of(node) for node in writes} == {"v", "w"}
    for write in writes:
        (read,) = (nodes[source] for source in write.controls)
        assert (read.type, variable_of(read)) == ("ReadVariableOp", variable_of(write))
    assert trained(meta).values == before


def with_an_effect(tf: Any) -> Sequence[Any]:
    """The variable changes only because of the IdentityN."""
    x = tf.compat.v1.placeholder(tf.float32, [4], name="x")
    with after(tf, variable(tf).assign_add(x).op):
        unused = tf.identity(x)
    return [tf.identity(tf.identity_n([x * 2.0, unused])[0], name="loss")]


def waited_for(tf: Any) -> Sequence[Any]:
    x = tf.compat.v1.placeholder(tf.float32, [4], name="x")
    both = tf.identity_n([x * 2.0, x * 3.0])
    with after(tf, both[0].op):
        return [tf.add(x, 1.0, name="loss"), tf.identity(both[1])]


def in_one_branch(tf: Any) -> Sequence[Any]:
    x = tf.compat.v1.placeholder(tf.float32, [4], name="x")
    branch = tf.compat.v1.cond(
        x[0] > 0, lambda: tf.identity_n([x * 2.0, tf.sin(x)])[0], lambda: x * 3.0
    )
    return [tf.identity(branch, name="loss")]


@pytest.mark.parametrize("build", [with_an_effect, waited_for, in_one_branch])
def test_an_identity_that_has_another_effect_stays(build: Build) -> None:
    meta = exported(build)
    simplify(meta)
    assert types(meta)["IdentityN"] == 1


PROGRAM = """
import sys
import numpy as np
import tensorflow as tf
tf1 = tf.compat.v1

def normal(name, *shape):
    return tf1.get_variable(name, shape, initializer=tf1.random_normal_initializer(seed=1),
                            use_resource=True)

with tf.Graph().as_default() as graph:
    x = tf1.placeholder(tf.float32, [4, 3], name="x")
    w, rate = normal("w", 3, 3), normal("rate")
    count = tf1.get_variable("count", [], initializer=tf1.zeros_initializer(), use_resource=True)
    loss = tf.reduce_mean(tf.square(tf.matmul(tf.tanh(tf.matmul(x, w.read_value())), w)))
    (gradient,) = tf.gradients(loss, [w])
    gradient, gain = tf.identity_n([gradient, tf.sin(count.read_value() + 1.0, name="gain")])
    factor = tf.sin(count.read_value() + 1.0, name="factor") * 0.1 * gain
    updates = [w.assign_sub(factor * gradient).op, rate.assign(factor).op]
    with tf.control_dependencies(updates):
        train = count.assign_add(1.0).op
    look = tf.identity(factor * 2.0, name="look")
    init = tf1.global_variables_initializer()
    if "finalize" in sys.argv:
        graph.finalize()

random = np.random.default_rng(0)
with tf1.Session(graph=graph) as session:
    session.run(init)
    for _ in range(4):
        feed = {x: random.normal(size=(4, 3))}
        print(session.run([train, loss], feed)[1].tobytes().hex())
        more = {"factor:0": 0.5, "gain:0": 0.5} if "feed" in sys.argv else {}
        print(session.run(look, {**feed, **more}).tobytes().hex())
        print(session.run(w).tobytes().hex())
"""


def placed_in_program(path: Path, argv: Sequence[str], **options: Any) -> PlacementFile:
    return round_robin_placement(read_step(capture(path, argv, **options).meta))


@pytest.mark.parametrize("argv", [[], ["finalize"]], ids=["open", "finalised"])
def test_a_live_program_runs_the_simplified_step_with_identical_results(
    argv: Sequence[str], script: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    path = script(PROGRAM)
    chosen, built = (placed_in_program(path, argv, as_built=flag) for flag in (False, True))
    assert len(chosen.names) < len(built.names)
    assert ("factor" in chosen.names) != ("gain" in chosen.names)
    run_program(path, argv)
    expected = capsys.readouterr().out
    for placement in (chosen, built):
        report = run_script(path, argv, placement, trace=True)
        assert capsys.readouterr().out == expected
        ran = {n.node_name for d in report.traced.step_stats.dev_stats for n in d.node_stats}
        assert ran >= {"factor", "gain"} & set(placement.names)
        assert placement is built or not ran & (set(built.names) - set(chosen.names))


def test_a_run_that_feeds_an_op_that_was_simplified_away_is_refused(
    script: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    path, argv = script(PROGRAM), ["feed"]
    with pytest.raises(BadInputError, match=r"feeds '(gain|factor)'.*--as-built"):
        run_script(path, argv, placed_in_program(path, argv))
    run_program(path, argv)
    expected = capsys.readouterr().out.splitlines()[-12:]
    run_script(path, argv, placed_in_program(path, argv, as_built=True))
    assert capsys.readouterr().out.splitlines()[-12:] == expected


def test_the_command_does_not_simplify_with_as_built(
    pesto: Pesto, script: Write, tmp_path: Path
) -> None:
    def num_ops(*options: str) -> int:
        graph = tmp_path / "graph.meta"
        assert pesto("export", script(PROGRAM), "--capture", "-o", graph, *options).code == 0
        return read_step(read_meta_graph(graph)).graph.num_ops

    assert num_ops("--as-built") > num_ops()
