"""Small v1 training graphs, one for each feature of TensorFlow's graphs."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from pesto_cli.graphdef.tensorflow import tensorflow

TensorFlow = Any
"""The module, or one of its tensors."""
Build = Callable[[TensorFlow], Sequence[TensorFlow]]


def exported(build: Build, *, functional_control_flow: bool = False) -> Any:
    """Return a MetaGraphDef of the graph that `build` builds; `build` returns the fetches.

    Loops and conditionals are v1 frames and Switches, or While and If ops that stay one op.
    """
    tf1 = tensorflow().compat.v1
    was_functional = tf1.control_flow_v2_enabled()
    with tf1.Graph().as_default() as graph:
        (tf1.enable_control_flow_v2 if functional_control_flow else tf1.disable_control_flow_v2)()
        try:
            fetches = build(tensorflow())
        finally:
            (tf1.enable_control_flow_v2 if was_functional else tf1.disable_control_flow_v2)()
        init = tf1.global_variables_initializer().name
        meta = tf1.train.export_meta_graph(graph=graph)
    for node in meta.graph_def.node:
        node.attr.pop("_lower_using_switch_merge", None)
    meta.collection_def["train_op"].node_list.value[:] = [fetch.name for fetch in fetches]
    meta.collection_def["init_op"].node_list.value[:] = [init]
    return meta


def step_stats(meta: Any, devices: Mapping[str, str]) -> Any:
    """Return TensorFlow's StepStats of a step on two CPU devices; `devices`: node -> device."""
    tf1 = tensorflow().compat.v1
    graph_def = tf1.GraphDef()
    graph_def.CopyFrom(meta.graph_def)
    for node in graph_def.node:
        node.device = devices.get(node.name, "")
        node.attr.pop("_class", None)
    config = tf1.ConfigProto(device_count={"CPU": 2}, allow_soft_placement=False)
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    config.graph_options.optimizer_options.opt_level = -1
    options = tf1.RunOptions(trace_level=tf1.RunOptions.FULL_TRACE)
    metadata = tf1.RunMetadata()
    with tf1.Graph().as_default() as graph, tf1.Session(config=config) as session:
        tf1.import_graph_def(graph_def, name="")
        session.run(list(meta.collection_def["init_op"].node_list.value))
        fed = [op.outputs[0] for op in graph.get_operations() if op.type == "Placeholder"]
        session.run(
            list(meta.collection_def["train_op"].node_list.value),
            {tensor: np.ones(tensor.shape, tensor.dtype.as_numpy_dtype) for tensor in fed},
            options=options,
            run_metadata=metadata,
        )
    return metadata.step_stats


def convnet(tf: Any) -> Sequence[Any]:
    """Convolution, batch norm, pooling, a dense layer on reference variables; Momentum."""
    tf1 = tf.compat.v1
    images = tf1.placeholder(tf.float32, [4, 8, 8, 3], name="images")
    labels = tf1.placeholder(tf.int32, [4], name="labels")
    kernel = tf1.get_variable("kernel", [3, 3, 3, 8], use_resource=False)
    scale = tf1.get_variable("scale", [8], use_resource=False)
    dense = tf1.get_variable("dense", [128, 10], use_resource=True)
    convolved = tf1.nn.conv2d(images, kernel, strides=1, padding="SAME")
    normed, _, _ = tf1.nn.fused_batch_norm(convolved, scale, tf.zeros([8]))
    pooled = tf1.nn.max_pool(tf.nn.relu(normed), 2, 2, "SAME")
    logits = tf.matmul(tf.reshape(pooled, [4, -1]), dense)
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
    loss = tf.reduce_mean(losses, name="loss")
    return [tf1.train.MomentumOptimizer(0.1, 0.9).minimize(loss, name="train"), loss]


def embedding(tf: Any) -> Sequence[Any]:
    """Sparse gradients, of which Adam uses the unique rows: their number depends on the data."""
    tf1 = tf.compat.v1
    words = tf1.placeholder(tf.int32, [5, 6], name="words")
    table = tf1.get_variable("table", [100, 8], use_resource=True)
    loss = tf.reduce_mean(tf.square(tf.nn.embedding_lookup(table, words)), name="loss")
    return [tf1.train.AdamOptimizer(0.1).minimize(loss, name="train"), loss]


def recurrent(tf: Any) -> Sequence[Any]:
    """A while loop over TensorArrays, with both kinds of variables, and a conditional after it."""
    tf1 = tf.compat.v1
    inputs = tf1.placeholder(tf.float32, [6, 4, 8], name="inputs")
    weights = tf1.get_variable("weights", [16, 8], use_resource=False)
    offset = tf1.get_variable("offset", [8], use_resource=True)
    read = tf1.TensorArray(tf.float32, 6).unstack(inputs)

    def step(time: Any, state: Any, written: Any) -> Any:
        joined = tf.concat([read.read(time), state], axis=1)
        state = tf.tanh(tf.matmul(joined, weights) + offset)
        return time + 1, state, written.write(time, state)

    start = [tf.constant(0), tf.zeros([4, 8]), tf1.TensorArray(tf.float32, 6)]
    _, state, written = tf1.while_loop(lambda time, *_: time < 6, step, start)
    error = tf.reduce_mean(tf.square(written.stack())) + tf.reduce_sum(state)
    loss = tf1.cond(error > 0, lambda: error * 2.0, lambda: error + tf.reduce_sum(weights + offset))
    return [tf1.train.GradientDescentOptimizer(0.1).minimize(loss, name="train"), loss]


def nested_loops(tf: Any) -> Sequence[Any]:
    """A while loop in a while loop, and another after them."""
    tf1 = tf.compat.v1
    start = tf1.placeholder(tf.float32, [4], name="start")

    def inner(value: Any) -> Any:
        return tf1.while_loop(lambda i, _: i < 2, lambda i, v: (i + 1, v * 1.5), [0, value])[1]

    def outer(count: Any, value: Any) -> Any:
        return count + 1, inner(value) + 1.0

    _, value = tf1.while_loop(lambda i, _: i < 3, outer, [0, start], name="outer")
    _, value = tf1.while_loop(lambda i, _: i < 2, lambda i, v: (i + 1, v - 1), [0, value])
    return [tf.identity(value, name="result")]


def stateful_cond(tf: Any) -> Sequence[Any]:
    """Branches that assign to both kinds of variables, and Switches that share a constant."""
    tf1 = tf.compat.v1
    fed = tf1.placeholder(tf.float32, [3], name="fed")
    old = tf1.get_variable("old", [3], use_resource=False)
    new = tf1.get_variable("new", [3], use_resource=True)
    one = tf.constant(1.0, name="one")

    def grown() -> Any:
        with tf.control_dependencies([tf1.assign_add(old, fed * one), new.assign_add(fed)]):
            return tf.identity(old) + one

    total = tf1.cond(tf.reduce_sum(fed) > 0, grown, lambda: new + one)
    return [tf.reduce_sum(total, name="total")]
