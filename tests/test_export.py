"""`export` converts every source to one graph without functions that trains in the same way."""

import os
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from pesto_cli.errors import BadInputError
from pesto_cli.graphdef.containers import write_meta_graph
from pesto_cli.graphdef.export import export
from pesto_cli.graphdef.fetches import feed_names, fetch_names, init_names, parse_feed
from pesto_cli.graphdef.hashing import graph_hash
from pesto_cli.graphdef.scripts import script_function
from pesto_cli.graphdef.tensorflow import tensorflow

ROOT = Path(__file__).parent.parent
V1_SCRIPT = """
import tensorflow as tf
tf1 = tf.compat.v1

def build():
    x = tf1.placeholder(tf.float32, [None, 3], name="x")
    with tf.name_scope("layer_0"):
        w = tf1.Variable(tf.ones([3, 2]), name="w", use_resource=True)
        y = tf.matmul(x, w)
    loss = tf.reduce_mean(tf.square(y), name="loss")
    return {"train_op": tf1.train.GradientDescentOptimizer(0.1).minimize(loss), "loss": loss}

def static():
    return build_with(tf1.placeholder(tf.float32, [4, 3], name="x"))

def build_with(x):
    w = tf1.Variable(tf.ones([3, 2]), name="w")
    loss = tf.reduce_mean(tf.square(tf.matmul(x, w)), name="loss")
    return tf1.train.AdamOptimizer(0.1).minimize(loss)

def loops():
    tf1.disable_control_flow_v2()
    x = tf1.placeholder(tf.float32, [4, 3], name="x")
    w = tf1.Variable(0.1 * tf.ones([3, 3]), name="w")
    y = tf1.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, tf.matmul(a, w)), (0, x))[1]
    tf1.enable_control_flow_v2()
    loss = tf.reduce_mean(tf.square(y), name="loss")
    return {"train_op": tf1.train.GradientDescentOptimizer(0.1).minimize(loss), "loss": loss}

def calls():
    x = tf1.placeholder(tf.float32, [4, 3], name="x")
    w = tf1.Variable(tf.ones([3, 2]), name="w")
    loss = tf.function(lambda a: tf.reduce_sum(tf.square(tf.matmul(a, w))))(x)
    return {"train_op": tf1.train.GradientDescentOptimizer(0.1).minimize(loss), "loss": loss}

def broken():
    raise ValueError("no such layer")

def returns_a_number():
    return 3

def returns_nothing():
    pass

def returns_a_list():
    built = build()
    return {"train_op": [built["train_op"]], "loss": built["loss"]}

def returns_a_nested_dict():
    built = build()
    return {"train_op": built["train_op"], "more": {"loss": built["loss"]}}

async def is_asynchronous():
    return build()

def traced():
    w = tf.Variable(tf.ones([3, 2]), name="w")

    @tf.function
    def step(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(tf.matmul(x, w)))
        w.assign_sub(0.1 * tape.gradient(loss, w))
        return {"loss": loss}

    return step, [tf.TensorSpec([4, 3], tf.float32, name="x")]

def lookup():
    table = tf.Variable(tf.ones([3, 2]), name="table")

    @tf.function
    def step(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.nn.embedding_lookup(table, [0, 2]) * x)
        table.assign_sub(0.1 * tf.convert_to_tensor(tape.gradient(loss, table)))
        return {"loss": loss}

    return step, [tf.TensorSpec([2, 2], tf.float32, name="x")]

def traced_without_specs():
    return traced()[0]

def assigned():
    x = tf1.placeholder(tf.float32, [4, 3], name="x")
    w = tf1.get_variable("w", [3, 2])
    loss = tf.reduce_mean(tf.square(tf.matmul(x, w)), name="loss")
    (gradient,) = tf1.gradients(loss, [w])
    step = tf1.train.get_or_create_global_step()
    return {"train_op": tf1.assign_sub(w, gradient), "loss": loss, "step": step}

def in_a_tuple():
    built = build()
    return built["train_op"], built["loss"]
"""

KERAS_SCRIPT = """
import keras
import numpy as np

def compiled(layers, **compile):
    keras.utils.set_random_seed(1)
    model = keras.Sequential(layers)
    model.compile(optimizer=compile.pop("optimizer", "adam"), **compile)
    return model

def cnn():
    return compiled(
        [
            keras.Input((8, 8, 3), name="images"),
            keras.layers.Conv2D(4, 3),
            keras.layers.BatchNormalization(),
            keras.layers.ReLU(),
            keras.layers.Flatten(),
            keras.layers.Dense(5),
        ],
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )

def lstm():
    import tensorflow as tf
    model = compiled(
        [keras.Input((6, 3), name="words"), keras.layers.LSTM(4), keras.layers.Dense(2)],
        optimizer="sgd",
        loss="mse",
    )
    return model, [tf.TensorSpec([4, 6, 3], name="x"), tf.TensorSpec([4, 2], name="y")]

def named_loss():
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, name="entropy")
    return compiled([keras.Input((8,), batch_size=4), keras.layers.Dense(5)], loss=loss)

def a_loss_for_two_outputs():
    images = keras.Input((8,), batch_size=4)
    model = keras.Model(images, [keras.layers.Dense(2)(images), keras.layers.Dense(3)(images)])
    model.compile("sgd", ["mse"])
    return model

def not_compiled():
    return keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with these scripts."""
    path = tmp_path_factory.mktemp("export")
    (path / "v1.py").write_text(V1_SCRIPT)
    (path / "models.py").write_text(KERAS_SCRIPT)
    (path / "damaged.py").write_text("import tensorflow\nx = (1,\n")
    (path / "failing.py").write_text("import os\n\nimport no_such_module\n")
    return path


def fed(meta, seed=0):
    """Return one random batch for an exported graph: {tensor name: array}."""
    random = np.random.default_rng(seed)
    batch = {}
    for node in meta.graph_def.node:
        if node.name in feed_names(meta):
            shape = [dim.size for dim in node.attr["shape"].shape.dim]
            integers = node.attr["dtype"].type not in (1, 2)
            value = random.integers(5, size=shape) if integers else random.normal(size=shape)
            batch[f"{node.name}:0"] = value
    return batch


def losses(meta, steps=5, batch=None):
    """Return the losses of `steps` steps in a new tf.Graph, on one batch."""
    tf1 = tensorflow().compat.v1
    batch = fed(meta) if batch is None else batch
    with tf1.Graph().as_default() as graph:
        tf1.train.import_meta_graph(meta)
        with tf1.Session(graph=graph) as session:
            session.run(init_names(meta))
            return [session.run(list(fetch_names(meta)), batch)[-1] for _ in range(steps)]


def op_types(meta):
    return [node.op for node in meta.graph_def.node]


def test_the_script_in_the_readmes_first_command_exists():
    source = "examples/two_towers.py:build"
    assert f"pesto place {source}" in (ROOT / "README.md").read_text()
    meta = export(str(ROOT / source))
    assert fetch_names(meta) == ("train", "softmax/loss:0")
    assert sorted(feed_names(meta)) == ["target", "words"]


# --- v1 scripts


def test_a_script_that_was_changed_within_a_second_is_read_again(tmp_path, monkeypatch):
    """Python would take the bytecode of the first text, which has the same size."""
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    script = tmp_path / "numbers.py"
    for number in (1, 2):
        script.write_text(f"def number():\n    return {number}\n")
        os.utime(script, (10**9, 10**9))
        assert script_function(script, "number")() == number
    assert [*tmp_path.iterdir()] == [script]


def test_a_builder_may_import_modules_beside_it_and_define_dataclasses(tmp_path):
    (tmp_path / "sizes_of_layers.py").write_text("WIDTH = 4\n")
    (tmp_path / "script.py").write_text(
        """from __future__ import annotations
from dataclasses import dataclass

import tensorflow as tf

@dataclass
class Config:
    width: int

def build():
    from sizes_of_layers import WIDTH
    x = tf.compat.v1.placeholder(tf.float32, [Config(WIDTH).width], name="x")
    return tf.identity(x, name="y").op
"""
    )
    before = [*sys.path]
    meta = export(f"{tmp_path}/script.py:build")
    assert (feed_names(meta), sys.path) == (("x",), before)


def test_a_v1_graph_exports_with_a_static_feed_and_learns(folder):
    meta = export(f"{folder}/v1.py:build", feeds={"x": (4, 3)})
    assert fetch_names(meta) == ("GradientDescent", "loss:0")
    assert feed_names(meta) == ("x",)
    found = losses(meta)
    assert all(later < earlier for earlier, later in pairwise(found))


def test_an_assignment_and_a_variable_can_be_fetched(folder):
    meta = export(f"{folder}/v1.py:assigned")
    step = "global_step/Read/ReadVariableOp:0"
    assert fetch_names(meta) == ("AssignSubVariableOp", "loss:0", step)


def test_a_function_may_return_only_a_train_op(folder):
    meta = export(f"{folder}/v1.py:static")
    assert fetch_names(meta) == ("Adam",)
    assert {"variables", "trainable_variables"} <= set(meta.collection_def)
    assert meta.saver_def.restore_op_name


def test_v1_while_loops_are_exported_unchanged(folder):
    meta = export(f"{folder}/v1.py:loops")
    assert {"Enter", "Exit", "NextIteration"} <= set(op_types(meta))
    found = losses(meta)
    assert found[-1] < found[0]


def test_a_v1_loop_can_be_optimized(folder):
    meta = export(f"{folder}/v1.py:loops", optimize=True)
    assert losses(meta) == pytest.approx(losses(export(f"{folder}/v1.py:loops")), rel=1e-5)


def test_calls_in_a_v1_graph_are_inlined(folder):
    meta = export(f"{folder}/v1.py:calls")
    assert not any("Call" in kind or kind == "SymbolicGradient" for kind in op_types(meta))
    found = losses(meta)
    assert found[-1] < found[0]


def test_an_exported_graph_exports_again_unchanged(folder, tmp_path):
    meta = export(f"{folder}/v1.py:static")
    write_meta_graph(tmp_path / "g.meta", meta)
    again = export(str(tmp_path / "g.meta"))
    assert graph_hash(again.graph_def) == graph_hash(meta.graph_def)
    assert fetch_names(again) == fetch_names(meta)


@pytest.mark.parametrize("name", ["g.pb", "g.pbtxt"])
def test_a_graph_def_keeps_its_variables_and_trains(folder, tmp_path, name):
    meta = export(f"{folder}/v1.py:build", feeds={"x": (4, 3)})
    write_meta_graph(tmp_path / name, meta)
    again = export(str(tmp_path / name), fetches=["GradientDescent", "loss:0"])
    assert losses(again) == losses(meta)
    assert "trainable_variables" in again.collection_def


def test_optimize_shrinks_the_graph_and_keeps_the_losses(folder):
    plain = export("zoo:RNNLM-tiny")
    smaller = export("zoo:RNNLM-tiny", optimize=True)
    assert len(smaller.graph_def.node) < len(plain.graph_def.node)
    assert fetch_names(smaller) == fetch_names(plain)
    assert not any(kind.startswith("_") for kind in op_types(smaller))
    assert losses(smaller) == pytest.approx(losses(plain), rel=1e-5)


# --- tf.function and Keras


def test_the_variables_of_a_tf_function_are_exported_with_their_values(folder):
    meta = export(f"{folder}/v1.py:traced")
    tf = tensorflow()
    batch = fed(meta)
    w, expected = np.ones([3, 2], "f4"), []
    for _ in range(5):
        with tf.GradientTape() as tape:
            variable = tf.constant(w)
            tape.watch(variable)
            loss = tf.reduce_mean(tf.square(tf.matmul(batch["x:0"].astype("f4"), variable)))
        w -= 0.1 * tape.gradient(loss, variable).numpy()
        expected.append(float(loss))
    assert losses(meta) == pytest.approx(expected, rel=1e-6)


def test_a_tf_function_may_look_rows_of_a_variable_up(folder):
    meta = export(f"{folder}/v1.py:lookup")
    x = fed(meta)["x:0"]
    expected = [float(((1 - 0.1 * step * x) * x).sum()) for step in range(5)]
    assert losses(meta) == pytest.approx(expected, rel=1e-5)


def eager_losses(folder, name, x, y, steps):
    """Return the losses of Keras's own train step, from the same initial weights."""
    namespace = {}
    exec((folder / "models.py").read_text(), namespace)
    built = namespace[name]()
    model = built[0] if isinstance(built, tuple) else built
    return [float(model.train_step((x, y))["loss"]) for _ in range(steps)]


def test_a_keras_cnn_trains_as_it_does_eagerly(folder):
    meta = export(f"{folder}/models.py:cnn", feeds={"images": (4, 8, 8, 3)})
    assert set(feed_names(meta)) == {"images", "targets"}
    batch = fed(meta)
    x, y = batch["images:0"].astype("f4"), batch["targets:0"]
    expected = eager_losses(folder, "cnn", x, y, 3)
    assert losses(meta, 3, batch) == pytest.approx(expected, rel=1e-6)
    assert "FusedBatchNormV3" in op_types(meta) or "Rsqrt" in op_types(meta)


def test_the_targets_of_a_sparse_loss_with_another_name_are_class_numbers(folder):
    meta = export(f"{folder}/models.py:named_loss")
    (targets,) = (node for node in meta.graph_def.node if node.name == "targets")
    assert targets.attr["dtype"].type == tensorflow().int32.as_datatype_enum


def test_a_keras_lstm_keeps_its_loop_as_one_op_and_trains_as_it_does_eagerly(folder):
    meta = export(f"{folder}/models.py:lstm")
    loops = [node for node in meta.graph_def.node if node.op in ("While", "StatelessWhile")]
    assert loops
    assert not any(node.attr["_lower_using_switch_merge"].b for node in loops)
    batch = fed(meta)
    x, y = batch["x:0"].astype("f4"), batch["y:0"].astype("f4")
    assert losses(meta, 3, batch) == pytest.approx(eager_losses(folder, "lstm", x, y, 3), rel=1e-6)


def test_values_too_large_for_the_graph_are_drawn_with_the_same_distribution(monkeypatch, caplog):
    from pesto_cli.graphdef import initial_values as module

    monkeypatch.setattr(module, "EMBEDDED_BYTES", 1000)
    value = np.random.default_rng(0).normal(3, 2, [50, 40]).astype("f4")
    given = {"w": value, "zeros": np.zeros([1000], "f4"), "ids": np.arange(4)}
    tf = tensorflow()
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        built = {name: build() for name, build in module.initial_values(given).items()}
        drawn = session.run(built)
    assert "1 variables with" in caplog.text
    assert (drawn["w"].shape, drawn["w"].dtype) == (value.shape, value.dtype)
    assert drawn["w"].mean() == pytest.approx(3, abs=0.2)
    assert drawn["w"].std() == pytest.approx(2, abs=0.2)
    assert built["zeros"].op.type == "Fill"
    np.testing.assert_array_equal(drawn["ids"], np.arange(4))


@pytest.mark.parametrize(
    "value",
    [
        np.array([True, False]),
        np.array([-128, 127, 5], "i1"),
        np.array([np.nan, 1, 2], "f4"),
        np.array([b"a", b"b"], dtype=object),
        np.array([b"a", b"a"], dtype=object),
        np.array([], "f4"),
        np.float32(2),
        np.array([1, 2, 2]).astype(tensorflow().bfloat16.as_numpy_dtype),
    ],
    ids=str,
)
def test_values_of_every_type_are_kept(value):
    from pesto_cli.graphdef import initial_values as module

    tf = tensorflow()
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        (build,) = module.initial_values({"v": value}).values()
        kept = session.run(build())
    np.testing.assert_array_equal(kept, value)


def test_large_values_of_bfloat16_are_drawn(monkeypatch, caplog):
    from pesto_cli.graphdef import initial_values as module

    monkeypatch.setattr(module, "EMBEDDED_BYTES", 1000)
    value = np.arange(1000).astype(tensorflow().bfloat16.as_numpy_dtype)
    module.initial_values({"w": value})
    assert "1 variables with" in caplog.text


# --- SavedModel


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A TensorFlow 2 SavedModel with two signatures, a variable and a lookup table."""
    tf = tensorflow()

    class Model(tf.Module):
        def __init__(self):
            super().__init__()
            self.w = tf.Variable(np.arange(6, dtype="f4").reshape(3, 2), name="w")
            entries = tf.lookup.KeyValueTensorInitializer(tf.constant([1, 2]), tf.constant([7, 9]))
            self.table = tf.lookup.StaticHashTable(entries, -1)

        @tf.function(
            input_signature=[
                tf.TensorSpec([4, 3], tf.float32, name="x"),
                tf.TensorSpec([4], tf.int32, name="k"),
            ]
        )
        def train(self, x, k):
            looked_up = tf.cast(self.table.lookup(k), tf.float32)
            loss = tf.reduce_sum(tf.matmul(x, self.w)) + tf.reduce_sum(looked_up)
            self.w.assign_sub(0.1 * tf.ones_like(self.w))
            return {"loss": loss}

        @tf.function(input_signature=[tf.TensorSpec([None, 3], tf.float32, name="x")])
        def serve(self, x):
            return {"y": tf.matmul(x, self.w)}

    path = tmp_path_factory.mktemp("saved") / "model"
    model = Model()
    signatures = {"train": model.train, "serving_default": model.serve}
    tf.saved_model.save(model, str(path), signatures=signatures)
    return path


def test_a_signature_keeps_variables_tables_and_updates(saved):
    meta = export(str(saved), signature="train")
    x, k = np.ones([4, 3], "f4"), [1, 2, 3, 1]
    found = losses(meta, 2, {"train_x:0": x, "train_k:0": k})
    first = 4 * np.arange(6).sum() + (7 + 9 - 1 + 7)
    assert found == pytest.approx([first, first - 0.1 * 24])
    assert meta.saver_def.restore_op_name
    assert not any("Call" in kind for kind in op_types(meta))


def test_a_loop_inside_a_signature_stays_one_op(tmp_path):
    tf = tensorflow()

    @tf.function(input_signature=[tf.TensorSpec([2], tf.float32, name="x")])
    def halved(x):
        while tf.reduce_sum(x) > 1.0:
            x = x / 2.0
        return {"y": x}

    module = tf.Module()
    module.halved = halved
    tf.saved_model.save(module, str(tmp_path / "m"), signatures={"serving_default": halved})
    meta = export(str(tmp_path / "m"))
    assert any(kind in ("While", "StatelessWhile") for kind in op_types(meta))
    assert "Enter" not in op_types(meta)
    (name,) = feed_names(meta)
    assert losses(meta, 1, {f"{name}:0": [3.0, 1.0]})[0].tolist() == [0.75, 0.25]


def two_open_inputs(tf):
    x = tf.compat.v1.placeholder(tf.float32, [None, 3], name="x")
    y = tf.compat.v1.placeholder(tf.float32, [None], name="y")
    w = tf.compat.v1.get_variable("w", [3, 1], use_resource=True)
    loss = tf.reduce_mean(tf.square(tf.matmul(x, w)[:, 0] - y), name="loss")
    return [tf.compat.v1.train.MomentumOptimizer(0.1, 0.9).minimize(loss, name="train")]


@pytest.fixture
def open_graph(tmp_path):
    """The file of a v1 graph that names no fetches, with two inputs of open shapes."""
    tf = tensorflow()
    with tf.Graph().as_default() as graph:
        two_open_inputs(tf)
    path = tmp_path / "open.pb"
    path.write_bytes(graph.as_graph_def().SerializeToString())
    return path


def test_the_error_for_open_shapes_lists_the_options_to_set_them(open_graph):
    with pytest.raises(
        BadInputError, match=r"2 inputs have open shapes \('x' \[\?,3\], 'y'"
    ) as found:
        export(str(open_graph), fetches=["train"])
    assert str(found.value).endswith("--feed x=32,3 --feed y=32")


def test_shapes_of_inputs_that_do_not_fit_together_are_refused(open_graph):
    with pytest.raises(BadInputError, match=r"--feed x=32,3 --feed y=31\): .*equal.*\[31\]"):
        export(str(open_graph), fetches=["train"], feeds={"x": (32, 3), "y": (31,)})


@pytest.mark.parametrize("fetch", ["train", "loss:0"])
def test_fetches_that_train_nothing_cause_a_remark(pesto, tmp_path, open_graph, fetch):
    options = ("--fetch", fetch, "--feed", "x=32,3", "--feed", "y=32", "-o", tmp_path / "out.meta")
    done = pesto("export", open_graph, *options)
    assert done.code == 0
    remark = "they update no variable. For a training step, name its train op: --fetch train\n"
    assert (remark in done.err) == (fetch == "loss:0")
    assert pesto("export", open_graph, *options, "--quiet").err == ""


def test_a_signature_with_an_open_batch_size_is_refused(saved):
    with pytest.raises(BadInputError, match=r"--feed serving_default_x=32,3"):
        export(str(saved), signature="serving_default")
    meta = export(str(saved), signature="serving_default", feeds={"serving_default_x": (2, 3)})
    found = losses(meta, 1, {"serving_default_x:0": np.eye(2, 3)})[0]
    np.testing.assert_array_equal(found, [[0, 1], [2, 3]])


def test_a_saved_model_of_tensorflow_1_is_exported_unchanged(tmp_path):
    tf = tensorflow()
    tf1 = tf.compat.v1
    with tf1.Graph().as_default(), tf1.Session() as session:
        x = tf1.placeholder(tf.float32, [2, 3], name="x")
        w = tf1.Variable(tf.ones([3, 1]), name="w")
        y = tf.matmul(x, w, name="y")
        session.run(tf1.global_variables_initializer())
        tf1.saved_model.simple_save(session, str(tmp_path / "m"), {"x": x}, {"y": y})
    meta = export(str(tmp_path / "m"))
    np.testing.assert_array_equal(losses(meta, 1, {"x:0": np.eye(2, 3)})[0], [[1], [1]])


def test_the_error_for_several_signatures_lists_them(saved):
    with pytest.raises(BadInputError, match=r"serving_default, train.*--signature NAME"):
        export(str(saved))
    with pytest.raises(BadInputError, match=r"no signature 'trian'. Did you mean train"):
        export(str(saved), signature="trian")
    with pytest.raises(BadInputError, match="only a SavedModel directory"):
        export("zoo:RNNLM-tiny", signature="train")


# --- bad input


@pytest.mark.parametrize(
    ("source", "options", "message"),
    [
        ("v1.py:build", {}, r"input 'x' has the shape \[\?,3\].*--feed x=32,3"),
        ("v1.py:build", {"feeds": {"X": (4, 3)}}, "--feed X: no such node"),
        ("v1.py:build", {"feeds": {"loss": ()}}, "--feed loss: a Mean, not a placeholder"),
        ("v1.py:build", {"feeds": {"x": (4, 4)}}, r"x=4,4: the shape in the graph is \[\?,3\]"),
        ("v1.py:build", {"fetches": ["los"]}, "no node 'los' to fetch. Did you mean loss"),
        ("v1.py:biuld", {}, "no function 'biuld'. Did you mean build"),
        ("v1.py:tf1", {}, "'tf1' is not a function"),
        ("v1.py:broken", {}, "failed in line 37: ValueError: no such layer"),
        ("v1.py:returns_a_number", {}, "returned an int, where a train op"),
        ("v1.py:returns_nothing", {}, r"returned nothing, where a train op.* Add a return"),
        ("v1.py:returns_a_list", {}, "returned a list as 'train_op', where an operation or"),
        ("v1.py:returns_a_nested_dict", {}, "a dict with 'loss' as 'more' in the dict with"),
        ("v1.py:is_asynchronous", {}, "returned a coroutine, where a train op"),
        ("v1.py:traced_without_specs", {}, "a tf.function without input specs"),
        ("v1.py:in_a_tuple", {}, "returned a tuple, where a train op, a dict with 'train_op'"),
        ("v1.py", {}, r"v1.py:build, \S*v1.py:static, \S*v1.py:loops, \S*v1.py:calls, .*\.\.\."),
        ("damaged.py", {}, "the training step: [^ ]*damaged.py:FUNCTION. Or"),
        ("missing.py", {}, "no such script"),
        ("models.py:cnn", {}, r"'images' \[\?,8,8,3\], .*--feed images=32,8,8,3 --feed targets="),
        ("models.py:cnn", {"feeds": {"image": (1,)}}, "no such input. Did you mean images"),
        ("models.py:cnn", {"feeds": {"images": (4, 8, 8, 1)}}, "Replace only open dimensions"),
        (
            "models.py:cnn",
            {"feeds": {"targets": (3,), "images": (4, 8, 8, 3)}},
            "--feed targets=3: the batch is 3, where 4 was expected, as in --feed images=4,8,8,3",
        ),
        (
            "models.py:cnn",
            {"feeds": {"images": (4, 8, 8, 3), "targets": (4, 1)}},
            r"--feed targets=4,1: the shape in the model is \[\?\]. Replace only",
        ),
        ("models.py:a_loss_for_two_outputs", {}, "2 outputs and 1 losses; a loss for each output"),
        ("models.py:not_compiled", {}, "is not compiled"),
        ("damaged.py:build", {}, "damaged.py: cannot be imported in line 2: SyntaxError"),
        ("failing.py:build", {}, "in line 3: ModuleNotFoundError: No module named 'no_such_mod"),
        ("missing.py:build", {}, "no such script"),
        ("missing.meta", {}, "no such file"),
    ],
)
def test_bad_input_ends_with_one_clear_message(folder, source, options, message):
    with pytest.raises(BadInputError, match=message) as refused:
        export(f"{folder}/{source}", **options)
    assert refused.value.exit_code == 2


@pytest.mark.filterwarnings("error:coroutine")
def test_a_coroutine_gives_no_warning(folder):
    with pytest.raises(BadInputError, match="returned a coroutine"):
        export(f"{folder}/v1.py:is_asynchronous")


def test_a_function_that_returns_nothing_is_called_once(script, tmp_path):
    calls = tmp_path / "calls.txt"
    path = script(f"def build():\n    open({str(calls)!r}, 'a').write('called ')")
    with pytest.raises(BadInputError, match="returned nothing"):
        export(f"{path}:build")
    assert calls.read_text() == "called "


def test_a_script_without_a_function_is_not_run(script):
    path = script("def _a(): 1\ndef b(c): 2\ndef d(e=1): 3\nraise SystemExit")
    with pytest.raises(BadInputError, match=f"training step: {path}:d. Or run"):
        export(str(path))


def test_an_unknown_zoo_model_is_refused():
    with pytest.raises(BadInputError, match="Transformer-6-16-2048"):
        export("zoo:RNNLM")


def graph_file(path, *nodes):
    tf1 = tensorflow().compat.v1
    graph_def = tf1.GraphDef()
    for name, op, inputs in nodes:
        node = graph_def.node.add(name=name, op=op, input=inputs)
        if op != "NoOp":
            node.attr["T"].type = 1
    path.write_bytes(graph_def.SerializeToString())
    return str(path)


def test_the_error_for_a_cycle_names_its_nodes(tmp_path):
    source = graph_file(
        tmp_path / "g.pb", ("a", "Neg", ["c"]), ("b", "Neg", ["a"]), ("c", "Neg", ["b", "^a"])
    )
    with pytest.raises(BadInputError, match=r"form a cycle \(.*b.*\)") as refused:
        export(source, fetches=["c"])
    assert all(f"{name} -> " in str(refused.value) for name in "ac")


def test_a_missing_input_and_a_repeated_name_are_refused(tmp_path):
    with pytest.raises(BadInputError, match="node 'a' has the input 'z', which is not in"):
        export(graph_file(tmp_path / "g.pb", ("a", "NoOp", ["^z"])))
    with pytest.raises(BadInputError, match="two nodes are named 'a'"):
        export(graph_file(tmp_path / "h.pb", ("a", "NoOp", []), ("a", "NoOp", [])))


def test_an_unknown_op_type_is_refused(tmp_path):
    with pytest.raises(BadInputError, match=r"cannot import the graph.*NoSuchOp"):
        export(graph_file(tmp_path / "g.pb", ("a", "NoSuchOp", [])))


def test_a_graph_without_fetches_and_with_several_sinks_is_refused(tmp_path):
    source = graph_file(tmp_path / "g.pb", ("a", "NoOp", []), ("b", "NoOp", []))
    with pytest.raises(BadInputError, match=r"2 nodes without consumers \(a, b\).*--fetch"):
        export(source)
    assert fetch_names(export(source, fetches=["b"])) == ("b",)


def test_feeds_are_read_from_the_command_line():
    assert parse_feed("images=32,224,224,3") == ("images", (32, 224, 224, 3))
    assert parse_feed("rate=") == ("rate", ())
    for text in ("images", "=3", "x=a,b", "x=-1,3", "x=32,,3", "x=,"):
        with pytest.raises(BadInputError, match="NAME=SHAPE"):
            parse_feed(text)
