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
    scale: float = 0.05,
    seed: int = 0,
) -> dict[str, Any]:
    """Add an RNNLM's training step to the default graph.

    Feeds `tokens` and `targets`, int32 [batch, steps], both in [0, vocabulary). Returns `train_op`
    and `loss`, the cross entropy in nats per word (float32 scalar).

    Scopes: `embedding`, `layer_<l>/step_<t>`, `softmax/step_<t>`, `loss/step_<t>`; their gradients
    lie under `gradients/`.

    Source: Zaremba et al., "Recurrent Neural Network Regularization" (2014), section 4.1, as used
    by Pesto, section 5.2 (batch 128, Penn Treebank: a vocabulary of 10,000). Pesto leaves open the
    number of steps (20, Zaremba's medium model), the embedding size (`hidden`) and the optimiser
    (SGD). Departures: neither dropout nor clipping, and every batch starts from a state of zeros.
    Softmax and loss are taken step by step, so that they may overlap with the steps that follow.
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
    loss = _loss(logits, targets)
    optimizer = tf1.train.GradientDescentOptimizer(learning_rate, name="sgd")
    # Zaremba's gradients are of the loss summed over the steps and averaged over the batch.
    train_op = optimizer.minimize(loss * steps, name="train_op")
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
    """One layer's weights, read once for all its steps."""

    kernel: Any
    """[inputs, outputs]; of an LSTM layer, the gates input, candidate, forget, output in a row."""
    bias: Any
    """[outputs]"""


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


def _softmax_layer(
    outputs: Sequence[Any], *, vocabulary: int, scale: float, seed: int
) -> Sequence[Any]:
    """Return the logits of each step, [batch, vocabulary]."""
    tf = tensorflow()
    hidden = outputs[0].shape[1]
    with tf.name_scope("softmax"):
        kernel = uniform("kernel", [hidden, vocabulary], scale=scale, seed=seed)
        bias = filled("bias", [vocabulary], 0.0)
        with tf.name_scope("weights"):
            weights = _Weights(kernel.value(), bias.value())
        logits = []
        for step, output in enumerate(outputs):
            with tf.name_scope(f"step_{step}"):
                product = tf.matmul(output, weights.kernel)
                logits.append(tf.nn.bias_add(product, weights.bias, name="logits"))
        return logits


def _loss(logits: Sequence[Any], targets: Any) -> Any:
    """Return the cross entropy in nats per word, of logits by step and targets [batch, steps]."""
    tf = tensorflow()
    with tf.name_scope("loss"):
        means = []
        for step, (labels, step_logits) in enumerate(
            zip(tf.unstack(targets, axis=1), logits, strict=True)
        ):
            with tf.name_scope(f"step_{step}"):
                losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
                    labels=labels, logits=step_logits
                )
                means.append(tf.reduce_mean(losses))
        return tf.divide(tf.add_n(means), float(len(means)), name="mean")
