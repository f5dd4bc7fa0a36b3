"""A training script in the style of TensorFlow 1, which does not use pesto.

    python examples/train_v1.py --steps 5

A model with two towers, one for each half of a picture, classifies pictures.
"""

import argparse

import numpy as np
import tensorflow as tf

tf1 = tf.compat.v1
CLASSES, PIXELS, UNITS, LAYERS = 5, 64, 128, 3


def weights(*shape: int) -> tf.Variable:
    """Return the variable `weights` of the current scope."""
    initial = tf1.random_normal_initializer(stddev=0.1, seed=1)
    return tf1.get_variable("weights", shape, initializer=initial)


def tower(name: str, values: tf.Tensor) -> tf.Tensor:
    """Return the output of a stack of dense layers, `[batch, UNITS]`."""
    for layer in range(LAYERS):
        with tf1.variable_scope(f"{name}/layer_{layer}"):
            values = tf.nn.relu(tf.matmul(values, weights(values.shape[1], UNITS)))
    return values


def build() -> tuple[tf.Operation, tf.Tensor, tf.Tensor]:
    """Return the train op, the loss and the accuracy."""
    pictures = tf1.placeholder(tf.float32, [None, 2 * PIXELS], name="pictures")
    labels = tf1.placeholder(tf.int32, [None], name="labels")
    left, right = tf.split(pictures, 2, axis=1)
    both = tf.concat([tower("left", left), tower("right", right)], axis=1)
    with tf1.variable_scope("softmax"):
        logits = tf.matmul(both, weights(2 * UNITS, CLASSES))
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
    loss = tf.reduce_mean(losses, name="loss")
    right_guess = tf.equal(tf.argmax(logits, 1, output_type=tf.int32), labels)
    accuracy = tf.reduce_mean(tf.cast(right_guess, tf.float32), name="accuracy")
    step = tf1.train.get_or_create_global_step()
    train_op = tf1.train.AdamOptimizer(0.002).minimize(loss, global_step=step, name="train")
    return train_op, loss, accuracy


def batch(random: np.random.Generator, size: int) -> dict[str, np.ndarray]:
    """Return random pictures, each with one brighter pixel that depends on its label."""
    labels = random.integers(0, CLASSES, size)
    pictures = random.normal(size=(size, 2 * PIXELS))
    pictures[np.arange(size), labels * 20] += 4
    return {"pictures:0": pictures, "labels:0": labels}


def main() -> None:
    """Train, and print the accuracy on other pictures after every five steps."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--monitored", action="store_true", help="Use MonitoredTrainingSession.")
    options = parser.parse_args()
    random, others = np.random.default_rng(0), np.random.default_rng(1)
    with tf.Graph().as_default():
        train_op, loss, accuracy = build()
        init = tf1.global_variables_initializer()
        new_session = tf1.train.MonitoredTrainingSession if options.monitored else tf1.Session
        with new_session() as session:
            if not options.monitored:
                session.run(init)
            for step in range(options.steps):
                feeds = batch(random, options.batch)
                _, value = session.run([train_op, loss], feed_dict=feeds)
                print(f"step {step}: loss {float(value).hex()}")
                if step % 5 == 4:
                    share = session.run(accuracy, feed_dict=batch(others, 200))
                    print(f"accuracy {share:.3f}")


if __name__ == "__main__":
    main()
