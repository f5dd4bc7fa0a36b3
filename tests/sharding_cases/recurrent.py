"""Cells and blocks of recurrent layers, with their gradients, on float32, their only CPU type."""

from collections.abc import Mapping

import numpy as np
from hypothesis import strategies as st
from sharding_ops import Case, case
from sharding_tensors import sizes, tensors

# The shape of each input: b batch, i inputs, c cells, t time, r all rows of the weights.
_LSTM = "bc bc r4 c c c 4"
_INPUTS = {
    "LSTMBlockCell": f"bi {_LSTM}",
    "LSTMBlockCellGrad": f"bi {_LSTM} {'bc ' * 8}",
    "BlockLSTM": f"tbi {_LSTM}",
    "BlockLSTMV2": f"tbi {_LSTM}",
    "BlockLSTMGrad": f"tbi {_LSTM} {'tbc ' * 9}",
    "BlockLSTMGradV2": f"tbi {_LSTM} {'tbc ' * 9}",
    "GRUBlockCell": "bi bc r2 rc 2 c",
    "GRUBlockCellGrad": f"bi bc r2 rc 2 c {'bc ' * 4}",
}


@st.composite
def recurrent(draw: st.DrawFn, op_type: str) -> Case:
    extents = {name: draw(sizes) for name in "tbic"}
    cells = extents["c"]
    extents |= {"r": extents["i"] + cells, "2": 2 * cells, "4": 4 * cells}
    arrays = [
        draw(tensors(_shape(letters, extents), "float32", -1, 1))
        for letters in _INPUTS[op_type].split()
    ]
    if op_type.startswith("GRU"):
        return case(op_type, *arrays)
    peephole = {"use_peephole": draw(st.booleans())}
    if op_type.startswith("Block"):
        steps = np.array(extents["t"], "int64")  # Gates of later steps would not be defined.
        return case(op_type, steps, *arrays, **peephole)
    return case(op_type, *arrays, **peephole)


def _shape(letters: str, extents: Mapping[str, int]) -> tuple[int, ...]:
    return tuple(extents[letter] for letter in letters)


CASES = {op_type: recurrent(op_type) for op_type in _INPUTS}
