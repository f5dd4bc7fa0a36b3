"""Training steps of different shapes, with ops suitable for one core.

They are the zoo's models with smaller sizes, and four simple extreme cases: no parallelism, full
parallelism, many large transfers, and few long ops.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from pesto_cli.graphdef.tensorflow import tensorflow
from pesto_cli.zoo.nasnet import nasnet
from pesto_cli.zoo.nmt import nmt
from pesto_cli.zoo.rnnlm import rnnlm
from pesto_cli.zoo.transformer import transformer

Tensor = Any


def chain(*, layers: int = 6, width: int = 1024, batch: int = 512) -> dict[str, Any]:
    """A chain of dense layers: only the gradients can use a second device."""
    features = _input(batch, width)
    for layer in range(layers):
        features = _dense(features, width, f"layer_{layer}")
    return _trained(features)


def towers(
    *, count: int = 4, layers: int = 3, width: int = 1024, batch: int = 512
) -> dict[str, Any]:
    """Independent towers that are joined by a small sum."""
    features = _input(batch, width)
    outputs = []
    for tower in range(count):
        output = features
        for layer in range(layers):
            output = _dense(output, width, f"tower_{tower}/layer_{layer}")
        outputs.append(_dense(output, 16, f"tower_{tower}/top"))
    return _trained(tensorflow().add_n(outputs))


def crossed(*, layers: int = 3, width: int = 1024, batch: int = 512) -> dict[str, Any]:
    """Two towers that exchange their activations, a megabyte, in each layer."""
    left = right = _input(batch, width)
    for layer in range(layers):
        both = left + 0.5 * right
        left = _dense(both, width, f"left/layer_{layer}")
        right = _dense(right - 0.5 * left, width, f"right/layer_{layer}")
    return _trained(left + right)


def convolutions(*, layers: int = 4, filters: int = 64, batch: int = 32) -> dict[str, Any]:
    """Two towers of 3 x 3 convolutions on images of 32 x 32 pixels: few ops, all of them long."""
    tf = tensorflow()
    tf1 = tf.compat.v1
    images = tf1.placeholder(tf.float32, [batch, 32, 32, 16], name="images")
    outputs = []
    for tower in range(2):
        output, channels = images, 16
        for layer in range(layers):
            with tf1.variable_scope(f"tower_{tower}/layer_{layer}", use_resource=True):
                kernel = _weights("kernel", 3, 3, channels, filters)
                output = tf.nn.relu(tf.nn.conv2d(output, kernel, 1, "SAME"))
                channels = filters
        outputs.append(tf.reduce_mean(output, [1, 2]))
    return _trained(tf.concat(outputs, 1))


def _input(batch: int, width: int) -> Tensor:
    tf = tensorflow()
    return tf.compat.v1.placeholder(tf.float32, [batch, width], name="features")


def _weights(name: str, *shape: int) -> Tensor:
    tf1 = tensorflow().compat.v1
    initial = tf1.glorot_uniform_initializer(seed=1)
    return tf1.get_variable(name, shape, initializer=initial, use_resource=True)


def _dense(features: Tensor, width: int, scope: str) -> Tensor:
    tf = tensorflow()
    with tf.compat.v1.variable_scope(scope), tf.name_scope(scope):
        return tf.tanh(tf.matmul(features, _weights("weights", int(features.shape[1]), width)))


def _trained(features: Tensor) -> dict[str, Any]:
    tf = tensorflow()
    loss = tf.reduce_mean(tf.square(features), name="loss")
    optimizer = tf.compat.v1.train.GradientDescentOptimizer(0.1)
    return {"train_op": optimizer.minimize(loss, name="train_op"), "loss": loss}


MODELS: Mapping[str, Callable[[], dict[str, Any]]] = {
    "chain": chain,
    "towers": towers,
    "crossed": crossed,
    "convolutions": convolutions,
    "RNNLM": partial(rnnlm, layers=2, hidden=768, batch=128, steps=4, vocabulary=2000),
    "RNNLM-deep": partial(rnnlm, layers=4, hidden=512, batch=128, steps=4, vocabulary=1000),
    "NMT": partial(
        nmt,
        layers=2,
        hidden=512,
        batch=128,
        source_length=3,
        target_length=3,
        vocabulary=2000,
    ),
    "Transformer": partial(
        transformer,
        layers=2,
        heads=4,
        hidden=512,
        inner=2048,
        batch=8,
        length=64,
        vocabulary=4000,
    ),
    "Transformer-wide": partial(
        transformer,
        layers=1,
        heads=8,
        hidden=768,
        inner=3072,
        batch=8,
        length=64,
        vocabulary=8000,
    ),
    "NASNet": partial(nasnet, cells=1, filters=48, stacks=1, batch=32, size=64, stem_filters=32),
}
