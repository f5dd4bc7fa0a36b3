"""Cells and blocks of recurrent layers, with their gradients.

Factor: the batch. It is axis 0 of states and gates, and axis 1 of sequences `[time, batch, ...]`.
Weights are whole; their gradients are partial.
"""

from collections.abc import Iterator

from pesto_cli.data.specs import OpSpec
from pesto_cli.sharding.alternative import Alternative, Rule
from pesto_cli.sharding.layouts import SUM, WHOLE, Layout, Split

# One character for each input and, after `>`, for each output: 0 or 1 is the axis of the batch,
# w is a weight, + is the partial gradient of a weight.
_OPERANDS = {
    "LSTMBlockCell": "000wwwww>0000000",
    "LSTMBlockCellGrad": "000wwwww00000000>00+++",
    "BlockLSTM": "w100wwwww>1111111",
    "BlockLSTMV2": "w100wwwww>1111111",
    "BlockLSTMGrad": "w100wwwww111111111>100+++++",
    "BlockLSTMGradV2": "w100wwwww111111111>100+++++",
    "GRUBlockCell": "00wwww>0000",
    "GRUBlockCellGrad": "00wwww0000>0000",
}
_LAYOUTS: dict[str, Layout] = {"0": Split(0), "1": Split(1), "w": WHOLE, "+": SUM}


def batch(spec: OpSpec) -> Iterator[Alternative]:
    """Factor: the batch of states, gates and sequences. Gradients of weights are partial."""
    inputs, outputs = (
        tuple(_LAYOUTS[operand] for operand in side) for side in _OPERANDS[spec.type].split(">")
    )
    state = spec.inputs[inputs.index(Split(0))]
    yield Alternative("batch", state.sizes[0], inputs, outputs)


RULES: dict[str, Rule] = dict.fromkeys(_OPERANDS, batch)
