"""Random ops: copies with a fixed seed draw the same tensor at each step; others stay whole."""

from typing import Any

import numpy as np
import pytest
from sharding_ops import case, known

from pesto_cli.graphdef.tensorflow import tensorflow
from pesto_cli.sharding.alternative import Alternative
from pesto_cli.sharding.rules import alternatives, random

tf = tensorflow()
SHAPE = (5, 7)
LIMITS = (known(3), known(1000))
FLOAT_TYPES = ("RandomUniform", "RandomStandardNormal", "TruncatedNormal")
SEEDS = ({"seed": 5}, {"seed2": 6}, {"seed": 5, "seed2": 6})


def found(op_type: str, **seeds: int) -> tuple[Alternative, ...]:
    if op_type == "RandomUniformInt":
        return alternatives(case(op_type, known(SHAPE), *LIMITS, **seeds).spec)
    return alternatives(case(op_type, known(SHAPE), dtype="float32", **seeds).spec)


@pytest.mark.parametrize("op_type", [*FLOAT_TYPES, "RandomUniformInt"])
def test_ops_without_a_seed_stay_whole(op_type: str) -> None:
    assert found(op_type) == ()


@pytest.mark.parametrize("op_type", [*FLOAT_TYPES, "RandomUniformInt"])
@pytest.mark.parametrize("seeds", SEEDS)
def test_copies_with_a_seed_draw_the_same_at_each_step(op_type: str, seeds: dict[str, int]) -> None:
    assert [alternative.name for alternative in found(op_type, **seeds)] == ["replicated"]
    with tf.Graph().as_default():
        copies = [drawn(op_type, seeds) for _ in range(3)]
        with tf.compat.v1.Session() as session:
            steps = [session.run(copies) for _ in range(4)]
    for first, *others in steps:
        for other in others:
            np.testing.assert_array_equal(first, other)
    assert not np.array_equal(steps[0][0], steps[1][0])


def drawn(op_type: str, seeds: dict[str, int]) -> Any:
    """Return the output of a random op of the default graph."""
    if op_type == "RandomUniformInt":
        low, high = (limit.array for limit in LIMITS)
        return tf.raw_ops.RandomUniformInt(shape=SHAPE, minval=low, maxval=high, **seeds)
    return getattr(tf.raw_ops, op_type)(shape=SHAPE, dtype=tf.float32, **seeds)


def test_stateless_ops_are_replicated_and_not_split() -> None:
    spec = case("StatelessRandomUniform", known(SHAPE), known((1, 2)), dtype="float32").spec
    assert spec.type in random.RULES
    assert [alternative.name for alternative in alternatives(spec)] == ["replicated"]
