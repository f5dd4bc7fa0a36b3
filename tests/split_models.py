"""Training graphs that are split in tests, each with traps for whoever splits a graph."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import programs_of_others
from float64_graphs import in_float64, seeded
from random_plans import Specs, specs_of
from split_training import Training, trained
from training_graphs import Build, embedding, exported

from pesto_cli import api
from pesto_cli.graphdef.read import StepGraph, read_step
from pesto_cli.graphdef.tensorflow import tensorflow

BATCH = 6


@dataclass(frozen=True)
class Model:
    """A training graph.

    build: returns its MetaGraphDef. has_float64: whether each op has a kernel for float64.
    tolerance: of results in the data types of the model; see `split_training.check_equal`.
    noise: a part of the names of variables whose gradient is zero in exact arithmetic.
    """

    build: Callable[[], Any]
    has_float64: bool = True
    tolerance: float = 1e-5
    noise: str = "\0"


@dataclass(frozen=True)
class Trained:
    """A model in one precision, with what it computes."""

    meta: Any
    step: StepGraph
    specs: Specs
    training: Training


@cache
def trained_model(name: str, precision: str) -> Trained:
    """Return a model in the precision `float64` or `own`."""
    meta = exported_model(name)
    meta = in_float64(meta) if precision == "float64" else meta
    step = read_step(meta)
    return Trained(meta, step, specs_of(step), trained(meta))


@cache
def exported_model(name: str) -> Any:
    """Return a model as it is exported, with random ops that are repeatable."""
    return seeded({**MODELS, **PROGRAMS}[name].build())


def of_program(name: str) -> Callable[[], Any]:
    """Return the export of one of the `programs_of_others`."""
    return lambda: api.export(f"{programs_of_others.__file__}:{name}")


def of_graph(build: Build) -> Callable[[], Any]:
    """Return the export of a function that builds a v1 graph."""
    return lambda: exported(build)


def gpt(tf: Any) -> Sequence[Any]:
    """A block with causal attention; the word embedding is also the matrix of the output layer.

    Sparse and dense gradients of the embedding are added. Gradients are clipped by their global
    norm, and weights decay by themselves, as in AdamW.
    """
    tf1, length, width, words = tf.compat.v1, 5, 8, 12
    ids = tf1.placeholder(tf.int32, [BATCH, length], name="ids")
    targets = tf1.placeholder(tf.int32, [BATCH, length], name="targets")
    table, places = weights(tf, "table", [words, width]), weights(tf, "places", [length, width])
    x = normed(tf, "first", tf.nn.embedding_lookup(table, ids) + places)
    x = tf1.nn.dropout(x + attention(tf, x, heads=2), rate=0.2, seed=3)
    hidden = tf.nn.gelu(dense(tf, "inner", x, 2 * width))
    x = normed(tf, "last", x + dense(tf, "outer", hidden, width))
    logits = tf.matmul(tf.reshape(x, [-1, width]), table, transpose_b=True)
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(tf.reshape(targets, [-1]), logits)
    loss = tf.reduce_mean(losses, name="loss")
    adam, variables = tf1.train.AdamOptimizer(0.01), tf1.trainable_variables()
    clipped, norm = tf.clip_by_global_norm(tf1.gradients(loss, variables), 0.5)
    with tf.control_dependencies([*clipped, loss]):
        decays = [v.assign_sub(0.01 * v, read_value=False) for v in variables if len(v.shape) > 1]
    with tf.control_dependencies(decays):
        train = adam.apply_gradients(zip(clipped, variables, strict=True), name="train")
    return [train, norm, loss]


def bert(tf: Any) -> Sequence[Any]:
    """A block with attention over all words; three embeddings with sparse gradients."""
    tf1, length, width = tf.compat.v1, 5, 8
    words = tf1.placeholder(tf.int32, [BATCH, length], name="words")
    segments = tf1.placeholder(tf.int32, [BATCH, length], name="segments")
    labels = tf1.placeholder(tf.int32, [BATCH], name="labels")
    embedded = [
        tf.nn.embedding_lookup(weights(tf, "word_table", [12, width]), words),
        tf.nn.embedding_lookup(weights(tf, "segment_table", [5, width]), segments),
        tf.nn.embedding_lookup(weights(tf, "place_table", [6, width]), tf.range(length)),
    ]
    x = normed(tf, "first", tf.add_n([embedded[0], embedded[1], embedded[1] + embedded[2]]))
    x = tf1.nn.dropout(x + attention(tf, x, heads=2, is_causal=False), rate=0.2, seed=3)
    x = normed(tf, "last", x + dense(tf, "outer", tf.nn.gelu(dense(tf, "inner", x, 16)), width))
    pooled = tf.tanh(dense(tf, "pooled", x[:, 0], width))
    logits = dense(tf, "classes", pooled, 5)
    loss = tf.reduce_mean(
        tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits), name="loss"
    )
    return [tf1.train.AdamOptimizer(0.01).minimize(loss, name="train"), loss]


def dlrm(tf: Any) -> Sequence[Any]:
    """Ranking: numbers, bags of words of two tables, and their dot products; Adagrad.

    The gradients of the tables are made dense, so that the update needs no unique rows.
    """
    tf1, width = tf.compat.v1, 8
    numbers = tf1.placeholder(tf.float32, [BATCH, 7], name="numbers")
    clicks = tf1.placeholder(tf.int32, [BATCH, 1], name="clicks")
    vectors = [tf.nn.relu(dense(tf, "bottom", numbers, width))]
    for name, rows in (("users_table", 20), ("items_table", 12)):
        bag = tf1.placeholder(tf.int32, [BATCH, 3], name=f"{name}_bag")
        found = tf.nn.embedding_lookup(weights(tf, name, [rows, width]), bag)
        vectors.append(tf.reduce_sum(found, axis=1))
    stacked = tf.stack(vectors, axis=1)
    products = tf.reshape(tf.matmul(stacked, stacked, transpose_b=True), [BATCH, 9])
    pairs = tf.gather(products, [1, 2, 5], axis=1)
    top = tf.nn.relu(dense(tf, "top", tf.concat([vectors[0], pairs], axis=1), 10))
    labels = tf.cast(clicks > 2, tf.float32)
    losses = tf.nn.sigmoid_cross_entropy_with_logits(labels, dense(tf, "click", top, 1))
    loss, variables = tf.reduce_mean(losses, name="loss"), tf1.trainable_variables()
    gradients = map(tf.convert_to_tensor, tf1.gradients(loss, variables))
    adagrad = tf1.train.AdagradOptimizer(0.1)
    return [adagrad.apply_gradients(zip(gradients, variables, strict=True), name="train"), loss]


def weights(tf: Any, name: str, shape: Sequence[int]) -> Any:
    """Return a resource variable with normal values."""
    tf1 = tf.compat.v1
    initial = tf1.random_normal_initializer(stddev=0.3, seed=len(name))
    return tf1.get_variable(name, shape, initializer=initial, use_resource=True)


def dense(tf: Any, name: str, x: Any, units: int) -> Any:
    """Return a linear layer over the last axis."""
    kernel = weights(tf, f"{name}_kernel", [x.shape[-1], units])
    flat = tf.nn.bias_add(
        tf.matmul(tf.reshape(x, [-1, x.shape[-1]]), kernel), weights(tf, f"{name}_bias", [units])
    )
    return tf.reshape(flat, [*x.shape[:-1], units])


def normed(tf: Any, name: str, x: Any) -> Any:
    """Layer normalisation."""
    mean, variance = tf.nn.moments(x, [-1], keepdims=True)
    scale = weights(tf, f"{name}_scale", [x.shape[-1]])
    return (x - mean) * tf.math.rsqrt(variance + 1e-3) * (1.0 + scale)


def attention(tf: Any, x: Any, heads: int, is_causal: bool = True) -> Any:
    """Attention; the bias of the keys has no effect."""
    batch, length, width = x.shape

    def projected(name: str) -> Any:
        split = tf.reshape(dense(tf, name, x, width), [batch, length, heads, width // heads])
        return tf.transpose(split, [0, 2, 1, 3])

    scores = tf.matmul(projected("query"), projected("key"), transpose_b=True)
    if is_causal:
        mask = tf.linalg.band_part(tf.ones([length, length]), -1, 0)
        scores -= 1e9 * (1.0 - mask)
    attended = tf.matmul(tf.nn.softmax(scores), projected("value"))
    return dense(tf, "join", tf.reshape(tf.transpose(attended, [0, 2, 1, 3]), x.shape), width)


def accumulation(tf: Any) -> Sequence[Any]:
    """Gradients of two steps are added, then two optimisers apply them; the loss has an l2 term.

    The sums are reference variables. They are read after this step was added to them, and set to
    zero after they were used: control edges decide what is computed.
    """
    tf1 = tf.compat.v1
    inputs = tf1.placeholder(tf.float32, [BATCH, 4], name="inputs")
    targets = tf1.placeholder(tf.float32, [BATCH, 3], name="targets")
    outputs = dense(tf, "last", tf.tanh(dense(tf, "first", inputs, 8)), 3)
    variables = tf1.trainable_variables()
    decay = tf.add_n([tf.nn.l2_loss(each) for each in variables])
    loss = tf.add(tf.reduce_mean(tf.square(outputs - targets)), 0.01 * decay, name="loss")
    sums = [
        tf1.get_variable(
            f"sum_{i}",
            v.shape,
            initializer=tf1.zeros_initializer(),
            trainable=False,
            use_resource=False,
        )
        for i, v in enumerate(variables)
    ]
    count = tf1.train.get_or_create_global_step()
    added = [
        tf1.assign_add(total, gradient)
        for total, gradient in zip(sums, tf1.gradients(loss, variables), strict=True)
    ]
    with tf.control_dependencies([*added, loss]):
        number = tf1.assign_add(count, 1)
        means = [total.read_value() / 2.0 for total in sums]
    with tf.control_dependencies(means):
        train = tf1.cond(
            tf.equal(number % 2, 0), lambda: applied(tf, means, variables, sums), tf.no_op
        )
    return [train, number, loss]


def applied(tf: Any, means: Sequence[Any], variables: Sequence[Any], sums: Sequence[Any]) -> Any:
    """Momentum for the first half of the variables, Adagrad for the rest; then zero the sums."""
    tf1, pairs = tf.compat.v1, list(zip(means, variables, strict=True))
    with tf.control_dependencies(
        [
            tf1.train.MomentumOptimizer(0.1, 0.9).apply_gradients(pairs[:2]),
            tf1.train.AdagradOptimizer(0.1).apply_gradients(pairs[2:]),
        ]
    ):
        return tf.group(*[tf1.assign(total, tf.zeros_like(total)) for total in sums])


def scaled_loss(tf: Any) -> Sequence[Any]:
    """Half precision: the scale of the loss grows until a gradient is not finite, then it shrinks.

    It changes by large factors, so that rounding does not decide whether a gradient is finite.
    """
    tf1 = tf.compat.v1
    inputs = tf1.placeholder(tf.float32, [BATCH, 6], name="inputs")
    targets = tf1.placeholder(tf.float32, [BATCH, 2], name="targets")
    kernels = [weights(tf, "first", [6, 8]), weights(tf, "second", [8, 2])]
    scale = tf1.get_variable(
        "scale", [], initializer=tf1.constant_initializer(2.0**7), trainable=False
    )
    half = tf.cast(inputs, tf.float16)
    hidden = tf.nn.relu(tf.matmul(half, tf.cast(kernels[0], tf.float16)))
    outputs = tf.cast(tf.matmul(hidden, tf.cast(kernels[1], tf.float16)), tf.float32)
    loss = tf.reduce_mean(tf.square(outputs - targets), name="loss")
    current = tf.identity(scale)
    gradients = [each / current for each in tf1.gradients(loss * current, kernels)]
    finite = [tf.reduce_all(tf.math.is_finite(each)) for each in gradients]
    is_finite = tf.reduce_all(tf.stack(finite))
    used = [tf.where(is_finite, each, tf.zeros_like(each)) for each in gradients]
    with tf.control_dependencies([loss, current, *used]):
        next_scale = tf1.assign(scale, tf.where(is_finite, current * 64.0, current / 64.0))
        train = tf1.train.GradientDescentOptimizer(0.02).apply_gradients(
            zip(used, kernels, strict=True)
        )
    return [tf.group(train, next_scale, name="train"), is_finite, loss]


def batch_norm(tf: Any) -> Sequence[Any]:
    """Fused batch normalisation with moving averages, on reference variables."""
    tf1 = tf.compat.v1
    images = tf1.placeholder(tf.float32, [BATCH, 6, 6, 3], name="images")
    labels = tf1.placeholder(tf.int32, [BATCH], name="labels")
    x = tf.nn.conv2d(images, weights(tf, "kernel", [3, 3, 3, 4]), 1, "SAME")
    scale = tf1.get_variable("scale", [4], initializer=tf1.ones_initializer(), use_resource=False)
    moving = [
        tf1.get_variable(
            name, [4], initializer=tf1.zeros_initializer(), trainable=False, use_resource=False
        )
        for name in ("mean", "variance")
    ]
    x, *batch = tf1.nn.fused_batch_norm(x, scale, tf.zeros([4]), epsilon=1e-3)
    x = tf.nn.max_pool2d(tf.nn.relu(x), 2, 2, "VALID")
    logits = dense(tf, "logits", tf.reshape(x, [BATCH, -1]), 5)
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
    loss = tf.reduce_mean(losses, name="loss")
    averages = [
        tf1.assign_sub(average, 0.1 * (average - value))
        for average, value in zip(moving, batch, strict=True)
    ]
    with tf.control_dependencies([loss, *averages]):
        train = tf1.train.MomentumOptimizer(0.1, 0.9).minimize(loss, name="train")
    return [train, loss]


def loops(tf: Any) -> Sequence[Any]:
    """A while loop over TensorArrays, and a conditional; both stay whole."""
    tf1 = tf.compat.v1
    inputs = tf1.placeholder(tf.float32, [4, BATCH, 3], name="inputs")
    kernel, offset = weights(tf, "kernel", [8, 5]), weights(tf, "offset", [5])
    read = tf1.TensorArray(tf.float32, 4).unstack(inputs)

    def step(time: Any, state: Any, written: Any) -> Any:
        state = tf.tanh(tf.matmul(tf.concat([read.read(time), state], axis=1), kernel) + offset)
        return time + 1, state, written.write(time, state)

    start = [tf.constant(0), tf.zeros([BATCH, 5]), tf1.TensorArray(tf.float32, 4)]
    _, state, written = tf1.while_loop(lambda time, *_: time < 4, step, start)
    error = tf.reduce_mean(tf.square(written.stack() - 0.5)) + tf.reduce_mean(tf.exp(state))
    scaled = tf1.cond(error > 1.7, lambda: error * tf.reduce_sum(offset), lambda: tf.exp(error))
    loss = tf.add(scaled, tf.nn.l2_loss(state), name="loss")
    adam = tf1.train.AdamOptimizer(0.1)
    gradients = adam.compute_gradients(loss)
    with tf.control_dependencies([loss]):
        return [adam.apply_gradients(gradients, name="train"), loss]


def compiled_calls(tf: Any) -> Sequence[Any]:
    """Layers that XLA compiles, as calls of functions of one batch size; so are their gradients."""
    tf1 = tf.compat.v1
    inputs = tf1.placeholder(tf.float32, [BATCH, 4], name="inputs")
    targets = tf1.placeholder(tf.float32, [BATCH, 3], name="targets")

    @tf.function(jit_compile=True, autograph=False)
    def layer(x: Any, kernel: Any) -> Any:
        return tf.tanh(tf.matmul(x, kernel))

    kernels = [tf.identity(weights(tf, *each)) for each in (("first", [4, 8]), ("last", [8, 3]))]
    errors = tf.math.squared_difference(layer(layer(inputs, kernels[0]), kernels[1]), targets)
    loss = tf.reduce_mean(errors, name="loss")
    return [tf1.train.AdamOptimizer(0.01).minimize(loss, name="train"), loss]


def keras_cnn() -> Any:
    """Keras: batch normalisation, dropout, and an l2 loss."""
    import keras

    layers = keras.layers
    keras.backend.clear_session()
    keras.utils.set_random_seed(1)
    model = keras.Sequential(
        [
            keras.Input((8, 8, 3)),
            layers.Conv2D(4, 3, activation="relu", kernel_regularizer="l2"),
            layers.BatchNormalization(),
            layers.MaxPooling2D(),
            layers.Dropout(0.3, seed=1),
            layers.Flatten(),
            layers.Dense(5),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("rmsprop", loss, jit_compile=False)
    tf = tensorflow()
    specs = tf.TensorSpec([BATCH, 8, 8, 3], tf.float32), tf.TensorSpec([BATCH], tf.int32)
    return model, specs


def keras_groups() -> Any:
    """Keras: grouped convolutions, which XLA compiles, with batch normalisation and dropout."""
    import keras

    layers = keras.layers
    keras.backend.clear_session()
    keras.utils.set_random_seed(1)
    model = keras.Sequential(
        [
            keras.Input((8, 8, 3)),
            layers.Conv2D(4, 3, padding="same", activation="relu"),
            layers.Conv2D(4, 3, padding="same", groups=4, activation="relu"),
            layers.BatchNormalization(),
            layers.Dropout(0.3, seed=1),
            layers.Conv2D(8, 3, strides=2, groups=2),
            layers.Flatten(),
            layers.Dense(5),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("rmsprop", loss, jit_compile=False)
    tf = tensorflow()
    specs = tf.TensorSpec([BATCH, 8, 8, 3], tf.float32), tf.TensorSpec([BATCH], tf.int32)
    return model, specs


MODELS = {
    "RNNLM": Model(lambda: api.export("zoo:RNNLM-tiny")),
    "NMT": Model(lambda: api.export("zoo:NMT-tiny")),
    "Transformer": Model(lambda: api.export("zoo:Transformer-tiny"), noise="key/bias"),
    "BERT": Model(lambda: api.export("zoo:BERT-large-tiny"), noise="key/bias"),
    "XLNet": Model(lambda: api.export("zoo:XLNet-large-tiny")),
    "GPT": Model(lambda: api.export("zoo:GPT-1.3B-tiny"), noise="key/bias"),
    "NASNet": Model(lambda: api.export("zoo:NASNet-tiny"), has_float64=False),
    "keras_cnn": Model(lambda: api.export(f"{__file__}:keras_cnn")),
    "keras_groups": Model(lambda: api.export(f"{__file__}:keras_groups")),
    "gpt": Model(of_graph(gpt), noise="key_bias"),
    "bert": Model(of_graph(bert), noise="key_bias"),
    "dlrm": Model(of_graph(dlrm)),
    "accumulation": Model(of_graph(accumulation)),
    "scaled_loss": Model(of_graph(scaled_loss), has_float64=False, tolerance=1e-2),
    "batch_norm": Model(of_graph(batch_norm), has_float64=False),
    "loops": Model(of_graph(loops), has_float64=False),
    "compiled_calls": Model(of_graph(compiled_calls)),
    "embedding": Model(of_graph(embedding)),
}
"""Models small enough for each run of the tests."""

PROGRAMS = {
    name: Model(of_program(name), **options)  # type: ignore[arg-type]
    for name, options in {
        "bidirectional_lstm": {},
        "unrolled_gru": {},
        "text_transformer": {"noise": "key"},
        "gpt_2_with_tied_embeddings": {"noise": "key"},
        "dcgan": {},
        "variational_autoencoder": {},
        "custom_loop": {"has_float64": False},
        "small_cnn": {"has_float64": False},
        "loss_scale_in_a_loop": {"has_float64": False, "tolerance": 1e-2},
        "gradient_penalty": {},
        "recomputed_layers": {},
        "module_with_loops": {},
        "while_loop_with_a_list": {},
    }.items()
}
"""Programs of other people, for longer runs."""
