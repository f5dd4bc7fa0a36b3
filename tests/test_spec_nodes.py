"""Op specs written as nodes are read as the same specs."""

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from test_op_specs import specs_by_name
from training_graphs import convnet, exported

from pesto_cli.data.specs import ELEMENT_BYTES, Operand, OpSpec
from pesto_cli.errors import BadInputError
from pesto_cli.graphdef.sizes import BYTES_OF_HANDLES
from pesto_cli.graphdef.spec_nodes import constant_def, node_def


def test_a_graph_written_from_its_specs_has_the_same_specs() -> None:
    meta = exported(convnet)
    specs = specs_by_name(meta)
    for node in meta.graph_def.node:
        if node.name in specs and node.op != "Const":
            inputs = [name for name in node.input if not name.startswith("^")]
            controls = [name[1:] for name in node.input if name.startswith("^")]
            node.CopyFrom(node_def(node.name, specs[node.name], inputs, controls))
    assert specs_by_name(meta) == specs
    assert any(spec.type == "Conv2D" for spec in specs.values())


@pytest.mark.parametrize(
    "operand",
    [
        Operand((), "float32", 0.1),
        Operand((2, 2), "int64", ((1, 2), (3, 2**40))),
        Operand((0, 3), "int32", ()),
        Operand((2,), "bool", (True, False)),
        Operand((1,), "bfloat16", (0.5,)),
        Operand((1,), "float32", (float("inf"),)),
    ],
    ids=str,
)
def test_a_constant_has_the_value_of_its_operand(operand: Operand) -> None:
    tensor = constant_def("c", operand).attr["value"].tensor
    written = tf.make_ndarray(tensor)
    assert written.shape == operand.shape
    assert tf.dtypes.as_dtype(tensor.dtype).name == operand.dtype
    assert np.array_equal(written, np.array(operand.value, written.dtype).reshape(operand.sizes))


def test_what_cannot_be_written_is_refused() -> None:
    with pytest.raises(BadInputError, match="type Nonesuch, which this TensorFlow does not have"):
        node_def("a", OpSpec("Nonesuch", (), (), ()), [])
    bad: Any = OpSpec("Neg", (("T", (1, 2)),), (), ())
    with pytest.raises(BadInputError, match=r"'a' \(Neg\) cannot have the attribute T"):
        node_def("a", bad, ["b"])
    with pytest.raises(ValueError, match="no value"):
        constant_def("c", Operand((2,), "float32"))


def test_the_bytes_of_elements_are_those_of_tensorflow() -> None:
    for name, num_bytes in ELEMENT_BYTES.items():
        assert num_bytes == BYTES_OF_HANDLES.get(name, tf.dtypes.as_dtype(name).size), name
    assert Operand((2, 3), "bfloat16").num_bytes == 12
    with pytest.raises(ValueError, match="unknown"):
        _ = Operand((2,), None).num_bytes
