"""TF2 programs on two logical CPU devices: Keras `fit` and a custom loop, whole and split.

python split_functions_program.py OUTPUT writes the results for `test_split_functions.py` as JSON.
It runs in a separate process, because logical devices must be set before TensorFlow starts.
"""

import json
import sys
import tempfile
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from placed_function_program import devices_of_nodes

from pesto_cli import api
from pesto_cli.apply import place_function, placed_variables
from pesto_cli.data.plan import Choice, Plan
from pesto_cli.errors import BadInputError
from pesto_cli.files import PlacementFile
from pesto_cli.graphdef.tensorflow import tensorflow

tf = tensorflow()
import keras  # noqa: E402

BATCH, BATCHES = 8, 3
DEVICES = {"CPU:0": "/device:CPU:0", "GPU:0": "/device:CPU:0", "GPU:1": "/device:CPU:1"}


def network() -> tuple[keras.Model, Any]:
    """Return a compiled model with all kinds of state, and the specs of a batch."""
    keras.utils.set_random_seed(1)
    layers = keras.layers
    inputs = keras.Input((6, 6, 3), BATCH)
    images = layers.Conv2D(4, 3, use_bias=False, kernel_regularizer="l2")(inputs)
    images = layers.ReLU()(layers.BatchNormalization()(images))
    hidden = layers.Dropout(0.3)(layers.Flatten()(images))
    model = keras.Model(inputs, layers.Dense(5)(hidden))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.01), loss, metrics=["accuracy"], jit_compile=False)
    model.optimizer.build(model.trainable_variables)
    return model, (tf.TensorSpec([BATCH, 6, 6, 3]), tf.TensorSpec([BATCH], tf.int32))


class Regression(tf.Module):
    """Two layers, trained by momentum."""

    def __init__(self) -> None:
        random = np.random.default_rng(1)
        self.first = tf.Variable(random.normal(size=(6, 12)).astype(np.float32), name="first")
        self.second = tf.Variable(random.normal(size=(12, 2)).astype(np.float32), name="second")
        self.slots = [tf.Variable(tf.zeros_like(v), name=f"slot_{v.shape[0]}") for v in self.both]
        self.count = tf.Variable(0, name="count")

    @property
    def both(self) -> list[Any]:
        return [self.first, self.second]

    def train(self, rows: Any, targets: Any) -> Any:
        """Return the loss of a step."""
        with tf.GradientTape() as tape:
            guess = tf.tanh(rows @ self.first) @ self.second
            loss = tf.reduce_mean(tf.square(guess - targets))
        gradients = tape.gradient(loss, self.both)
        for variable, slot, gradient in zip(self.both, self.slots, gradients, strict=True):
            variable.assign_sub(0.05 * slot.assign(0.9 * slot + gradient))
        self.count.assign_add(1)
        return loss


def loop() -> tuple[Any, Any]:
    """Return the step of a regression, and its specs."""
    model = Regression()
    step = tf.function(model.train)
    step.module = model
    return step, (tf.TensorSpec([BATCH, 6]), tf.TensorSpec([BATCH, 2]))


def pictures() -> tuple[Any, Any]:
    random = np.random.default_rng(0)
    images = random.normal(size=(BATCH * BATCHES, 6, 6, 3)).astype(np.float32)
    return images, random.integers(0, 5, BATCH * BATCHES, dtype=np.int32)


def split_placement(source: str) -> PlacementFile:
    profile = api.profile(api.export(f"{__file__}:{source}"), "v100x2-nvlink", parts=(2, 4))
    placed = api.placement(profile, api.solve(profile, "data-parallel"))
    assert placed.plan
    return placed


def fitted(placed: PlacementFile | None, saved: Path, loaded: Path | None) -> dict[str, Any]:
    """Fit a model for two epochs, from scratch or from a file; return losses and variables."""
    keras.backend.clear_session()
    with placed_variables(placed, DEVICES) if placed else nullcontext():
        model, specs = network()
        step = tf.function(model.train_step).get_concrete_function(specs)
    if loaded is not None:
        other = keras.models.load_model(loaded)
        model.set_weights(other.get_weights())
        pairs = zip(model.optimizer.variables, other.optimizer.variables, strict=True)
        for variable, value in pairs:
            variable.assign(value)
    if placed:
        step = place_function(step, placed, devices=DEVICES)
        model.train_function = lambda batches: step(next(batches))
    there: dict[str, str] = {}
    with devices_of_nodes() if placed else nullcontext(there) as there:
        history = model.fit(*pictures(), batch_size=BATCH, epochs=2, shuffle=False, verbose=0)
    model.save(saved)
    found = {
        "history": history.history,
        "evaluated": model.evaluate(*pictures(), batch_size=BATCH, verbose=0),
        "variables": [np.asarray(v).tolist() for v in model.weights + model.optimizer.variables],
    }
    return {**found, **(facts(placed, step, there) if placed else {})}


def facts(placed: PlacementFile, step: Any, there: dict[str, str]) -> dict[str, Any]:
    """Return where the parts of a split step ran."""
    parts = {name: device for name, device in there.items() if ".part_" in name}
    planned = step.changes.device
    return {
        "num parts": sum(".part_" in name for name in placed.names),
        "num ran": len(parts),
        "elsewhere": [name for name in parts if planned.get(name, parts[name]) != parts[name]],
        "on": sorted(set(parts.values())),
    }


def looped(placed: PlacementFile | None, folder: Path, *, restore: bool) -> dict[str, Any]:
    """Train a regression for four steps, from scratch or from a checkpoint, and save it."""
    with placed_variables(placed, DEVICES) if placed else nullcontext():
        function, specs = loop()
        step = function.get_concrete_function(*specs)
    checkpoint = tf.train.Checkpoint(model=function.module)
    if restore:
        checkpoint.restore(tf.train.latest_checkpoint(str(folder))).assert_consumed()
    if placed:
        step = place_function(step, placed, devices=DEVICES)
    random = np.random.default_rng(int(function.module.count))
    losses = []
    for _ in range(4):
        rows = random.normal(size=(BATCH, 6)).astype(np.float32)
        losses.append(float(step(tf.constant(rows), tf.constant(rows[:, :2]))))
    checkpoint.save(str(folder / "model"))
    state = [v.numpy().tolist() for v in function.module.variables]
    return {"losses": losses, "variables": state, "count": int(function.module.count)}


def refusal(placed: PlacementFile) -> str:
    """Return the error message for a plan that splits a variable."""
    plan = Plan({**placed.plan.choices, "first": Choice("rows", (3, 3))})
    with placed_variables(placed, DEVICES):
        function, specs = loop()
        step = function.get_concrete_function(*specs)
    try:
        place_function(step, replace(placed, plan=plan), devices=DEVICES)
    except BadInputError as error:
        return str(error)
    return ""


def main(output: Path) -> None:
    two = [tf.config.LogicalDeviceConfiguration()] * 2
    tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], two)
    folder = Path(tempfile.mkdtemp())
    whole, split = None, split_placement("network")
    found = {
        "fit": {
            "whole": fitted(whole, folder / "whole.keras", None),
            "split": fitted(split, folder / "split.keras", None),
            "whole, whole": fitted(whole, folder / "end.keras", folder / "whole.keras"),
            "whole, split": fitted(split, folder / "end.keras", folder / "whole.keras"),
            "split, whole": fitted(whole, folder / "end.keras", folder / "split.keras"),
        }
    }
    split = split_placement("loop")
    found["loop"] = {}
    for first, then in (("whole", "whole"), ("whole", "split"), ("split", "whole")):
        where = folder / f"{first} {then}"
        found["loop"][first] = looped(split if first == "split" else whole, where, restore=False)
        last = looped(split if then == "split" else whole, where, restore=True)
        found["loop"][f"{first}, {then}"] = last
    found["refusal"] = refusal(split)
    output.write_text(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
