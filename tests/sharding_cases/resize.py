"""Resizing of images, larger and smaller, and its gradients."""

from typing import Any

from hypothesis import strategies as st
from sharding_ops import Case, case, known
from sharding_tensors import sizes, tensors

from pesto_cli.sharding.rules import resize


@st.composite
def resized(draw: st.DrawFn, op_type: str) -> Case:
    batch, height, width, channels = (draw(sizes) for _ in range(4))
    other_height, other_width = draw(sizes), draw(sizes)
    images = draw(tensors((batch, height, width, channels), "float32"))
    attributes: dict[str, Any] = {"align_corners": draw(st.booleans())}
    if op_type in ("ResizeBilinearGrad", "ResizeBicubicGrad"):
        original = draw(tensors((batch, other_height, other_width, channels), "float32"))
        return case(op_type, images, original, **attributes)
    return case(op_type, images, known((other_height, other_width)), **attributes)


CASES = {op_type: resized(op_type) for op_type in resize.RULES}
