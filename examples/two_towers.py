"""A small training step to try pesto on.

    pesto export examples/two_towers.py:build -o towers.meta

A model with two parallel towers predicts the next word from the previous ones.
"""

import tensorflow as tf

tf1 = tf.compat.v1
BATCH, STEPS, WORDS, UNITS, LAYERS = 64, 8, 10_000, 512, 4


def weights(*shape: int) -> tf.Variable:
    """Return the variable `weights` of the current scope."""
    return tf1.get_variable("weights", shape, use_resource=True)


def tower(name: str, values: tf.Tensor) -> tf.Tensor:
    """Return the output of a stack of dense layers, `[BATCH, UNITS]`."""
    for layer in range(LAYERS):
        with tf1.variable_scope(f"{name}/layer_{layer}"):
            values = tf.nn.relu(tf.matmul(values, weights(values.shape[1], UNITS)))
    return values


def build() -> dict[str, tf.Tensor]:
    """Return the train op, and the loss as a second fetch."""
    words = tf1.placeholder(tf.int32, [BATCH, STEPS], name="words")
    target = tf1.placeholder(tf.int32, [BATCH], name="target")
    with tf1.variable_scope("embedding"):
        looked_up = tf.nn.embedding_lookup(weights(WORDS, UNITS), words)
        context = tf.reshape(looked_up, [BATCH, STEPS * UNITS])
    both = tf.concat([tower("left", context), tower("right", context)], axis=1)
    with tf1.variable_scope("softmax"):
        logits = tf.matmul(both, weights(2 * UNITS, WORDS))
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(target, logits)
        loss = tf.reduce_mean(losses, name="loss")
    train_op = tf1.train.GradientDescentOptimizer(0.1).minimize(loss, name="train")
    return {"train_op": train_op, "loss": loss}
