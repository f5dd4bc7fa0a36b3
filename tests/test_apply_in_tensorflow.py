"""TensorFlow itself runs placed graphs: on the devices chosen, in the order chosen, to the bit."""

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pesto_cli.apply import apply, session_config
from pesto_cli.files import PlacementFile, Profile, placement
from pesto_cli.graphdef.containers import read_meta_graph, write_meta_graph
from pesto_cli.graphdef.export import export
from pesto_cli.graphdef.fetches import feed_names, fetch_names, init_names
from pesto_cli.graphdef.read import StepGraph, read_step
from pesto_cli.graphdef.tensorflow import tensorflow
from pesto_cli.machine import CommModel, Device, Link, Machine
from pesto_cli.problem import Problem
from pesto_cli.result import Result, SolveStatus
from pesto_cli.simulate import Simulator

SCRIPT = """
import keras
import tensorflow as tf
tf1 = tf.compat.v1

def compiled(layers, shape):
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input(shape, 4), *layers])
    model.compile(keras.optimizers.Adam(), "sparse_categorical_crossentropy")
    return model

def cnn():
    return compiled([
        keras.layers.Conv2D(4, 3, activation="relu"), keras.layers.BatchNormalization(),
        keras.layers.Conv2D(4, 3), keras.layers.BatchNormalization(), keras.layers.ReLU(),
        keras.layers.GlobalAveragePooling2D(), keras.layers.Dense(5, activation="softmax"),
    ], (8, 8, 3))

def lstm():
    return compiled([
        keras.layers.LSTM(6, return_sequences=True), keras.layers.LSTM(6),
        keras.layers.Dense(5, activation="softmax"),
    ], (7, 3))

def trained(logits):
    labels = tf1.placeholder(tf.int32, [4], name="targets")
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
    loss = tf.reduce_mean(losses, name="loss")
    return {"train_op": tf1.train.MomentumOptimizer(0.1, 0.9).minimize(loss), "loss": loss}

def weights(name, *shape):
    return tf1.get_variable(name, shape, initializer=tf1.random_normal_initializer(seed=1))

def loop():
    tf1.disable_control_flow_v2()
    x = tf1.placeholder(tf.float32, [4, 3], name="x")
    w = weights("w", 6, 3)
    def body(i, state, output):
        state = tf.tanh(tf.matmul(tf.concat([x, state], 1), w))
        return i + 1, state, output + state
    zeros = tf.zeros([4, 3])
    state, output = tf1.while_loop(lambda i, *_: i < 5, body, (0, zeros, zeros))[1:]
    tf1.enable_control_flow_v2()
    return trained(tf.matmul(tf.concat([state, output], 1), weights("out", 6, 5)))

def conditional():
    tf1.disable_control_flow_v2()
    x = tf1.placeholder(tf.float32, [4, 3], name="x")
    w, v = weights("w", 3, 3), weights("v", 3, 3)
    large = tf.reduce_sum(x) > 0
    y = tf1.cond(large, lambda: tf.tanh(tf.matmul(x, w)), lambda: tf.matmul(tf.exp(x), v))
    z = tf1.cond(large, lambda: tf.sin(y), lambda: tf.matmul(tf.cos(y), w))
    tf1.enable_control_flow_v2()
    return trained(tf.matmul(z, weights("out", 3, 5)))

def references():
    x = tf1.placeholder(tf.float32, [4, 3], name="x")
    w = tf1.Variable(tf.random.normal([3, 3], seed=1), use_resource=False, name="w")
    v = tf1.Variable(2 * w.initialized_value(), use_resource=False, name="v")
    hidden = tf.nn.dropout(tf.matmul(x, w), 0.5, seed=7) + tf.matmul(x, v)
    return trained(tf.matmul(hidden, weights("out", 3, 5)))
"""

SOURCES = {
    "RNNLM": "zoo:RNNLM-tiny",
    "Transformer": "zoo:Transformer-tiny",
    "CNN": "cnn",
    "LSTM": "lstm",
    "v1 while loop": "loop",
    "v1 conditional": "conditional",
    "reference variables": "references",
}

# Two devices that TensorFlow has on any machine.
FREE = CommModel(latency_us=1.0, us_per_byte=1e-3)
TWO_CPUS = Machine(
    (Device("CPU:0", "CPU", 2**40), Device("CPU:1", "CPU", 2**40)),
    (Link("CPU:0", "CPU:1", FREE), Link("CPU:1", "CPU:0", FREE)),
)
STEPS = 5
# Not run by a device, or by which nothing can be delayed.
UNORDERED = {"Placeholder", "_Retval", "VarHandleOp", "VariableV2"}


@dataclass(frozen=True)
class Case:
    meta: Any
    step: StepGraph
    placement: PlacementFile

    @property
    def of_op(self):
        return dict(zip(self.placement.names, zip(self.placement.device, self.placement.rank)))


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Case]:
    """Export, read, place and order a model, each once."""
    folder = tmp_path_factory.mktemp("models")
    script = folder / "models.py"
    script.write_text(SCRIPT)
    cases: dict[str, Case] = {}

    def made(name: str) -> Case:
        if name not in cases:
            source = SOURCES[name]
            meta = export(source if ":" in source else f"{script}:{source}")
            step = read_step(meta)
            cases[name] = Case(meta, step, _round_robin(step, folder / "placement.json"))
        return cases[name]

    return made


def _round_robin(step: StepGraph, path: Path) -> PlacementFile:
    """Groups dealt to two CPUs, ordered by simulated op times drawn at random."""
    times = np.random.default_rng(0).uniform(1, 100, step.graph.num_ops)
    times[~step.supported["CPU"]] = np.nan
    problem = Problem.build(step.graph, {"CPU": times}, TWO_CPUS)
    simulator = Simulator(problem)
    group = problem.graph.colocation_group
    _, first = np.unique(group[problem.graph.topological_order], return_index=True)
    device = (np.argsort(np.argsort(first)) % 2)[group]
    device[~problem.allowed[:, 1]] = 0
    schedule = simulator.list_schedule(device, simulator.upward_rank(device))
    result = Result("round-robin", SolveStatus.FEASIBLE, schedule, 0.0, 0.0)
    return placement(Profile(problem, {"graph_hash": step.graph_hash}), result)


@dataclass(frozen=True)
class Ran:
    values: list[bytes]  # of every fetch of every step, then of every variable
    traces: Any


def _train(meta: Any, batch=None, config=None) -> Ran:
    tf1 = tensorflow().compat.v1
    config = config or session_config()
    config.device_count["CPU"] = 2
    config.inter_op_parallelism_threads = 4
    trace = tf1.RunMetadata()
    options = tf1.RunOptions(trace_level=tf1.RunOptions.FULL_TRACE)
    with tf1.Graph().as_default(), tf1.Session(config=config) as session:
        tf1.train.import_meta_graph(meta)
        session.run(init_names(meta))
        feeds = {name: session.graph.get_tensor_by_name(f"{name}:0") for name in feed_names(meta)}
        random = np.random.default_rng(0)
        values = []
        for step in range(STEPS):
            fed = {t: _data(t, random) for t in feeds.values()}
            last = {"options": options, "run_metadata": trace} if step == STEPS - 1 else {}
            values += session.run(fetch_names(meta), fed, **last)
        values += session.run(tf1.global_variables())
    return Ran([np.asarray(v).tobytes() for v in values if v is not None], trace.step_stats)


def _data(tensor: Any, random: np.random.Generator) -> Any:
    if tensor.dtype.is_floating:
        return random.normal(size=tensor.shape)
    return random.integers(0, 5, tensor.shape)


if __name__ == "__main__":
    import sys, tempfile

    folder = Path(tempfile.mkdtemp())
    (folder / "models.py").write_text(SCRIPT)
    for name in sys.argv[1:] or SOURCES:
        t = time.time()
        source = SOURCES[name]
        meta = export(source if ":" in source else f"{folder}/models.py:{source}")
        te = time.time() - t
        step = read_step(meta)
        pl = _round_robin(step, folder / "p.json")
        t = time.time()
        placed = apply(meta, pl)
        ta = time.time() - t
        from pesto_cli.apply import planned_changes

        ch = planned_changes(meta, pl)
        t = time.time()
        a = _train(meta)
        b = _train(placed)
        print(
            name,
            "ops",
            step.graph.num_ops,
            "export",
            te,
            "apply",
            ta,
            "train",
            time.time() - t,
            "edges",
            ch.num_control_edges,
            "values",
            len(a.values),
            "equal",
            a.values == b.values,
        )
        seen, wrong = {}, []
        for dev in b.traces.dev_stats:
            for n in dev.node_stats:
                if n.node_name in ch.device:
                    d = ch.device[n.node_name]
                    if not dev.device.endswith(d):
                        wrong.append((n.node_name, dev.device, d))
                    s = n.all_start_micros * 1000 if not n.all_start_nanos else n.all_start_nanos
                    lo, hi = s + n.op_start_rel_nanos, s + n.op_end_rel_nanos
                    o = seen.get(n.node_name, (lo, hi))
                    seen[n.node_name] = (min(o[0], lo), max(o[1], hi))
        print("  wrong", wrong[:5], len(wrong), "nodes placed", len(ch.device), "seen", len(seen))
        import collections

        by = {nm: i for i, nm in enumerate(step.graph.names)}
        print(
            "  unseen",
            collections.Counter(
                t
                for t, nodes in zip(step.graph.types, step.nodes)
                if not any(x in seen for x in nodes)
            ),
        )
        inv = tot = 0
        for d in (0, 1):
            row = sorted((r, n) for n, dd, r in zip(pl.names, pl.device, pl.rank) if dd == d)
            spans = []
            for r, n in row:
                i = by[n]
                if step.graph.types[i] in UNORDERED:
                    continue
                xs = [seen[x] for x in step.nodes[i] if x in seen]
                if xs:
                    spans.append((n, min(x[0] for x in xs), max(x[1] for x in xs)))
            for p, q in pairwise(spans):
                tot += 1
                if p[2] > q[1]:
                    inv += 1
                    if inv < 4:
                        print("   inversion", p, q, p[2] - q[1])
        print("  pairs", tot, "inversions", inv)
