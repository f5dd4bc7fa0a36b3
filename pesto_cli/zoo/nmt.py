"""NMT: Google's translation model of LSTM layers with attention, unrolled over time.

Scopes: `encoder/embedding`, `encoder/layer_0/{forward,backward}/step_<t>`,
`encoder/layer_<l>/step_<t>`, `attention/memory`, `attention/step_<t>`, `decoder/embedding`,
`decoder/layer_<l>/step_<t>`, `softmax/step_<t>`, `loss/step_<t>`; their gradients lie under
`gradients/`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from pesto_cli.errors import BadInputError
from pesto_cli.graphdef.tensorflow import tensorflow
from pesto_cli.zoo.lstm import LstmState, lstm_layer, lstm_step, lstm_weights
from pesto_cli.zoo.variables import filled, uniform
from pesto_cli.zoo.words import loss_per_word, word_logits, word_vectors

FIRST_RESIDUAL_LAYER = 2
"""The input of a lower layer is a concatenation that is wider than its output."""


@dataclass(frozen=True)
class _Shape:
    """Parameters that all layers share: width of outputs, and scale and seed of weights."""

    layers: int
    hidden: int
    scale: float
    seed: int

    @property
    def layer(self) -> dict[str, Any]:
        """Arguments of one LSTM layer."""
        return {"hidden": self.hidden, "scale": self.scale, "seed": self.seed}


def nmt(
    *,
    layers: int,
    hidden: int,
    batch: int = 128,
    source_length: int = 50,
    target_length: int = 50,
    vocabulary: int = 32_000,
    learning_rate: float = 1.0,
    max_gradient_norm: float = 5.0,
    scale: float = 0.1,
    seed: int = 0,
) -> dict[str, Any]:
    """Add the training step of an encoder and a decoder of `layers` layers each.

    Feeds: `source` [batch, source_length], `target` (the decoder's input) and `labels` (the target
    shifted by one word), both [batch, target_length]; all int32 in [0, vocabulary). Returns
    `train_op` and `loss`, the cross entropy in nats per word (float32 scalar). Raises BadInputError
    when there are less than two layers.

    Source: Wu et al., "Google's Neural Machine Translation System" (2016), section 3, in the form
    of github.com/tensorflow/nmt, `wmt16_gnmt_4_layer.json` (`gnmt_v2` and `normed_bahdanau`: the
    lowest decoder layer computes the attention, and all layers read its context of the same step;
    SGD at rate 1, gradients clipped to a norm of 5, weights uniform in +-0.1, sentences of up to 50
    words). Pesto, section 5.2, gives the layers, 1024 units, batch 128 and WMT16. The vocabulary
    size is the number of merges, 32,000, in that repository's `wmt16_en_de.sh`. Departures: no
    dropout, so a step is deterministic; a constant rate; every sentence has the full length, so
    there is no padding to mask; the softmax has a bias. Softmax and loss are computed for each step
    separately, so that they can overlap with later steps; TensorFlow then holds a weight's
    gradients of all steps until it adds them up. On one GPU, 2 layers take 12 GiB and 4 layers
    17 GiB by pesto's estimate: as in Pesto, only 2 layers fit into 16 GB.
    """
    if layers < 2:
        raise BadInputError(f"an NMT has {layers} layer; two or more were expected.")
    tf = tensorflow()
    tf1 = tf.compat.v1
    shape = _Shape(layers, hidden, scale, seed)
    with tf.name_scope("input"):
        source = tf1.placeholder(tf.int32, [batch, source_length], name="source")
        target = tf1.placeholder(tf.int32, [batch, target_length], name="target")
        labels = tf1.placeholder(tf.int32, [batch, target_length], name="labels")
    with tf.name_scope("encoder"):
        vectors = word_vectors(source, vocabulary=vocabulary, **shape.layer)
        encoded, states = _encoder(vectors, shape)
    with tf.name_scope("attention") as scope:
        attention = _attention(scope, encoded, shape)
    with tf.name_scope("decoder"):
        vectors = word_vectors(target, vocabulary=vocabulary, **shape.layer)
        outputs = _decoder(vectors, states, attention, shape)
    logits = word_logits(outputs, vocabulary=vocabulary, scale=scale, seed=seed)
    loss = loss_per_word(logits, labels)
    variables = tf1.trainable_variables()
    # Gradients of the loss that is summed over the steps and averaged over the batch.
    total = tf.multiply(loss, target_length, name="loss/sum")
    gradients = tf1.gradients(total, variables, name="gradients")
    gradients, _ = tf.clip_by_global_norm(gradients, max_gradient_norm, name="clip")
    optimizer = tf1.train.GradientDescentOptimizer(learning_rate, name="sgd")
    train_op = optimizer.apply_gradients(zip(gradients, variables, strict=True), name="train_op")
    return {"train_op": train_op, "loss": loss}


def _encoder(vectors: Sequence[Any], shape: _Shape) -> tuple[Sequence[Any], list[LstmState]]:
    """Return the top layer's output for each word, [batch, hidden], and each layer's last state.

    The lowest layer reads in both directions; its state is that of the backward direction.
    """
    tf = tensorflow()
    inputs = [(vector,) for vector in vectors]
    with tf.name_scope("layer_0"):
        with tf.name_scope("forward"):
            forward, _ = lstm_layer(inputs, **shape.layer)
        with tf.name_scope("backward"):
            backward, state = lstm_layer(inputs, backward=True, **shape.layer)
    states = [state]
    below: list[tuple[Any, ...]] = list(zip(forward, backward, strict=True))
    for layer in range(1, shape.layers):
        with tf.name_scope(f"layer_{layer}"):
            outputs, state = _upper_layer(layer, below, shape)
        below = [(output,) for output in outputs]
        states.append(state)
    return [output for (output,) in below], states


@dataclass(frozen=True)
class _Attention:
    """Bahdanau's attention with weight normalisation, to the encoder's outputs.

        score[b, s] = sum_h direction[h] * tanh(keys[b, s, h] + (query @ kernel)[b, h])
        context[b] = sum_s softmax(score[b])[s] * memory[b, s]

    Source: Bahdanau et al. (2015), appendix A.1.2; Salimans and Kingma (2016), equation 2.
    """

    scope: str
    memory: Any
    """[batch, source_length, hidden]"""
    keys: Any
    """[batch, source_length, hidden], with the bias"""
    kernel: Any
    """[hidden, hidden]"""
    direction: Any
    """[hidden]"""

    def context(self, step: int, query: Any) -> Any:
        """Return the context of a query [batch, hidden] at a decoder step, [batch, hidden]."""
        tf = tensorflow()
        with tf.name_scope(f"{self.scope}step_{step}/"):
            projected = tf.expand_dims(tf.matmul(query, self.kernel), 1)
            score = tf.reduce_sum(self.direction * tf.tanh(self.keys + projected), axis=2)
            alignment = tf.expand_dims(tf.nn.softmax(score), 1)
            return tf.squeeze(tf.matmul(alignment, self.memory), axis=1)


def _attention(scope: str, encoded: Sequence[Any], shape: _Shape) -> _Attention:
    """Return the tensors of the attention that all steps of the decoder share.

    encoded: the encoder's output for each word, [batch, hidden].
    """
    tf = tensorflow()
    hidden = shape.hidden
    weight = partial(uniform, scale=shape.scale, seed=shape.seed)
    memory_kernel = weight("memory_kernel", [hidden, hidden])
    query_kernel = weight("query_kernel", [hidden, hidden])
    direction = weight("direction", [hidden])
    length = filled("length", [], hidden**-0.5)
    bias = filled("bias", [hidden], 0.0)
    with tf.name_scope("memory"):
        memory = tf.stack(encoded, axis=1)
        rows = tf.reshape(memory, [-1, hidden])
        keys = tf.nn.bias_add(tf.matmul(rows, memory_kernel), bias)
        return _Attention(
            scope=scope,
            memory=memory,
            keys=tf.reshape(keys, memory.shape),
            kernel=query_kernel.value(),
            direction=length * tf.math.l2_normalize(direction),
        )


def _decoder(
    vectors: Sequence[Any], states: Sequence[LstmState], attention: _Attention, shape: _Shape
) -> Sequence[Any]:
    """Return the top layer's output for each word, [batch, hidden].

    The initial state of a layer is the last state of the encoder's layer with the same number.
    """
    tf = tensorflow()
    outputs, contexts = [], []
    with tf.name_scope("layer_0"):
        weights = lstm_weights(2 * shape.hidden, **shape.layer)
        state = states[0]
        context = tf.zeros(state.output.shape, name="initial_context")
        for step, vector in enumerate(vectors):
            with tf.name_scope(f"step_{step}"):
                state = lstm_step((vector, context), state, weights)
            context = attention.context(step, state.output)
            outputs.append(state.output)
            contexts.append(context)
    for layer in range(1, shape.layers):
        with tf.name_scope(f"layer_{layer}"):
            below = list(zip(outputs, contexts, strict=True))
            outputs, _ = _upper_layer(layer, below, shape, initial=states[layer])
    return outputs


def _upper_layer(
    layer: int,
    inputs: Sequence[tuple[Any, ...]],
    shape: _Shape,
    initial: LstmState | None = None,
) -> tuple[list[Any], LstmState]:
    """Return the outputs and last state of a layer; layers from the third on are residual."""
    tf = tensorflow()
    outputs, state = lstm_layer(inputs, initial=initial, **shape.layer)
    if layer < FIRST_RESIDUAL_LAYER:
        return list(outputs), state
    pairs = zip(inputs, outputs, strict=True)
    return [tf.add(below[0], output, name="residual") for below, output in pairs], state
