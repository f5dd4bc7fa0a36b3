"""Variables, and the ops that read and write them, whole, in pieces and in copies."""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_plans import specs_of
from sharding_ops import Case, Variable, case
from sharding_programs import prove_update
from sharding_tensors import part_sizes
from training_graphs import exported

from pesto_cli.data.specs import Operand, OpSpec
from pesto_cli.graphdef.read import read_step
from pesto_cli.graphdef.tensorflow import tensorflow
from pesto_cli.sharding.rules import alternatives, variables
from pesto_cli.sharding.rules.constants import stays_whole
from pesto_cli.sharding.variables import refusing_op

tf = tensorflow()
NUMBERS = Operand((4, 3), "float32")
WRITTEN = sorted(
    name
    for name, rule in variables.RULES.items()
    if rule not in (stays_whole, variables.variable) and hasattr(tf.raw_ops, name)
)


@st.composite
def cases(draw: st.DrawFn, op_type: str) -> Case:
    """An op on variables of one to three axes, all with positive values."""
    from tensorflow.python.framework import op_def_registry

    shape = tuple(draw(st.lists(st.integers(2, 5), min_size=1, max_size=3)))
    rng = np.random.default_rng(draw(st.integers(0, 100)))
    num_rows = draw(st.integers(1, 4))
    values: dict[str, Any] = {
        "indices": rng.integers(0, shape[0], num_rows),
        "value": rng.normal(size=shape),
        "grad": rng.normal(size=shape),
        "updates": rng.uniform(0.5, 1.5, (num_rows, *shape[1:])),
        "global_step": np.int64(3),
        "lr_power": -0.5,
    }
    values["delta"] = values["grad"]
    if "Sparse" in op_type:
        values["grad"] = rng.normal(size=(num_rows, *shape[1:]))
    arguments = []
    for argument in op_def_registry.get(op_type).input_arg:
        if argument.type == tf.resource.as_datatype_enum:
            arguments.append(Variable(rng.uniform(0.5, 1.5, shape)))
        else:
            arguments.append(np.asarray(values.get(argument.name, rng.uniform(0.1, 0.9))))
    own = {"dtype": tf.float64} if op_type == "ReadVariableOp" else {}
    return case(op_type, *arguments, **own)


@pytest.mark.parametrize("op_type", WRITTEN)
def test_parts_write_what_the_op_writes(op_type: str) -> None:
    seen = set()

    @settings(max_examples=12, deadline=None, database=None)
    @given(cases(op_type), st.data())
    def proved(case: Case, data: st.DataObject) -> None:
        for alternative in alternatives(case.spec):
            prove_update(case, alternative, data.draw(part_sizes(alternative.size)))
            seen.add(alternative.name)

    proved()
    sums = {"ResourceScatterAdd", "ResourceScatterSub"}
    assert {"mirrored", "variable 1"} <= seen
    assert ("variable 0" in seen) == ("Scatter" not in op_type and "Sparse" not in op_type) or (
        op_type in sums
    )


def test_sums_with_scattered_scalars_are_split() -> None:
    table = Variable(np.ones((4, 6)))
    scatter = case("ResourceScatterAdd", table, np.array([1, 3]), np.array(2.0))
    ways = {way.name: way for way in alternatives(scatter.spec)}
    prove_update(scatter, ways["variable 1"], (1, 5))


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


@pytest.mark.parametrize(
    ("optimizer", "refusing"),
    [
        (tf.compat.v1.train.GradientDescentOptimizer(0.1), None),
        (tf.compat.v1.train.MomentumOptimizer(0.1, 0.9), "ResourceSparseApplyMomentum"),
    ],
)
def test_the_op_that_keeps_a_variable_whole_is_found(optimizer: Any, refusing: str | None) -> None:
    """The number of different rows in a sparse gradient of Momentum depends on the data."""

    def rows(tf: Any) -> Sequence[Any]:
        words = tf.compat.v1.placeholder(tf.int32, [8], name="words")
        table = tf.compat.v1.get_variable("table", [10, 4], use_resource=True)
        loss = tf.reduce_sum(tf.nn.embedding_lookup(table, words), name="loss")
        return [optimizer.minimize(loss, name="train")]

    step = read_step(exported(rows))
    table = step.graph.index_of["table"]
    found = refusing_op(step.graph, specs_of(step), table, "variable 0")
    assert (None if found is None else step.graph.types[found]) == refusing
