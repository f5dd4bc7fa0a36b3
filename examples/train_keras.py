"""A Keras training loop, whose step runs under a placement if there is one.

    pesto export  examples/train_keras.py:build -o keras.meta
    pesto profile keras.meta -m v100x2-nvlink -o keras.profile.json
    pesto solve   keras.profile.json -o keras.placement.json
    python examples/train_keras.py --placement keras.placement.json

The two GPUs of the plan are two logical CPU devices here, so that it runs on any machine.
"""

import argparse
from contextlib import nullcontext

import numpy as np

from pesto_cli import api as pesto
from pesto_cli.apply import place_function, placed_variables
from pesto_cli.graphdef.tensorflow import tensorflow  # imports it quietly

tf = tensorflow()
import keras  # noqa: E402

BATCH, PIXELS, CLASSES, UNITS, LAYERS = 32, 64, 5, 128, 3
AT_HAND = {"CPU:0": "/device:CPU:0", "GPU:0": "/device:CPU:0", "GPU:1": "/device:CPU:1"}


def tower(name: str, values: keras.KerasTensor) -> keras.KerasTensor:
    """Layers one after the other."""
    for layer in range(LAYERS):
        values = keras.layers.Dense(UNITS, activation="relu", name=f"{name}_{layer}")(values)
    return values


def build() -> tuple[keras.Model, list[tf.TensorSpec]]:
    """The compiled model, and what a batch of pictures and one of labels look like."""
    keras.utils.set_random_seed(1)
    pictures = keras.Input((2 * PIXELS,), BATCH, name="pictures")
    halves = keras.ops.split(pictures, 2, axis=1)
    both = keras.layers.Concatenate()([tower("left", halves[0]), tower("right", halves[1])])
    model = keras.Model(pictures, keras.layers.Dense(CLASSES, name="softmax")(both))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    # Without XLA, which leaves no ops to place and which Keras uses by default on GPUs.
    optimizer = keras.optimizers.Adam(0.002)
    model.compile(optimizer, loss, metrics=["accuracy"], jit_compile=False)
    model.optimizer.build(model.trainable_variables)
    specs = [tf.TensorSpec([BATCH, 2 * PIXELS], tf.float32), tf.TensorSpec([BATCH], tf.int32)]
    return model, specs


def batch(random: np.random.Generator) -> tuple[tf.Tensor, tf.Tensor]:
    """Noise, brighter where the label says."""
    labels = random.integers(0, CLASSES, BATCH, dtype=np.int32)
    pictures = random.normal(size=(BATCH, 2 * PIXELS)).astype(np.float32)
    pictures[np.arange(BATCH), labels * 20] += 4
    return tf.constant(pictures), tf.constant(labels)


def main() -> None:
    """Train, and print every loss to the last bit."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--placement")
    options = parser.parse_args()
    two = [tf.config.LogicalDeviceConfiguration()] * 2
    tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], two)
    # Grappler would rewrite the step that is not placed, and so round differently.
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})

    placement = pesto.read_placement(options.placement) if options.placement else None
    with placed_variables(placement, AT_HAND) if placement else nullcontext():
        model, specs = build()
        step = tf.function(model.train_step).get_concrete_function(tuple(specs))
    if placement:
        step = place_function(step, placement, devices=AT_HAND)
    random = np.random.default_rng(0)
    for number in range(options.steps):
        logs = step(batch(random))
        print(f"step {number}: loss {float(logs['loss']).hex()}")


if __name__ == "__main__":
    main()
