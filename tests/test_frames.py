"""While loops become one op."""

import pytest
import training_graphs

from pesto_cli.graphdef.frames import outermost_frames
from pesto_cli.graphdef.nodes import needed_nodes, topological_order
from pesto_cli.graphdef.read import read_step
from pesto_cli.graphdef.tensorflow import tensorflow


@pytest.mark.parametrize("build", [training_graphs.recurrent, training_graphs.nested_loops])
def test_frames_agree_with_the_control_flow_contexts_of_tensorflow(
    build: training_graphs.Build,
) -> None:
    """Compare with the control flow contexts in which TensorFlow's Python code built the nodes."""
    tf1 = tensorflow().compat.v1
    with tf1.Graph().as_default() as graph:
        tf1.disable_control_flow_v2()
        fetched = [fetch.name.split(":")[0] for fetch in build(tensorflow())]
    nodes = needed_nodes(graph.as_graph_def(), fetched)
    found = outermost_frames(nodes, topological_order(nodes))
    loops = set()
    for node, frame in zip(nodes, found, strict=True):
        # TensorFlow's contexts count one of Enter and Exit as inside and the other as outside.
        if node.type not in {"Enter", "Exit"}:
            context = graph.get_operation_by_name(node.name)._get_control_flow_context()
            outermost = None
            while context is not None:
                outermost = context.name if context.IsWhileContext() else outermost
                context = context.outer_context
            assert frame == outermost, node.name
            loops.add(outermost)
    assert len(loops) == 3  # Two loops, and the nodes outside.


def test_a_loop_is_one_op_with_all_of_its_nodes() -> None:
    meta = training_graphs.exported(training_graphs.nested_loops)
    step = read_step(meta)
    needed = tensorflow().compat.v1.graph_util.extract_sub_graph(meta.graph_def, ["result"]).node
    assert {name for names in step.nodes for name in names} | step.constants.keys() == {
        node.name for node in needed
    }
    loops = [op for op, kind in enumerate(step.graph.types) if kind == "While"]
    assert [step.graph.names[op] for op in loops] == ["outer/LoopCond", "while/LoopCond"]
    assert len(step.graph.names) == 5  # Two loops, a feed, the result and its return.
    assert step.graph.edges.tolist() == [[0, 1], [1, 2], [2, 3], [3, 4]]
    assert step.graph.tensor_bytes.tolist() == [16, 16, 16, 16]


def test_a_functional_while_is_one_op_on_the_devices_that_can_run_its_body() -> None:
    def build(tf: training_graphs.TensorFlow) -> list[training_graphs.TensorFlow]:
        start = tf.compat.v1.placeholder(tf.float32, [4], name="start")

        def shout(value: training_graphs.TensorFlow) -> training_graphs.TensorFlow:
            with tf.control_dependencies([tf.strings.as_string(value)]):
                return value + 1

        quiet = tf.while_loop(lambda v: v[0] < 3, lambda v: [v + 1], [start], name="quiet")[0]
        return [tf.while_loop(lambda v: v[0] < 3, lambda v: [shout(v)], [quiet], name="loud")[0]]

    step = read_step(training_graphs.exported(build, functional_control_flow=True))
    gpu = dict(zip(step.graph.names, step.supported["GPU"], strict=True))
    assert {step.graph.types[step.graph.index_of[name]] for name in ("quiet", "loud")} <= {
        "While",
        "StatelessWhile",
    }
    assert gpu["quiet"]
    assert not gpu["loud"]
