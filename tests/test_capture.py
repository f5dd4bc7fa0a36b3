"""`export --capture` exports the graph of an unmodified program at its first training step."""

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Write

from pesto_cli.errors import BadInputError
from pesto_cli.graphdef.containers import read_meta_graph
from pesto_cli.graphdef.fetches import feed_names, fetch_names, init_names
from pesto_cli.graphdef.programs.capture import Captured, capture
from pesto_cli.graphdef.programs.run import run_program
from pesto_cli.graphdef.read import read_step
from pesto_cli.graphdef.tensorflow import tensorflow
from pesto_cli.runtime.feeds import write_feeds

EXAMPLE = Path(__file__).parent.parent / "examples" / "train_v1.py"

# Before it trains, the program does everything that resembles training: it initialises trainable
# variables by random, read and fed values, copies one network to another, counts steps, and
# computes the loss.
PROGRAM = """
import sys
import numpy as np
import tensorflow as tf
tf1 = tf.compat.v1
way = sys.argv[1]

with tf.Graph().as_default() as graph:
    x = tf1.placeholder(tf.float32, [None, 3], name="x")
    w = tf1.get_variable("w", [3, 2], use_resource="reference" not in way)
    table = tf1.get_variable("table", [4, 3])
    target = tf1.get_variable("target", [3, 2])
    value = tf1.placeholder(tf.float32, [4, 3], name="value")
    given = table.assign(value, name="given")
    copied = target.assign(w, name="copied")
    loss = tf.reduce_mean(tf.square(tf.matmul(x, w) + tf.reduce_sum(table)), name="loss")
    step = tf1.train.get_or_create_global_step()
    counted = tf1.assign_add(step, 1, name="counted")
    saver = tf1.train.Saver()
    feeds = {"x:0": np.ones((5, 3))}
    sgd = tf1.train.GradientDescentOptimizer(0.1)
    gradient = tf.gradients(loss, w)[0]

    if way in ("optimiser", "reference optimiser", "callable"):
        train = sgd.minimize(loss, name="train")
    elif way == "assignment":
        train = w.assign(w - 0.1 * gradient, name="train", read_value=False)
    elif way == "subtraction":
        train = w.assign_sub(0.1 * gradient, name="train", read_value=False)
    elif way == "fed gradient":
        fed = tf1.placeholder(tf.float32, [3, 2], name="gradient")
        train = sgd.apply_gradients([(fed, w)], name="train")
        feeds = {fed: np.ones((3, 2))}
    elif way == "tensor":
        with tf.control_dependencies([sgd.minimize(loss)]):
            train = tf.identity(loss, name="train")
    elif way == "conditional":
        big = tf.reduce_sum(x) > 0
        applied = tf1.cond(big, lambda: tf.group(sgd.minimize(loss)), lambda: tf.no_op())
        train = tf.group(applied, name="train")
    summary = tf1.summary.merge([tf1.summary.scalar("loss", loss)])

    with tf1.Session() as session:
        session.run(tf1.global_variables_initializer())
        session.run(given, {value: np.zeros((4, 3))})
        session.run([copied, counted])
        path = saver.save(session, sys.argv[2])
        saver.restore(session, path)
        session.run(loss, feeds if "x:0" in feeds else {x: np.ones((1, 3))})
        if way == "callable":
            session.make_callable([train, loss], [x])(np.ones((5, 3)))
        elif way == "fed gradient":
            session.run([train], feeds)
        else:
            session.run({"all": [summary, loss], "train": train, "step": step}, feeds)
        print("trained")
"""
# Way to train -> first fetch of the step, and its other fetches.
OTHERS = {"loss:0", "Merge/MergeSummary:0", "global_step/Read/ReadVariableOp:0"}
WAYS = {
    "optimiser": ("train", OTHERS),
    "reference optimiser": ("train", OTHERS),
    "callable": ("train", {"loss:0"}),
    "assignment": ("train", OTHERS),
    "subtraction": ("train", OTHERS),
    "fed gradient": ("train", set()),
    "tensor": ("train:0", OTHERS),
    "conditional": ("train", OTHERS),
}


@pytest.mark.parametrize("way", WAYS)
def test_the_first_run_that_trains_is_the_step(
    way: str, script: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    captured = capture(script(PROGRAM), [way, str(tmp_path / "saved")])
    first, *others = fetch_names(captured.meta)
    assert (first, set(others)) == WAYS[way]
    assert capsys.readouterr().out == ""


def trained(captured: Captured, fetch: str) -> Any:
    """Return the value of a fetch in the first step of the captured graph, with its feeds."""
    tf1 = tensorflow().compat.v1
    with tf1.Graph().as_default(), tf1.Session() as session:
        tf1.train.import_meta_graph(captured.meta)
        session.run(init_names(captured.meta))
        feeds = {f"{name}:0": value for name, value in captured.feeds.items()}
        train, *_ = fetch_names(captured.meta)
        return session.run([train, fetch], feeds)[1]


@pytest.mark.parametrize("arguments", [[], ["--monitored"]])
def test_the_captured_graph_computes_the_same_as_the_program_on_its_feeds(
    arguments: Sequence[str], capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["--steps", "1", "--batch", "16", *arguments]
    captured = capture(EXAMPLE, argv)
    assert fetch_names(captured.meta) == ("train", "loss:0")
    assert feed_names(captured.meta) == ("pictures", "labels")
    assert captured.feeds["pictures"].shape == (16, 128)
    assert (
        "train/update_left/layer_0/weights/ResourceApplyAdam"
        in read_step(captured.meta).graph.names
    )

    assert capsys.readouterr().out == ""
    run_program(EXAMPLE, argv)
    (line,) = capsys.readouterr().out.splitlines()
    assert line == f"step 0: loss {float(trained(captured, 'loss:0')).hex()}"


DATA_SET = """
import numpy as np
import tensorflow as tf
tf1 = tf.compat.v1
with tf.Graph().as_default():
    rows = tf1.placeholder(tf.float32, [None, 3], name="rows")
    data = tf1.data.Dataset.from_tensor_slices(rows).repeat().batch(4)
    iterator = tf1.data.make_initializable_iterator(data)
    w = tf1.get_variable("w", [3, 1], initializer=tf1.ones_initializer())
    loss = tf.reduce_sum(tf.matmul(iterator.get_next(), w), name="loss")
    rate = tf1.placeholder_with_default(1.0, [], name="rate")
    train = tf1.train.GradientDescentOptimizer(rate).minimize(loss, name="train")
    with tf1.Session() as session:
        session.run(tf1.global_variables_initializer())
        session.run(iterator.initializer, {rows: np.arange(30).reshape(10, 3)})
        session.run([train, loss], {rate: 0.5})
"""


def test_a_data_set_is_captured_with_the_arrays_that_initialised_it(script: Write) -> None:
    captured = capture(script(DATA_SET))
    # The placeholder of the data has become a constant; the one with a default is fed.
    assert captured.feeds == {"rate": np.float32(0.5)}
    graph = read_step(captured.meta).graph
    batch = graph.tensor_producer.tolist().index(graph.names.index("IteratorGetNext"))
    assert graph.tensor_bytes[batch] == 4 * 3 * 4
    assert trained(captured, "loss:0") == np.arange(12).sum()


STRINGS = """
import tensorflow as tf
tf1 = tf.compat.v1
with tf.Graph().as_default(), tf1.Session() as session:
    words = tf1.placeholder(tf.string, [None], name="words")
    lengths = tf1.py_func(lambda rows: [float(len(row)) for row in rows], [words], tf.double)
    w = tf1.get_variable("w", [])
    loss = w * tf.cast(tf.reduce_sum(tf.ensure_shape(lengths, [2])), tf.float32)
    train = tf1.train.GradientDescentOptimizer(0.1).minimize(loss, name="train")
    session.run(tf1.global_variables_initializer())
    session.run(train, {words: ["no", "\u00fcber"]})
"""


def test_strings_are_captured_and_ops_that_need_the_program_cause_a_warning(
    script: Write, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    captured = capture(script(STRINGS))
    assert "'PyFunc' (PyFunc) needs the running program" in caplog.text
    write_feeds(tmp_path / "feeds.npz", captured.feeds)
    with np.load(tmp_path / "feeds.npz") as feeds:
        assert feeds["words"].tolist() == [b"no", "\u00fcber".encode()]


def test_the_fetches_can_be_chosen(script: Write, tmp_path: Path) -> None:
    path, argv = script(PROGRAM), ["optimiser", str(tmp_path / "saved")]
    captured = capture(path, argv, fetches=["loss:0"])
    assert fetch_names(captured.meta) == ("loss:0",)
    assert captured.feeds["x"].shape == (5, 3)
    with pytest.raises(BadInputError, match=r"a run that computes w/nothing\. It ran: init; "):
        capture(path, argv, fetches=["w/nothing"])


NO_STEP = {
    "import tensorflow as tf\nx = 1\nx / 0": r"script.py: failed in line 3: ZeroDivisionError",
    "import sys\nsys.exit('no data')": "script.py: the script ended by itself: no data, where it",
    "import sys\nsys.exit(7)": "script.py: the script ended with exit code 7, where it",
    "print(1)": "ended without training.*script.py:FUNCTION",
    """
import tensorflow as tf
tf1 = tf.compat.v1
with tf.Graph().as_default(), tf1.Session() as session:
    print(session.run(tf.constant(1.0, name="one") + 1))
""": r"It ran: add:0\. Name the train op: --fetch NAME",
    """
import tensorflow as tf
tf1 = tf.compat.v1
with tf.Graph().as_default(), tf1.Session() as session:
    session.partial_run_setup([tf.constant(1.0)], [])
""": "partial_run",
    DATA_SET.replace(".repeat()", ".take(0)"): "'IteratorGetNext' has no batch left",
}


@pytest.mark.parametrize("text", NO_STEP)
def test_a_program_without_a_training_step_is_refused_with_the_reason(
    text: str, script: Write
) -> None:
    with pytest.raises(BadInputError, match=NO_STEP[text]):
        capture(script(text))


EAGER = """
import tensorflow as tf
w = tf.Variable(1.0)
@tf.function
def step():
    with tf.GradientTape() as tape:
        loss = w * w
    w.assign_sub(tape.gradient(loss, w))
try:
    step()
except Exception:
    pass
print("trained", w.numpy())
"""


def test_a_tf2_program_is_stopped_before_it_trains(
    script: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(BadInputError, match=r"trains in a loop of its own.*script\.py:FUNCTION"):
        capture(script(EAGER))
    assert capsys.readouterr().out == ""


STUBBORN = """
import atexit
import tensorflow as tf
tf1 = tf.compat.v1
with tf.Graph().as_default(), tf1.Session() as session:
    w = tf1.get_variable("w", [], initializer=tf1.ones_initializer())
    train = tf1.train.GradientDescentOptimizer(1.0).minimize(w * w, name="train")
    session.run(tf1.global_variables_initializer())
    for _ in range(3):
        try:
            try:
                session.run(train)
            finally:
                print("cleaned up")
        except Exception:
            print("handled")
    print("trained to", session.run(w))
"""


def test_the_program_ends_at_the_step_and_its_error_handlers_do_not_run(
    script: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sys.argv, list(sys.path)
    captured = capture(script(STUBBORN), ["an argument"])
    assert fetch_names(captured.meta) == ("train",)
    assert capsys.readouterr().out == "cleaned up\n"
    assert (sys.argv, sys.path) == before
    # Session runs are not intercepted any more.
    tf1 = tensorflow().compat.v1
    with tf1.Graph().as_default(), tf1.Session() as session:
        assert session.run(tf1.constant(2)) == 2


def test_the_command_writes_the_graph_and_the_feeds(pesto: Any, tmp_path: Path) -> None:
    graph = tmp_path / "model.meta"
    done = pesto("export", EXAMPLE, "--capture", "-o", graph, "--", "--batch", "16")
    assert (done.code, done.out) == (0, "")
    assert "fetches train, loss:0" in done.err
    assert "model.feeds.npz: feeds of the step: pictures [16, 128], labels [16]" in done.err
    with np.load(tmp_path / "model.feeds.npz") as feeds:
        assert {name: feeds[name].shape for name in feeds} == {
            name: tuple(dim.size for dim in node.attr["shape"].shape.dim)
            for node in read_meta_graph(graph).graph_def.node
            for name in [node.name]
            if name in ("pictures", "labels")
        }


@pytest.mark.parametrize(
    ("arguments", "after", "expected"),
    [
        (["zoo:RNNLM-tiny", "--capture"], [], "a script"),
        ([EXAMPLE, "--capture", "--feed", "x=3"], [], "leave out --feed"),
        ([EXAMPLE], [], "pesto export .* --capture"),
        (["zoo:RNNLM-tiny"], ["--", "--batch"], "without --capture"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(
    arguments: Sequence[object],
    after: Sequence[str],
    expected: str,
    pesto: Any,
    tmp_path: Path,
) -> None:
    done = pesto("export", *arguments, "-o", tmp_path / "graph.meta", *after)
    assert done.code == 2
    assert re.search(expected, done.err)
