"""A TF2 program on two logical CPU devices: train a Keras model with and without a placement.

python placed_function_program.py OUTPUT writes the results for `test_place_function.py` as JSON.
It runs in a separate process, because logical devices must be set before TensorFlow starts.
"""

import json
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
from test_apply_in_tensorflow import round_robin_placement

from pesto_cli.apply import PlacedFunction, place_function, placed_variables
from pesto_cli.apply.control_inputs import ordered_ops
from pesto_cli.errors import BadInputError
from pesto_cli.files import PlacementFile
from pesto_cli.graphdef import grappler
from pesto_cli.graphdef.functions import function_graph
from pesto_cli.graphdef.read import read_step
from pesto_cli.graphdef.simplify import simplify
from pesto_cli.graphdef.tensorflow import tensorflow

tf = tensorflow()
import keras  # noqa: E402

BATCH = 4


class Factors(keras.layers.Layer):  # type: ignore[misc]
    """Variables that share a name, and are used in another order than they are created in."""

    def build(self, shape: Any) -> None:
        """Create the variables."""
        self.factors = [self.add_weight(shape[-1:], "uniform", name="factor") for _ in range(3)]

    def call(self, rows: Any) -> Any:
        """Multiply by the factors, the last one first."""
        for factor in reversed(self.factors):
            rows = rows * (1 + factor)
        return rows


def build(scope: Any, kind: str = "plain") -> tuple[Any, Any]:
    """Return a model with all kinds of state, and its traced step; each build is identical.

    kind: "plain", or with a loop, or with a conditional that updates variables in every other step.
    """
    keras.backend.clear_session()
    keras.utils.set_random_seed(1)
    with scope:
        inputs = keras.Input((6, 3), BATCH)
        one = keras.layers.LSTM(4) if kind == "with loop" else keras.layers.GlobalAveragePooling1D()
        other = keras.layers.Dense(8, activation="relu")(keras.layers.Flatten()(inputs))
        other = keras.layers.Dropout(0.3)(keras.layers.BatchNormalization()(other))
        joined = Factors()(keras.layers.Concatenate()([one(inputs), other]))
        outputs = keras.layers.Dense(5)(joined)
        model = keras.Model(inputs, outputs)
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        steps = 2 if kind == "with conditional" else None
        adam = keras.optimizers.Adam(gradient_accumulation_steps=steps)
        model.compile(adam, loss, metrics=["accuracy"])
        model.optimizer.build(model.trainable_variables)
        specs = tf.TensorSpec([BATCH, 6, 3]), tf.TensorSpec([BATCH], tf.int32)
        return model, tf.function(model.train_step).get_concrete_function(specs)


def batches() -> Iterator[tuple[Any, Any]]:
    random = np.random.default_rng(0)
    for _ in range(5):
        pictures = random.normal(size=(BATCH, 6, 3)).astype(np.float32)
        yield tf.constant(pictures), tf.constant(random.integers(0, 5, BATCH, dtype=np.int32))


def trained(model: Any, step: Any) -> list[Any]:
    """Return all results of five steps, then every variable."""
    returned = [value.numpy() for batch in batches() for value in step(batch).values()]
    return [value.tolist() for value in [*returned, *(v.numpy() for v in model.variables)]]


@contextmanager
def devices_of_nodes() -> Iterator[dict[str, str]]:
    """Yield the device of each node, for the graphs that the runtime builds of a function."""
    from tensorflow.python.eager import context

    running, there = context.context(), {}
    running.enable_graph_collection()
    running.enable_run_metadata()
    running.export_run_metadata()  # Discard earlier metadata.
    yield there
    functions = running.export_run_metadata().function_graphs
    largest = max(functions, key=lambda function: len(function.pre_optimization_graph.node))
    for graph in largest.partition_graphs:
        there |= {node.name: f"/{node.device.rpartition('/')[2]}" for node in graph.node}
    running.disable_run_metadata()


def spans(placed: PlacedFunction) -> dict[str, tuple[int, int]]:
    """Return start and end of each node in one step, in ps, from TensorFlow's profiler."""
    from tensorflow.tsl.profiler.protobuf.xplane_pb2 import XSpace

    folder = tempfile.mkdtemp()
    with tf.profiler.experimental.Profile(folder):
        placed(next(batches()))
    (path,) = Path(folder).glob("**/*.xplane.pb")
    found = {}
    for plane in XSpace.FromString(path.read_bytes()).planes:
        for line in plane.lines:
            for event in line.events:
                name, colon, _ = plane.event_metadata[event.metadata_id].name.rpartition(":")
                start = line.timestamp_ns * 1000 + event.offset_ps
                if colon:
                    found[name] = start, start + event.duration_ps
    return found


def early(meta: Any, chosen: PlacementFile, placed: PlacedFunction) -> dict[str, Any]:
    """Return how many ordered ops ran, and those that ran before an op of lower rank ended."""
    step, ran = read_step(meta), spans(placed)
    ordered = ordered_ops(meta, step)
    branch_of = {
        step.graph.names[op]: int(ordered.branch[op]) for op in np.flatnonzero(ordered.waits)
    }
    ended: dict[tuple[int, int], int] = defaultdict(int)
    seen, too_early = 0, []
    for _, device, name in sorted(zip(chosen.rank, chosen.device, chosen.names, strict=True)):
        if name in branch_of and name in ran:
            seen += 1
            always, own = (device, 0), (device, branch_of[name])
            too_early += [name] if ran[name][0] < max(ended[always], ended[own]) else []
            ended[own] = max(ended[own], ran[name][1])
    return {"num ordered": seen, "early": too_early}


def refusals(step: Any, chosen: PlacementFile) -> dict[str, str]:
    """Return the error messages for functions and placements that do not fit."""
    far = {"CPU:0": "/device:CPU:0", "CPU:1": "/device:GPU:3"}
    tanh = tf.function(tf.tanh).get_concrete_function(1.0)
    cases = {
        "variables elsewhere": (step, None),
        "no such device": (step, far),
        "another function": (tanh, None),
    }
    said = {}
    for name, (function, devices) in cases.items():
        try:
            place_function(function, chosen, devices=devices)
        except BadInputError as error:
            said[name] = str(error)
    return said


def within_a_function(placed: PlacedFunction) -> str:
    try:
        tf.function(lambda batch: placed(batch))(next(batches()))
    except BadInputError as error:
        return str(error)
    return ""


def main(output: Path) -> None:
    two = [tf.config.LogicalDeviceConfiguration()] * 2
    tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], two)
    # Without a placement, grappler would rewrite the step, and losses would be rounded differently.
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})

    found: dict[str, Any] = {}
    for kind in ("with conditional", "plain", "with loop"):
        model, step = build(nullcontext(), kind)
        meta = grappler.inline_functions(function_graph(step, "step"), "step")
        if kind != "with loop":
            simplify(meta)
        chosen = round_robin_placement(read_step(meta))
        expected = trained(model, step)
        found["refusals"] = refusals(step, chosen)
        model, step = build(placed_variables(chosen), kind)
        placed = place_function(step, chosen)
        # Small constants are copied to every device with a consumer.
        ops = [node for nodes in read_step(meta).nodes for node in nodes]
        planned = {op: placed.changes.device[op] for op in ops}
        with devices_of_nodes() as there:
            values = trained(model, placed)
        found[kind] = {
            "expected": expected,
            "placed": values,
            "num planned": len(planned),
            "num ran": len(planned.keys() & there.keys()),
            "elsewhere": [n for n in planned.keys() & there.keys() if planned[n] != there[n]],
            "variables on": sorted({v.device.rpartition("/")[2] for v in placed.variables}),
            **early(meta, chosen, placed),
        }
    found["refusals"]["nested"] = within_a_function(placed)
    output.write_text(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
