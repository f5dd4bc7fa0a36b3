"""Valid files of every kind that pesto reads, all for one training step."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np

from fuzz import plans
from pesto_cli import api
from pesto_cli.data.constraints import Constraints, SplitRule
from pesto_cli.data.presets import PRESETS
from pesto_cli.files import CommFit
from pesto_cli.graphdef.containers import write_meta_graph
from pesto_cli.graphdef.tensorflow import tensorflow

MACHINE = """\
signal_us = 7.0
devices = [
  {name = "CPU:0", kind = "CPU", memory_bytes = 1000000000},
  {name = "GPU:0", kind = "GPU", memory_bytes = 1000000000, speed = 2.0, op_overhead_us = 1.0},
]
links = [
  {src = "CPU:0", dst = "GPU:0", latency_us = 5.0, us_per_byte = 0.001, min_us = 6.0},
  {src = "GPU:0", dst = "CPU:0", latency_us = 5.0, us_per_byte = 0.001, channel = "bus"},
]
[kinds.CPU]
type = "CPU"
frequency_mhz = 2000
num_cores = 4
bandwidth_gb_s = 100.0
[kinds.GPU]
type = "GPU"
frequency_mhz = 1500
num_cores = 80
bandwidth_gb_s = 900.0
architecture = "7.0"
launch_us = 5.0
"""
CLUSTER = """\
[cluster]
worker = ["10.0.0.1:2222", "10.0.0.2:2222"]
[hosts]
left = ["worker:0"]
right = ["worker:1"]
"""
CONSTRAINTS = """\
headroom = 0.9
[[pin]]
ops = "product"
device = "GPU:0"
[[forbid]]
ops = "loss*"
device = "GPU:1"
[[together]]
ops = "gradients/*"
"""


def write_seeds(folder: Path) -> None:
    """Write all files. This runs steps, so threads of TensorFlow remain."""
    from test_trace_source import recorded_in, training_step
    from training_graphs import exported

    meta = exported(training_step)
    recorded_in(folder / "traces", meta)
    for name in ("graph.meta", "graph.pb", "graph.pbtxt"):
        write_meta_graph(folder / name, meta)
    machine = PRESETS["v100x2-nvlink"]
    profile = api.profile(meta, machine)
    for name in ("profile.json", "profile.json.gz"):
        api.write_profile(folder / name, profile)
    context = api.Context(limits=api.Limits(time_limit_s=0.2, deterministic=True))
    solved = api.solve(profile, "expert", context)
    api.write_placement(folder / "placement.json", api.placement(profile, solved))
    priced = api.profile(meta, machine, parts=(2, 4))
    api.write_profile(folder / "parts.json", priced)
    split = api.solve(api.read_profile(folder / "parts.json"), "data-parallel", context)
    api.write_placement(folder / "split.json", api.placement(priced, split))
    _write_plan(folder)
    api.write_comm(
        folder / "comm.json",
        [
            CommFit(*kinds, machine.links[0].comm, 0.99, 12, signal_us=5.0, both_ways=1.5)
            for kinds in (("CPU", "GPU"), ("GPU", "CPU"), ("GPU", "GPU"))
        ],
    )
    for name, text in (
        ("machine.toml", MACHINE),
        ("cluster.toml", CLUSTER),
        ("constraints.toml", CONSTRAINTS),
        ("costs.csv", _costs(profile)),
        ("samples.csv", _samples()),
    ):
        (folder / name).write_text(text)
    np.savez(folder / "feeds.npz", fed=np.ones((64, 48), np.float32))
    write_saved_model(folder / "saved")
    _write_events(folder / "events.out.tfevents.1")


def _write_plan(folder: Path) -> None:
    """Write a placement whose plan splits two variables and mirrors another, and its graph."""
    from split_training import trained
    from training_graphs import exported

    meta = exported(plans.embedded)
    write_meta_graph(folder / plans.GRAPH, meta)
    profile = api.profile(meta, PRESETS["v100x2-nvlink"], parts=(2, 4))
    api.write_profile(folder / plans.PROFILE, profile)
    rules = (
        SplitRule("table", "variable 0", 2),
        SplitRule("first", "variable 1", sizes=(5, 7)),
        SplitRule("second", "mirrored", 2),
    )
    asked = api.constrain(profile, Constraints(split=rules))
    solved = api.solve(asked, "data-parallel")
    api.write_placement(folder / plans.PLACEMENT, api.placement(profile, solved))
    whole = trained(meta, plans.STEPS)
    (folder / plans.TRAINED).write_bytes(pickle.dumps(whole))


def _costs(profile: Any) -> str:
    problem = profile.problem
    rows = [
        f"{name},{kind},{us},64"
        for column, kind in enumerate(problem.kinds)
        for name, us in zip(problem.graph.names, problem.time_us[:, column].tolist(), strict=True)
        if us >= 0  # not NaN
    ]
    return "\n".join(["name,kind,us,bytes", *rows]) + "\n"


def _samples() -> str:
    sizes = (1, 1000, 10**6, 10**8)
    pairs = ("GPU,GPU", "CPU,GPU", "GPU,CPU")
    rows = [f"{pair},{size},{7 + 1e-4 * size}" for pair in pairs for size in sizes]
    return "\n".join(["src kind,dst kind,bytes,us", *rows]) + "\n"


def _trained() -> Any:
    tf = tensorflow()

    class Trained(tf.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.weights = tf.Variable(np.ones((4, 2), np.float32), name="weights")

        @tf.function(input_signature=[tf.TensorSpec([3, 4], tf.float32, "images")])
        def step(self, images: Any) -> Any:
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.square(tf.tanh(images @ self.weights)))
            self.weights.assign_sub(0.1 * tape.gradient(loss, self.weights))
            return {"loss": loss}

    return Trained()


def write_saved_model(folder: Path) -> None:
    """Write a SavedModel of one training step, which is a function."""
    model = _trained()
    tensorflow().saved_model.save(model, str(folder), signatures={"train": model.step})


def _write_events(path: Path) -> None:
    tf = tensorflow()
    from tensorflow.core.util.event_pb2 import Event

    model = _trained()  # its function has only a weak reference to it
    graph_def = model.step.get_concrete_function().graph.as_graph_def(add_shapes=True)
    with tf.io.TFRecordWriter(str(path)) as writer:
        writer.write(Event(file_version="brain.Event:2").SerializeToString())
        writer.write(Event(graph_def=graph_def.SerializeToString()).SerializeToString())
