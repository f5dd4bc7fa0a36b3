"""Embedding, softmax and loss, time step by time step, for models that are unrolled over time."""

from collections.abc import Sequence
from typing import Any

from pesto_cli.graphdef.tensorflow import tensorflow
from pesto_cli.zoo.variables import filled, uniform


def word_vectors(
    tokens: Any, *, vocabulary: int, hidden: int, scale: float, seed: int
) -> Sequence[Any]:
    """Return the vectors of tokens [batch, time]: a tensor [batch, hidden] for each time step."""
    tf = tensorflow()
    with tf.name_scope("embedding"):
        table = uniform("table", [vocabulary, hidden], scale=scale, seed=seed)
        vectors = tf.nn.embedding_lookup(table, tokens)
        steps: Sequence[Any] = tf.unstack(vectors, axis=1)
        return steps


def word_logits(
    outputs: Sequence[Any], *, vocabulary: int, scale: float, seed: int
) -> Sequence[Any]:
    """Return a tensor of logits [batch, vocabulary] for each time step.

    outputs: for each time step, the output of the last layer, [batch, hidden].
    """
    tf = tensorflow()
    hidden = outputs[0].shape[1]
    with tf.name_scope("softmax"):
        kernel = uniform("kernel", [hidden, vocabulary], scale=scale, seed=seed)
        bias = filled("bias", [vocabulary], 0.0)
        with tf.name_scope("weights"):
            kernel, bias = kernel.value(), bias.value()
        logits = []
        for step, output in enumerate(outputs):
            with tf.name_scope(f"step_{step}"):
                logits.append(tf.nn.bias_add(tf.matmul(output, kernel), bias, name="logits"))
        return logits


def loss_per_word(logits: Sequence[Any], labels: Any) -> Any:
    """Return the cross entropy in nats per word.

    logits: a tensor [batch, vocabulary] for each time step. labels: [batch, time].
    """
    tf = tensorflow()
    with tf.name_scope("loss"):
        means = []
        for step, (step_labels, step_logits) in enumerate(
            zip(tf.unstack(labels, axis=1), logits, strict=True)
        ):
            with tf.name_scope(f"step_{step}"):
                losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
                    labels=step_labels, logits=step_logits
                )
                means.append(tf.reduce_mean(losses))
        return tf.divide(tf.add_n(means), float(len(means)), name="mean")
