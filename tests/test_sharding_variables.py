"""Variables and their updates are neither split nor computed twice."""

import re

import pytest

from pesto_cli.data.specs import Operand, OpSpec
from pesto_cli.graphdef.tensorflow import tensorflow
from pesto_cli.sharding.rules import alternatives, variables

tf = tensorflow()
NUMBERS = Operand((4, 3), "float32")


@pytest.mark.parametrize("op_type", ["ApplyGradientDescent", "AssignAdd", "ScatterAdd"])
def test_updates_of_reference_variables_have_no_alternative(op_type: str) -> None:
    """TensorFlow does not call these ops stateful: their first input is a reference."""
    assert alternatives(OpSpec(op_type, (), (NUMBERS, NUMBERS), (NUMBERS,))) == ()


def test_ops_without_outputs_are_not_copied() -> None:
    assert alternatives(OpSpec("NoOp", (), (), ())) == ()


def test_all_updates_of_optimisers_have_a_rule() -> None:
    updates = {
        name for name in dir(tf.raw_ops) if re.fullmatch(r"(Resource)?(Sparse)?Apply\w+", name)
    }
    assert updates
    assert updates <= set(variables.RULES)
