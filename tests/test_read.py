"""A GraphDef is read as the op graph of its training step."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import training_graphs
from split_models import exported_model
from training_graphs import TensorFlow, exported

from pesto_cli.data.graph import OpGraph
from pesto_cli.errors import BadInputError, InfeasibleError
from pesto_cli.graphdef.hashing import graph_hash
from pesto_cli.graphdef.read import StepGraph, read_step
from pesto_cli.graphdef.tensorflow import tensorflow


def read(build: training_graphs.Build) -> StepGraph:
    return read_step(exported(build))


def fed(tf: TensorFlow, name: str, *shape: int | None, dtype: str = "float32") -> TensorFlow:
    return tf.compat.v1.placeholder(dtype, shape, name=name)


def bytes_of(graph: OpGraph) -> dict[tuple[str, int], int]:
    """Return the size in bytes of each output: {(op, output number): bytes}."""
    return {
        (name, number): int(graph.tensor_bytes[tensor])
        for op, name in enumerate(graph.names)
        for number, tensor in enumerate(range(graph.op_tensors[op], graph.op_tensors[op + 1]))
    }


def allocated_bytes(meta: Any) -> dict[tuple[str, int], int]:
    """Return the bytes that TensorFlow allocated for every output of a step but handles."""
    return {
        (
            node.node_name,
            output.slot,
        ): output.tensor_description.allocation_description.requested_bytes
        for device in training_graphs.step_stats(meta, {}).dev_stats
        for node in device.node_stats
        for output in node.output
        if output.tensor_description.dtype != tensorflow().resource.as_datatype_enum
    }


def consumers_on_host(graph: OpGraph, producer: str) -> dict[str, bool]:
    """Return {consumer of an op's tensors: whether these are in host memory at both ops}."""
    made = graph.tensor_producer[graph.consumer_tensor] == graph.index_of[producer]
    return {
        graph.names[op]: bool(flag)
        for op, flag in zip(graph.consumers[made], graph.consumer_on_host[made], strict=True)
    }


def test_tensors_have_the_bytes_that_tensorflow_allocates() -> None:
    meta = exported(training_graphs.convnet)
    step = read_step(meta)
    expected, seen = bytes_of(step.graph), allocated_bytes(meta)
    both = expected.keys() & seen.keys()
    assert len(both) > 40
    # Empty work space of cuDNN, for which the CPU kernel allocates one element.
    empty = {key for key in both if expected[key] == 0}
    assert all(seen[key] <= 4 for key in empty)
    assert {key: expected[key] for key in both - empty} == {key: seen[key] for key in both - empty}
    assert not step.estimated.any()


def test_sizes_that_depend_on_data_are_estimated_from_above() -> None:
    meta = exported(training_graphs.embedding)
    step = read_step(meta)
    expected, seen = bytes_of(step.graph), allocated_bytes(meta)
    both = expected.keys() & seen.keys()
    producers = step.graph.tensor_producer[step.estimated]
    assert {name for name, number in both if expected[name, number] != seen[name, number]} == {
        step.graph.names[op] for op in producers
    }
    assert all(expected[key] >= seen[key] for key in both)
    # 30 words: at most 30 rows of 8 floats.
    assert expected["train/update_table/UnsortedSegmentSum", 0] == 30 * 8 * 4


def test_an_op_that_is_given_the_shape_of_a_tensor_has_its_estimated_size() -> None:
    def build(tf: TensorFlow) -> Sequence[TensorFlow]:
        values = fed(tf, "values", 5, 7)
        some = tf.boolean_mask(values, fed(tf, "mask", 5, dtype="bool"))  # at most 35 floats
        ones = tf.ones(tf.shape(some), name="ones")
        halves = tf.fill([tf.size(some) // 2], 1.0, name="halves")
        return [tf.reduce_sum(some * ones) + tf.reduce_sum(halves)]

    step = read(build)
    expected = bytes_of(step.graph)
    assert expected["ones", 0] == 5 * 7 * 4
    assert expected["halves", 0] == 5 * 7 * 4  # an upper bound: it has at most 17 elements


def test_more_open_dimensions_than_those_of_an_input_are_estimated_from_above() -> None:
    def build(tf: TensorFlow) -> Sequence[TensorFlow]:
        rows = tf.boolean_mask(fed(tf, "x", 50, 8), fed(tf, "mask", 50, dtype="bool"))
        scores = tf.nn.softmax(tf.matmul(rows, rows, transpose_b=True), name="scores")
        columns = tf.slice(rows, [0, 0], [-1, fed(tf, "width", dtype="int32")], name="columns")
        return [tf.reduce_sum(scores) + tf.reduce_sum(columns)]

    expected = bytes_of(read(build).graph)
    assert expected["scores", 0] == 50 * 50 * 4
    assert expected["columns", 0] == 50 * 8 * 4


def test_sizes_that_strings_decide_are_unknown() -> None:
    def build(tf: TensorFlow) -> Sequence[TensorFlow]:
        words = tf.strings.split(fed(tf, "lines", 9, dtype="string")).values
        numbers = tf.strings.to_hash_bucket_fast(words, 100, name="numbers")
        return [tf.gather(tf.ones([100, 8]), numbers, name="rows")]

    step = read(build)
    unknown = {step.graph.names[op] for op in step.graph.tensor_producer[step.size_unknown]}
    assert {"numbers", "rows"} <= unknown


def test_gradients_of_variables_that_a_loop_takes_have_their_sizes() -> None:
    step = read_step(exported_model("while_loop_with_a_list"))
    assert "VariableShape" in step.graph.types
    assert not step.size_unknown.any()


def test_a_constant_shape_that_a_branch_uses_is_known() -> None:
    def build(tf: TensorFlow) -> Sequence[TensorFlow]:
        shape, rows = tf.constant([5, 7]), fed(tf, "rows", 3, 7)
        ids = fed(tf, "ids", 3, dtype="int32")
        branches = (
            lambda: tf.math.unsorted_segment_sum(rows, ids, shape[0], name="table"),
            lambda: tf.zeros([5, 7]),
        )
        return [tf.reduce_sum(tf.compat.v1.cond(rows[0, 0] > 0.0, *branches))]

    assert bytes_of(read(build).graph)["cond/table", 0] == 5 * 7 * 4


def test_a_read_of_a_tensor_array_is_as_large_as_what_was_written() -> None:
    def build(tf: TensorFlow) -> Sequence[TensorFlow]:
        """Build a loop that reads rows of a variable; their gradients are gathered after it."""
        tf1 = tf.compat.v1
        rows = tf1.TensorArray(tf.float32, 6).unstack(tf1.get_variable("rows", [6, 4, 8]) * 2.0)

        def step(time: TensorFlow, state: TensorFlow, out: TensorFlow) -> TensorFlow:
            state = tf.tanh(state + rows.read(time))
            return time + 1, state, out.write(time, state)

        start = [tf.constant(0), tf.zeros([4, 8]), tf1.TensorArray(tf.float32, 6)]
        state, out = tf1.while_loop(lambda time, *_: time < 6, step, start)[1:]
        loss = tf.reduce_sum(state) + tf.reduce_mean(out.stack())
        return [tf1.train.GradientDescentOptimizer(0.1).minimize(loss, name="train"), loss]

    meta = exported(build)
    step = read_step(meta)
    expected, seen = bytes_of(step.graph), allocated_bytes(meta)
    gathered = [key for key in expected if key[0].endswith("TensorArrayGatherV3")]
    assert len(gathered) == 2
    assert any("gradients" in name for name, _ in gathered)
    assert {expected[key] for key in gathered} == {seen[key] for key in gathered} == {6 * 4 * 8 * 4}
    assert not step.estimated.any()


@pytest.mark.parametrize("op", ["zeros", "range", "tile", "one_hot", "random"])
def test_an_output_whose_size_is_fed_is_refused(op: str) -> None:
    def build(tf: TensorFlow) -> Sequence[TensorFlow]:
        count = fed(tf, "count", dtype="int32")
        makers = {
            "zeros": lambda: tf.zeros([count], name=op),
            "range": lambda: tf.range(count, name=op),
            "tile": lambda: tf.tile(fed(tf, "x", 3), [count * 2], name=op),
            "one_hot": lambda: tf.one_hot(fed(tf, "x", 3, dtype="int32"), count, name=op),
            "random": lambda: tf.random.uniform([3, count], name=op),
        }
        return [tf.reduce_sum(makers[op]())]

    with pytest.raises(BadInputError, match=rf"op '{op}.*\?.*set a static shape"):
        read(build)


@pytest.mark.parametrize(
    "build", [training_graphs.convnet, training_graphs.recurrent, training_graphs.stateful_cond]
)
def test_only_what_the_fetches_need_is_read(build: training_graphs.Build) -> None:
    meta = exported(build)
    step = read_step(meta)
    fetched = [name.split(":")[0] for name in meta.collection_def["train_op"].node_list.value]
    needed = tensorflow().compat.v1.graph_util.extract_sub_graph(meta.graph_def, fetched).node
    read_nodes = [name for names in step.nodes for name in names]
    assert len(read_nodes) == len(set(read_nodes))
    assert {*read_nodes, *step.constants} == {node.name for node in needed}
    assert len(needed) < len(meta.graph_def.node)


def test_a_fetched_tensor_returns_to_the_host_and_a_train_op_does_not() -> None:
    graph = (step := read(training_graphs.convnet)).graph
    returns = [
        name for name, kind in zip(graph.names, graph.types, strict=True) if kind == "_Retval"
    ]
    assert returns == ["_retval_loss_0"]
    assert consumers_on_host(graph, "loss")["_retval_loss_0"] is False
    assert not step.supported["GPU"][graph.index_of["_retval_loss_0"]]
    assert step.nodes[graph.index_of["_retval_loss_0"]] == ()
    assert step.nodes[graph.index_of["train"]] == ("train",)


def test_small_constants_are_placed_with_one_of_their_consumers() -> None:
    def build(tf: TensorFlow) -> Sequence[TensorFlow]:
        start = fed(tf, "start", 17)
        with tf.control_dependencies([tf.identity(start, name="before")]):
            late = tf.constant(2.0, name="late")
        with tf.control_dependencies([tf.constant(1.0, name="signal")]):
            total = tf.add(start * late, tf.constant(1.0, shape=[17], name="large"), name="total")
        return [total, tf.identity(tf.constant(3.0, name="fetched")).op.inputs[0]]

    step = read(build)
    graph = step.graph
    assert {name: graph.names[op] for name, op in step.constants.items()} == {"late": "mul"}
    assert {"large", "signal", "fetched"} <= set(graph.names)
    # The product has the control inputs of its constant.
    control = {(graph.names[tail], graph.names[head]) for tail, head in graph.control_edges}
    assert control == {("before", "mul"), ("signal", "mul"), ("signal", "large")}


def test_data_in_host_memory_at_both_ends_is_marked() -> None:
    def build(tf: TensorFlow) -> Sequence[TensorFlow]:
        sizes = fed(tf, "sizes", 2, dtype="int32")
        doubled = tf.add(sizes, sizes, name="doubled")
        data = tf.reshape(fed(tf, "data", 4), sizes, name="reshaped")
        flipped = tf.transpose(data, doubled, name="flipped")
        tf.cast(doubled, tf.float32, name="cast")
        return [flipped, tf.cast(doubled, tf.float32, name="as_float")]

    graph = read(build).graph
    assert consumers_on_host(graph, "sizes") == {"doubled": True, "reshaped": True}
    assert consumers_on_host(graph, "data") == {"reshaped": False}
    assert consumers_on_host(graph, "doubled") == {"flipped": True, "as_float": False}
    assert consumers_on_host(graph, "reshaped") == {"flipped": False}


def test_variables_stay_in_memory_and_aliases_need_no_memory() -> None:
    def build(tf: TensorFlow) -> Sequence[TensorFlow]:
        tf1 = tf.compat.v1
        old = tf1.get_variable("old", [3, 4], use_resource=False)
        new = tf1.get_variable("new", [5], use_resource=True)
        moved = tf1.assign_add(old, fed(tf, "step", 3, 4), name="moved")
        view = tf.squeeze(tf.reshape(tf.identity(moved, "same"), [12, 1], "flat"), name="thin")
        return [
            tf.multiply(
                view,
                tf.reduce_sum(
                    tf.raw_ops.ReadVariableOp(resource=new.handle, dtype=tf.float32, name="value")
                ),
                name="product",
            )
        ]

    graph = read(build).graph
    resident = dict(zip(graph.names, graph.resident_bytes.tolist(), strict=True))
    assert {name: size for name, size in resident.items() if size} == {"old": 48, "new": 20}
    alias = {graph.names[op]: graph.names[of] for op, of in enumerate(graph.alias_of) if of >= 0}
    assert alias == {
        "old": "old",
        "moved": "old",
        "same": "moved",
        "flat": "same",
        "thin": "flat",
        "value": "new",
    }


def test_a_step_has_the_hash_of_its_graph() -> None:
    meta = exported(training_graphs.convnet)
    assert read_step(meta).graph_hash == graph_hash(meta.graph_def)


def test_an_open_shape_is_refused_if_the_step_needs_it() -> None:
    def build(tf: TensorFlow) -> Sequence[TensorFlow]:
        images = fed(tf, "images", None, 8)
        return [tf.reduce_sum(images, name="total"), tf.identity(fed(tf, "static", 2), "other")]

    meta = exported(build)
    with pytest.raises(
        BadInputError, match=r"'images' has the shape \[\?, 8\].*--feed images=32,8"
    ):
        read_step(meta)
    meta.collection_def["train_op"].node_list.value[:] = ["other:0"]
    assert read_step(meta).graph.names == ("static", "other", "_retval_other_0")


@pytest.mark.parametrize("static", [True, False])
def test_a_data_set_must_have_static_batches_and_stays_on_the_host(static: bool) -> None:
    def build(tf: TensorFlow) -> Sequence[TensorFlow]:
        batches = tf.data.Dataset.range(10).batch(4, drop_remainder=static)
        batch = tf.compat.v1.data.make_one_shot_iterator(batches).get_next()
        return [tf.reduce_sum(tf.cast(batch, tf.float32, name="cast"))]

    if not static:
        with pytest.raises(BadInputError, match=r"'IteratorGetNext'.*\[\?\].*drop_remainder"):
            read(build)
        return
    step = read(build)
    can_leave = dict(zip(step.graph.types, step.supported["GPU"], strict=True))
    assert not can_leave["IteratorGetNext"]
    assert can_leave["Cast"]
    assert bytes_of(step.graph)["IteratorGetNext", 0] == 4 * 8


def chain(meta_edit: Callable[[dict[str, Any], Any], None]) -> Any:
    """Return ops a -> b -> c, fetched, after an edit of nodes (by name) and MetaGraphDef."""

    def build(tf: TensorFlow) -> Sequence[TensorFlow]:
        return [tf.identity(tf.tanh(tf.square(fed(tf, "start", 2), "a"), "b"), "c")]

    meta = exported(build)
    meta_edit({node.name: node for node in meta.graph_def.node}, meta)
    return meta


def with_fetch(name: str) -> Callable[[dict[str, Any], Any], None]:
    return lambda _, meta: meta.collection_def["train_op"].node_list.value.append(name)


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda nodes, _: nodes["a"].input.append("^c"), r"3 nodes form a cycle \(.*'?a"),
        (lambda nodes, _: nodes["b"].input.append("^gone"), r"'gone' is an input of node 'b'"),
        (lambda nodes, _: setattr(nodes["a"], "name", "b"), r"two nodes are named 'b'"),
        (lambda nodes, _: nodes["b"].input.append("a"), r"TensorFlow cannot import the graph"),
        (with_fetch("nobody:0"), r"'nobody' is to be fetched"),
        (with_fetch("c:3"), r"'c:3'.*1 outputs"),
        (lambda _, meta: meta.collection_def.pop("train_op"), r"names no fetches"),
    ],
    ids=["cycle", "input", "name", "arity", "fetch", "output", "nothing"],
)
def test_the_error_for_a_damaged_graph_names_the_cause(
    edit: Callable[[dict[str, Any], Any], None], message: str
) -> None:
    assert read_step(chain(lambda *_: None)).graph.names == ("start", "a", "b", "c", "_retval_c_0")
    with pytest.raises(BadInputError, match=message):
        read_step(chain(edit))


def test_an_op_without_a_kernel_is_infeasible() -> None:
    def build(tf: TensorFlow) -> Sequence[TensorFlow]:
        numbers = fed(tf, "numbers", 2, 2, dtype="uint16")
        return [tf.raw_ops.MatMul(a=numbers, b=numbers, name="product")]

    with pytest.raises(InfeasibleError, match=r"'product' \(MatMul, inputs uint16, uint16"):
        read(build)


def test_reading_twice_results_in_the_same_graph() -> None:
    one, other = (read(training_graphs.recurrent) for _ in range(2))
    assert one.graph.names == other.graph.names
    assert np.array_equal(one.graph.edges, other.graph.edges)
    assert np.array_equal(one.graph.colocation_group, other.graph.colocation_group)
    assert one.constants == other.constants
