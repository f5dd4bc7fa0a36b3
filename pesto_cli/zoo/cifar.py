"""CIFAR-10: TensorFlow's tutorial classifier of small images.

Scopes: `input`, `conv<i>`, `pool<i>`, `norm<i>`, `local3`, `local4`, `softmax`, `loss`; their
gradients lie under `gradients/`.
"""

from functools import partial
from typing import Any

from pesto_cli.graphdef.tensorflow import tensorflow
from pesto_cli.zoo.images import biased, conv, dense, flat, softmax_logits, training_step

# Half the window, and the scale, of the local response normalisation.
DEPTH, ALPHA = 4, 0.001 / 9.0


def cifar(
    *,
    filters: int = 64,
    units: int = 192,
    batch: int = 128,
    size: int = 24,
    classes: int = 10,
    learning_rate: float = 0.1,
    seed: int = 0,
) -> dict[str, Any]:
    """Add the training step of TensorFlow's tutorial on convolutional networks.

    Both convolutions have `filters` filters, and the two dense layers twice `units` and `units`
    units. Feeds and results: `images.training_step`.

    Source: tensorflow/models, tutorials/image/cifar10, which Spotlight (Gao et al., ICML '18,
    Section 5.1) places: two blocks of a convolution, a pool and a normalisation, and two dense
    layers; images of 24 x 24 pixels, and 1,068,298 parameters. Departures: no weight decay and no
    averages of variables; a constant rate; biases begin with 0; initial weights after He et al.
    (2015); images are fed, and not read by a pipeline in the graph.
    """
    tf1 = tensorflow().compat.v1
    optimizer = tf1.train.GradientDescentOptimizer(learning_rate, name="sgd")
    logits_of = partial(_logits, filters=filters, units=units, classes=classes, seed=seed)
    return training_step(logits_of, optimizer, batch=batch, size=size)


def _logits(images: Any, *, filters: int, units: int, classes: int, seed: int) -> Any:
    """Return the logits [batch, classes] of images [batch, size, size, 3]."""
    tf = tensorflow()

    def convolution(layer: Any, name: str) -> Any:
        with tf.name_scope(name):
            return tf.nn.relu(biased(conv(layer, filters, (5, 5), seed=seed)))

    def pool(layer: Any, name: str) -> Any:
        return tf.nn.max_pool2d(layer, 3, 2, "SAME", name=name)

    def norm(layer: Any, name: str) -> Any:
        return tf.nn.local_response_normalization(layer, DEPTH, 1.0, ALPHA, 0.75, name=name)

    layer = norm(pool(convolution(images, "conv1"), "pool1"), "norm1")
    layer = pool(norm(convolution(layer, "conv2"), "norm2"), "pool2")
    for name, width in (("local3", 2), ("local4", 1)):
        with tf.name_scope(name):
            layer = tf.nn.relu(dense(flat(layer), width * units, seed=seed))
    return softmax_logits(layer, classes, seed=seed)
