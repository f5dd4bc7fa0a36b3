"""LSTM layers, unrolled over time."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pesto_cli.graphdef.tensorflow import tensorflow
from pesto_cli.zoo.variables import filled, uniform

FORGET_BIAS = 1.0


@dataclass(frozen=True)
class LstmWeights:
    """The weights of one layer, which are read once for all its steps."""

    kernel: Any
    """[width of the inputs + hidden, 4 * hidden]: columns of input, candidate, forget, output."""
    bias: Any
    """[4 * hidden]"""


@dataclass(frozen=True)
class LstmState:
    """The state that one step passes to the next: cell and output, both [batch, hidden]."""

    cell: Any
    output: Any


def lstm_weights(width: int, hidden: int, *, scale: float, seed: int) -> LstmWeights:
    """Create the variables of a layer whose inputs have `width` columns in total."""
    tf = tensorflow()
    kernel = uniform("kernel", [width + hidden, 4 * hidden], scale=scale, seed=seed)
    bias = filled("bias", [4 * hidden], 0.0)
    with tf.name_scope("weights"):
        return LstmWeights(kernel.value(), bias.value())


def lstm_step(inputs: Sequence[Any], state: LstmState, weights: LstmWeights) -> LstmState:
    """Return the next state, from inputs [batch, any width]: Zaremba et al. (2014), section 3.1."""
    tf = tensorflow()
    together = tf.concat([*inputs, state.output], axis=1)
    gates = tf.nn.bias_add(tf.matmul(together, weights.kernel), weights.bias)
    input_gate, candidate, forget_gate, output_gate = tf.split(gates, 4, axis=1)
    kept = tf.sigmoid(forget_gate + FORGET_BIAS) * state.cell
    cell = kept + tf.sigmoid(input_gate) * tf.tanh(candidate)
    return LstmState(cell, tf.sigmoid(output_gate) * tf.tanh(cell))


def lstm_layer(
    inputs: Sequence[Sequence[Any]],
    *,
    hidden: int,
    scale: float,
    seed: int,
    initial: LstmState | None = None,
    backward: bool = False,
) -> tuple[Sequence[Any], LstmState]:
    """Add a layer for all steps, in scopes `step_<t>`.

    Args:
        inputs: for each step, the tensors [batch, any width] that are concatenated as its input.
        hidden: width of the layer's outputs.
        scale: initial weights are uniform in [-scale, scale).
        seed: random seed of the initial weights.
        initial: the state before the first step; zeros if None.
        backward: whether to go from the last step to the first.

    Returns:
        The output of each step, [batch, hidden], in the order of the inputs; and the last state.
    """
    tf = tensorflow()
    width = sum(part.shape[1] for part in inputs[0])
    weights = lstm_weights(width, hidden, scale=scale, seed=seed)
    state = initial
    if state is None:
        zeros = tf.zeros([inputs[0][0].shape[0], hidden], name="initial_state")
        state = LstmState(zeros, zeros)
    steps = range(len(inputs))
    outputs: list[Any] = [None for _ in steps]
    for step in reversed(steps) if backward else steps:
        with tf.name_scope(f"step_{step}"):
            state = lstm_step(inputs[step], state, weights)
        outputs[step] = state.output
    return outputs, state
