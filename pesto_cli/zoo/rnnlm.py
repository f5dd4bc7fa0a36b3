"""RNNLM: a recurrent language model of stacked LSTM layers, unrolled over time."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pesto_cli.graphdef.tensorflow import tensorflow
from pesto_cli.zoo.variables import filled, uniform

FORGET_BIAS = 1.0


def rnnlm(
    *,
    layers: int,
    hidden: int,
    batch: int = 128,
    steps: int = 20,
    vocabulary: int = 10_000,
    learning_rate: float = 1.0,
    clip_norm: float = 5.0,
    scale: float = 0.05,
    seed: int = 0,
) -> dict[str, Any]:
    """Add an RNNLM's training step to the default graph.

    Feeds `tokens` and `targets`, int32 [batch, steps], both in [0, vocabulary). Returns `train_op`
    and `loss`, the cross entropy in nats per word (float32 scalar).

    Scopes: `embedding`, `layer_<l>/step_<t>`, `softmax`, `loss`; their gradients lie under
    `gradients/`, and the clipping of each variable's gradient under `clip/<variable>`.

    Source: Zaremba et al., "Recurrent Neural Network Regularization" (2014), section 4.1, as used
    by Pesto, section 5.2 (batch 128, Penn Treebank: a vocabulary of 10,000). Pesto leaves open the
    number of steps (20, Zaremba's medium model), the embedding size (`hidden`) and the optimiser
    (SGD with the gradient clipped by its global norm, both Zaremba's). Departures: no dropout, so
    that a step is deterministic, and every batch starts from a state of zeros.
    """
    tf = tensorflow()
    tf1 = tf.compat.v1
    with tf.name_scope("input"):
        tokens = tf1.placeholder(tf.int32, [batch, steps], name="tokens")
        targets = tf1.placeholder(tf.int32, [batch, steps], name="targets")
    outputs = _embedding(tokens, vocabulary=vocabulary, hidden=hidden, scale=scale, seed=seed)
    for layer in range(layers):
        with tf.name_scope(f"layer_{layer}"):
            outputs = _lstm_layer(outputs, hidden=hidden, scale=scale, seed=seed)
    logits = _softmax_layer(outputs, vocabulary=vocabulary, scale=scale, seed=seed)
    with tf.name_scope("loss"):
        labels = tf.reshape(tf.transpose(targets), [-1])
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
        loss = tf.reduce_mean(losses, name="mean")
        # What Zaremba's gradients are taken of: summed over the steps, averaged over the batch.
        objective = tf.multiply(loss, float(steps), name="objective")
    train_op = _clipped_sgd(objective, learning_rate=learning_rate, clip_norm=clip_norm)
    return {"train_op": train_op, "loss": loss}


def _embedding(
    tokens: Any, *, vocabulary: int, hidden: int, scale: float, seed: int
) -> Sequence[Any]:
    """Return the word vectors of each step: `steps` tensors [batch, hidden]."""
    tf = tensorflow()
    with tf.name_scope("embedding"):
        table = uniform("table", [vocabulary, hidden], scale=scale, seed=seed)
        vectors = tf.nn.embedding_lookup(table, tokens)
        steps: Sequence[Any] = tf.unstack(vectors, axis=1)
        return steps


@dataclass(frozen=True)
class _Weights:
    """One LSTM layer's weights, read once for all its steps."""

    kernel: Any
    """[inputs + hidden, 4 * hidden]; gates in the order input, candidate, forget, output."""
    bias: Any
    """[4 * hidden]"""


def _lstm_layer(inputs: Sequence[Any], *, hidden: int, scale: float, seed: int) -> Sequence[Any]:
    """Return the layer's outputs, one [batch, hidden] for each step, from inputs of that form."""
    tf = tensorflow()
    batch, width = inputs[0].shape
    kernel = uniform("kernel", [width + hidden, 4 * hidden], scale=scale, seed=seed)
    bias = filled("bias", [4 * hidden], 0.0)
    with tf.name_scope("weights"):
        weights = _Weights(kernel.value(), bias.value())
    cell = output = tf.zeros([batch, hidden], name="initial_state")
    outputs = []
    for step, step_input in enumerate(inputs):
        with tf.name_scope(f"step_{step}"):
            cell, output = _lstm_step(step_input, cell, output, weights)
        outputs.append(output)
    return outputs


def _lstm_step(step_input: Any, cell: Any, output: Any, weights: _Weights) -> tuple[Any, Any]:
    """Return the next (cell, output), both [batch, hidden]: Zaremba et al., equations of 3.1."""
    tf = tensorflow()
    together = tf.concat([step_input, output], axis=1)
    gates = tf.nn.bias_add(tf.matmul(together, weights.kernel), weights.bias)
    input_gate, candidate, forget_gate, output_gate = tf.split(gates, 4, axis=1)
    kept = tf.sigmoid(forget_gate + FORGET_BIAS) * cell
    cell = kept + tf.sigmoid(input_gate) * tf.tanh(candidate)
    return cell, tf.sigmoid(output_gate) * tf.tanh(cell)


def _softmax_layer(outputs: Sequence[Any], *, vocabulary: int, scale: float, seed: int) -> Any:
    """Return the logits of all steps in one tensor [steps * batch, vocabulary]."""
    tf = tensorflow()
    hidden = outputs[0].shape[1]
    with tf.name_scope("softmax"):
        kernel = uniform("kernel", [hidden, vocabulary], scale=scale, seed=seed)
        bias = filled("bias", [vocabulary], 0.0)
        together = tf.concat(outputs, axis=0)
        return tf.nn.bias_add(tf.matmul(together, kernel), bias, name="logits")


def _clipped_sgd(loss: Any, *, learning_rate: float, clip_norm: float) -> Any:
    """Return the op that takes one step of gradient descent on `loss`.

    Like `tf.clip_by_global_norm`, but each variable's ops lie in a scope of its name.
    """
    tf = tensorflow()
    tf1 = tf.compat.v1
    variables = tf1.trainable_variables()
    gradients = tf1.gradients(loss, variables, name="gradients")
    with tf.name_scope("clip"):
        squares = []
        for variable, gradient in zip(variables, gradients, strict=True):
            with tf.name_scope(f"{variable.op.name}/norm"):
                squares.append(tf.nn.l2_loss(_values(gradient)))
        norm = tf.sqrt(2 * tf.add_n(squares), name="global_norm")
        factor = tf.divide(clip_norm, tf.maximum(norm, clip_norm), name="factor")
        clipped = []
        for variable, gradient in zip(variables, gradients, strict=True):
            with tf.name_scope(f"{variable.op.name}/scaled"):
                clipped.append(_scaled(gradient, factor))
    optimizer = tf1.train.GradientDescentOptimizer(learning_rate, name="sgd")
    return optimizer.apply_gradients(zip(clipped, variables, strict=True), name="train_op")


def _values(gradient: Any) -> Any:
    """Return the dense values of a gradient that may be sparse (that of the embedding is)."""
    return getattr(gradient, "values", gradient)


def _scaled(gradient: Any, factor: Any) -> Any:
    tf = tensorflow()
    if isinstance(gradient, tf.IndexedSlices):
        return tf.IndexedSlices(gradient.values * factor, gradient.indices, gradient.dense_shape)
    return gradient * factor
