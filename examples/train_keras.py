"""A Keras training loop whose step runs with a placement if one is given.

    pesto export  examples/train_keras.py:build -o keras.meta
    pesto profile keras.meta -m v100x2-nvlink -o keras.profile.json
    pesto solve   keras.profile.json -o keras.placement.json
    python examples/train_keras.py --placement keras.placement.json

The two GPUs of the placement are mapped to two logical CPU devices, so it runs on any machine.
"""

import argparse
from contextlib import nullcontext

import numpy as np

from pesto_cli import api as pesto
from pesto_cli.apply import place_function, placed_variables
from pesto_cli.graphdef.tensorflow import tensorflow  # imports it without log messages

tf = tensorflow()
import keras  # noqa: E402

BATCH, PIXELS, CLASSES, UNITS, LAYERS = 32, 64, 5, 128, 3
AT_HAND = {"CPU:0": "/device:CPU:0", "GPU:0": "/device:CPU:0", "GPU:1": "/device:CPU:1"}


def tower(name: str, values: keras.KerasTensor) -> keras.KerasTensor:
    """Return the output of a stack of dense layers."""
    for layer in range(LAYERS):
        values = keras.layers.Dense(UNITS, activation="relu", name=f"{name}_{layer}")(values)
    return values


def build() -> tuple[keras.Model, list[tf.TensorSpec]]:
    """Return the compiled model, and the specs of a batch of pictures and of labels."""
    keras.utils.set_random_seed(1)
    pictures = keras.Input((2 * PIXELS,), BATCH, name="pictures")
    halves = keras.ops.split(pictures, 2, axis=1)
    both = keras.layers.Concatenate()([tower("left", halves[0]), tower("right", halves[1])])
    model = keras.Model(pictures, keras.layers.Dense(CLASSES, name="softmax")(both))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    # Without XLA: Keras uses it by default on GPUs, and it would leave no ops to place.
    optimizer = keras.optimizers.Adam(0.002)
    model.compile(optimizer, loss, metrics=["accuracy"], jit_compile=False)
    model.optimizer.build(model.trainable_variables)
    specs = [tf.TensorSpec([BATCH, 2 * PIXELS], tf.float32), tf.TensorSpec([BATCH], tf.int32)]
    return model, specs


def batch(random: np.random.Generator) -> tuple[tf.Tensor, tf.Tensor]:
    """Return random pictures, each with one brighter pixel that depends on its label."""
    labels = random.integers(0, CLASSES, BATCH, dtype=np.int32)
    pictures = random.normal(size=(BATCH, 2 * PIXELS)).astype(np.float32)
    pictures[np.arange(BATCH), labels * 20] += 4
    return tf.constant(pictures), tf.constant(labels)


def main() -> None:
    """Train, and print every loss exactly."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--placement")
    options = parser.parse_args()
    two = [tf.config.LogicalDeviceConfiguration()] * 2
    tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], two)
    # Without a placement, grappler would rewrite the step, and losses would be rounded differently.
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
