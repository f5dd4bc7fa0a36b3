"""A two-layer sequence-to-sequence LSTM with attention, as in Spotlight.

Source: Spotlight, Section 5.1, "Architecture". The encoder reads the features of all super-ops. The
decoder then chooses the device of one super-op after the other:

    s_n = decoder(s_(n-1), [embedding of the device of super-op n-1, encoder output of super-op n])
    q(a_n | s_n) = softmax(W [s_n, sum_m softmax_m(<Q s_n, K e_m>) e_m] + V x_n + R r_n)

where e_m is the encoder's output for super-op m, x_n are the features of super-op n, and r_n are
its relations to the earlier super-ops on each device. W, V and R begin with zeros, so that the
distributions begin uniform over the allowed devices (Algorithm 1, line 3). The paper leaves the
sizes open.

Departures from the paper:

- The last layer also reads the features (V). With the encoder's outputs alone, the policy learns
  much more slowly to tell super-ops apart.
- The last layer also reads what the placement so far means for each device (R), such as its load.
  These are four weights, which all super-ops and devices share, so they are learned soon. The
  states of the paper are prefixes of placements, too, but its network knows them only through
  embeddings of the chosen devices.
- The decoder may choose a device only if it has chosen all interchangeable devices with smaller
  numbers. Without this rule, all interchangeable devices of a super-op have the same mean step time
  while the policy is uniform, so the first samples say nothing about the device of a single
  super-op.

A sequence of LSTM cells is one op of TensorFlow (`BlockLSTMV2`), which is faster than a loop. In
comments on shapes, U are units, and D devices.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from pesto_cli.graphdef.tensorflow import tensorflow
from pesto_cli.learned.features import NUM_RELATIONS
from pesto_cli.learned.network import FORBIDDEN, Array, Network

NUM_LAYERS = 2
# `BlockLSTMV2` has its gates in the order input, forget, cell, output.
FORGET_GATE = 1


@dataclass(frozen=True)
class SequenceNetwork(Network):
    """The network.

    Inputs: features of super-ops, `[T, num_features]`; their relations, `[NUM_RELATIONS, T, T]`;
    for each device, the device that a placement must use before it, or -1, `[D]`; allowed devices,
    `[T, D]`.
    """

    name: ClassVar[str] = "sequence"
    is_sequential: ClassVar[bool] = True

    def shapes(self, num_features: int, num_devices: int) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Yield the name and the shape of each array of weights."""
        units = self.units
        yield "features/kernel", (num_features, units)
        yield "features/bias", (units,)
        yield "devices", (num_devices + 1, units)  # the last row stands for no device
        for part, num_inputs in (("encoder", 1), ("decoder", 2)):
            for layer in range(NUM_LAYERS):
                rows = (num_inputs if layer == 0 else 1) + 1
                yield f"{part}_{layer}/kernel", (rows * units, 4 * units)
                yield f"{part}_{layer}/bias", (4 * units,)
        yield "attention/query", (units, units)
        yield "attention/key", (units, units)
        yield "features/output", (num_features, num_devices)
        yield "relations/output", (NUM_RELATIONS,)
        yield "output", (2 * units, num_devices)

    def initial_weights(self, num_features: int, num_devices: int, seed: int) -> dict[str, Array]:
        """Draw weights; forget gates are open."""
        weights, units = super().initial_weights(num_features, num_devices, seed), self.units
        for value in weights.values():
            if value.shape == (4 * units,):
                value[FORGET_GATE * units : (FORGET_GATE + 1) * units] = 1.0
        return weights

    def log_probabilities(self, weights: Any, inputs: Any, chosen: Any) -> Any:
        """Return log q(. | s_n) for each super-op of given placements, `[T, B, D]`."""
        tf, (features, related, used_before, allowed) = tensorflow(), inputs
        encoded, states = _encoded(weights, features)
        num_devices = allowed.shape[1]
        last = tf.concat((tf.fill((1, chosen.shape[1]), num_devices), chosen[:-1]), axis=0)
        outputs, _ = _decoded(weights, last, encoded, _for_each(states, chosen.shape[1]))
        placed = tf.one_hot(chosen, num_devices)
        added = _own(weights, features, allowed)[:, None]
        added += _out_of_order(tf.cumsum(placed, exclusive=True), used_before)
        added += tf.einsum("nm,mbd->nbd", _pulls(weights, related), placed)
        return _distributions(weights, outputs, encoded, added)

    def sample(self, weights: Any, inputs: Any, noise: Any) -> Any:
        """Return placements that are drawn from the policy, `[T, B]`."""
        tf, (features, related, used_before, allowed) = tensorflow(), inputs
        encoded, states = _encoded(weights, features)
        own = _own(weights, features, allowed)
        num_super_ops, num_placements, num_devices = noise.shape

        pulls = tf.transpose(_pulls(weights, related))

        def place_next(n: Any, last: Any, used: Any, pull: Any, states: Any, chosen: Any) -> Any:
            outputs, states = _decoded(weights, last[None], encoded[n : n + 1], states)
            added = own[n] + _out_of_order(used, used_before) + pull[n]
            logits = _distributions(weights, outputs, encoded, added[None])[0]
            last = tf.argmax(logits + noise[n], axis=1, output_type=tf.int32)
            placed = tf.one_hot(last, num_devices)
            pull += pulls[n][:, None, None] * placed
            return n + 1, last, used + placed, pull, states, chosen.write(n, last)

        first = tf.fill((num_placements,), num_devices)
        unused = tf.zeros((num_placements, num_devices))
        pull = tf.zeros((num_super_ops, num_placements, num_devices))
        chosen = tf.TensorArray(tf.int32, num_super_ops)
        state = (0, first, unused, pull, _for_each(states, num_placements), chosen)
        return tf.while_loop(lambda n, *_: n < num_super_ops, place_next, state)[-1].stack()


def _encoded(weights: Any, features: Any) -> Any:
    """Return the encoder's outputs, `[T, U]`, and the last states of its layers."""
    tf = tensorflow()
    inputs = tf.tanh(features @ weights["features/kernel"] + weights["features/bias"])
    start = tf.zeros((1, inputs.shape[1]))
    outputs, states = _layers(weights, "encoder", inputs[:, None], ((start, start),) * NUM_LAYERS)
    return outputs[:, 0], states


def _decoded(weights: Any, before: Any, encoded: Any, states: Any) -> Any:
    """Return the decoder's outputs, `[T, B, U]`, and states; before: devices, `[T, B]`."""
    tf = tensorflow()
    embedded = tf.one_hot(before, weights["devices"].shape[0]) @ weights["devices"]
    inputs = tf.concat((embedded, encoded[:, None] + tf.zeros_like(embedded)), axis=2)
    return _layers(weights, "decoder", inputs, states)


def _layers(weights: Any, part: str, inputs: Any, states: Any) -> Any:
    """Return the outputs of the last layer of LSTM cells, `[T, B, U]`, and the last states."""
    tf, last = tensorflow(), []
    for layer, (cell, output) in enumerate(states):
        kernel, bias = (weights[f"{part}_{layer}/{name}"] for name in ("kernel", "bias"))
        cells, inputs = tf.custom_gradient(_lstm)(inputs, cell, output, kernel, bias)
        last.append((cells[-1], inputs[-1]))
    return inputs, tuple(last)


def _lstm(inputs: Any, cell: Any, output: Any, kernel: Any, bias: Any) -> Any:
    """Return the states and outputs of a layer of LSTM cells, `[T, B, U]`, and their gradient.

    For `BlockLSTMV2`, TensorFlow 2.21 registers the gradient of `BlockLSTM` (`rnn_grad.py`), whose
    gates have another order.
    """
    raw_ops, no_peephole = tensorflow().raw_ops, tensorflow().zeros(bias.shape[0] // 4)
    given = {
        "seq_len_max": tensorflow().constant(inputs.shape[0], tensorflow().int64),
        "x": inputs,
        "cs_prev": cell,
        "h_prev": output,
        "w": kernel,
        "b": bias,
        **dict.fromkeys(("wci", "wcf", "wco"), no_peephole),
    }
    ran = raw_ops.BlockLSTMV2(**given)

    def gradient(of_cells: Any, of_outputs: Any) -> Any:
        found = raw_ops.BlockLSTMGradV2(
            **given,
            **ran._asdict(),
            cs_grad=of_cells,
            h_grad=of_outputs,
            use_peephole=False,
        )
        return found.x_grad, found.cs_prev_grad, found.h_prev_grad, found.w_grad, found.b_grad

    return (ran.cs, ran.h), gradient


def _own(weights: Any, features: Any, allowed: Any) -> Any:
    """Return what the super-ops' own features and allowed devices add to the logits, `[T, D]`."""
    return features @ weights["features/output"] + allowed


def _pulls(weights: Any, related: Any) -> Any:
    """Return what each earlier super-op adds to the logit of its device, `[T, T]`."""
    return tensorflow().tensordot(weights["relations/output"], related, 1)


def _out_of_order(num_used: Any, used_before: Any) -> Any:
    """Return FORBIDDEN for each device that may not be used yet, otherwise 0, `[..., D]`.

    num_used: how many super-ops each device has, `[..., D]`.
    """
    tf = tensorflow()
    is_early = tf.gather(num_used == 0, tf.maximum(used_before, 0), axis=-1) & (used_before >= 0)
    return tf.where(is_early, FORBIDDEN, 0.0)


def _distributions(weights: Any, outputs: Any, encoded: Any, added: Any) -> Any:
    """Return log q, `[T, B, D]`, from the decoder's outputs and its attention to the encoder.

    added: what is added to the logits; its shape is that of log q, or can be broadcast to it.
    """
    tf = tensorflow()
    keys = encoded @ weights["attention/key"]
    scores = outputs @ weights["attention/query"] @ tf.transpose(keys)
    context = tf.nn.softmax(scores / np.sqrt(keys.shape[1])) @ encoded
    logits = tf.concat((outputs, context), axis=2) @ weights["output"]
    return tf.nn.log_softmax(logits + added)


def _for_each(states: Any, num_placements: int) -> Any:
    """Return states of one sequence as equal states of several."""
    tf = tensorflow()
    return tf.nest.map_structure(lambda state: state + tf.zeros((num_placements, 1)), states)
