"""A graph from TensorBoard's event files trains in the same way as the recorded function."""

import json
import re
import shutil

import numpy as np
import pytest

from pesto_cli.apply import session_config
from pesto_cli.errors import BadInputError
from pesto_cli.graphdef.containers import read_meta_graph
from pesto_cli.graphdef.export import export
from pesto_cli.graphdef.fetches import feed_names, fetch_names, init_names
from pesto_cli.graphdef.structure import ancestors
from pesto_cli.graphdef.tensorflow import tensorflow

STEPS = 3


class Trained:
    """Variables of different shapes, and a step that trains them; a loop reads one of them."""

    def __init__(self):
        tf = tensorflow()
        random = np.random.default_rng(1)
        shapes = {"table": [10, 6], "kernel": [6, 5], "inner": [5, 5], "bias": [5], "rate": []}
        self.values = {name: 0.3 * random.normal(size=shape) for name, shape in shapes.items()}
        self.values["rate"] = 0.1
        for name, value in self.values.items():
            setattr(self, name, tf.Variable(value, dtype=tf.float32, name=name))
        self.count = tf.Variable(0, dtype=tf.int64, name="count")

    def step(self, rows, targets):
        tf = tensorflow()
        trained = [self.table, self.kernel, self.inner, self.bias]
        with tf.GradientTape() as tape:
            hidden = tf.nn.embedding_lookup(self.table, rows) @ self.kernel + self.bias

            def body(trip, value):
                return [trip + 1, tf.tanh(value @ self.inner)]

            _, hidden = tf.while_loop(lambda trip, _: trip < 3, body, [0, hidden])
            loss = tf.reduce_mean(tf.square(hidden - targets))
        for variable, gradient in zip(trained, tape.gradient(loss, trained), strict=True):
            variable.assign_sub(self.rate * tf.convert_to_tensor(gradient))
        self.count.assign_add(1)
        return {"loss": loss, "steps": self.count.read_value()}


ROWS = np.array([1, 3, 5, 3], np.int32)
TARGETS = np.linspace(-1, 1, 20, dtype=np.float32).reshape(4, 5)


def specs(tf):
    return tf.TensorSpec([4], tf.int32, "rows"), tf.TensorSpec([4, 5], tf.float32, "targets")


def written(folder, write):
    """Return a log directory with one event file."""
    writer = tensorflow().summary.create_file_writer(str(folder))
    with writer.as_default():
        write()
    writer.close()
    return folder


@pytest.fixture(scope="module")
def logs(tmp_path_factory):
    """The same step, written by tf.summary.graph, by trace_export, and called with an iterator."""
    tf = tensorflow()
    folder = tmp_path_factory.mktemp("logs")
    step = tf.function(Trained().step)
    concrete = step.get_concrete_function(*specs(tf))
    written(folder / "graph", lambda: tf.summary.graph(concrete.graph))

    def trace():
        tf.summary.trace_on(graph=True)
        tf.function(Trained().step)(tf.constant(ROWS), tf.constant(TARGETS))
        tf.summary.trace_export("step", step=0)

    written(folder / "trace", trace)
    data = iter(tf.data.Dataset.from_tensors((ROWS, TARGETS)).repeat())
    inner = tf.function(Trained().step)
    outer = tf.function(lambda iterator: inner(*next(iterator)))
    graph = outer.get_concrete_function(data).graph
    written(folder / "iterator", lambda: tf.summary.graph(graph))
    return folder


@pytest.fixture(scope="module")
def real_losses():
    """The losses of the step itself, from the initial values of its variables."""
    model = Trained()
    return [float(model.step(ROWS, TARGETS)["loss"]) for _ in range(STEPS)]


def losses(meta, values=None, config=None):
    """Return the losses of an exported graph; `values`: shape of a variable -> initial value."""
    tf1 = tensorflow().compat.v1
    by_shape = {np.shape(value): value for value in (values or {}).values()}
    with tf1.Graph().as_default() as graph, tf1.Session(config=config) as session:
        tf1.train.import_meta_graph(meta)
        session.run([graph.as_graph_element(name) for name in init_names(meta)])
        for variable in tf1.global_variables():
            value = by_shape.get(tuple(variable.shape.as_list()))
            if value is not None and variable.dtype.is_floating:
                variable.load(value, session)
        feeds = {}
        for name in feed_names(meta):
            tensor = graph.get_tensor_by_name(f"{name}:0")
            feeds[tensor] = ROWS if tensor.dtype.is_integer else TARGETS
        (loss,) = [
            graph.as_graph_element(name)
            for name in fetch_names(meta)
            if ":" in name and graph.as_graph_element(name).dtype.is_floating
        ]
        train_op = graph.as_graph_element(fetch_names(meta)[0])
        return [float(session.run([loss, train_op], feeds)[0]) for _ in range(STEPS)]


FORMS = ["graph", "trace", "iterator"]


@pytest.mark.parametrize("form", FORMS)
def test_a_recorded_step_trains_as_the_function_did(logs, real_losses, form):
    meta = export(str(logs / form))
    assert losses(meta, Trained().values) == pytest.approx(real_losses, rel=1e-5)


@pytest.mark.parametrize("form", FORMS)
def test_initial_values_of_variables_without_recorded_values_let_the_loss_decrease(logs, form):
    found = losses(export(str(logs / form)))
    assert np.isfinite(found).all()
    assert found[0] > found[-1] > 0


def variables_of(meta):
    return {
        tuple(dim.size for dim in node.attr["shape"].shape.dim)
        for node in meta.graph_def.node
        if node.op == "VarHandleOp"
    }


@pytest.mark.parametrize("form", FORMS)
def test_the_shapes_of_variables_follow_from_their_uses(logs, form):
    expected = {tuple(np.shape(value)) for value in Trained().values.values()}
    assert variables_of(export(str(logs / form))) == expected


def test_the_elements_of_an_iterator_are_fed(logs):
    meta = export(str(logs / "iterator"))
    shapes = {
        node.name: [dim.size for dim in node.attr["shape"].shape.dim]
        for node in meta.graph_def.node
        if node.name in feed_names(meta)
    }
    assert sorted(shapes.values()) == [[4], [4, 5]]


def test_all_side_effects_of_the_function_happen_and_its_outputs_are_fetched(logs):
    meta = export(str(logs / "graph"))
    fetched = fetch_names(meta)
    types = {node.name: node.op for node in meta.graph_def.node}
    assert fetched[0] == "train_op"
    assert types["train_op"] == "NoOp"
    needed = set(ancestors(meta.graph_def, ["train_op"]))
    updates = [name for name in types if re.fullmatch(r"Assign(Sub|Add)VariableOp(_\d)?", name)]
    assert len(updates) == 5  # four variables and the step counter
    assert needed.issuperset(updates)


# Properties that do not follow from the graph.


@pytest.fixture(scope="module")
def sparse(tmp_path_factory):
    """A table of which only rows are read and changed: the graph does not show their number."""
    tf = tensorflow()
    table = tf.Variable(tf.ones([10, 6]))

    def step(rows):
        taken = tf.nn.embedding_lookup(table, rows)
        table.scatter_sub(tf.IndexedSlices(0.1 * taken, rows))
        return tf.reduce_sum(taken)

    concrete = tf.function(step).get_concrete_function(tf.TensorSpec([4], tf.int32))
    folder = tmp_path_factory.mktemp("sparse")
    return written(folder, lambda: tf.summary.graph(concrete.graph))


def test_an_open_shape_is_an_error_that_names_the_option_to_set_it(sparse):
    with pytest.raises(
        BadInputError, match=r"1 of 1 variables.*is \['\?', 6\].*--feed (\S+)="
    ) as error:
        export(str(sparse))
    name = re.search(r"--feed (\S+)=", str(error.value))[1]
    meta = export(str(sparse), feeds={name: (10, 6)})
    assert variables_of(meta) == {(10, 6)}
    with pytest.raises(BadInputError, match=r"are 7 and 6.*give the variables other shapes"):
        export(str(sparse), feeds={name: (10, 7)})


def test_a_resource_other_than_a_variable_is_refused(tmp_path):
    tf = tensorflow()
    keys = tf.lookup.KeyValueTensorInitializer(["a"], tf.constant([1], tf.int64))
    table = tf.lookup.StaticHashTable(keys, 0)
    concrete = tf.function(table.lookup).get_concrete_function(tf.TensorSpec([4], tf.string))
    written(tmp_path, lambda: tf.summary.graph(concrete.graph))
    with pytest.raises(
        BadInputError, match=r"an input of '\S*' \(LookupTableFindV2\), is a resource"
    ):
        export(str(tmp_path))


# Graphs of TensorFlow 1, which contain their variables.


def v1_graph(tf):
    tf1 = tf.compat.v1
    fed = tf1.placeholder(tf.float32, [4, 5], name="fed")
    weights = tf1.get_variable("weights", [5, 5], use_resource=True)
    old = tf1.get_variable("old", [5], use_resource=False)
    loss = tf.reduce_mean(tf.square(tf.matmul(fed, weights) + old - 1.0), name="loss")
    tf1.train.AdamOptimizer(0.1).minimize(loss, name="train")
    tf1.global_variables_initializer()
    tf1.train.Saver()
    tf1.report_uninitialized_variables()
    tf.identity(loss, name="shown")


@pytest.fixture(scope="module")
def v1_logs(tmp_path_factory):
    """Event files with the graph's collections, and without them."""
    tf = tensorflow()
    tf1 = tf.compat.v1
    folder = tmp_path_factory.mktemp("v1")
    with tf1.Graph().as_default() as graph:
        tf1.set_random_seed(1)
        v1_graph(tf)
        tf1.summary.FileWriter(str(folder / "known"), graph).close()
    with tf1.Graph().as_default():
        tf1.summary.FileWriter(str(folder / "bare"), graph).close()
    return folder


def test_the_train_op_in_a_v1_graph_is_fetched(v1_logs):
    meta = export(str(v1_logs / "known"))
    assert fetch_names(meta) == ("train",)
    assert {"weights/Adam", "old"} <= {node.name for node in meta.graph_def.node}


def test_a_step_of_a_v1_graph_without_collections_runs_all_sinks_that_train(v1_logs, caplog):
    meta = export(str(v1_logs / "bare"))
    assert fetch_names(meta) == ("train_op", "shown:0")
    (train_op,) = [node for node in meta.graph_def.node if node.name == "train_op"]
    run = {name.removeprefix("^") for name in train_op.input}
    assert {"train", "shown"} <= run
    assert not [name for name in run if "init" in name.lower() or name.startswith("save")]
    assert "Choose others with --fetch" in caplog.text
    found = losses(meta)
    assert found[0] > found[-1]


def test_fetches_can_be_chosen(v1_logs, logs):
    meta = export(str(v1_logs / "bare"), fetches=["train", "loss:0"])
    assert fetch_names(meta) == ("train", "loss:0")
    assert fetch_names(export(str(logs / "graph"), fetches=["Identity:0"])) == ("Identity:0",)


# Files.


def only_file(folder):
    (path,) = folder.iterdir()
    return path


def test_a_single_event_file_can_be_exported(v1_logs):
    assert fetch_names(export(str(only_file(v1_logs / "known")))) == ("train",)


def test_the_largest_of_several_graphs_is_exported(tmp_path, logs, v1_logs, caplog):
    for folder in (logs / "graph", v1_logs / "known"):
        shutil.copy(only_file(folder), tmp_path / f"{folder.name}.tfevents")
    assert fetch_names(export(str(tmp_path))) == ("train",)
    assert "the largest one is exported" in caplog.text


def test_a_file_without_a_graph_or_truncated_before_it_is_refused(tmp_path, v1_logs):
    data = only_file(v1_logs / "known").read_bytes()
    path = tmp_path / "events.out.tfevents.1.host"
    path.write_bytes(data[: len(data) // 3])
    with pytest.raises(BadInputError, match="without a graph, or truncated before it"):
        export(str(path))
    for at in (len(data) // 2, len(data) - 500):
        damaged = bytearray(data)
        damaged[at] ^= 1
        path.write_bytes(damaged)
        with pytest.raises(BadInputError, match="damaged event file"):
            export(str(path))


def test_a_log_directory_has_no_signatures_and_is_not_a_graph_file(logs):
    with pytest.raises(BadInputError, match="only a SavedModel directory has signatures"):
        export(str(logs / "graph"), signature="serve")
    with pytest.raises(BadInputError, match=r"TensorBoard event file.*pesto export \S+ -o"):
        read_meta_graph(only_file(logs / "graph"))


# From a log directory to a placed graph.


def test_graph_and_times_of_a_log_directory_lead_to_a_placed_step_that_trains_the_same(
    tmp_path, pesto
):
    """The event file has the graph and the trace of one run of the step."""
    tf = tensorflow()
    step = tf.function(Trained().step)
    concrete = step.get_concrete_function(*specs(tf))
    log = written(tmp_path / "log", lambda: tf.summary.graph(concrete.graph))
    concrete(tf.constant(ROWS), tf.constant(TARGETS))
    tf.profiler.experimental.start(str(log))
    for _ in range(STEPS):
        concrete(tf.constant(ROWS), tf.constant(TARGETS))
    tf.profiler.experimental.stop()

    machine = tmp_path / "two_cpus.toml"
    machine.write_text(TWO_CPUS)
    graph, profile, placement, placed = (
        tmp_path / name
        for name in ("g.meta", "g.profile.json", "g.placement.json", "g.placed.meta")
    )
    for command in (
        ("export", log, "-o", graph),
        ("profile", graph, "-m", machine, "--source", f"trace:{log}", "-o", profile),
        ("solve", profile, "-o", placement, "--strategy", "round-robin", "--quiet"),
        ("apply", graph, placement, "-o", placed),
        ("profile", graph, "-m", "v100x2-nvlink", "-o", tmp_path / "analytic.json"),
    ):
        outcome = pesto(*command)
        assert outcome.code == 0, outcome.err
    coverage = json.loads(profile.read_text())["provenance"]["coverage"]
    print(coverage)
    assert coverage["matched_ops"] >= 0.7 * coverage["num_ops"]
    assert coverage["matched_us"] >= 0.8 * coverage["recorded_us"]
    config = session_config()
    config.device_count["CPU"] = 2
    used = {node.device for node in read_meta_graph(placed).graph_def.node if node.device}
    assert used == {"/device:CPU:0", "/device:CPU:1"}
    values = Trained().values
    assert losses(read_meta_graph(placed), values, config) == losses(
        read_meta_graph(graph), values, config
    )


TWO_CPUS = """
signal_us = 7
[[devices]]
name = "CPU:0"
kind = "CPU"
memory_bytes = 1000000000
[[devices]]
name = "CPU:1"
kind = "CPU"
memory_bytes = 1000000000
[[links]]
src = "CPU:0"
dst = "CPU:1"
latency_us = 1
us_per_byte = 1e-3
[[links]]
src = "CPU:1"
dst = "CPU:0"
latency_us = 1
us_per_byte = 1e-3
"""
