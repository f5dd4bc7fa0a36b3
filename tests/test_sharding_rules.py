"""Every alternative of every sharding rule computes what the whole op computes.

`make fuzz` looks at ten times as many operands (PESTO_EXAMPLES).
"""

import os
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sharding_cases import CASES
from sharding_ops import Case, case, known
from sharding_programs import prove
from sharding_tensors import part_sizes

from pesto_cli.data.specs import Operand, OpSpec
from pesto_cli.errors import BadInputError
from pesto_cli.sharding.alternative import Alternative, one_op_each
from pesto_cli.sharding.layouts import SUM, WHOLE, Split
from pesto_cli.sharding.rules import RULES, alternatives, random, table, variables, whole
from pesto_cli.sharding.rules.constants import stays_whole

# Op types of which only copies are made.
NEVER_SPLIT = {op_type for op_type, rule in RULES.builtin.items() if rule is stays_whole}
# Op types that are never split; test_sharding_random.py is about the copies of random ops.
WITHOUT_FACTORS = {*variables.RULES, *whole.RULES, *random.RULES}
EXAMPLES = 15 * int(os.environ.get("PESTO_EXAMPLES", "1"))
# If no drawn example can be split, which is possible, more are drawn: at most so many times.
MOST_ROUNDS = 5


def test_every_rule_has_a_proof() -> None:
    assert set(RULES.builtin) - WITHOUT_FACTORS == set(CASES)


def test_no_op_type_is_in_two_families() -> None:
    families = [each.RULES for each in table.families_of_rules()]
    assert sum(map(len, families)) == len(RULES.builtin)


@pytest.mark.parametrize("op_type", CASES)
def test_parts_compute_what_the_op_computes(op_type: str) -> None:
    seen = set()

    @settings(
        max_examples=EXAMPLES, deadline=None, database=None, suppress_health_check=list(HealthCheck)
    )
    @given(CASES[op_type], st.data())
    def proved(case: Case, data: st.DataObject) -> None:
        assert case.spec.type == op_type
        if data.draw(st.integers(0, 5), "forget constants if 5") == 5:
            case = case.without_values()
        ways = alternatives(case.spec)
        assert len({alternative.name for alternative in ways}) == len(ways)
        for alternative in ways:
            prove(case, alternative, data.draw(part_sizes(alternative.size), alternative.name))
            seen.add(alternative.name)

    for _ in range(MOST_ROUNDS):
        proved()
        if seen - {"replicated"} or op_type in NEVER_SPLIT:
            return
    pytest.fail("no case can be split")


def test_operands_of_another_op_are_refused() -> None:
    product = case("MatMul", np.ones((4, 3)), np.ones((3, 2))).spec
    vector = replace(product, inputs=product.inputs[:1])
    with pytest.raises(BadInputError, match="an op of type MatMul has 1 inputs and 1 outputs"):
        alternatives(vector)


def test_an_equation_with_an_ellipsis_is_split() -> None:
    spec = case("Einsum", [np.ones((4, 5, 3)), np.ones((3, 2))], equation="...ab,bc->...ac").spec
    names = [alternative.name for alternative in alternatives(spec)]
    assert names[:4] == ["axis 0", "axis 1", "axis 2", "contracted b"]


def test_wrong_alternatives_are_found() -> None:
    numbers = np.random.default_rng(0).normal(size=(4, 3))
    mean = case("Mean", numbers, known([0]))
    squeeze = case("Squeeze", numbers)
    softmax = case("Softmax", numbers)
    along_rows = Alternative("rows", 4, (Split(0),), (Split(0),))
    wrong = [
        (case("Exp", numbers), Alternative("sum", None, (SUM,), (SUM,))),
        (softmax, Alternative("classes", 3, (Split(1),), (Split(1),))),
        (mean, Alternative("rows", 4, (Split(0), WHOLE), (SUM,))),
        (squeeze, along_rows),
        (case("Neg", numbers), replace(along_rows, outputs=(Split(1),))),
        (case("Neg", numbers), replace(along_rows, program=_exchanged)),
    ]
    prove(softmax, along_rows, (1, 3))
    for wrong_case, alternative in wrong:
        with pytest.raises((AssertionError, ValueError)):
            prove(wrong_case, alternative, (1,) * (alternative.size or 2))


def _exchanged(*arguments: Any) -> Any:
    program = one_op_each(*arguments)
    return replace(program, outputs=tuple(each[::-1] for each in program.outputs))


def summed_by(op_type: str, inputs: list[Operand], output: Operand, **attributes: Any) -> list[str]:
    """Return the alternatives of an op whose parts compute open sums."""
    spec = OpSpec(op_type, tuple(sorted(attributes.items())), tuple(inputs), (output,))
    return [way.name for way in alternatives(spec) if SUM in way.outputs]


@pytest.mark.parametrize(("dtype", "is_sum"), [("float32", True), ("bool", False)])
def test_only_numbers_are_scattered_into_open_sums(dtype: str, is_sum: bool) -> None:
    shape = Operand((1,), "int32", (8,))
    inputs = [Operand((4, 1), "int32"), Operand((4,), dtype), shape]
    found = summed_by("ScatterNd", inputs, Operand((8,), dtype))
    assert found == (["index 0"] if is_sum else [])


@pytest.mark.parametrize(("dtype", "is_sum"), [("int64", True), ("string", False)])
def test_only_numbers_are_looked_up_as_open_sums(dtype: str, is_sum: bool) -> None:
    inputs = [Operand((8, 2), "resource"), Operand((4,), "int32")]
    found = summed_by("ResourceGather", inputs, Operand((4, 2), dtype), batch_dims=0)
    assert bool(found) == is_sum


@pytest.mark.parametrize(("dtype", "is_negated"), [("int32", True), ("uint32", False)])
def test_unsigned_numbers_are_not_negated(dtype: str, is_negated: bool) -> None:
    operand = Operand((8,), dtype)
    found = summed_by("Sub", [operand, operand], operand, T=dtype)
    assert ("sum, input 0 whole" in found) == is_negated
    assert "sum, input 1 whole" in found


@pytest.mark.parametrize(("dtype", "is_sum"), [("int32", True), ("int8", False)])
def test_small_integers_whose_product_is_wider_are_not_open_sums(dtype: str, is_sum: bool) -> None:
    inputs = [Operand((4, 3), dtype), Operand((3, 2), dtype)]
    found = summed_by("BatchMatMulV3", inputs, Operand((4, 2), "int32"), adj_x=False, adj_y=False)
    assert ("sum of input 0" in found) == is_sum


def test_handles_without_a_shape_are_not_split() -> None:
    handle, indices, rows = (Operand((), "resource"), *[Operand((4,), "int32")] * 2)
    lookup = OpSpec("ResourceGather", (("batch_dims", 0),), (handle, indices), (rows,))
    update = OpSpec("ResourceScatterAdd", (), (handle, indices, rows), ())
    passed = OpSpec("IdentityN", (), (rows, handle), (rows, handle))
    ways = *alternatives(lookup), *alternatives(update)
    assert not any(isinstance(way.inputs[0], Split) for way in ways)
    assert not list(alternatives(passed))


def test_images_whose_gradient_is_given_only_their_height_and_width_are_split() -> None:
    filters, results = np.ones((3, 3, 4, 2)), np.ones((4, 4, 6, 2))
    gradient = case(
        "Conv2DBackpropInput",
        known([4, 6]),
        filters,
        results,
        strides=[1, 1, 1, 1],
        padding="SAME",
    )
    for way in alternatives(gradient.spec):
        prove(gradient, way, (1,) * (way.size or 2))


@pytest.mark.parametrize("shape", [(0, 4, 4, 3), (8, 4, 4, 0)])
def test_empty_images_are_normalised_whole(shape: tuple[int, ...]) -> None:
    images, vector = Operand(shape, "float32"), Operand(shape[-1:], "float32")
    attributes = {"data_format": "NHWC", "epsilon": 1e-3, "is_training": True}
    spec = OpSpec(
        "FusedBatchNormV3",
        tuple(sorted(attributes.items())),
        (images, *(vector,) * 4),
        (images, *(vector,) * 4, Operand(None, "float32")),
    )
    assert [way.name for way in alternatives(spec)] == ["replicated"]
