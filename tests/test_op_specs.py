"""Op specs read from GraphDefs: attributes, operands, and values that are known in advance."""

from typing import Any

import numpy as np
import pytest
from training_graphs import exported

from pesto_cli.data.specs import Operand, OpSpec
from pesto_cli.graphdef.attributes import attr_value, plain_value
from pesto_cli.graphdef.constant_values import plain
from pesto_cli.graphdef.op_specs import op_specs
from pesto_cli.graphdef.read import read_step
from pesto_cli.sharding.rules import alternatives


def specs_by_name(meta: Any) -> dict[str, OpSpec]:
    """Return the spec of each op that has one."""
    step = read_step(meta)
    specs, spec_of = op_specs(step)
    assert len(set(specs)) == len(specs)
    assert set(spec_of.tolist()) - {-1} == set(range(len(specs)))
    names = step.graph.names
    return {name: specs[at] for name, at in zip(names, spec_of, strict=True) if at >= 0}


def test_attributes_are_plain_and_include_defaults() -> None:
    def build(tf: Any) -> list[Any]:
        images = tf.compat.v1.placeholder(tf.float32, [2, 5, 5, 3])
        kernel = tf.compat.v1.placeholder(tf.float32, [3, 3, 3, 4])
        return [tf.nn.conv2d(images, kernel, [1, 2, 2, 1], "SAME", name="conv")]

    spec = specs_by_name(exported(build))["conv"]
    assert spec.type == "Conv2D"
    assert spec.attribute["T"] == "float32"
    assert spec.attribute["strides"] == (1, 2, 2, 1)
    assert spec.attribute["padding"] == "SAME"
    assert spec.attribute["explicit_paddings"] == ()
    assert spec.attribute["dilations"] == (1, 1, 1, 1)
    assert list(spec.attribute) == sorted(spec.attribute)
    assert spec.inputs == (Operand((2, 5, 5, 3), "float32"), Operand((3, 3, 3, 4), "float32"))
    assert spec.outputs == (Operand((2, 3, 3, 4), "float32"),)
    assert not spec.is_stateful


def test_constants_of_bfloat16_are_computed() -> None:
    def build(tf: Any) -> list[Any]:
        rows = tf.compat.v1.placeholder(tf.bfloat16, [4])
        two = tf.add(tf.constant(1.5, tf.bfloat16), tf.constant(0.5, tf.bfloat16), name="two")
        return [tf.multiply(rows, two, name="product")]

    assert specs_by_name(exported(build))["product"].inputs[1].value == 2.0


def test_axes_that_a_broadcast_has_added_are_values() -> None:
    """TensorFlow knows no static shape for them."""

    def build(tf: Any) -> list[Any]:
        words = tf.compat.v1.placeholder(tf.float32, [4, 6, 3])
        weights = tf.compat.v1.placeholder(tf.float32, [3, 5])
        product = tf.raw_ops.BatchMatMulV2(x=words, y=weights)
        return list(tf.gradients(product, [words, weights]))

    sums = [spec for spec in specs_by_name(exported(build)).values() if spec.type == "Sum"]
    axes = {spec.outputs[0].sizes: spec.inputs[1] for spec in sums}
    assert axes == {
        (4, 6, 3): Operand((0,), "int32", (), on_host=True),
        (3, 5): Operand((1,), "int32", (0,), on_host=True),
    }
    assert {each.name for spec in sums for each in alternatives(spec)} >= {"axis 0"}


def test_small_constants_are_values_and_large_ones_are_not() -> None:
    def build(tf: Any) -> list[Any]:
        data = tf.compat.v1.placeholder(tf.float32, [17])
        small = tf.reshape(data + 2.5, [17, 1], name="small")
        large = tf.add(data, tf.constant(np.arange(17.0), tf.float32), name="large")
        return [small, large]

    specs = specs_by_name(exported(build))
    assert specs["small"].inputs[1] == Operand((2,), "int32", (17, 1), on_host=True)
    assert specs["add"].inputs[1] == Operand((), "float32", 2.5)
    assert specs["large"].inputs[1] == Operand((17,), "float32")


def test_shapes_and_what_is_computed_from_them_are_values() -> None:
    def build(tf: Any) -> list[Any]:
        data = tf.compat.v1.placeholder(tf.float32, [6, 4])
        shape = tf.raw_ops.Shape(input=data, name="shape")
        rows = shape[0]
        half = tf.reshape(data, tf.stack([rows * 2, -1]), name="half")
        mean = tf.divide(data, tf.cast(rows, tf.float32), name="mean")
        mask = tf.fill(shape, 1.0)
        return [
            half,
            mean,
            mask,
            tf.transpose(data, tf.range(tf.raw_ops.Rank(input=data))[::-1], name="turned"),
        ]

    specs = specs_by_name(exported(build))
    assert specs["half"].inputs[1].value == (12, -1)
    assert specs["mean"].inputs[1].value == 6.0
    assert specs["Fill"].inputs[0].value == (6, 4)
    assert specs["Fill"].outputs[0].value is None
    assert specs["turned"].inputs[1].value == (1, 0)
    assert specs["shape"].outputs[0].value == (6, 4)
    assert specs["strided_slice"].outputs[0] == Operand((), "int32", 6, on_host=True)


def test_fed_random_and_failing_values_are_unknown() -> None:
    def build(tf: Any) -> list[Any]:
        data = tf.compat.v1.placeholder(tf.float32, [2])
        fed = tf.compat.v1.placeholder_with_default(3.0, [], name="fed")
        drawn = tf.random.uniform([2])
        failing = tf.cast(tf.raw_ops.Size(input=data) // tf.constant(0), tf.float32)
        return [
            tf.multiply(data, term, name=f"by_{at}") for at, term in enumerate((fed, drawn))
        ] + [tf.multiply(data, failing, name="by_2")]

    specs = specs_by_name(exported(build))
    assert [specs[f"by_{at}"].inputs[1].value for at in range(3)] == [None] * 3
    assert specs["random_uniform/RandomUniform"].is_stateful


def test_a_conditional_keeps_its_switches_and_a_loop_has_no_spec() -> None:
    def build(tf: Any) -> list[Any]:
        flag = tf.constant(True)
        taken = tf.compat.v1.cond(flag, lambda: tf.constant(1.0), lambda: tf.constant(2.0))
        counted = tf.compat.v1.while_loop(lambda i: i < 3, lambda i: (i + 1,), [0])
        return [tf.negative(taken, name="taken"), tf.negative(counted, name="counted")]

    meta = exported(build)
    specs = specs_by_name(meta)
    assert specs["taken"].inputs[0].value is None
    assert specs["counted"].inputs[0].value is None
    assert "While" in read_step(meta).graph.types
    assert "While" not in {spec.type for spec in specs.values()}


def test_equal_ops_share_a_spec() -> None:
    def build(tf: Any) -> list[Any]:
        data = tf.compat.v1.placeholder(tf.float32, [4, 4])
        return [tf.matmul(data, tf.matmul(data, data, name="one"), name="other")]

    specs = specs_by_name(exported(build))
    assert specs["one"] is specs["other"]


def test_variables_of_equal_shape_share_a_spec() -> None:
    def build(tf: Any) -> list[Any]:
        one, other = (
            tf.compat.v1.get_variable(name, [2, 3], use_resource=True) for name in ("one", "other")
        )
        return [tf.add(one, other, name="sum")]

    specs = specs_by_name(exported(build))
    assert specs["one"] is specs["other"]
    assert [*specs["one"].attribute] == ["allowed_devices", "dtype", "shape"]


@pytest.mark.parametrize("number", [float("nan"), -0.0])
def test_numbers_that_break_equality_are_unknown(number: float) -> None:
    assert plain(np.array([1.0, number], np.float32)) is None
    assert plain(np.array([1.0, np.inf], np.float32)) == (1.0, float("inf"))


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("string", "SAME"),
        ("int", 3),
        ("float", 0.5),
        ("bool", True),
        ("type", "bfloat16"),
        ("shape", (2, -1)),
        ("shape", ()),
        ("shape", "unknown"),
        ("list(int)", (1, 2)),
        ("list(int)", ()),
        ("list(type)", ("float32", "int64")),
        ("list(shape)", ((2,), (3, 4))),
        ("list(string)", ("a", "b")),
    ],
)
def test_attributes_survive_a_round_trip(kind: str, value: Any) -> None:
    assert plain_value(attr_value(kind, value)) == value


@pytest.mark.parametrize(("kind", "value"), [("func", "f"), ("int", (1,)), ("list(int)", 1)])
def test_an_attribute_of_the_wrong_type_is_refused(kind: str, value: Any) -> None:
    with pytest.raises(ValueError, match="attribute"):
        attr_value(kind, value)


def test_ops_that_must_stay_whole_have_no_spec() -> None:
    """Those in branches and loops, readers of references, and consumers of a NaN."""

    def build(tf: Any) -> list[Any]:
        tf1 = tf.compat.v1
        data = tf1.placeholder(tf.float32, [4], name="data")
        variable = tf1.get_variable("variable", [4], use_resource=False)
        read = tf1.raw_ops.Neg(x=variable.read_value(), name="neg")
        looped = tf1.while_loop(lambda x: x[0] < 3.0, lambda x: (x + 1.0,), [data], name="loop")
        chosen = tf1.cond(
            data[0] > 0.0,
            lambda: tf.exp(data, name="exp"),
            lambda: tf.ones([4]),
        )
        missing = tf.where(data > 0.0, data, np.nan, name="missing")
        return [tf.add_n([read, looped, chosen, missing], name="sum")]

    specs = specs_by_name(exported(build))
    assert {"data", "sum", "variable", "neg"} <= specs.keys()
    assert "Identity" not in specs
    assert {spec.type for spec in specs.values()}.isdisjoint({"While", "Exp", "SelectV2"})
