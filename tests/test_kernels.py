"""Which devices can run a node, and what a GPU holds in host memory; needs no GPU."""

from collections.abc import Callable
from typing import Any

import pytest

from pesto_cli.errors import InfeasibleError
from pesto_cli.graphdef.devices import Devices, Site
from pesto_cli.graphdef.signature import OpDefs
from pesto_cli.graphdef.tensorflow import tensorflow

Build = Callable[[Any], Any]


def site_of(build: Build) -> Site:
    """Return the site of the op that produces the result of `build`."""
    tf = tensorflow()
    with tf.Graph().as_default() as graph:
        made = build(tf)
    graph_def = graph.as_graph_def()
    node = next(n for n in graph_def.node if n.name == made.name.split(":")[0])
    return Devices(OpDefs(graph_def.library)).site(node)


def ints(tf: Any, *shape: int) -> Any:
    return tf.compat.v1.placeholder(tf.int32, shape)


def floats(tf: Any, *shape: int) -> Any:
    return tf.compat.v1.placeholder(tf.float32, shape)


def words(tf: Any) -> Any:
    return tf.compat.v1.placeholder(tf.string, [2])


@pytest.mark.parametrize(
    "build",
    [
        lambda tf: tf.strings.join([words(tf), words(tf)]),
        lambda tf: tf.strings.as_string(floats(tf, 2)),
        lambda tf: tf.io.decode_jpeg(tf.compat.v1.placeholder(tf.string, [])),
        lambda tf: tf.constant("text"),
        lambda tf: tf.matmul(ints(tf, 2, 2), ints(tf, 2, 2)),
        lambda tf: tf.lookup.experimental.MutableHashTable(tf.int64, tf.int64, 0).resource_handle,
        lambda tf: tf.data.Dataset.range(3)._variant_tensor,
        lambda tf: tf.print(floats(tf, 2)),
        lambda tf: floats(tf, 2),
    ],
    ids=[
        "join",
        "as_string",
        "jpeg",
        "text",
        "int-matmul",
        "table",
        "dataset",
        "print",
        "placeholder",
    ],
)
def test_ops_that_only_the_host_can_run(build: Build) -> None:
    site = site_of(build)
    assert site.device_types == {"CPU"}
    assert all((*site.host_inputs, *site.host_outputs))


@pytest.mark.parametrize(
    "build",
    [
        lambda tf: ints(tf, 2) + ints(tf, 2),
        lambda tf: ints(tf, 2) * ints(tf, 2),
        lambda tf: tf.reduce_sum(ints(tf, 2), axis=0),
        lambda tf: tf.concat([ints(tf, 2), ints(tf, 2)], 0),
        lambda tf: ints(tf, 4)[1:],
        lambda tf: tf.stack([ints(tf, 2), ints(tf, 2)]),
        lambda tf: tf.identity(ints(tf, 2)),
        lambda tf: tf.range(ints(tf), ints(tf)),
        lambda tf: ints(tf, 2) < ints(tf, 2),
        lambda tf: tf.constant([1, 2]),
        lambda tf: tf.raw_ops.LoopCond(input=tf.compat.v1.placeholder(tf.bool, [])),
    ],
    ids=[
        "add",
        "mul",
        "sum",
        "concat",
        "slice",
        "stack",
        "identity",
        "range",
        "less",
        "const",
        "loop-cond",
    ],
)
def test_a_gpu_computes_shapes_in_host_memory(build: Build) -> None:
    site = site_of(build)
    assert site.device_types == {"CPU", "GPU"}
    assert all((*site.host_inputs, *site.host_outputs))


@pytest.mark.parametrize(
    ("build", "host_inputs"),
    [
        (lambda tf: tf.reshape(floats(tf, 4), ints(tf, 2)), [False, True]),
        (lambda tf: tf.tile(floats(tf, 4), ints(tf, 1)), [False, True]),
        (lambda tf: tf.transpose(floats(tf, 2, 2), ints(tf, 2)), [False, True]),
        (lambda tf: tf.concat([floats(tf, 2), floats(tf, 2)], ints(tf)), [False, False, True]),
        (lambda tf: tf.raw_ops.Fill(dims=ints(tf, 2), value=floats(tf)), [True, False]),
        (lambda tf: tf.reduce_sum(floats(tf, 2), ints(tf)), [False, True]),
        (lambda tf: tf.split(floats(tf, 4), 2, axis=ints(tf))[0], [True, False]),
        (
            lambda tf: tf.raw_ops.Conv2DBackpropFilter(
                input=floats(tf, 1, 4, 4, 1),
                filter_sizes=ints(tf, 4),
                out_backprop=floats(tf, 1, 4, 4, 1),
                strides=[1, 1, 1, 1],
                padding="SAME",
            ),
            [False, True, False],
        ),
        (
            lambda tf: tf.raw_ops.Switch(
                data=floats(tf, 2), pred=tf.compat.v1.placeholder(tf.bool, [])
            )[0],
            [False, True],
        ),
        (
            lambda tf: tf.raw_ops.ReadVariableOp(
                resource=tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[2]), dtype=tf.float32
            ),
            [True],
        ),
    ],
    ids=[
        "reshape",
        "tile",
        "transpose",
        "concat",
        "fill",
        "sum",
        "split",
        "conv-grad",
        "switch",
        "read",
    ],
)
def test_a_gpu_takes_sizes_and_handles_from_host_memory(
    build: Build, host_inputs: list[bool]
) -> None:
    site = site_of(build)
    assert site.device_types == {"CPU", "GPU"}
    assert list(site.host_inputs) == host_inputs
    assert not any(site.host_outputs)


def test_stripped_attributes_have_their_defaults() -> None:
    """Exporters strip attributes that have the default value; constraints still apply to them."""
    tf = tensorflow()
    node = tf.compat.v1.NodeDef(name="unique", op="Unique", input=["x"])
    node.attr["T"].type = tf.int64.as_datatype_enum
    assert Devices(OpDefs(tf.compat.v1.GraphDef().library)).site(node).host_outputs == (
        False,
        False,
    )


@pytest.mark.parametrize(
    ("op_type", "found"), [("MatMul", r"uint16, uint16.*no kernel"), ("FancyOp", "FancyOp")]
)
def test_an_op_that_no_device_runs_is_named(op_type: str, found: str) -> None:
    tf = tensorflow()
    node = tf.compat.v1.NodeDef(name="product", op=op_type, input=["x", "x"])
    node.attr["T"].type = tf.uint16.as_datatype_enum
    with pytest.raises(InfeasibleError, match=rf"'product'.*{found}"):
        Devices(OpDefs(tf.compat.v1.GraphDef().library)).site(node)
