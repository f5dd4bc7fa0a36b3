"""RNNLM: a recurrent language model of stacked LSTM layers, unrolled over time."""

from typing import Any

from pesto_cli.graphdef.tensorflow import tensorflow
from pesto_cli.zoo.lstm import lstm_layer
from pesto_cli.zoo.words import loss_per_word, word_logits, word_vectors


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

    Feeds: `tokens` and `targets`, int32 [batch, steps], both in [0, vocabulary). Returns `train_op`
    and `loss`, the cross entropy in nats per word (float32 scalar).

    Scopes: `embedding`, `layer_<l>/step_<t>`, `softmax/step_<t>`, `loss/step_<t>`; their gradients
    lie under `gradients/`.

    Source: Zaremba et al., "Recurrent Neural Network Regularization" (2014), section 4.1, as used
    by Pesto, section 5.2 (batch 128, Penn Treebank: a vocabulary of 10,000). Pesto does not give
    the number of steps (here 20, as in Zaremba's medium model), the embedding size (here `hidden`)
    and the optimiser (here SGD). Departures: no dropout or clipping, and the initial state of every
    batch is zero. Softmax and loss are computed for each step separately, so that they can overlap
    with later steps.
    """
    tf = tensorflow()
    tf1 = tf.compat.v1
    with tf.name_scope("input"):
        tokens = tf1.placeholder(tf.int32, [batch, steps], name="tokens")
        targets = tf1.placeholder(tf.int32, [batch, steps], name="targets")
    outputs = word_vectors(tokens, vocabulary=vocabulary, hidden=hidden, scale=scale, seed=seed)
    for layer in range(layers):
        with tf.name_scope(f"layer_{layer}"):
            inputs = [(output,) for output in outputs]
            outputs, _ = lstm_layer(inputs, hidden=hidden, scale=scale, seed=seed)
    logits = word_logits(outputs, vocabulary=vocabulary, scale=scale, seed=seed)
    loss = loss_per_word(logits, targets)
    optimizer = tf1.train.GradientDescentOptimizer(learning_rate, name="sgd")
    # As in Zaremba: gradients of the loss that is summed over steps and averaged over the batch.
    train_op = optimizer.minimize(loss * steps, name="train_op")
    return {"train_op": train_op, "loss": loss}
