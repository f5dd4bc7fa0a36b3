"""Calls of functions: their bodies, their prices, and the variables that they read."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sharding_calls import call_spec, called, graph_of_call
from sharding_ops import Case, known
from sharding_programs import prove
from split_training import check_equal, trained
from training_graphs import exported

from pesto_cli import api
from pesto_cli.apply import place_function
from pesto_cli.data.binding import bindings
from pesto_cli.data.specs import ARGUMENT
from pesto_cli.errors import BadInputError
from pesto_cli.graphdef.body_steps import MAX_OPS
from pesto_cli.graphdef.export import flat_step
from pesto_cli.graphdef.functions import function_graph
from pesto_cli.graphdef.read import read_step
from pesto_cli.graphdef.tensorflow import tensorflow
from pesto_cli.graphdef.values_of_calls import take_values
from pesto_cli.graphdef.xla import MUST_COMPILE
from pesto_cli.sharding.rules import all_alternatives, alternatives, calls

tf = tensorflow()
ROWS = np.arange(12.0).reshape(4, 3)


def ways(case: Case) -> set[str]:
    return {way.name for way in alternatives(case.spec)}


def call(function: Any, *arguments: Any) -> Case:
    return called("PartitionedCall", function, *arguments)


def test_a_body_has_the_ops_of_the_function_and_what_they_take() -> None:
    spec = call(lambda x, y: (tf.matmul(x, y), x), ROWS, ROWS.T.copy()).spec
    assert spec.body is not None
    types = [op.spec.type for op in spec.body.ops]
    assert sorted(types) == ["Identity", "Identity", "MatMul"]
    (product,) = (op for op in spec.body.ops if op.spec.type == "MatMul")
    assert product.inputs == ((ARGUMENT, 0), (ARGUMENT, 1))
    assert product.spec.inputs == spec.inputs
    first, second = (spec.body.ops[op] for op, _ in spec.body.outputs)
    assert first.inputs == ((types.index("MatMul"), 0),)
    assert second.inputs == ((ARGUMENT, 0),)
    assert not spec.is_stateful
    assert [each.type for each in spec.kernels] == types


def test_a_known_argument_is_known_in_the_body() -> None:
    def summed(x: Any, axis: Any) -> Any:
        return tf.reduce_sum(x, axis)

    assert ways(call(summed, ROWS, known(0))) == {"reduced axis 0", "axis 0", "replicated"}
    assert ways(call(summed, ROWS, np.array(0, "int32"))) == set()


def test_functions_with_state_or_many_ops_stay_whole() -> None:
    def printed(x: Any) -> Any:
        with tf.control_dependencies([tf.raw_ops.PrintV2(input=tf.constant("x"))]):
            return tf.identity(x)

    def drawn(x: Any) -> Any:
        return x + tf.random.uniform([4, 3], dtype=tf.float64)

    def looped(x: Any) -> Any:
        return tf.while_loop(lambda y: tf.reduce_sum(y) < 9, lambda y: (y + 1,), [x])

    def nested(x: Any) -> Any:
        return tf.function(drawn)(x)

    def long(x: Any) -> Any:
        for _ in range(MAX_OPS):
            x = tf.exp(x)
        return x

    for function in (printed, drawn, looped, nested, long):
        spec = called("StatefulPartitionedCall", function, ROWS).spec
        assert spec.body is None
        assert spec.is_stateful
        assert alternatives(spec) == ()


def input_gradient(sizes: Any) -> Any:
    """Return a function with the gradient of a convolution for images of these sizes."""

    def gradient(results: Any, kernel: Any) -> Any:
        return tf.raw_ops.Conv2DBackpropInput(
            input_sizes=sizes,
            filter=kernel,
            out_backprop=results,
            strides=[1] * 4,
            padding="SAME",
        )

    return gradient


def test_sizes_that_are_constants_of_the_function_are_not_split(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    arguments = np.ones((2, 4, 4, 6)), np.ones((3, 3, 4, 6))
    case = call(input_gradient([2, 4, 4, 4]), *arguments)
    assert ways(case) == {"out channels", "replicated"}
    monkeypatch.setattr(calls, "_is_open", lambda *_: True)
    all_alternatives.cache_clear()
    (wrong,) = (way for way in alternatives(case.spec) if way.name == "batch")
    with pytest.raises(tf.errors.InvalidArgumentError, match="Conv2D"):
        prove(case, wrong, (1, 1))
    all_alternatives.cache_clear()


def test_each_argument_can_be_split_on_its_own() -> None:
    def towers(x: Any, y: Any) -> Any:
        return tf.exp(x), tf.exp(y)

    case = call(towers, ROWS, np.ones((7, 2)))
    found = {tuple(map(str, way.inputs)) for way in alternatives(case.spec) if way.size}
    assert {("split 0", "whole"), ("split 1", "whole"), ("whole", "split 0")} <= found
    for way in alternatives(case.spec):
        prove(case, way, (1, 1) if way.size is None else (1, way.size - 1))


def test_parts_of_bodies_are_the_bodies_of_parts() -> None:
    """What a part of a plan runs is what is read from the split graph."""

    def gradients(results: Any, images: Any, kernel: Any) -> Any:
        return tf.gradients(tf.nn.conv2d(images, kernel, 1, "SAME"), [kernel, images], results)

    shapes = [(6, 4, 4, 2), (6, 4, 4, 3), (3, 3, 3, 2)]
    case = call(gradients, *map(np.ones, shapes))
    (batch,) = (way for way in alternatives(case.spec) if way.name == "batch")
    program = batch.program(case.spec, batch, (2, 4))
    for op, size in zip(program.ops, (2, 4), strict=True):
        part = [(size, *shape[1:]) for shape in shapes[:2]] + shapes[2:]
        expected = call(gradients, *map(np.ones, part)).spec
        assert op.spec.body == expected.body
        assert op.spec.outputs == expected.outputs


def compiled_layers(build_kernel: Any = None) -> Any:
    """Return the builder of a graph with two compiled functions, one of which reads a variable."""

    def build(tf: Any) -> Sequence[Any]:
        tf1 = tf.compat.v1
        rows = tf1.placeholder(tf.float32, [4, 8], name="rows")
        initial = tf1.constant_initializer(np.eye(8) / 2)
        weights = tf1.get_variable("weights", [8, 8], initializer=initial, use_resource=True)

        @tf.function(jit_compile=True)
        def layer(x: Any) -> Any:
            if build_kernel is not None:
                return build_kernel(x)
            kernel = tf.identity(weights)
            return tf.nn.relu(tf.matmul(x, kernel)), kernel, x

        @tf.function(jit_compile=True)
        def loss_of(x: Any, y: Any) -> Any:
            return tf.reduce_sum(tf.matmul(x, y, transpose_b=True))

        hidden = tf.nest.flatten(layer(rows))[0]
        loss = tf.identity(loss_of(hidden, rows), name="loss")
        with tf.control_dependencies([loss]):
            train = weights.assign_sub(weights * 0.01, read_value=False, name="train")
        return [train, loss]

    return build


def nodes(meta: Any) -> dict[str, Any]:
    return {node.name: node for node in meta.graph_def.node}


def test_a_compiled_call_takes_the_values_of_variables_that_it_reads() -> None:
    before = exported(compiled_layers())
    meta = type(before)()
    meta.CopyFrom(before)
    take_values(meta.graph_def)
    (name,) = (node.name for node in before.graph_def.node if node.op == "StatefulPartitionedCall")
    call, added = nodes(meta)[name], set(nodes(meta)) - set(nodes(before))
    (read,) = (nodes(meta)[each] for each in added)
    assert call.op == "PartitionedCall"
    assert call.attr[MUST_COMPILE].b
    assert read.op == "ReadVariableOp"
    assert read.name.startswith(f"{name}/")
    assert read.name in call.input
    assert "weights" in read.input[0]
    step = read_step(meta)
    group = dict(zip(step.graph.names, step.graph.colocation_group, strict=True))
    assert group[name] != group["weights"] == group[read.name]
    check_equal(trained(before), trained(meta), 1e-6)


def test_a_call_that_changes_state_keeps_its_handles() -> None:
    counts = []

    def counted(x: Any) -> Any:
        if not counts:
            variable = tf.compat.v1.get_variable("count", [], use_resource=True)
            counts.append(variable)
        counts[0].assign_add(1.0)
        return x * counts[0]

    meta = exported(compiled_layers(counted))
    copy = type(meta)()
    copy.CopyFrom(meta)
    take_values(copy.graph_def)
    assert copy == meta


def test_a_compiled_call_costs_what_its_ops_cost() -> None:
    def times_us(is_compiled: bool) -> dict[str, float]:
        def build(tf: Any) -> Sequence[Any]:
            x = tf.compat.v1.placeholder(tf.float32, [512, 512], name="x")
            inner, outer = lambda x: tf.matmul(x, x), lambda x: tf.exp(tf.matmul(inner(x), x))
            if is_compiled:
                inner = tf.function(inner)
                outer = tf.function(outer, jit_compile=True)
            return [tf.identity(outer(x), name="result")]

        problem = api.profile(exported(build), "v100x2-nvlink").problem
        us = np.nansum(problem.time_us, axis=1)
        return {
            kind: us[np.array(problem.graph.types) == kind].sum() for kind in problem.graph.types
        }

    plain, compiled = times_us(is_compiled=False), times_us(is_compiled=True)
    free_us = plain["Identity"]
    num_free = (compiled["PartitionedCall"] - plain["MatMul"] - plain["Exp"]) / free_us
    assert plain["MatMul"] > 20 * free_us
    assert num_free in (1, 2, 3)


def test_a_convolution_with_groups_costs_what_a_depthwise_one_costs() -> None:
    """Also in a call."""

    def build(tf: Any) -> Sequence[Any]:
        images = tf.compat.v1.placeholder(tf.float32, [32, 28, 28, 64])
        kernel = tf.compat.v1.placeholder(tf.float32, [7, 7, 1, 64])
        grouped = tf.nn.conv2d(images, kernel, 1, "SAME")
        compiled = tf.function(lambda x, y: tf.nn.conv2d(x, y, 1, "SAME"), jit_compile=True)
        depthwise = tf.reshape(kernel, [7, 7, 64, 1])
        results = tf.nn.depthwise_conv2d(images, depthwise, [1] * 4, "SAME")
        called = tf.identity(compiled(images, kernel), name="called")
        gradients = tf.gradients([grouped, results], [images, kernel])
        return [grouped, results, called, *gradients]

    problem = api.profile(exported(build), "v100x2-nvlink", parts=[2]).problem
    us = dict(zip(problem.graph.types, np.nanmax(problem.time_us, axis=1), strict=True))
    expected = us["DepthwiseConv2dNative"]
    assert expected > 3 * us["Identity"] > 0
    for kind in ("Conv2D", "Conv2DBackpropInput", "Conv2DBackpropFilter"):
        assert us[kind] == pytest.approx(expected, rel=0.01)
    call = next(kind for kind in us if "Call" in kind)
    assert 0 <= us[call] - us["Conv2D"] <= 3 * us["Identity"]
    parts = problem.parts
    assert parts is not None
    assert parts.part_ratio(problem.graph.types.index("Conv2D"), "groups", 0.5) == pytest.approx(
        [np.nan, 0.5], nan_ok=True, rel=0.01
    )


def test_a_call_that_can_be_split_does_not_bind_its_work() -> None:
    def build(tf: Any) -> Sequence[Any]:
        x, y = (tf.compat.v1.placeholder(tf.float32, [512, 512]) for _ in range(2))
        product = tf.function(lambda x, y: tf.matmul(x, y), jit_compile=True)
        return [tf.identity(product(x, y), name="result")]

    meta = exported(build)
    (bound,) = bindings(api.profile(meta, "v100x2-nvlink").problem)
    assert "Call" in bound.op_type
    assert bindings(api.profile(meta, "v100x2-nvlink", parts=[2]).problem) == []


def test_profiles_keep_bodies(tmp_path: Path) -> None:
    def layer(x: Any, kernel: Any) -> Any:
        return tf.nn.relu(tf.function(lambda x: tf.matmul(x, kernel))(x))

    meta = graph_of_call("PartitionedCall", layer, ROWS, np.ones((3, 8)))
    profile = api.profile(meta, "v100x2-nvlink", parts=[2])
    path = tmp_path / "call.profile.json"
    api.save(path, profile)
    read = api.load(path)
    parts = read.problem.parts
    assert parts is not None
    assert parts.specs == profile.problem.parts.specs
    assert call_spec(meta) in parts.specs
    assert {name for _, name in parts.times} >= {"rows", "columns"}
    assert all(np.nanmax(each.ratio) <= 1 for each in parts.times.values())
    damaged = json.loads(path.read_text())
    (body,) = (each["body"] for each in damaged["parts"]["specs"] if "body" in each)
    body["outputs"] = [[len(body["ops"]), 0]]
    path.write_text(json.dumps(damaged))
    with pytest.raises(BadInputError, match=re.escape("parts.specs.body takes output 0 of op")):
        api.load(path)


def test_a_placed_function_calls_compiled_functions_with_values() -> None:
    kernel, weights = (tf.Variable(tf.ones(shape) / 4) for shape in ((3, 3, 1, 4), (64, 5)))
    rows, labels = np.linspace(-1, 1, 2 * 4 * 4 * 4).reshape(2, 4, 4, 4), np.array([1, 2], "int32")

    @tf.function(jit_compile=True)
    def convolution(images: Any) -> Any:
        return tf.nn.conv2d(images, kernel, 1, "SAME")

    @tf.function
    def step(images: Any, labels: Any) -> Any:
        with tf.GradientTape() as tape:
            logits = tf.reshape(tf.nn.relu(convolution(images)), [2, 64]) @ weights
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))
        for variable, gradient in zip(
            (kernel, weights), tape.gradient(loss, [kernel, weights]), strict=True
        ):
            variable.assign_sub(0.1 * gradient)
        return loss

    data = tf.constant(rows, tf.float32), tf.constant(labels)
    concrete = step.get_concrete_function(*data)
    meta = flat_step(function_graph(concrete, "step"), "step")
    assert [node.op for node in meta.graph_def.node if "Call" in node.op] == ["PartitionedCall"] * 2
    profile = api.profile(meta, "v100x2-nvlink")
    placement = api.placement(profile, api.solve(profile, "single"))
    devices = dict.fromkeys(("CPU:0", "GPU:0", "GPU:1"), "/device:CPU:0")
    placed = place_function(concrete, placement, devices=devices)
    before = kernel.numpy(), weights.numpy()
    expected = [float(step(*data)) for _ in range(3)]
    kernel.assign(before[0])
    weights.assign(before[1])
    assert [float(placed(*data)) for _ in range(3)] == pytest.approx(expected, rel=1e-6)
    assert expected[0] > expected[1] > expected[2]
