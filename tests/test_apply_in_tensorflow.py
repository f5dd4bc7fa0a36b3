"""TensorFlow runs placed graphs on the planned devices, in order, with identical results."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pesto_cli.apply import apply, parse_devices, planned_changes, session_config
from pesto_cli.data.machine import CommModel, Device, Link, Machine
from pesto_cli.data.presets import PRESETS
from pesto_cli.data.problem import Problem
from pesto_cli.data.result import Result, SolveStatus
from pesto_cli.data.solution import Solution
from pesto_cli.evaluation.simulator import Simulator
from pesto_cli.files import PlacementFile, Profile, placement
from pesto_cli.graphdef.containers import read_meta_graph, write_meta_graph
from pesto_cli.graphdef.export import export
from pesto_cli.graphdef.fetches import feed_names, fetch_names, init_names
from pesto_cli.graphdef.read import StepGraph, read_step
from pesto_cli.graphdef.tensorflow import tensorflow

SCRIPT = """
import keras
import tensorflow as tf
tf1 = tf.compat.v1

def compiled(shape, *layers):
    keras.utils.set_random_seed(1)
    softmax = keras.layers.Dense(5, activation="softmax")
    model = keras.Sequential([keras.Input(shape, 4), *layers, softmax])
    model.compile(keras.optimizers.Adam(), "sparse_categorical_crossentropy")
    return model

def cnn():
    conv, normal = lambda: keras.layers.Conv2D(4, 3), keras.layers.BatchNormalization
    pool = keras.layers.GlobalAveragePooling2D()
    return compiled((8, 8, 3), conv(), normal(), keras.layers.ReLU(), conv(), normal(), pool)

def lstm():
    return compiled((7, 3), keras.layers.LSTM(6, return_sequences=True), keras.layers.LSTM(6))

def normal(name, *shape, **options):
    initial = tf1.random_normal_initializer(seed=1)
    return tf1.get_variable(name, shape, initializer=initial, **options)

def features():
    return tf1.placeholder(tf.float32, [4, 3], name="x")

def trained(hidden):
    logits = tf.matmul(hidden, normal("softmax", 3, 5))
    labels = tf1.placeholder(tf.int32, [4], name="targets")
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
    loss = tf.reduce_mean(losses, name="loss")
    return {"train_op": tf1.train.MomentumOptimizer(0.1, 0.9).minimize(loss), "loss": loss}

def loops():
    tf1.disable_control_flow_v2()
    x, w, v = features(), normal("w", 3, 3), normal("v", 3, 3)
    def inner(i, state):
        return i + 1, tf.tanh(tf.matmul(state, w))
    def outer(i, state, output):
        state = tf1.while_loop(lambda i, _: i < 3, inner, (0, tf.matmul(x + state, v)))[1]
        return i + 1, state, output + state
    start = (0, tf.zeros([4, 3]), tf.zeros([4, 3]))
    _, state, output = tf1.while_loop(lambda i, *_: i < 4, outer, start)
    result = trained(state * output)
    tf1.enable_control_flow_v2()
    return result

def conditionals():
    tf1.disable_control_flow_v2()
    x, w, v = features(), normal("w", 3, 3), normal("v", 3, 3)
    large = x[0, 0] > 0  # With x[0, 1] > 0, all four cases occur.
    y = tf1.cond(large, lambda: tf.tanh(tf.matmul(x, w)), lambda: tf.matmul(tf.exp(x), v))
    def nested():
        return tf1.cond(large, lambda: tf.sin(y), lambda: tf.matmul(tf.cos(y), w))
    result = trained(tf1.cond(x[0, 1] > 0, nested, lambda: tf.matmul(y, v)))
    tf1.enable_control_flow_v2()
    return result

def references():
    x = features()
    w, v = normal("w", 3, 3, use_resource=False), normal("v", 3, 3, use_resource=False)
    return trained(tf.nn.dropout(tf.matmul(x, w), 0.5, seed=7) + tf.matmul(x, v))
"""

SOURCES = {
    "RNNLM": "zoo:RNNLM-tiny",
    "Transformer": "zoo:Transformer-tiny",
    "CNN with BatchNorm": "cnn",
    "LSTM with v2 while loops": "lstm",
    "nested v1 while loops": "loops",
    "v1 conditionals": "conditionals",
    "reference variables": "references",
}
STEPS = 5

# Devices that TensorFlow has on any machine.
_LINK = CommModel(latency_us=1.0, us_per_byte=1e-3)
TWO_CPUS = Machine(
    (Device("CPU:0", "CPU", 2**40), Device("CPU:1", "CPU", 2**40)),
    (Link("CPU:0", "CPU:1", _LINK), Link("CPU:1", "CPU:0", _LINK)),
)


@dataclass(frozen=True)
class Model:
    """An exported graph, and its step."""

    meta: Any
    step: StepGraph


def add_in_order(meta: Any) -> None:
    """Replace each AddN of more than two inputs by a chain of AddNs of two inputs.

    AddN begins with an input whose memory it can reuse. Which one that is depends on whether the
    other consumers of the inputs have ended, so sums of more inputs differ between runs.
    """
    for node in [node for node in meta.graph_def.node if node.op == "AddN"]:
        inputs = list(node.input)
        for index in range(len(inputs) - 2):
            part = meta.graph_def.node.add()
            part.CopyFrom(node)
            part.name = f"{node.name}/part_{index}"
            part.attr["N"].i = 2
            del part.input[:]
            part.input.extend(inputs[:2])
            inputs[:2] = [part.name]
        del node.input[:]
        node.input.extend(inputs)
        node.attr["N"].i = len(inputs)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Model]:
    script = tmp_path_factory.mktemp("models") / "models.py"
    script.write_text(SCRIPT)
    exported: dict[str, Model] = {}

    def of(name: str) -> Model:
        if name not in exported:
            source = SOURCES[name]
            meta = export(source if ":" in source else f"{script}:{source}")
            add_in_order(meta)
            exported[name] = Model(meta, read_step(meta))
        return exported[name]

    return of


def round_robin_placement(step: StepGraph, machine: Machine = TWO_CPUS) -> PlacementFile:
    """Place colocation groups round-robin; order ops by a simulation with random op times."""
    time_us = np.random.default_rng(0).uniform(1, 100, step.graph.num_ops)
    columns = {kind: np.where(able, time_us, np.nan) for kind, able in step.supported.items()}
    problem = Problem.build(step.graph, columns, machine)
    group = step.graph.colocation_group
    first = np.unique(group[step.graph.topological_order], return_index=True)[1]
    device = np.argsort(np.argsort(first))[group] % problem.num_devices
    able = problem.allowed[np.arange(problem.num_ops), device]
    device = np.where(able, device, problem.allowed.argmax(axis=1))
    simulator = Simulator(problem)
    schedule = simulator.list_schedule(device, simulator.upward_rank(device))
    result = Result("dealt", SolveStatus.FEASIBLE, Solution.of(problem, schedule, 0.0), 0.0)
    return placement(Profile(problem, {"graph_hash": step.graph_hash}), result)


Span = tuple[int, int]
"""Start and end, in ns."""


@dataclass(frozen=True)
class Training:
    """The results of five steps.

    values: every fetch of every step, then every variable, as bytes.
    spans: for each step, when and where nodes ran: (device, node) -> span of all runs of the node.
    """

    values: list[bytes]
    spans: list[dict[tuple[str, str], Span]]


def trained(meta: Any, config: Any = None) -> Training:
    """Import, initialise and train with fixed data."""
    tf1 = tensorflow().compat.v1
    config = _two_cpus(config)
    options = tf1.RunOptions(trace_level=tf1.RunOptions.FULL_TRACE)
    random = np.random.default_rng(0)
    values: list[Any] = []
    spans = []
    with tf1.Graph().as_default() as graph, tf1.Session(config=config) as session:
        tf1.train.import_meta_graph(meta)
        session.run(init_names(meta))
        feeds = [graph.get_tensor_by_name(f"{name}:0") for name in feed_names(meta)]
        for _ in range(STEPS):
            metadata = tf1.RunMetadata()
            batch = {feed: _batch(feed, random) for feed in feeds}
            values += session.run(fetch_names(meta), batch, options, metadata)
            spans.append(_spans(metadata.step_stats))
        values += session.run(tf1.global_variables())
    return Training([np.asarray(v).tobytes() for v in values if v is not None], spans)


def _two_cpus(config: Any = None) -> Any:
    """Return settings for two CPU devices, with enough threads to run ops out of order."""
    config = config or session_config()
    config.device_count["CPU"] = 2
    config.inter_op_parallelism_threads = 4
    return config


def _batch(feed: Any, random: np.random.Generator) -> Any:
    if feed.dtype.is_floating:
        return random.normal(size=feed.shape)
    return random.integers(0, 5, feed.shape)


def _spans(step_stats: Any) -> dict[tuple[str, str], Span]:
    spans: dict[tuple[str, str], Span] = {}
    for device in step_stats.dev_stats:
        for run in device.node_stats:
            key = (device.device.removeprefix("/job:localhost/replica:0/task:0"), run.node_name)
            start = run.all_start_nanos + run.op_start_rel_nanos
            end = run.all_start_nanos + run.op_end_rel_nanos
            before = spans.get(key, (start, end))
            spans[key] = (min(before[0], start), max(before[1], end))
    return spans


def moved(device: Mapping[str, str], training: Training) -> list[str]:
    """Return the nodes that ran on another device than planned."""
    ran = {key for spans in training.spans for key in spans}
    return [node for place, node in ran if device.get(node, place) != place]


def ordered_ops(model: Model) -> dict[str, list[str]]:
    """Return the ops that are subject to order constraints, with their nodes.

    Left out are feeds and returns, for which TensorFlow runs no ops, and ops that also run without
    the step, such as reads of a variable.
    """
    kinds = ("Placeholder", "VarHandleOp", "VariableV2")
    free = {node.name for node in model.meta.graph_def.node if node.op in kinds}
    free |= {f"{name}/read" for name in free}
    nodes_of = zip(model.step.graph.names, model.step.nodes, strict=True)
    return {op: list(nodes) for op, nodes in nodes_of if set(nodes) - free}


def too_early(
    model: Model, chosen: PlacementFile, device: Mapping[str, str], training: Training
) -> list[str]:
    """Return ops that started, in any step, before an op of lower rank on their device had ended.

    Ops that did not run in every step are not waited for. A loop ends with the last of its Exits.
    """
    types = {node.name: node.op for node in model.meta.graph_def.node}
    keys_of = {
        op: [(device[node], node) for node in nodes] for op, nodes in ordered_ops(model).items()
    }
    always = set.intersection(*(set(spans) for spans in training.spans))
    by_rank = sorted(zip(chosen.rank, chosen.device, chosen.names, strict=True))
    early = []
    for spans in training.spans:
        ended = dict.fromkeys(chosen.device, 0)
        for _, index, op in by_rank:
            keys = [key for key in keys_of.get(op, ()) if key in spans]
            if keys and min(spans[key][0] for key in keys) < ended[index]:
                early.append(op)
            if keys and always.issuperset(keys):
                exits = [key for key in keys if types[key[1]] == "Exit"]
                ended[index] = max(ended[index], *(spans[key][1] for key in exits or keys))
    return early


def trained_with_identical_results(case: Model) -> Training:
    """Return the training with a round-robin placement; check devices, order and all values."""
    chosen = round_robin_placement(case.step)
    device = planned_changes(case.meta, chosen).device
    placed = trained(apply(case.meta, chosen))
    assert placed.values == trained(case.meta).values
    assert moved(device, placed) == []
    assert too_early(case, chosen, device, placed) == []
    return placed


@pytest.mark.parametrize("name", SOURCES)
def test_ops_run_on_their_devices_in_order_and_training_results_are_identical(
    name: str, model: Callable[[str], Model]
) -> None:
    case = model(name)
    placed = trained_with_identical_results(case)
    # The comparison is complete: each op ran in each step, except for ops in branches.
    ran = [{node for _, node in spans} for spans in placed.spans]
    assert all(set(nodes) & set.union(*ran) for nodes in ordered_ops(case).values())
    skipped = [nodes for nodes in ordered_ops(case).values() if not set(nodes) & ran[0]]
    assert bool(skipped) == (name == "v1 conditionals")


def test_without_control_edges_ops_run_out_of_order(model: Callable[[str], Model]) -> None:
    case = model("RNNLM")
    chosen = round_robin_placement(case.step)
    device = planned_changes(case.meta, chosen).device
    placed = trained(apply(case.meta, chosen, order="none"))
    assert moved(device, placed) == []
    assert too_early(case, chosen, device, placed) != []


def test_with_default_session_settings_ops_leave_their_devices(
    model: Callable[[str], Model],
) -> None:
    case = model("RNNLM")
    chosen = round_robin_placement(case.step)
    device = planned_changes(case.meta, chosen).device

    def lost(config: Any) -> set[str]:
        spans = trained(apply(case.meta, chosen), config).spans[0]
        return {op for op in ordered_ops(case) if (device[op], op) not in spans}

    assert lost(session_config()) == set()
    assert lost(tensorflow().compat.v1.ConfigProto()) != set()


def test_a_placement_for_gpus_read_from_its_file_runs_on_cpu_devices(
    model: Callable[[str], Model], tmp_path: Path
) -> None:
    case = model("RNNLM")
    chosen = round_robin_placement(case.step, PRESETS["v100x2-nvlink"])
    assert {chosen.devices[index] for index in chosen.device} == {"CPU:0", "GPU:0", "GPU:1"}
    devices = parse_devices("CPU:0=/device:CPU:0, GPU:0=/device:CPU:0, GPU:1=CPU:1")
    write_meta_graph(tmp_path / "placed.meta", apply(case.meta, chosen, devices=devices))
    placed = trained(read_meta_graph(tmp_path / "placed.meta"))
    assert placed.values == trained(case.meta).values
    device = planned_changes(case.meta, chosen, devices=devices).device
    assert too_early(case, chosen, device, placed) == []


def test_saving_restoring_and_reading_do_not_wait_for_the_order_of_the_step(
    model: Callable[[str], Model], tmp_path: Path
) -> None:
    tf1 = tensorflow().compat.v1
    case = model("reference variables")
    with tf1.Graph().as_default(), tf1.Session(config=_two_cpus()) as session:
        saver = tf1.train.import_meta_graph(apply(case.meta, round_robin_placement(case.step)))
        # These runs have no feeds, so they would fail if they ran a part of the step.
        session.run(init_names(case.meta))
        values = [variable.value() for variable in tf1.global_variables()]
        before = session.run(values)
        path = saver.save(session, str(tmp_path / "saved"))
        session.run([tf1.assign(tf1.global_variables()[0], tf1.zeros([3, 3]))])
        saver.restore(session, path)
        after = session.run(values)
    assert [value.tobytes() for value in after] == [value.tobytes() for value in before]
