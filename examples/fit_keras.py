"""A Keras program that trains by `fit`, which does not use pesto.

    pesto export  examples/fit_keras.py --capture -o fit.meta
    pesto profile fit.meta -m local-workers:2 --parts 2 -o fit.profile.json
    pesto solve   fit.profile.json -o fit.placement.json
    pesto run     examples/fit_keras.py -m local-workers:2 --placement fit.placement.json

Each of the two workers trains on a part of the batch if that is faster.
"""

import keras
import numpy as np

keras.utils.set_random_seed(1)
random = np.random.default_rng(0)
pictures = random.normal(size=(2048, 784)).astype(np.float32)
labels = pictures[:, :10].argmax(axis=1)

model = keras.Sequential(
    [
        keras.layers.Dense(1024, activation="relu"),
        keras.layers.Dense(1024, activation="relu"),
        keras.layers.Dropout(0.2, seed=1),
        keras.layers.Dense(10),
    ]
)
model.compile(
    keras.optimizers.Adam(0.001),
    keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    metrics=["accuracy"],
)
history = model.fit(pictures, labels, batch_size=512, epochs=3, verbose=0)
for loss, accuracy in zip(history.history["loss"], history.history["accuracy"], strict=True):
    print(f"loss {loss:.6f}, accuracy {accuracy:.3f}")
