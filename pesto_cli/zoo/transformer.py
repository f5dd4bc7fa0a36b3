"""Transformer: the encoder and decoder of Vaswani et al. for translation.

Scopes: `input`, `embedding/{source,target}`, `encoder/layer_<l>/{self_attention,feed_forward}`,
`decoder/layer_<l>/{self_attention,cross_attention,feed_forward}`, `softmax`, `loss`; their
gradients lie under `gradients/`.
"""

import math
from dataclasses import dataclass
from typing import Any

from pesto_cli.errors import BadInputError
from pesto_cli.graphdef.tensorflow import tensorflow
from pesto_cli.zoo.variables import filled, glorot, uniform

EPSILON = 1e-6
MASKED = -1e9


@dataclass(frozen=True)
class _Shape:
    """Sizes that all layers share. Activations between layers are [batch * length, hidden]."""

    batch: int
    length: int
    hidden: int
    inner: int
    heads: int
    vocabulary: int
    seed: int


def transformer(
    *,
    layers: int,
    heads: int,
    hidden: int,
    inner: int = 4096,
    batch: int = 32,
    length: int = 64,
    vocabulary: int = 32_000,
    learning_rate: float = 1e-3,
    seed: int = 0,
) -> dict[str, Any]:
    """Add the training step of an encoder and a decoder of `layers` layers each.

    Feeds: `source`, `target` (the decoder's input) and `labels` (the target shifted by one word),
    all int32 [batch, length] in [0, vocabulary). Returns `train_op` and `loss`, the cross entropy
    in nats per word (float32 scalar). Raises BadInputError unless `hidden` is even and a multiple
    of `heads`.

    Source: Vaswani et al., "Attention Is All You Need" (2017), sections 3 and 5.3, as used by
    Pesto, section 5.2 (layers, heads, hidden; 32 sentences, WMT14) and Figure 1. Pesto does not
    give the length (here 64), the vocabulary (32,000), the inner size (4096) and the optimiser
    (Adam with the parameters of section 5.3, at a constant rate). Departures: no dropout, so a step
    is deterministic; no label smoothing; every sentence has the full length, so there is no padding
    to mask; the two embeddings and the softmax do not share weights, so the first and the last
    layer can be on different devices.
    """
    if hidden % 2 or hidden % heads:
        raise BadInputError(
            f"a Transformer has a hidden size of {hidden} and {heads} heads; an even size that is "
            "a multiple of the number of heads was expected."
        )
    tf = tensorflow()
    tf1 = tf.compat.v1
    shape = _Shape(batch, length, hidden, inner, heads, vocabulary, seed)
    with tf.name_scope("input"):
        source = tf1.placeholder(tf.int32, [batch, length], name="source")
        target = tf1.placeholder(tf.int32, [batch, length], name="target")
        labels = tf1.placeholder(tf.int32, [batch, length], name="labels")
    with tf.name_scope("embedding"):
        encoded = _embedding("source", source, shape)
        decoded = _embedding("target", target, shape)
    with tf.name_scope("encoder"):
        for layer in range(layers):
            encoded = _encoder_layer(f"layer_{layer}", encoded, shape)
    with tf.name_scope("decoder"):
        for layer in range(layers):
            decoded = _decoder_layer(f"layer_{layer}", decoded, encoded, shape)
    with tf.name_scope("softmax"):
        logits = _dense("logits", decoded, vocabulary, shape)
    with tf.name_scope("loss"):
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
            labels=tf.reshape(labels, [-1]), logits=logits
        )
        loss = tf.reduce_mean(losses, name="mean")
    variables = tf1.trainable_variables()
    gradients = tf1.gradients(loss, variables, name="gradients")
    adam = tf1.train.AdamOptimizer(learning_rate, beta1=0.9, beta2=0.98, epsilon=1e-9, name="adam")
    train_op = adam.apply_gradients(zip(gradients, variables, strict=True), name="train_op")
    return {"train_op": train_op, "loss": loss}


def _embedding(name: str, tokens: Any, shape: _Shape) -> Any:
    """Return word vectors plus position signal, [batch * length, hidden]: sections 3.4, 3.5."""
    tf = tensorflow()
    with tf.name_scope(name):
        scale = shape.hidden**-0.5
        table = uniform("table", [shape.vocabulary, shape.hidden], scale=scale, seed=shape.seed)
        vectors = tf.nn.embedding_lookup(table, tokens) * math.sqrt(shape.hidden)
        signal = tf.constant(_position_signal(shape.length, shape.hidden), name="position_signal")
        return tf.reshape(vectors + signal, [shape.batch * shape.length, shape.hidden])


def _position_signal(length: int, hidden: int) -> Any:
    """Return the float32 array [length, hidden] of section 3.5.

    PE(pos, 2i) = sin(pos / 10000^(2i / hidden)),  PE(pos, 2i + 1) = cos(same)
    """
    import numpy as np

    angle = np.arange(length)[:, None] / 10_000 ** (np.arange(0, hidden, 2) / hidden)
    signal = np.empty([length, hidden], np.float32)
    signal[:, 0::2] = np.sin(angle)
    signal[:, 1::2] = np.cos(angle)
    return signal


def _encoder_layer(name: str, activations: Any, shape: _Shape) -> Any:
    tf = tensorflow()
    with tf.name_scope(name):
        activations = _attention("self_attention", activations, activations, shape, causal=False)
        return _feed_forward("feed_forward", activations, shape)


def _decoder_layer(name: str, activations: Any, encoded: Any, shape: _Shape) -> Any:
    tf = tensorflow()
    with tf.name_scope(name):
        activations = _attention("self_attention", activations, activations, shape, causal=True)
        activations = _attention("cross_attention", activations, encoded, shape, causal=False)
        return _feed_forward("feed_forward", activations, shape)


def _attention(name: str, activations: Any, memory: Any, shape: _Shape, *, causal: bool) -> Any:
    """Return the normalised sum of `activations` and their attention to `memory`: section 3.2."""
    tf = tensorflow()
    with tf.name_scope(name):
        query = _heads(_dense("query", activations, shape.hidden, shape), shape)
        key = _heads(_dense("key", memory, shape.hidden, shape), shape)
        value = _heads(_dense("value", memory, shape.hidden, shape), shape)
        with tf.name_scope("weights"):
            scale = (shape.hidden // shape.heads) ** -0.5
            scores = tf.matmul(query * scale, key, transpose_b=True)
            if causal:
                scores += tf.constant(_causal_mask(shape.length), name="mask")
            weights = tf.nn.softmax(scores)
        with tf.name_scope("context"):
            context = tf.transpose(tf.matmul(weights, value), [0, 2, 1, 3])
            context = tf.reshape(context, [shape.batch * shape.length, shape.hidden])
        return _add_and_norm(activations, _dense("output", context, shape.hidden, shape))


def _heads(activations: Any, shape: _Shape) -> Any:
    """Reshape [batch * length, hidden] to [batch, heads, length, hidden / heads]."""
    tf = tensorflow()
    with tf.name_scope("split_heads"):
        size = shape.hidden // shape.heads
        split = tf.reshape(activations, [shape.batch, shape.length, shape.heads, size])
        return tf.transpose(split, [0, 2, 1, 3])


def _causal_mask(length: int) -> Any:
    """Return the float32 array [length, length] that hides later positions: section 3.2.3."""
    import numpy as np

    return np.triu(np.full([length, length], MASKED, np.float32), k=1)


def _feed_forward(name: str, activations: Any, shape: _Shape) -> Any:
    """Return the normalised sum of `activations` and two dense layers of them: section 3.3."""
    tf = tensorflow()
    with tf.name_scope(name):
        inner = tf.nn.relu(_dense("inner", activations, shape.inner, shape))
        return _add_and_norm(activations, _dense("outer", inner, shape.hidden, shape))


def _add_and_norm(residual: Any, activations: Any) -> Any:
    """Return LayerNorm(residual + activations), all [batch * length, hidden]: section 3.1."""
    tf = tensorflow()
    with tf.name_scope("norm"):
        total = residual + activations
        hidden = total.shape[-1]
        gain = filled("gain", [hidden], 1.0)
        bias = filled("bias", [hidden], 0.0)
        mean = tf.reduce_mean(total, axis=-1, keepdims=True)
        centred = total - mean
        variance = tf.reduce_mean(tf.square(centred), axis=-1, keepdims=True)
        return centred * tf.math.rsqrt(variance + EPSILON) * gain + bias


def _dense(name: str, activations: Any, units: int, shape: _Shape) -> Any:
    """Return activations @ kernel + bias, [batch * length, units]."""
    tf = tensorflow()
    with tf.name_scope(name):
        kernel = glorot("kernel", [activations.shape[-1], units], seed=shape.seed)
        bias = filled("bias", [units], 0.0)
        return tf.nn.bias_add(tf.matmul(activations, kernel), bias)
