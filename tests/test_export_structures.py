"""A script may return the specs of the data with a model or function, in any structure."""

import pytest
from test_export import fed, losses

from pesto_cli.errors import BadInputError
from pesto_cli.graphdef.export import export
from pesto_cli.graphdef.fetches import feed_names

SCRIPT = """
import collections
import keras
import numpy as np
import tensorflow as tf

Spec, Batch = tf.TensorSpec, collections.namedtuple("Batch", "x y")

class Autoencoder(keras.Model):
    def __init__(self):
        super().__init__()
        self.dense = keras.layers.Dense(3)
    def train_step(self, data):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(self.dense(data) - data))
        gradients = tape.gradient(loss, self.trainable_weights)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_weights))
        return {"loss": loss}

def autoencoder():
    keras.utils.set_random_seed(1)
    model = Autoencoder()
    model.compile("sgd", jit_compile=False)
    return model

def bare():
    return autoencoder(), Spec([4, 3], tf.float32, name="x")
def alone_in_a_list():
    return autoencoder(), [Spec([4, 3], tf.float32, name="x")]
def array():
    return autoencoder(), np.zeros([4, 3], "f4")
def data_set():
    return autoencoder(), tf.data.Dataset.from_tensors(tf.zeros([4, 3]))
def alone_in_a_tuple():
    return autoencoder(), (Spec([4, 3], tf.float32, name="x"),)
def sizes():
    return autoencoder(), (4, 3)

def of_two(inputs, outputs, loss="mse"):
    a, b = (keras.Input((3,), name=name) for name in "ab")
    joined = keras.layers.Concatenate()([a, b])
    wide, narrow = (keras.layers.Dense(n, name=f"out{n}")(joined) for n in (5, 1))
    model = keras.Model(inputs(a, b), outputs(wide, narrow))
    model.compile("sgd", loss, jit_compile=False)
    return model

def nested():
    model = of_two(lambda a, b: {"b": b, "a": a}, lambda wide, narrow: narrow)
    return model, ({"a": Spec([4, 3]), "b": Spec([4, 3])}, Spec([4, 1]), Spec([4]))
def lists():
    model = of_two(lambda a, b: [a, b], lambda wide, narrow: narrow)
    return model, [[Spec([4, 3]), Spec([4, 3])], Spec([4, 1])]
def inferred_from_dicts():
    sparse = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    return of_two(
        lambda a, b: {"b": b, "a": a},
        lambda wide, narrow: {"z": wide, "n": narrow},
        {"z": sparse, "n": "mse"},
    )
def inferred_from_lists():
    return of_two(lambda a, b: [a, b], lambda wide, narrow: [wide, narrow])

weight = tf.Variable(1.0)

@tf.function
def of_batch(batch, training=True):
    weight.assign_sub(tf.reduce_sum(batch["x"] * batch["y"]))
@tf.function
def of_pair(data):
    x, y = data
    weight.assign_sub(tf.reduce_sum(x * y))
@tf.function
def of_arguments(x, y):
    weight.assign_sub(tf.reduce_sum(x * y))

def dict_as_argument():
    return of_batch, {"x": Spec([3]), "y": Spec([3])}
def dict_and_flag():
    return of_batch, [{"x": Spec([3]), "y": Spec([3])}, False]
def dict_by_name():
    return of_arguments, {"y": Spec([2, 3]), "x": Spec([3])}
def pair_as_argument():
    return of_pair, (Spec([3]), Spec([3]))
def named_pair():
    return of_pair, [Batch(Spec([3]), Spec([3]))]
def bare_argument():
    return tf.function(lambda x: weight.assign_sub(tf.reduce_sum(x))), Spec([3], name="x")
def too_few():
    return of_arguments, [Spec([3])]
def other_names():
    return of_arguments, {"u": Spec([3]), "v": Spec([3]), "w": Spec([3])}
"""


@pytest.fixture(scope="module")
def script(tmp_path_factory):
    path = tmp_path_factory.mktemp("structures") / "script.py"
    path.write_text(SCRIPT)
    return path


def fed_shapes(meta):
    nodes = {node.name: node for node in meta.graph_def.node}
    shapes = (nodes[name].attr["shape"].shape.dim for name in feed_names(meta))
    return [tuple(dim.size for dim in shape) for shape in shapes]


@pytest.mark.parametrize(
    ("name", "shapes"),
    [
        ("bare", [(4, 3)]),
        ("alone_in_a_list", [(4, 3)]),
        ("array", [(4, 3)]),
        ("data_set", [(4, 3)]),
        ("nested", [(4, 3), (4, 3), (4, 1), (4,)]),
        ("lists", [(4, 3), (4, 3), (4, 1)]),
        ("dict_as_argument", [(3,), (3,)]),
        ("dict_and_flag", [(3,), (3,)]),
        ("dict_by_name", [(3,), (2, 3)]),
        ("pair_as_argument", [(3,), (3,)]),
        ("named_pair", [(3,), (3,)]),
        ("bare_argument", [(3,)]),
    ],
)
def test_data_has_the_structure_that_the_step_expects(script, name, shapes):
    assert fed_shapes(export(f"{script}:{name}")) == shapes


def test_inputs_and_targets_follow_the_structure_of_the_model(script):
    feeds = {"a": (4, 3), "b": (4, 3)}
    meta = export(f"{script}:inferred_from_dicts", feeds=feeds)
    assert set(feed_names(meta)) == {"a", "b", "targets_out5", "targets_out1"}
    assert sorted(fed_shapes(meta)) == [(4,), (4, 1), (4, 3), (4, 3)]  # sparse targets are numbers
    meta = export(f"{script}:inferred_from_lists", feeds=feeds)
    assert sorted(fed_shapes(meta)) == [(4, 1), (4, 3), (4, 3), (4, 5)]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("alone_in_a_tuple", r"'autoencoder' cannot be traced in line \d+ \(train_step\): Val"),
        ("sizes", r"the data of the model contains int 4, where a tf.TensorSpec was expected"),
        ("too_few", r"parameters \(x, y\), but its specs are a sequence of length 1"),
        ("other_names", r"parameters \(x, y\), but its specs are a dict with 'u', 'v', 'w'"),
    ],
)
def test_data_that_does_not_fit_is_refused_in_one_line(script, name, message):
    with pytest.raises(BadInputError, match=message) as refused:
        export(f"{script}:{name}")
    assert "\n" not in str(refused.value)


def test_a_model_whose_data_is_a_single_array_trains_as_it_does_eagerly(script):
    namespace = {}
    exec(SCRIPT, namespace)
    meta = export(f"{script}:bare")
    batch = fed(meta)
    model, x = namespace["autoencoder"](), batch["x:0"].astype("f4")
    expected = [float(model.train_step(x)["loss"]) for _ in range(3)]
    assert losses(meta, 3, batch) == pytest.approx(expected, rel=1e-5)
