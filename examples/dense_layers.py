"""A chain of dense layers: one layer waits for the other, so placement alone gains little.

pesto export examples/dense_layers.py:build -o dense.meta
"""

import tensorflow as tf

tf1 = tf.compat.v1
BATCH, FEATURES, UNITS, CLASSES = 4096, 512, 2048, 512


def dense(name: str, values: tf.Tensor, units: int) -> tf.Tensor:
    """Return `values` multiplied by the weights of a layer, `[BATCH, units]`."""
    with tf1.variable_scope(name):
        weights = tf1.get_variable("weights", [values.shape[1], units], use_resource=True)
        return tf.matmul(values, weights)


def build() -> dict[str, tf.Tensor]:
    """Return the train op, and the loss as a second fetch."""
    tf1.set_random_seed(0)
    features = tf1.placeholder(tf.float32, [BATCH, FEATURES], name="features")
    target = tf1.placeholder(tf.int32, [BATCH], name="target")
    values = tf.nn.relu(dense("layer_0", features, UNITS))
    values = tf.nn.relu(dense("layer_1", values, UNITS))
    values = tf.nn.relu(dense("layer_2", values, UNITS))
    logits = dense("layer_3", values, CLASSES)
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(target, logits)
    loss = tf.reduce_mean(losses, name="loss")
    train_op = tf1.train.GradientDescentOptimizer(0.1).minimize(loss, name="train")
    return {"train_op": train_op, "loss": loss}
