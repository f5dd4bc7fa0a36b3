"""An unmodified Keras program: `fit` with callbacks, validation, weights that are read and written.

python keras_program.py FOLDER [--weights FILE] [--own-loop] [--many-steps] [--units N] [--twice]
"""

import argparse
import json
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

parser = argparse.ArgumentParser()
parser.add_argument("folder", type=Path)
parser.add_argument("--weights")
parser.add_argument("--own-loop", action="store_true")
parser.add_argument("--many-steps", action="store_true")
parser.add_argument("--units", type=int, default=64)
parser.add_argument("--twice", action="store_true")
options = parser.parse_args()

keras.utils.clear_session()  # several programs may run in one process
keras.utils.set_random_seed(1)
random = np.random.default_rng(1)
rows = random.normal(size=(70, 16)).astype(np.float32)
labels = random.integers(0, 5, 70).astype(np.int32)
# The last of three batches has fewer rows.
batches = tf.data.Dataset.from_tensor_slices((rows, labels)).batch(32)

model = keras.Sequential(
    [
        keras.layers.Dense(options.units, activation="relu"),
        keras.layers.BatchNormalization(),
        keras.layers.Dropout(0.2, seed=3),
        keras.layers.Dense(5),
    ]
)
model.compile(
    keras.optimizers.Adam(0.01),
    keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    metrics=["accuracy"],
    steps_per_execution=2 if options.many_steps else 1,
)
if options.weights:
    model.build((None, 16))
    model.load_weights(options.weights)
if options.own_loop:
    with tf.GradientTape():
        raise SystemExit("not reached")

losses: list[float] = []
every_batch = keras.callbacks.LambdaCallback(
    on_train_batch_end=lambda batch, logs: losses.append(logs["loss"])
)
# The rate changes between the epochs.
slower = keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate / (epoch + 1))
history = model.fit(
    batches,
    epochs=2,
    validation_data=(rows, labels),
    callbacks=[every_batch, slower],
    verbose=0,
)
model.save_weights(options.folder / "trained.weights.h5")
found = {
    "losses": losses,
    "history": history.history,
    "evaluated": model.evaluate(rows, labels, verbose=0),
    "predicted": model.predict(rows[:4], verbose=0).tolist(),
}
if options.twice:
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    found["tuned"] = model.fit(batches, epochs=1, verbose=0).history["loss"]
(options.folder / "found.json").write_text(json.dumps(found))
